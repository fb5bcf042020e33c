// How long does a small call take, alone on its connection? The floor is a ping-pong of as many bytes over a
// raw socket, whose sides wait in the same way and on the same cores.
#include <stdio.h>
#include <stdlib.h>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/clock.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"

ABSL_FLAG(int, bytes, 32, "payload of request and response");
ABSL_FLAG(int, calls, 20000, "calls of one round");
ABSL_FLAG(int, rounds, 5, "rounds, floor and figure in turn; the medians are printed");

namespace hawser::bench {
namespace {

double CallUs(TargetStub& target, size_t bytes, int calls) {
  const std::string payload(bytes, 'x');
  const absl::Time start = absl::Now();
  for (int i = 0; i < calls; ++i) {
    auto call = target.Echo();
    call.request().setPayload(
        capnp::Data::Reader(reinterpret_cast<const uint8_t*>(payload.data()), payload.size()));
    auto reply = call.Send().Wait();
    if (!reply.ok() || (*reply)->getPayload().size() != bytes) {
      fprintf(stderr, "bench: echo: %s\n", reply.ok() ? "wrong size" : reply.status().ToString().c_str());
      exit(1);
    }
  }
  return absl::ToDoubleMicroseconds(absl::Now() - start) / calls;
}

void Measure(const std::string& mode, Pin pin) {
  TargetOptions options;
  options.mode = mode;
  options.pin = pin;
  PinTo(pin, /*server=*/false);
  const auto bytes = static_cast<size_t>(absl::GetFlag(FLAGS_bytes));
  const int calls = absl::GetFlag(FLAGS_calls);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  CpuUse cpu;
  std::vector<double> figures, floors;
  // One after the other, never both: a side that spins would take the core from what is measured.
  for (int round = 0; round < rounds; ++round) {
    {
      ServerProcess raw = StartRaw("echo", options);
      RawSocket socket = RawSocket::Connect(raw.address());
      PingPongUs(socket, bytes, calls / 10 + 1, mode == "spin");
      floors.push_back(PingPongUs(socket, bytes, calls, mode == "spin"));
    }
    ServerProcess server = StartTarget(options);
    TargetStub target(ConnectTo(server, options, MakeRuntime(options)));
    CallUs(target, bytes, calls / 10 + 1);
    CpuMeter meter(server.pid(), cpu);
    figures.push_back(CallUs(target, bytes, calls));
  }
  const double million_calls = static_cast<double>(calls) * rounds / 1e6;
  Report("latency")
      .Add("mode", mode)
      .Add("pin", Name(pin))
      .Add("bytes", static_cast<double>(bytes))
      .Add("call_us", Median(figures))
      .Add("floor_us", Median(floors))
      .Add("ratio", Median(figures) / Median(floors))
      .Add("client_cpu_s_per_million_calls", cpu.client_seconds / million_calls)
      .Add("server_cpu_s_per_million_calls", cpu.server_seconds / million_calls);
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  using hawser::bench::Pin;
  hawser::bench::Measure("sleep", Pin::kOneCore);
  hawser::bench::Measure("sleep", Pin::kTwoCores);
  hawser::bench::Measure("spin", Pin::kTwoCores);
  // Against the floor of sleeping sockets: what a program gets that sets nothing.
  hawser::bench::Measure("adaptive", Pin::kOneCore);
  hawser::bench::Measure("adaptive", Pin::kTwoCores);
}
