// How many bytes a second do large puts and gets move? The floor is a raw socket that streams
// transfers of the same size, from and into memory of that size, without ever waiting for an answer.
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"
#include "hawser/bench/transfers.h"

ABSL_FLAG(std::vector<std::string>, sizes, std::vector<std::string>({"65536", "1048576", "16777216"}),
          "payload sizes in bytes");
ABSL_FLAG(double, gigabytes, 1, "what one round moves, in 10^9 bytes");
ABSL_FLAG(int, in_flight, 4, "transfers in flight");
ABSL_FLAG(int, rounds, 5, "rounds, floor and figure in turn; the medians are printed");
ABSL_FLAG(std::string, mode, "adaptive", "how both sides wait: adaptive, spin or sleep");

namespace hawser::bench {
namespace {

void Measure(uint32_t bytes) {
  TargetOptions options;
  options.mode = absl::GetFlag(FLAGS_mode);
  options.slots = 32;
  PinTo(options.pin, /*server=*/false);
  ServerProcess server = StartTarget(options);
  Transfers transfers(ConnectTo(server, options, MakeRuntime(options)), bytes);
  const int count = std::max(1, static_cast<int>(absl::GetFlag(FLAGS_gigabytes) * 1e9 / bytes));
  const int in_flight = absl::GetFlag(FLAGS_in_flight);
  for (const bool put : {true, false}) {
    ServerProcess raw = StartRaw(put ? "sink" : "source", options);
    RawSocket socket = ConnectRaw(raw.address());
    std::vector<uint8_t> memory(bytes, 'p');
    const auto floor = [&](int n) {
      return put ? StreamInto(socket, memory, n) : StreamFrom(socket, memory, n);
    };
    transfers.Run(put, std::min(count, 2 * in_flight), in_flight);
    floor(std::min(count, 2));
    CpuUse cpu;
    std::vector<double> figures, floors;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      floors.push_back(floor(count));
      CpuMeter meter(server.pid(), cpu);
      figures.push_back(transfers.Run(put, count, in_flight));
    }
    const double gib = static_cast<double>(bytes) * count * absl::GetFlag(FLAGS_rounds) / (1 << 30);
    Report("payload")
        .Add("address", options.address)
        .Add("direction", put ? "put" : "get")
        .Add("mode", options.mode)
        .Add("bytes", bytes)
        .Add("in_flight", in_flight)
        .Add("bytes_per_s", Median(figures))
        .Add("floor_bytes_per_s", Median(floors))
        .Add("ratio", Median(figures) / Median(floors))
        .Add("client_cpu_s_per_gib", cpu.client_seconds / gib)
        .Add("server_cpu_s_per_gib", cpu.server_seconds / gib);
  }
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  for (const std::string& size : absl::GetFlag(FLAGS_sizes)) {
    hawser::bench::Measure(static_cast<uint32_t>(strtoul(size.c_str(), nullptr, 10)));
  }
}
