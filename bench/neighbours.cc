// How much do bad neighbours slow an honest client down? Measures its small calls and its puts beside 1, 10
// and 100 strangers of each kind (tests/strangers), and how much of the server's memory is freed when they
// leave. The floor is the same client alone, in the same run. Kinds that misuse TLS have a server with
// credentials of their own, whose honest client speaks TLS, too.
#include <stdio.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "hawser/bench/greeting_flood.h"
#include "hawser/bench/honest.h"
#include "hawser/bench/report.h"
#include "hawser/bench/stopped_clients.h"
#include "hawser/bench/stranger_target.h"
#include "hawser/bench/target.h"
#include "hawser/tests/strangers/crowd.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/credentials.h"

ABSL_FLAG(std::vector<std::string>, kinds, std::vector<std::string>(),
          "kinds of strangers, several at once joined by '+'; at first all, and the three of --check");
ABSL_FLAG(std::vector<std::string>, counts, std::vector<std::string>({"1", "10", "100"}),
          "how many of each kind");
ABSL_FLAG(double, seconds, 3, "how long the honest client is measured beside each");
ABSL_FLAG(int, put_bytes, 2 << 20, "size of its puts");
ABSL_FLAG(std::string, mode, "sleep", "how both sides wait: adaptive, spin or sleep");
ABSL_FLAG(bool, check, false,
          "fail if the honest client notices too much of 100 stopped, 100 trickling and 100 hoarding ones at "
          "once");
ABSL_FLAG(int, stopped_put_bytes, 500 << 20, "what each client of a stopped_process puts");
ABSL_FLAG(int, greetings, 0, "instead: so many greetings in --flood_seconds, while honest clients connect");
ABSL_FLAG(double, flood_seconds, 30, "see --greetings");
ABSL_FLAG(int, flood_put_bytes, 16 << 20, "what each of those honest clients sends");

namespace hawser::bench {
namespace {

// The kinds of the row that --check judges.
constexpr char kTheThree[] = "stopped+trickling+hoarding";
constexpr int kCheckedCount = 100;
// Clients as they ship, in a process that is stopped: no strangers, so over RDMA, too.
constexpr char kStoppedProcess[] = "stopped_process";
constexpr double kPutRatioMax = 3, kSmallRatioMax = 2;
constexpr double kMemoryRatioMax = 1.05;
constexpr double kKeptBytes = 1 << 20;  // Free messages that a poller keeps count as leased.
constexpr double kMega = 1e6;

constexpr absl::Duration kArrival = absl::Seconds(10);  // For all strangers, at the latest.
constexpr absl::Duration kCleanUp = absl::Seconds(20);  // For what they leave, likewise.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);

// One row.
struct Row {
  std::string kinds;
  int count = 0;
  Experience seen;
  strangers::CrowdCounts crowd;
  Honest::ServerMemory start, worst, end;
  double back_s = 0;  // From when the strangers left until the server's memory was back.
};

double Ratio(double figure, double floor) { return floor > 0 ? figure / floor : 0; }

class Bench {
 public:
  // `credentials`: of the server and all its clients. Empty: no TLS.
  explicit Bench(const std::optional<TlsCredentials>& credentials)
      : target_(TargetWith(credentials)),
        server_(StartTarget(target_)),
        honest_(server_, target_, PutBytes()) {
    honest_.Run(Seconds());  // Warm.
    if (const absl::Status got = honest_.Get(strangers::kGetBytes); !got.ok()) Fail(got.ToString());
    Alone();
  }

  void Beside(const std::string& kinds, int count) {
    Alone();
    Row row;
    row.kinds = kinds;
    row.count = count;
    row.start = Memory();
    if (kinds == kStoppedProcess) {
      StoppedClients stopped(server_.address(), count,
                             static_cast<size_t>(absl::GetFlag(FLAGS_stopped_put_bytes)));
      Measure(row);
    } else {
      strangers::Crowd crowd(CrowdOf(server_, kinds, count, target_.credentials));
      if (!crowd.WaitUntilAtWork(kArrival)) {
        fprintf(stderr, "neighbours: of %d %s not all were at work within %s\n", count, kinds.c_str(),
                absl::FormatDuration(kArrival).c_str());
      }
      Measure(row);
      row.crowd = crowd.counts();
      if (row.crowd.at_work == 0) {
        Fail(absl::StrCat("none of ", count, " ", kinds, " does what it is to do"));
      }
    }
    row.end = MemoryOnceBack(row.start, &row.back_s);
    Print(row);
  }

