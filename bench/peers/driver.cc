// Measures a system at each of --points: in a fresh process, and with a fresh process that serves, it keeps
// calls in flight for --seconds, and prints one line of JSON.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/histogram.h"
#include "hawser/bench/at_rate.h"
#include "hawser/bench/peers/peer.h"
#include "hawser/bench/peers/point.h"
#include "hawser/bench/process.h"
#include "hawser/bench/report.h"
#include "hawser/tests/tls/certificates.h"

ABSL_FLAG(std::vector<std::string>, points, {},
          "what is measured, a list of WORKLOAD:PLACE:BYTES:IN_FLIGHT:CONNECTIONS:RATE. "
          "WORKLOAD: echo (IN_FLIGHT echoes, over all CONNECTIONS), paced (RATE calls a second) or bulk (one "
          "echo at a time, while another process keeps 4 puts in flight). "
          "PLACE: 1 (both processes on core 0), 2 (the server on core 1) or any");
ABSL_FLAG(double, seconds, 1, "how long each point is measured, after a warm-up of a tenth of that");
ABSL_FLAG(int, put_bytes, 16 << 20, "bulk: payload of a put");
ABSL_FLAG(bool, tls, false, "with TLS, where both sides show a certificate of ECDSA with P-256");
ABSL_FLAG(std::string, serve, "", "the program itself uses it: serve at this PLACE");
ABSL_FLAG(std::string, certificate, "", "the program itself uses it: of a server");
ABSL_FLAG(std::string, key, "", "the program itself uses it: of a server");
ABSL_FLAG(std::string, authorities, "", "the program itself uses it: of a server");

namespace hawser::bench::peers {
namespace {

using Clock = std::chrono::steady_clock;

// However long they take: enough for a quantile to be of more than one call.
constexpr int kCallsMin = 3;
constexpr int kPutsInFlight = 4;

double MicrosecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// The latencies of one point.
class Latencies {
 public:
  void Add(double us) {
    histogram_.Add(absl::Nanoseconds(static_cast<int64_t>(us * 1000)));
    sum_us_ += us;
    max_us_ = std::max(max_us_, us);
  }

  uint64_t count() const { return histogram_.count(); }

  void AddTo(Report& report) const {
    const auto quantile_us = [&](double percent) {
      return std::min(max_us_, absl::ToDoubleMicroseconds(histogram_.Percentile(percent)));
    };
    report.Add("mean_us", sum_us_ / static_cast<double>(count()))
        .Add("p50_us", quantile_us(50))
        .Add("p90_us", quantile_us(90))
        .Add("p99_us", quantile_us(99))
        .Add("p999_us", quantile_us(99.9))
        .Add("max_us", max_us_);
  }

  // Ten buckets a decade: upper end in microseconds, and count.
  std::vector<std::pair<double, uint64_t>> Buckets() const {
    std::map<int, uint64_t> counts;
    for (const auto& [latency, count] : histogram_.Counts()) {
      const double us = std::max(absl::ToDoubleMicroseconds(latency), 0.001);
      counts[static_cast<int>(std::ceil(10 * std::log10(us)))] += count;
    }
    std::vector<std::pair<double, uint64_t>> buckets;
    for (const auto& [exponent, count] : counts) buckets.emplace_back(std::pow(10, exponent / 10.0), count);
    return buckets;
  }

 private:
  examples::Histogram histogram_;
  double sum_us_ = 0;
  double max_us_ = 0;
};

// Keeps calls of a client in flight, or makes one at a time, and takes the latency of each.
class Caller final : public Observer {
 public:
  Caller(Peer& peer, const std::string& address, const Load& load)
      : load_(load),
        started_(static_cast<size_t>(load.in_flight)),
        client_(peer.Connect(address, load, *this)) {}

  // Calls until `seconds` have passed, and until a few calls were made. Returns when all have been answered.
  Latencies CallFor(double seconds) {
    Latencies latencies;
    latencies_ = &latencies;
    outstanding_ = load_.in_flight;
    unsent_min_ = std::max(0, kCallsMin - load_.in_flight);
    const auto start = Clock::now();
    end_ = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (int call = 0; call < load_.in_flight; ++call) {
      started_[static_cast<size_t>(call)] = Clock::now();
      client_->Send(call);
    }
    client_->Run();
    return latencies;
  }

  // One call; returns when the reply was there.
  Clock::time_point CallOnce() {
    latencies_ = nullptr;
    client_->Send(0);
    client_->Run();
    return replied_;
  }

  bool OnReply(int call) override {
    replied_ = Clock::now();
    if (latencies_ == nullptr) return false;
    Clock::time_point& started = started_[static_cast<size_t>(call)];
    latencies_->Add(MicrosecondsBetween(started, replied_));
    if (replied_ >= end_ && unsent_min_ <= 0) return --outstanding_ > 0;
    --unsent_min_;
    started = replied_;
    client_->Send(call);
    return true;
  }

