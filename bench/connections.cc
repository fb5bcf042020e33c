// What does a connection cost that does nothing? Memory at the server, time to connect, and CPU while idle.
// The floor of the time is a raw socket that connects and gets one byte back.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, connections, 1000, "idle connections");
ABSL_FLAG(int, slots, 8, "slots of each");
ABSL_FLAG(double, idle_seconds, 2, "how long the idle CPU is measured");

namespace hawser::bench {
namespace {

void Measure() {
  const int count = absl::GetFlag(FLAGS_connections);
  TargetOptions options;
  options.slots = static_cast<uint32_t>(absl::GetFlag(FLAGS_slots));
  ServerProcess server = StartTarget(options);
  ServerProcess raw = StartRaw("echo", options);

  absl::Time start = absl::Now();
  {
    std::vector<RawSocket> sockets;
    for (int i = 0; i < count; ++i) {
      sockets.push_back(RawSocket::Connect(raw.address()));
      uint8_t byte = 0;
      sockets.back().Send(&byte, 1, false);
      sockets.back().Receive(&byte, 1, false);
    }
  }
  const double floor_us = absl::ToDoubleMicroseconds(absl::Now() - start) / count;

  // One first, for what the server needs once: a slab of memory, a poller's tables.
  const std::shared_ptr<transport::Runtime> runtime = MakeRuntime(options);
  std::vector<std::shared_ptr<Channel>> channels = {ConnectTo(server, options, runtime)};
  const double before_bytes = ResidentBytes(server.pid());
  start = absl::Now();
  for (int i = 0; i < count; ++i) channels.push_back(ConnectTo(server, options, runtime));
  const double connect_us = absl::ToDoubleMicroseconds(absl::Now() - start) / count;
  const double idle_bytes = ResidentBytes(server.pid());

  CpuUse cpu;
  const double idle_seconds = absl::GetFlag(FLAGS_idle_seconds);
  {
    CpuMeter meter(server.pid(), cpu);
    usleep(static_cast<useconds_t>(idle_seconds * 1e6));  // What is measured: nothing happens.
  }

  for (size_t i = 1; i < channels.size(); ++i) {
    auto call = TargetStub(channels[i]).Echo();
    auto reply = call.Send().Wait();
    if (!reply.ok()) {
      fprintf(stderr, "bench: echo on connection %zu: %s\n", i, reply.status().ToString().c_str());
      exit(1);
    }
  }
  const double used_bytes = ResidentBytes(server.pid());
  Report("connections")
      .Add("address", options.address)
      .Add("connections", count)
      .Add("slots", options.slots)
      .Add("server_kib_each", (idle_bytes - before_bytes) / count / 1024)
      .Add("server_kib_each_after_one_call", (used_bytes - before_bytes) / count / 1024)
      .Add("connect_us", connect_us)
      .Add("floor_us", floor_us)
      .Add("ratio", connect_us / floor_us)
      .Add("idle_client_cpu_share", cpu.client_seconds / idle_seconds)
      .Add("idle_server_cpu_share", cpu.server_seconds / idle_seconds);
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  hawser::bench::Measure();
}
