#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/json_writer.h"
#include "hawser/health.rpc.h"
#include "hawser/tools/hawser/commands.h"

namespace hawser::tool {
namespace {

// Answers of a server that has no health service, or does not say its health. They took a round trip, too.
bool IsAnswer(absl::StatusCode code) {
  return code == absl::StatusCode::kUnimplemented || code == absl::StatusCode::kNotFound ||
         code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnauthenticated;
}

double Microseconds(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

class Ping : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "ping", "", "measures round trips of small calls",
        "Makes one call after another on one connection, with nothing else in flight, and prints the "
        "shortest, the median, the 99th percentile and the longest time. The call is "
        "health.capnp:Health.check of the server as a whole, which is small and fast, and which servers "
        "answer unless their program turns health off or does not allow the call. A refusal takes one round "
        "trip as well; a line on stderr then says so. The first call is not counted.\n"
        "\n"
        "With --json: {\"peer\", \"count\", \"min_us\", \"median_us\", \"p99_us\", \"max_us\", \"refused\"}.",
        "hawser ping --target=rdma://kv1:7470\n"
        "hawser ping --target=tcp://kv1:7470 --count=10000 --interval=1ms"};
    return kHelp;
  }

  void AddFlags(Flags& flags) override {
    flags.Number("count", "round trips (default 100)", 1, 10'000'000, &count_);
    flags.Duration("interval", "between two of them (default: none)", &interval_);
  }

  absl::StatusOr<int> Run(const Session& session) override {
    const auto channel = session.Connect();
    if (!channel.ok()) return channel.status();
    std::vector<absl::Duration> times;
    times.reserve(count_);
    bool refused = false;
    for (uint64_t i = 0; i <= count_; ++i) {
      auto call = health::HealthStub(*channel).Check();
      const absl::Time start = absl::Now();
      const absl::Status status = call.Send().Wait().status();
      const absl::Duration took = absl::Now() - start;
      if (!status.ok() && !IsAnswer(status.code())) {
        return absl::Status(status.code(), absl::StrCat("round trip ", i, " of ", count_, " to ",
                                                        (*channel)->peer_address(), ": ", status.message()));
      }
      refused = refused || !status.ok();
      if (i > 0) times.push_back(took);
      if (interval_ > absl::ZeroDuration() && i < count_) absl::SleepFor(interval_);
    }
    std::sort(times.begin(), times.end());
    const double min = Microseconds(times.front());
    const double median = Microseconds(times[times.size() / 2]);
    // The least time that 99 % of all do not exceed.
    const double p99 = Microseconds(times[(times.size() * 99 + 99) / 100 - 1]);
    const double max = Microseconds(times.back());
    if (session.json) {
      JsonWriter json;
      json.BeginObject();
      json.Name("peer").String((*channel)->peer_address());
      json.Name("count").Number(times.size());
      json.Name("min_us").Decimal(min, 3);
      json.Name("median_us").Decimal(median, 3);
      json.Name("p99_us").Decimal(p99, 3);
      json.Name("max_us").Decimal(max, 3);
      json.Name("refused").Bool(refused);
      json.EndObject();
      std::cout << std::move(json).Take() << '\n';
      return 0;
    }
    if (refused)
      std::cerr << "hawser ping: the server refuses health.capnp:Health.check; its refusals are timed"
                << std::endl;
    std::cout << absl::StrFormat(
        "%d round trip%s to %s: min %.1f us, median %.1f us, p99 %.1f us, max %.1f us\n", times.size(),
        times.size() == 1 ? "" : "s", (*channel)->peer_address(), min, median, p99, max);
    return 0;
  }

 private:
  uint64_t count_ = 100;
  absl::Duration interval_ = absl::ZeroDuration();
};

}  // namespace

std::unique_ptr<Command> NewPing() { return std::make_unique<Ping>(); }

}  // namespace hawser::tool