 private:
  const Load load_;
  Latencies* latencies_ = nullptr;          // Null: one call at a time.
  std::vector<Clock::time_point> started_;  // By call.
  Clock::time_point replied_, end_;
  int outstanding_ = 0;
  int64_t unsent_min_ = 0;  // Calls to be made still, even after the end.
  std::unique_ptr<Client> client_;
};

// Another client, in a process of its own, that keeps puts in flight from Start() until it is destroyed. The
// constructor forks that process, which must not happen once a system has threads: make it before the Caller.
class Putter {
 public:
  Putter(Peer& peer, const std::string& address, size_t bytes) : shared_(Share()) {
    pid_ = fork();
    if (pid_ < 0) Die(std::string("fork: ") + strerror(errno));
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!shared_->started) absl::SleepFor(absl::Milliseconds(1));
    try {
      PutForEver(peer, address, bytes);
    } catch (const std::exception& error) {
      Die(error.what());
    }
  }
  ~Putter() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }
  Putter(const Putter&) = delete;
  Putter& operator=(const Putter&) = delete;

  // Returns when the first put is done.
  void Start() {
    shared_->started = true;
    while (shared_->puts == 0) {
      if (waitpid(pid_, nullptr, WNOHANG) != 0) Die("the process that puts ended");
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  int64_t puts() const { return shared_->puts; }

 private:
  // Memory of both processes.
  struct Shared {
    std::atomic<bool> started{false};
    std::atomic<int64_t> puts{0};
  };

  class Counter final : public Observer {
   public:
    explicit Counter(std::atomic<int64_t>& puts) : puts_(puts) {}
    void Run(Client& client) {
      client_ = &client;
      for (int call = 0; call < kPutsInFlight; ++call) client.Send(call);
      client.Run();
    }
    bool OnReply(int call) override {
      puts_.fetch_add(1, std::memory_order_relaxed);
      client_->Send(call);
      return true;
    }

   private:
    std::atomic<int64_t>& puts_;
    Client* client_ = nullptr;
  };

  static Shared* Share() {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Die(std::string("mmap: ") + strerror(errno));
    return new (memory) Shared;
  }

  [[noreturn]] void PutForEver(Peer& peer, const std::string& address, size_t bytes) {
    Counter counter(shared_->puts);
    const std::unique_ptr<Client> client =
        peer.Connect(address, {.method = Method::kPut, .bytes = bytes, .in_flight = kPutsInFlight}, counter);
    counter.Run(*client);
    Die("a client that puts returned");
  }

  Shared* const shared_;
  pid_t pid_ = -1;
};

Pin PlaceOrDie(const std::string& flag, const std::string& text) {
  const absl::StatusOr<Pin> pin = ParsePlace(text);
  if (!pin.ok()) Die(absl::StrCat("--", flag, ": ", std::string(pin.status().message())));
  return *pin;
}

// A server or client that hangs ends the program.
void DieAfter(double seconds) {
  signal(SIGALRM, [](int) {
    constexpr char kMessage[] = "bench: peers: a point took far longer than --seconds; calls hang\n";
    if (write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) _exit(2);
    _exit(1);
  });
  alarm(static_cast<unsigned>(std::min(seconds, 1e6)));
}

// Prints a line with the point, to which the caller adds.
class PointReport : public Report {
 public:
  PointReport(const Peer& peer, const Point& point) : Report("peers") {
    Add("system", peer.name());
    Add("workload", point.workload);
    Add("place", point.place);
    Add("bytes", point.load.bytes);
    Add("in_flight", point.load.in_flight);
    Add("connections", point.load.connections);
    if (peer.credentials.has_value()) Add("tls", 1);
    // Whole ones keep all their digits: a reader finds a point by them.
    if (const auto whole = static_cast<int64_t>(point.rate); static_cast<double>(whole) == point.rate) {
      Add("rate", whole);
    } else {
      Add("rate", point.rate);
    }
  }
};

std::vector<std::string> ServerArguments(const Peer& peer, const Point& point) {
  std::vector<std::string> arguments = {absl::StrCat("--serve=", point.place)};
  if (peer.credentials.has_value()) {
    arguments.push_back(absl::StrCat("--certificate=", peer.credentials->certificate));
    arguments.push_back(absl::StrCat("--key=", peer.credentials->key));
    arguments.push_back(absl::StrCat("--authorities=", peer.credentials->authorities));
  }
  return arguments;
}

void Measure(Peer& peer, const Point& point) {
  const double seconds = absl::GetFlag(FLAGS_seconds);
  const auto put_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_put_bytes));
  if (point.load.bytes > peer.bytes_max()) {
    PointReport(peer, point)
        .Add("skipped", absl::StrCat("its messages hold at most ", peer.bytes_max(), " bytes of data"));
    return;
  }
  DieAfter(120 + 10 * seconds);
  PinTo(point.pin, /*server=*/false);
  ServerProcess server(ServerArguments(peer, point));
  std::optional<Putter> putter;
  if (point.workload == "bulk") putter.emplace(peer, server.address(), put_bytes);
  Caller caller(peer, server.address(), point.load);
  const auto call_for = [&](double time) {
    if (point.workload != "paced") return caller.CallFor(time);
    Latencies latencies;
    const int calls = static_cast<int>(std::min(point.rate * time, 1e9)) + 1;
    for (const double us : AtRate(point.rate, calls, [&] { return caller.CallOnce(); })) latencies.Add(us);
    return latencies;
  };
  if (putter) {
    caller.CallFor(seconds / 10);
    putter->Start();
  }
  call_for(seconds / 10);
  CpuUse cpu;
  double elapsed_us = 0;
  const int64_t puts_before = putter ? putter->puts() : 0;
  const Latencies latencies = [&] {
    CpuMeter meter(server.pid(), cpu);
    const auto start = Clock::now();
    Latencies taken = call_for(seconds);
    elapsed_us = MicrosecondsBetween(start, Clock::now());
    return taken;
  }();
  const auto calls = static_cast<double>(latencies.count());
  PointReport report(peer, point);
  report.Add("calls", latencies.count()).Add("calls_per_s", calls / elapsed_us * 1e6);
  latencies.AddTo(report);
  report.Add("client_cpu_us", cpu.client_seconds * 1e6 / calls)
      .Add("server_cpu_us", cpu.server_seconds * 1e6 / calls)
      .Add("histogram", latencies.Buckets());
  if (putter) {
    const auto put = static_cast<double>(putter->puts() - puts_before);
    report.Add("put_bytes_per_s", put * static_cast<double>(put_bytes) / elapsed_us * 1e6);
  }
}