  // Prints all that was measured.
  void PrintTable() const {
    printf(
        "\n%sMicroseconds, and what they are times those alone; server memory leased before, at worst and "
        "after, "
        "in 10^6 bytes; seconds until it was back.\n"
        "                                 small p50      p99  ratio   put p50       p99  ratio  lost   "
        "before    "
        "worst    after  back\n%s",
        target_.credentials.has_value() ? "Over TLS. " : "", table_.c_str());
    printf("     alone                       %8.0f %8.0f        %9.0f %9.0f\n", Median(alone_.small_us),
           Quantile(alone_.small_us, 0.99), Median(alone_.put_us), Quantile(alone_.put_us, 0.99));
  }

  bool ok() const { return ok_; }

 private:
  static TargetOptions TargetWith(const std::optional<TlsCredentials>& credentials) {
    TargetOptions options;
    options.credentials = credentials;
    options.mode = absl::GetFlag(FLAGS_mode);
    options.slots = 32;
    return options;
  }
  static size_t PutBytes() { return static_cast<size_t>(absl::GetFlag(FLAGS_put_bytes)); }
  static absl::Duration Seconds() { return absl::Seconds(absl::GetFlag(FLAGS_seconds)); }

  // The floor is of all that was seen alone so far, so that a slow moment of the machine is in it, too.
  void Alone() {
    const Experience seen = honest_.Run(Seconds() / 2);
    alone_.small_us.insert(alone_.small_us.end(), seen.small_us.begin(), seen.small_us.end());
    alone_.put_us.insert(alone_.put_us.end(), seen.put_us.begin(), seen.put_us.end());
    if (seen.lost > 0) Fail(absl::StrCat("alone, ", seen.lost, " calls were lost: ", seen.why_lost));
  }

  void Measure(Row& row) {
    row.seen = honest_.Run(Seconds());
    row.worst = Memory();
    row.worst.resident_bytes = std::max(row.worst.resident_bytes, row.seen.worst_resident_bytes);
  }

  Honest::ServerMemory Memory() {
    const absl::StatusOr<Honest::ServerMemory> memory = honest_.Memory();
    if (memory.ok()) return *memory;
    Fail(absl::StrCat("the server does not say how much memory it uses: ", memory.status().ToString()));
    return {};
  }

  static bool IsBack(const Honest::ServerMemory& now, const Honest::ServerMemory& start) {
    return now.leased_bytes <= start.leased_bytes * kMemoryRatioMax + kKeptBytes;
  }

  Honest::ServerMemory MemoryOnceBack(const Honest::ServerMemory& start, double* back_s) {
    const absl::Time left = absl::Now();
    while (true) {
      const Honest::ServerMemory now = Memory();
      *back_s = absl::ToDoubleSeconds(absl::Now() - left);
      if (IsBack(now, start) || absl::Now() > left + kCleanUp) return now;
      absl::SleepFor(kLookEvery);
    }
  }

