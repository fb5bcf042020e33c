// How long does a small call take if calls come at an even rate? What a side does between them decides it: if
// it sleeps, it has to be woken; if it spins, it keeps its core from the other. The floor is a ping-pong over
// a raw socket at the same rate, whose sides wait in the same way on the same cores. With --pairs=5 four
// further pairs of a client and a server do the same in processes of their own.
#include <stdio.h>
#include <stdlib.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/at_rate.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, bytes, 32, "payload of request and response");
ABSL_FLAG(std::vector<std::string>, rates, std::vector<std::string>({"100", "5000"}), "calls a second");
ABSL_FLAG(double, seconds, 1, "how long a round takes");
ABSL_FLAG(std::vector<std::string>, modes,
          std::vector<std::string>({"sleep:1", "spin:1", "adaptive:1", "sleep:2", "spin:2", "adaptive:2"}),
          "how both sides wait, each with the cores that they have together");
ABSL_FLAG(bool, stats, false, "also print what the pollers of both sides decided");
ABSL_FLAG(bool, callback, false,
          "the answer goes to a callback on the poller's thread, not to the thread that calls");
ABSL_FLAG(int, pairs, 1, "pairs of a client and a server that do so at once; the first is measured");
ABSL_FLAG(int, rounds, 3, "rounds, floor and figure in turn; the medians are printed");

namespace hawser::bench {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "bench: paced: %s\n", what.c_str());
  exit(1);
}

Clock::time_point CallOnce(TargetStub& target, const std::string& payload) {
  if (!absl::GetFlag(FLAGS_callback)) {
    EchoOnce(target, payload);
    return Clock::now();
  }
  auto call = target.Echo();
  call.request().setPayload(
      capnp::Data::Reader(reinterpret_cast<const uint8_t*>(payload.data()), payload.size()));
  Clock::time_point came;
  absl::Notification done;
  call.Send().Then([&](const auto& reply) {
    came = Clock::now();
    if (!reply.ok()) Die(reply.status().ToString());
    done.Notify();
  });
  done.WaitForNotification();
  return came;
}

// The two processes of a pair that calls for ever.
class Pair {
 public:
  Pair(const std::string& mode, Pin pin, double rate)
      : client_({absl::StrCat("--paced=", mode, ":", static_cast<int>(pin), ":", rate)}),
        server_pid_(static_cast<pid_t>(atoi(client_.address().c_str()))) {}

  double CpuUsed() const { return CpuSeconds(client_.pid()) + CpuSeconds(server_pid_); }

 private:
  ServerProcess client_;
  const pid_t server_pid_;
};

[[noreturn]] void CallForEver(const std::string& mode, Pin pin, double rate) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  ServerProcess server = StartTarget(options);
  TargetStub target(ConnectTo(server, options, MakeRuntime(options)));
  printf("%d\n", static_cast<int>(server.pid()));
  fflush(stdout);
  const std::string payload(32, 'x');
  while (true) AtRate(rate, static_cast<int>(rate) + 1, [&] { return CallOnce(target, payload); });
}

// Serves as the client of one of the further pairs if this process is one.
void CallForEverIfAsked(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (!absl::StartsWith(argument, "--paced=")) continue;
    const std::vector<std::string> parts = absl::StrSplit(argument.substr(argument.find('=') + 1), ':');
    double rate;
    if (parts.size() != 3 || !absl::SimpleAtod(parts[2], &rate)) Die(std::string(argument));
    CallForEver(parts[0], static_cast<Pin>(atoi(parts[1].c_str())), rate);
  }
}

void Measure(const std::string& mode, Pin pin, double rate) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  const std::string payload(static_cast<size_t>(absl::GetFlag(FLAGS_bytes)), 'x');
  const double seconds = absl::GetFlag(FLAGS_seconds);
  const int calls = static_cast<int>(rate * seconds) + 1;
  const int rounds = absl::GetFlag(FLAGS_rounds);
  std::vector<std::unique_ptr<Pair>> others;
  for (int i = 1; i < absl::GetFlag(FLAGS_pairs); ++i) {
    others.push_back(std::make_unique<Pair>(mode, pin, rate));
  }
  const auto used_by_others = [&] {
    double cpu_seconds = 0;
    for (const auto& pair : others) cpu_seconds += pair->CpuUsed();
    return cpu_seconds;
  };
  Quantiles figures, floors;
  CpuUse cpu;
  double others_cpu_seconds = 0;
  PollerStats stats;
  std::string server_stats;
  for (int round = 0; round < rounds; ++round) {
    if (others.empty()) {
      ServerProcess raw = StartRaw("ping_pong", options);
      RawSocket socket = ConnectRaw(raw.address());
      const uint64_t size = payload.size();
      std::string answer(size, 0);
      const bool spin = mode == "spin";
      socket.Send(&size, sizeof(size), spin);
      floors.AddRound(AtRate(rate, calls, [&] {
        if (!socket.Send(payload.data(), size, spin) || !socket.Receive(answer.data(), size, spin))
          Die("raw socket");
        return Clock::now();
      }));
    }
    ServerProcess server = StartTarget(options);
    const std::shared_ptr<Channel> channel = ConnectTo(server, options, MakeRuntime(options));
    TargetStub target(channel);
    AtRate(rate, calls / 10 + 1, [&] { return CallOnce(target, payload); });
    CpuMeter meter(server.pid(), cpu);
    const double others_before = used_by_others();
    figures.AddRound(AtRate(rate, calls, [&] { return CallOnce(target, payload); }));
    others_cpu_seconds += used_by_others() - others_before;
    stats = channel->poller_stats();
    if (const auto reply = target.Stats().Send().Wait(); reply.ok())
      server_stats = (*reply)->getPoller().cStr();
  }
  if (absl::GetFlag(FLAGS_stats)) {
    fprintf(stderr, "the client's poller: %s\nthe server's: %s\n", ToString(stats).c_str(),
            server_stats.c_str());
  }
  const double pairs = static_cast<double>(others.size() + 1);
  Report report("paced");
  report.Add("address", options.address)
      .Add("mode", mode)
      .Add("pin", Name(pin))
      .Add("rate", rate)
      .Add("pairs", pairs)
      .Add("callback", absl::GetFlag(FLAGS_callback) ? 1 : 0)
      .Add("p50_us", Median(figures.p50))
      .Add("p99_us", Median(figures.p99))
      .Add("p999_us", Median(figures.p999));
  if (others.empty()) {
    report.Add("floor_p50_us", Median(floors.p50))
        .Add("floor_p99_us", Median(floors.p99))
        .Add("ratio", Median(figures.p50) / Median(floors.p50));
  }
  report.Add("client_cores", cpu.client_seconds / (seconds * rounds))
      .Add("server_cores", cpu.server_seconds / (seconds * rounds))
      .Add("cores_of_each",
           (cpu.client_seconds + cpu.server_seconds + others_cpu_seconds) / (2 * pairs * seconds * rounds));
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  hawser::bench::SleepExactly();
  hawser::bench::CallForEverIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  for (const std::string& text : absl::GetFlag(FLAGS_rates)) {
    double rate;
    if (!absl::SimpleAtod(text, &rate) || !(rate > 0)) hawser::bench::Die("--rates=" + text + ": no rate");
    for (const std::string& placement : absl::GetFlag(FLAGS_modes)) {
      const auto [mode, pin] = hawser::bench::ParsePlacement("modes", placement);
      hawser::bench::Measure(mode, pin, rate);
    }
  }
}