// In a process of its own, so that the threads and the memory that a system keeps for a process are those of
// this point.
void MeasureInChild(Peer& peer, const Point& point) {
  const pid_t pid = fork();
  if (pid < 0) Die(std::string("fork: ") + strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      Measure(peer, point);
    } catch (const std::exception& error) {
      Die(error.what());
    }
    // Not exit(): threads of the system may still run.
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) < 0) Die(std::string("waitpid: ") + strerror(errno));
  if (WIFSIGNALED(status)) {
    Die(absl::StrCat(peer.name(), " ended by signal ", WTERMSIG(status), " at ", point.text));
  }
  if (status != 0) Die(absl::StrCat(peer.name(), " failed at ", point.text));
}

std::vector<Point> PointsOrDie() {
  std::vector<Point> points;
  for (const std::string& text : absl::GetFlag(FLAGS_points)) {
    absl::StatusOr<Point> point = ParsePoint(text);
    if (!point.ok()) Die(absl::StrCat("--points=", text, ": ", std::string(point.status().message())));
    points.push_back(*std::move(point));
  }
  if (points.empty()) {
    Die("--points: expected WORKLOAD:PLACE:BYTES:IN_FLIGHT:CONNECTIONS:RATE[,...], such as echo:2:32:64:1:0");
  }
  return points;
}

void RunAsFlagsSay(Peer& peer) {
  SleepExactly();
  if (const std::string place = absl::GetFlag(FLAGS_serve); !place.empty()) {
    PinTo(PlaceOrDie("serve", place), /*server=*/true);
    if (const std::string certificate = absl::GetFlag(FLAGS_certificate); !certificate.empty()) {
      peer.credentials = {.certificate = certificate,
                          .key = absl::GetFlag(FLAGS_key),
                          .authorities = absl::GetFlag(FLAGS_authorities)};
    }
    peer.Serve();
    Die("the server returned");
  }
  const int put_bytes = absl::GetFlag(FLAGS_put_bytes);
  if (put_bytes < 1) Die(absl::StrCat("--put_bytes=", put_bytes, ": expected a number above 0"));
  const double seconds = absl::GetFlag(FLAGS_seconds);
  if (!(seconds > 0) || seconds > 3600) {
    Die(absl::StrCat("--seconds=", seconds, ": expected a number above 0, at most 3600"));
  }
  std::optional<CertificateAuthority> authority;  // The files last as long as it does.
  if (absl::GetFlag(FLAGS_tls)) {
    if (!peer.has_tls()) Die(absl::StrCat("--tls: ", peer.name(), " is not measured with TLS"));
    peer.credentials = authority.emplace().Issue();
  }
  for (const Point& point : PointsOrDie()) MeasureInChild(peer, point);
}

}  // namespace

int Main(int argc, char** argv, Peer& peer) {
  absl::SetProgramUsageMessage(
      "puts a workload on a system, as others of bench/peers put it on theirs.\n"
      "--points=WORKLOAD:PLACE:BYTES:IN_FLIGHT:CONNECTIONS:RATE[,...] --seconds=S");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) Die(absl::StrCat("'", rest[1], "' is no flag; see --help"));
  try {
    RunAsFlagsSay(peer);
  } catch (const std::exception& error) {
    Die(error.what());
  }
  return 0;
}

}  // namespace hawser::bench::peers
