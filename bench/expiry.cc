// What does it cost when calls that wait for a lost server expire? The floor for the lateness is how long a
// thread that wakes once a millisecond oversleeps, in the same time; its CPU time counts, too. Exit
// status 1: a call ended more than --late_max after its deadline, or the process used more than --cpu_max of
// a core while they expired.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/process.h"
#include "hawser/bench/report.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"

ABSL_FLAG(int, calls, 100000, "calls that wait");
ABSL_FLAG(absl::Duration, first, absl::Seconds(3), "from when on they expire, after the first was sent");
ABSL_FLAG(absl::Duration, spread, absl::Seconds(2), "over how long they expire, each at a time of its own");
ABSL_FLAG(absl::Duration, late_max, absl::Seconds(1), "how late the latest may be");
ABSL_FLAG(double, cpu_max, 0.5, "cores while they expire");

namespace hawser::bench {
namespace {

// An address at which no program listens any more.
std::string DeadUri() {
  Server server;
  const absl::StatusOr<std::string> uri = server.Listen("tcp://127.0.0.1:0");
  if (uri.ok()) return *uri;
  fprintf(stderr, "bench: %s\n", uri.status().ToString().c_str());
  exit(1);
}

// Each ending is written once, on the channel's poller.
struct Endings {
  explicit Endings(size_t calls) : late_us(calls) {}
  std::vector<double> late_us;
  std::atomic<int> left{0};
  std::atomic<int> wrong{0};  // Ended otherwise.
};

int Run() {
  const int calls = absl::GetFlag(FLAGS_calls);
  ChannelOptions options;
  options.backoff_min = options.backoff_max = absl::Hours(1);
  Endings endings(static_cast<size_t>(calls));  // Outlives the calls.
  const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Create(DeadUri(), options);
  if (!channel.ok()) {
    fprintf(stderr, "bench: %s\n", channel.status().ToString().c_str());
    return 1;
  }
  TargetStub stub(*channel);
  endings.left = calls;
  const absl::Time first = absl::Now() + absl::GetFlag(FLAGS_first);
  // A prime, so that they are sent in another order than they expire.
  const int64_t stride = 7919;
  for (int i = 0; i < calls; ++i) {
    const absl::Time deadline =
        first + absl::GetFlag(FLAGS_spread) * static_cast<double>(i * stride % calls) / calls;
    auto call = stub.Echo({.timeout = deadline - absl::Now(), .wait_for_ready = true});
    call.Send().Then([&endings, i, deadline](const auto& reply) {
      endings.late_us[static_cast<size_t>(i)] = absl::ToDoubleMicroseconds(absl::Now() - deadline);
      if (!absl::IsDeadlineExceeded(reply.status())) ++endings.wrong;
      --endings.left;
    });
  }
  const absl::Time sent = absl::Now();
  if (sent > first) {
    fprintf(stderr, "bench: sending takes longer than --first\n");
    return 1;
  }
  absl::SleepFor(first - sent);
  CpuUse cpu;
  double oversleep_us = 0;
  {
    CpuMeter meter(getpid(), cpu);
    const absl::Time give_up = first + absl::GetFlag(FLAGS_spread) + absl::GetFlag(FLAGS_late_max);
    while (endings.left > 0) {
      if (absl::Now() > give_up) {
        fprintf(stderr, "bench: %d calls have not ended\n", endings.left.load());
        exit(1);
      }
      const absl::Time wake = absl::Now() + absl::Milliseconds(1);
      absl::SleepFor(absl::Milliseconds(1));
      oversleep_us = std::max(oversleep_us, absl::ToDoubleMicroseconds(absl::Now() - wake));
    }
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - first);
  const double cores = cpu.client_seconds / seconds;
  const double worst_us = Quantile(endings.late_us, 1);
  Report("expiry")
      .Add("calls", calls)
      .Add("ended_otherwise", endings.wrong)
      .Add("late_p50_us", Median(endings.late_us))
      .Add("late_p99_us", Quantile(endings.late_us, 0.99))
      .Add("late_max_us", worst_us)
      .Add("oversleep_max_us", oversleep_us)
      .Add("seconds", seconds)
      .Add("cores", cores);
  return endings.wrong > 0 || worst_us > absl::ToDoubleMicroseconds(absl::GetFlag(FLAGS_late_max)) ||
                 cores > absl::GetFlag(FLAGS_cpu_max)
             ? 1
             : 0;
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return hawser::bench::Run();
}
