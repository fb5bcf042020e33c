// What does an idle connection cost? Memory at both sides (leased registered memory, heap, and what is
// resident), time to connect, and CPU while idle. The floor of the time is a raw socket that connects and
// gets one byte back.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, connections, 10'000, "idle connections; fewer if RLIMIT_NOFILE allows no more");
ABSL_FLAG(int, slots, 32, "slots of each");
ABSL_FLAG(double, idle_seconds, 2, "how long the idle CPU is measured");
ABSL_FLAG(absl::Duration, keepalive, absl::Seconds(2), "ConnectionOptions::keepalive_interval of both sides");
ABSL_FLAG(bool, check, false, "fails if an idle connection takes more than 17 KiB of either side's memory");

namespace hawser::bench {
namespace {

constexpr double kKibMax = 17;
// After traffic: slots that were used and what the program keeps for the next call stay.
constexpr double kKibMaxAfterTraffic = 20;
// Buffers of 4 KiB that a poller and its pool keep for the next messages, however many connections there are.
constexpr double kKeptKib = 320 * 4;
// Until an idle connection has freed what traffic needed: keepalive intervals, and what a busy machine needs
// besides with --check.
constexpr int kIntervalsUntilIdle = 6;
constexpr absl::Duration kPatience = absl::Seconds(20);

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "bench: %s\n", what.c_str());
  exit(1);
}

// The server takes three quarters of three quarters of its files for the connections of one host.
int ConnectionsAllowed() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // For the server, too: it inherits it.
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20) / 16 * 9) - 64;
}

// What one side holds.
struct Memory {
  double leased_bytes = 0;
  double heap_bytes = 0;
  double resident_bytes = 0;
};

Memory OfClient(transport::Runtime& runtime) {
  return {static_cast<double>(runtime.buffers().stats().leased_bytes), static_cast<double>(HeapBytes()),
          ResidentBytes(getpid())};
}

Memory OfServer(const ServerProcess& server, const std::shared_ptr<Channel>& channel) {
  auto call = TargetStub(channel).Stats();
  auto reply = call.Send().Wait();
  if (!reply.ok()) Die("stats: " + reply.status().ToString());
  return {static_cast<double>((*reply)->getLeasedBytes()), static_cast<double>((*reply)->getHeapBytes()),
          ResidentBytes(server.pid())};
}

// What one connection takes on both sides, on average over `count` connections, beyond what they had before.
class Each {
 public:
  Each(Memory client, Memory server, int count) : client_(client), server_(server), count_(count) {}

  // Adds both to `report`, as "idle_client_leased_kib" and so on. The most that either holds, in KiB.
  double Add(Report& report, const std::string& when, const Memory& client, const Memory& server) const {
    return std::max(AddSide(report, when + "_client", client, client_),
                    AddSide(report, when + "_server", server, server_));
  }
  double LeasedAndHeapKib(const Memory& client, const Memory& server) const {
    return std::max(Kib(client.leased_bytes - client_.leased_bytes + client.heap_bytes - client_.heap_bytes),
                    Kib(server.leased_bytes - server_.leased_bytes + server.heap_bytes - server_.heap_bytes));
  }

 private:
  double Kib(double bytes) const { return bytes / count_ / 1024; }
  double AddSide(Report& report, const std::string& side, const Memory& now, const Memory& before) const {
    const double leased = Kib(now.leased_bytes - before.leased_bytes);
    const double heap = Kib(now.heap_bytes - before.heap_bytes);
    report.Add(side + "_leased_kib", leased)
        .Add(side + "_heap_kib", heap)
        .Add(side + "_resident_kib", Kib(now.resident_bytes - before.resident_bytes));
    return leased + heap;
  }

  const Memory client_, server_;
  const int count_;
};

void Measure() {
  const int wanted = absl::GetFlag(FLAGS_connections), count = std::min(wanted, ConnectionsAllowed());
  if (count < wanted) fprintf(stderr, "bench: %d connections, as RLIMIT_NOFILE allows no more\n", count);
  TargetOptions options;
  options.slots = static_cast<uint32_t>(absl::GetFlag(FLAGS_slots));
  options.keepalive_interval = absl::GetFlag(FLAGS_keepalive);
  ServerProcess server = StartTarget(options);
  ServerProcess raw = StartRaw("echo", options);

  absl::Time start = absl::Now();
  {
    std::vector<RawSocket> sockets;
    for (int i = 0; i < count; ++i) {
      sockets.push_back(ConnectRaw(raw.address()));
      uint8_t byte = 0;
      sockets.back().Send(&byte, 1, false);
      sockets.back().Receive(&byte, 1, false);
    }
  }
  const double floor_us = absl::ToDoubleMicroseconds(absl::Now() - start) / count;

  // One connection first, for what each side needs only once: a slab of memory, a poller's tables.
  const std::shared_ptr<transport::Runtime> runtime = MakeRuntime(options);
  std::vector<std::shared_ptr<Channel>> channels = {ConnectTo(server, options, runtime)};
  channels.reserve(count + 1);
  const Memory server_before = OfServer(server, channels[0]);
  const Each each(OfClient(*runtime), server_before, count);
  Report report("connections");
  report.Add("address", options.address).Add("connections", count).Add("slots", options.slots);
  start = absl::Now();
  for (int i = 0; i < count; ++i) channels.push_back(ConnectTo(server, options, runtime));
  const double connect_us = absl::ToDoubleMicroseconds(absl::Now() - start) / count;
  const double worst_kib = each.Add(report, "idle", OfClient(*runtime), OfServer(server, channels[0]));

  CpuUse cpu;
  const double idle_seconds = absl::GetFlag(FLAGS_idle_seconds);
  {
    CpuMeter meter(server.pid(), cpu);
    usleep(static_cast<useconds_t>(idle_seconds * 1e6));  // What is measured: nothing happens.
  }

  for (size_t i = 1; i < channels.size(); ++i) {
    auto call = TargetStub(channels[i]).Echo();
    auto reply = call.Send().Wait();
    if (!reply.ok()) Die("echo on connection " + std::to_string(i) + ": " + reply.status().ToString());
  }
  each.Add(report, "after_a_call", OfClient(*runtime), OfServer(server, channels[0]));
  // Idle again: waits until both sides have freed what they free when idle, or have had the time for it.
  const absl::Time end = absl::Now() + kIntervalsUntilIdle * options.keepalive_interval +
                         (absl::GetFlag(FLAGS_check) ? kPatience : absl::ZeroDuration());
  Memory client_now = OfClient(*runtime), server_now = OfServer(server, channels[0]);
  const double wanted_kib = worst_kib + 1 + kKeptKib / count;
  while (absl::Now() < end && each.LeasedAndHeapKib(client_now, server_now) > wanted_kib) {
    client_now = OfClient(*runtime);
    server_now = OfServer(server, channels[0]);
  }
  const double again_kib = each.Add(report, "idle_again", client_now, server_now) - kKeptKib / count;
  report.Add("connect_us", connect_us)
      .Add("floor_us", floor_us)
      .Add("ratio", connect_us / floor_us)
      .Add("idle_client_cpu_share", cpu.client_seconds / idle_seconds)
      .Add("idle_server_cpu_share", cpu.server_seconds / idle_seconds);
  if (absl::GetFlag(FLAGS_check) && (worst_kib > kKibMax || again_kib > kKibMaxAfterTraffic)) {
    Die("an idle connection takes " + std::to_string(worst_kib) + " KiB of leased memory and heap, " +
        std::to_string(again_kib) + " KiB after traffic");
  }
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  hawser::bench::Measure();
}