  void Print(const Row& row) {
    const double small_us[] = {Median(row.seen.small_us), Quantile(row.seen.small_us, 0.99)};
    const double put_us[] = {Median(row.seen.put_us), Quantile(row.seen.put_us, 0.99)};
    const double alone_small_us[] = {Median(alone_.small_us), Quantile(alone_.small_us, 0.99)};
    const double alone_put_us[] = {Median(alone_.put_us), Quantile(alone_.put_us, 0.99)};
    const double small_ratio = Ratio(small_us[1], alone_small_us[1]);
    const double put_ratio = Ratio(put_us[1], alone_put_us[1]);
    Report("neighbours")
        .Add("kinds", row.kinds)
        .Add("count", row.count)
        .Add("tls", target_.credentials.has_value() ? 1 : 0)
        .Add("small_p50_us", small_us[0])
        .Add("small_p99_us", small_us[1])
        .Add("small_p50_alone_us", alone_small_us[0])
        .Add("small_p99_alone_us", alone_small_us[1])
        .Add("small_p99_ratio", small_ratio)
        .Add("put_p50_us", put_us[0])
        .Add("put_p99_us", put_us[1])
        .Add("put_p50_alone_us", alone_put_us[0])
        .Add("put_p99_alone_us", alone_put_us[1])
        .Add("put_p99_ratio", put_ratio)
        .Add("puts", static_cast<double>(row.seen.put_us.size()))
        .Add("lost", row.seen.lost)
        .Add("strangers_at_work", static_cast<double>(row.crowd.at_work))
        .Add("strangers_accepted", static_cast<double>(row.crowd.accepted))
        .Add("strangers_rejected", static_cast<double>(row.crowd.rejected))
        .Add("leased_start_bytes", row.start.leased_bytes)
        .Add("leased_worst_bytes", row.worst.leased_bytes)
        .Add("leased_end_bytes", row.end.leased_bytes)
        .Add("resident_start_bytes", row.start.resident_bytes)
        .Add("resident_worst_bytes", row.worst.resident_bytes)
        .Add("resident_end_bytes", row.end.resident_bytes)
        .Add("back_s", row.back_s);
    absl::StrAppendFormat(&table_,
                          "%4d %-27s %8.0f %8.0f %6.1f %9.0f %9.0f %6.1f %5d %8.1f %8.1f %8.1f %5.1f\n",
                          row.count, row.kinds, small_us[0], small_us[1], small_ratio, put_us[0], put_us[1],
                          put_ratio, row.seen.lost, row.start.leased_bytes / kMega,
                          row.worst.leased_bytes / kMega, row.end.leased_bytes / kMega, row.back_s);
    const std::string name = absl::StrCat(row.count, " ", row.kinds);
    if (row.seen.lost > 0) Fail(absl::StrCat(name, ": ", row.seen.lost, " lost: ", row.seen.why_lost));
    if (!IsBack(row.end, row.start)) {
      Fail(absl::StrCat(name, ": of ", row.start.leased_bytes, " leased bytes ", row.end.leased_bytes,
                        " are left when they are gone"));
    }
    if (!absl::GetFlag(FLAGS_check) || row.kinds != kTheThree || row.count != kCheckedCount) return;
    if (put_ratio > kPutRatioMax) Fail(absl::StrFormat("%s: puts take %.1f times as long", name, put_ratio));
    if (small_ratio > kSmallRatioMax) {
      Fail(absl::StrFormat("%s: small calls take %.1f times as long", name, small_ratio));
    }
  }

  void Fail(absl::string_view what) {
    ok_ = false;
    fprintf(stderr, "neighbours: %s\n", std::string(what).c_str());
  }

  const TargetOptions target_;
  ServerProcess server_;
  Honest honest_;
  Experience alone_;
  std::string table_;
  bool ok_ = true;
};

// True: as it should be.
bool RunBeside(const std::vector<std::string>& kinds, const std::optional<TlsCredentials>& credentials) {
  if (kinds.empty()) return true;
  Bench bench(credentials);
  for (const std::string& kind : kinds) {
    for (const std::string& count : absl::GetFlag(FLAGS_counts)) {
      int number = 0;
      if (absl::SimpleAtoi(count, &number) && number > 0) bench.Beside(kind, number);
    }
  }
  bench.PrintTable();
  return bench.ok();
}

int Run() {
  if (const int greetings = absl::GetFlag(FLAGS_greetings); greetings > 0) {
    return FloodWithGreetings(greetings, absl::Seconds(absl::GetFlag(FLAGS_flood_seconds)),
                              static_cast<size_t>(absl::GetFlag(FLAGS_flood_put_bytes)),
                              absl::GetFlag(FLAGS_mode))
               ? 0
               : 1;
  }
  std::vector<std::string> kinds = absl::GetFlag(FLAGS_kinds);
  if (kinds.empty()) {
    for (const strangers::StrangerKind& kind : strangers::StrangerKinds()) kinds.emplace_back(kind.name);
    kinds.emplace_back(kTheThree);
    kinds.emplace_back(kStoppedProcess);
  }
  PinTo(Pin::kTwoCores, /*server=*/false);  // This thread, and those that it makes.
  const auto over_tls = std::stable_partition(kinds.begin(), kinds.end(),
                                              [](const std::string& kind) { return !AreOverTls(kind); });
  const CertificateAuthority authority;
  const bool plain_ok = RunBeside({kinds.begin(), over_tls}, std::nullopt);
  const bool tls_ok = RunBeside({over_tls, kinds.end()}, authority.Issue());
  return plain_ok && tls_ok ? 0 : 1;
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::RaiseFileLimit();
  hawser::bench::ServeIfAsked(argc, argv);
  hawser::bench::PutIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  return hawser::bench::Run();
}
