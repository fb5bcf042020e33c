// How much do large transfers slow small calls down that go to the same server? Small calls, one at a time,
// are measured alone (the floor) and while large puts are in flight, which another process sends, or this one
// on another channel or on the same one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, put_bytes, 16 << 20, "payload of a put");
ABSL_FLAG(int, in_flight, 4, "puts in flight");
ABSL_FLAG(double, seconds, 1, "how long a round takes");
ABSL_FLAG(std::vector<std::string>, modes,
          std::vector<std::string>({"sleep:1", "adaptive:1", "sleep:2", "spin:2", "adaptive:2", "sleep:any",
                                    "adaptive:any"}),
          "how all sides wait, each with the cores that they have together");
ABSL_FLAG(std::vector<std::string>, from, std::vector<std::string>({"process", "channel", "same"}),
          "who puts: another process, another channel, or the same one");
ABSL_FLAG(int, rounds, 3, "rounds, floor and figure in turn; the medians are printed");

namespace hawser::bench {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const absl::Status& status) {
  fprintf(stderr, "bench: beside_bulk: %s\n", status.ToString().c_str());
  exit(1);
}

// Keeps puts in flight until it is destroyed.
class Putter {
 public:
  Putter(std::shared_ptr<Channel> channel, size_t bytes, int in_flight) : target_(channel), left_(in_flight) {
    absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(bytes);
    if (!buffer.ok()) Die(buffer.status());
    memset(buffer->data(), 'p', bytes);
    source_ = std::make_shared<Buffer>(*std::move(buffer));
    for (int i = 0; i < in_flight; ++i) Put();
  }
  ~Putter() {
    stop_ = true;
    ended_.WaitForNotification();
  }
  Putter(const Putter&) = delete;
  Putter& operator=(const Putter&) = delete;

  int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void Put() {
    auto call = target_.Put();
    call.request().adoptPayload(call.Attach(source_->reader(), source_));
    call.Send().Then([this](const auto& reply) {
      if (!reply.ok()) Die(reply.status());
      done_.fetch_add(1, std::memory_order_relaxed);
      if (!stop_) return Put();
      if (left_.fetch_sub(1) == 1) ended_.Notify();
    });
  }

  TargetStub target_;
  std::shared_ptr<Buffer> source_;
  std::atomic<bool> stop_{false};
  std::atomic<int> left_;
  std::atomic<int64_t> done_{0};
  absl::Notification ended_;
};

// Microseconds of each call.
std::vector<double> CallsUs(TargetStub& target, double seconds) {
  const std::string payload(32, 'x');
  std::vector<double> each_us;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (auto before = Clock::now(); before < end;) {
    EchoOnce(target, payload);
    const auto after = Clock::now();
    each_us.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    before = after;
  }
  return each_us;
}

void Measure(const std::string& mode, Pin pin, const std::string& from) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  const double seconds = absl::GetFlag(FLAGS_seconds);
  const auto put_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_put_bytes));
  const int in_flight = absl::GetFlag(FLAGS_in_flight);
  Quantiles alone, beside;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    ServerProcess server = StartTarget(options);
    const std::shared_ptr<Channel> channel = ConnectTo(server, options, MakeRuntime(options));
    TargetStub target(channel);
    CallsUs(target, seconds / 10);
    alone.AddRound(CallsUs(target, seconds));
    if (from == "process") {
      ServerProcess other({absl::StrCat("--put_to=", mode, ",", static_cast<int>(pin), ",", put_bytes, ",",
                                        in_flight, ",", server.address())});
      beside.AddRound(CallsUs(target, seconds));
    } else {
      Putter putter(from == "same" ? channel : ConnectTo(server, options, MakeRuntime(options)), put_bytes,
                    in_flight);
      beside.AddRound(CallsUs(target, seconds));
    }
  }
  Report("beside_bulk")
      .Add("address", options.address)
      .Add("mode", mode)
      .Add("pin", Name(pin))
      .Add("from", from)
      .Add("p50_us", Median(beside.p50))
      .Add("p99_us", Median(beside.p99))
      .Add("p999_us", Median(beside.p999))
      .Add("alone_p50_us", Median(alone.p50))
      .Add("alone_p99_us", Median(alone.p99))
      .Add("alone_p999_us", Median(alone.p999))
      .Add("ratio_p99", Median(beside.p99) / Median(alone.p99));
}

// Puts for ever if this process is the one that puts.
void PutIfAsked(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (!absl::StartsWith(argument, "--put_to=")) continue;
    const std::vector<std::string> parts = absl::StrSplit(argument.substr(argument.find('=') + 1), ',');
    if (parts.size() != 5) Die(absl::InvalidArgumentError(argument));
    const Pin pin = static_cast<Pin>(atoi(parts[1].c_str()));
    PinTo(pin, /*server=*/false);
    ChannelOptions options;
    transport::RuntimeOptions runtime;
    runtime.poller.mode = ParseMode(parts[0]);
    auto made = transport::Runtime::Create(parts[4].substr(0, parts[4].find(':')), runtime);
    if (!made.ok()) Die(made.status());
    options.runtime = *std::move(made);
    auto channel = Channel::Connect(parts[4], options);
    if (!channel.ok()) Die(channel.status());
    Putter putter(*std::move(channel), strtoul(parts[2].c_str(), nullptr, 10), atoi(parts[3].c_str()));
    while (putter.done() == 0) usleep(1000);
    printf("putting\n");
    fflush(stdout);
    while (true) pause();
  }
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  hawser::bench::PutIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  for (const std::string& from : absl::GetFlag(FLAGS_from)) {
    if (from != "process" && from != "channel" && from != "same") {
      fprintf(stderr, "bench: --from=%s: not process, channel or same\n", from.c_str());
      return 1;
    }
    for (const std::string& placement : absl::GetFlag(FLAGS_modes)) {
      const auto [mode, pin] = hawser::bench::ParsePlacement("modes", placement);
      hawser::bench::Measure(mode, pin, from);
    }
  }
}
