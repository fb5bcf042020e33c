// What does TLS cost? For large transfers the floor is OpenSSL on a blocking socket, which streams as many
// bytes with the same cipher and never waits for an answer. For new connections it is a handshake of bare
// OpenSSL with the same certificates, and some bytes each way; the figure is Channel::Connect() and the first
// call. For small calls it is Hawser without TLS, which is also printed beside the other figures.
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/bench/bare_tls.h"
#include "hawser/bench/load.h"
#include "hawser/bench/report.h"
#include "hawser/bench/target.h"
#include "hawser/bench/transfers.h"
#include "hawser/tests/tls/certificates.h"

ABSL_FLAG(std::vector<std::string>, what,
          std::vector<std::string>({"payload", "rate", "connect", "reconnect"}),
          "payload: large puts and gets; rate: small calls; connect: new connections, with full handshakes; "
          "reconnect: "
          "new connections that resume a session");
ABSL_FLAG(int, bytes, 16 << 20, "payload: of one transfer");
ABSL_FLAG(double, gigabytes, 1, "payload: what one round moves, in 10^9 bytes");
ABSL_FLAG(int, transfers, 4, "payload: transfers in flight");
ABSL_FLAG(int, calls, 200000, "rate: calls of 32 bytes in one round");
ABSL_FLAG(int, in_flight, 64, "rate: calls in flight");
ABSL_FLAG(int, connections, 300, "connect, reconnect: connections of one round, one after the other");
ABSL_FLAG(int, rounds, 5, "rounds, floor and figures in turn; the medians are printed");
ABSL_FLAG(std::string, placement, "adaptive:2", "how both sides wait, and the cores that they have together");

namespace hawser::bench {
namespace {

constexpr size_t kSmallBytes = 32;

// What both sides of Hawser are, with TLS and without.
struct Both {
  TargetOptions tls, plain;

  // To `report`; returns it.
  Report& AddTo(Report&& report, const char* what) const {
    return report.Add("what", what)
        .Add("address", tls.address)
        .Add("mode", tls.mode)
        .Add("pin", Name(tls.pin));
  }
};

ServerProcess StartBare(const Both& both) { return StartRaw("bare_tls", both.tls); }

// --- Large transfers

void MeasurePayload(const Both& both, bool put) {
  const auto bytes = static_cast<uint32_t>(absl::GetFlag(FLAGS_bytes));
  const int count = std::max(1, static_cast<int>(absl::GetFlag(FLAGS_gigabytes) * 1e9 / bytes));
  const int in_flight = absl::GetFlag(FLAGS_transfers);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  std::vector<uint8_t> memory(bytes, 'p');
  CpuUse floor_cpu, cpu;
  std::vector<double> floors, figures, plain_figures;
  std::string cipher;
  // Each side has fresh processes, and the others are gone: a side that spins would take the core from what
  // is measured.
  for (int round = 0; round < rounds; ++round) {
    {
      const ServerProcess bare = StartBare(both);
      BareTlsClients clients(*both.tls.credentials, bare.address());
      const auto run = [&](int n) {
        return put ? clients.StreamInto(memory, n) : clients.StreamFrom(memory, n);
      };
      cipher = clients.Cipher();
      run(std::min(count, 2));
      CpuMeter meter(bare.pid(), floor_cpu);
      floors.push_back(run(count));
    }
    for (const bool with_tls : {true, false}) {
      const TargetOptions& options = with_tls ? both.tls : both.plain;
      const ServerProcess server = StartTarget(options);
      Transfers transfers(ConnectTo(server, options, MakeRuntime(options)), bytes);
      transfers.Run(put, std::min(count, 2 * in_flight), in_flight);
      CpuUse unused;
      CpuMeter meter(server.pid(), with_tls ? cpu : unused);
      (with_tls ? figures : plain_figures).push_back(transfers.Run(put, count, in_flight));
    }
  }
  const double gib = static_cast<double>(bytes) * count * rounds / (1 << 30);
  both.AddTo(Report("tls"), "payload")
      .Add("cipher", cipher)
      .Add("direction", put ? "put" : "get")
      .Add("bytes", bytes)
      .Add("in_flight", in_flight)
      .Add("bytes_per_s", Median(figures))
      .Add("floor_bytes_per_s", Median(floors))
      .Add("ratio", Median(figures) / Median(floors))
      .Add("plain_bytes_per_s", Median(plain_figures))
      .Add("client_cpu_s_per_gib", cpu.client_seconds / gib)
      .Add("server_cpu_s_per_gib", cpu.server_seconds / gib)
      .Add("floor_client_cpu_s_per_gib", floor_cpu.client_seconds / gib)
      .Add("floor_server_cpu_s_per_gib", floor_cpu.server_seconds / gib);
}

// --- Small calls

void MeasureRate(const Both& both) {
  const int calls = absl::GetFlag(FLAGS_calls);
  const int in_flight = absl::GetFlag(FLAGS_in_flight);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  CpuUse cpu, plain_cpu;
  std::vector<double> figures, plain_figures;
  for (int round = 0; round < rounds; ++round) {
    for (const bool with_tls : {false, true}) {
      const TargetOptions& options = with_tls ? both.tls : both.plain;
      const ServerProcess server = StartTarget(options);
      Load load(ConnectTo(server, options, MakeRuntime(options)), kSmallBytes);
      const auto run = [&](int count) {
        const absl::Time start = absl::Now();
        load.Start(count, in_flight);
        load.Wait();
        return count / absl::ToDoubleSeconds(absl::Now() - start);
      };
      run(calls / 10 + 1);
      CpuMeter meter(server.pid(), with_tls ? cpu : plain_cpu);
      (with_tls ? figures : plain_figures).push_back(run(calls));
    }
  }
  const double million_calls = static_cast<double>(calls) * rounds / 1e6;
  both.AddTo(Report("tls"), "rate")
      .Add("bytes", kSmallBytes)
      .Add("in_flight", in_flight)
      .Add("calls_per_s", Median(figures))
      .Add("plain_calls_per_s", Median(plain_figures))
      .Add("ratio", Median(figures) / Median(plain_figures))
      .Add("client_cpu_s_per_million_calls", cpu.client_seconds / million_calls)
      .Add("server_cpu_s_per_million_calls", cpu.server_seconds / million_calls)
      .Add("plain_client_cpu_s_per_million_calls", plain_cpu.client_seconds / million_calls)
      .Add("plain_server_cpu_s_per_million_calls", plain_cpu.server_seconds / million_calls);
}

// --- New connections

// The server at an address of the loopback network that no connection had before. Tickets are kept by
// address, so the handshake is a full one.
std::string NewAddressOf(const ServerProcess& server) {
  static int number = 0;
  ++number;
  const std::string& listens = server.address();  // "tcp://0.0.0.0:PORT"
  return absl::StrCat("tcp://127.", 1 + number / 62500, ".", number / 250 % 250, ".", 1 + number % 250,
                      listens.substr(listens.rfind(':')));
}

// Microseconds of each of `count` connections. `resume`: all are to the same address.
std::vector<double> ConnectUs(const ServerProcess& server, const TargetOptions& target, bool resume,
                              int count, CpuUse& cpu) {
  using Clock = std::chrono::steady_clock;
  ChannelOptions options;
  options.runtime = MakeRuntime(target);
  options.connection.slots = target.slots;
  options.credentials = target.credentials;
  if (options.credentials.has_value()) options.credentials->server_name = "localhost";
  const std::string payload(kSmallBytes, 'x');
  std::shared_ptr<Channel> first;  // Keeps the context, and with it the tickets, while there is no other.
  std::vector<double> each_us;
  const auto run = [&](int n) {
    for (int i = 0; i < n; ++i) {
      const std::string address = resume ? server.address() : NewAddressOf(server);
      const auto start = Clock::now();
      absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(address, options);
      if (!channel.ok()) {
        fprintf(stderr, "bench: connect: %s\n", channel.status().ToString().c_str());
        exit(1);
      }
      TargetStub stub(*channel);
      EchoOnce(stub, payload);
      each_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      if (first == nullptr) first = *channel;
    }
  };
  run(count / 10 + 1);
  each_us.clear();
  CpuMeter meter(server.pid(), cpu);
  run(count);
  return each_us;
}

void MeasureConnect(const Both& both, bool resume) {
  TargetOptions everywhere = both.tls;
  everywhere.address = "tcp://0.0.0.0:0";
  const int count = absl::GetFlag(FLAGS_connections);
  const int rounds = absl::GetFlag(FLAGS_rounds);
  CpuUse floor_cpu, cpu, plain_cpu;
  std::vector<double> floors, figures, plain_figures;
  for (int round = 0; round < rounds; ++round) {
    {
      const ServerProcess bare = StartBare(both);
      BareTlsClients clients(*both.tls.credentials, bare.address());
      clients.ConnectUs(count / 10 + 1, resume);
      CpuMeter meter(bare.pid(), floor_cpu);
      floors.push_back(Median(clients.ConnectUs(count, resume)));
    }
    {
      const TargetOptions& options = resume ? both.tls : everywhere;
      const ServerProcess server = StartTarget(options);
      figures.push_back(Median(ConnectUs(server, options, resume, count, cpu)));
    }
    const ServerProcess server = StartTarget(both.plain);
    plain_figures.push_back(Median(ConnectUs(server, both.plain, /*resume=*/true, count, plain_cpu)));
  }
  const auto cpu_us = [&](const CpuUse& use) {
    return (use.client_seconds + use.server_seconds) * 1e6 / count / rounds;
  };
  both.AddTo(Report("tls"), resume ? "reconnect" : "connect")
      .Add("connect_us", Median(figures))
      .Add("floor_us", Median(floors))
      .Add("ratio", Median(figures) / Median(floors))
      .Add("plain_us", Median(plain_figures))
      .Add("cpu_us", cpu_us(cpu))
      .Add("floor_cpu_us", cpu_us(floor_cpu))
      .Add("cpu_ratio", cpu_us(cpu) / cpu_us(floor_cpu))
      .Add("plain_cpu_us", cpu_us(plain_cpu));
}

void Measure(const std::string& what, const Both& both) {
  if (what == "payload") {
    for (const bool put : {true, false}) MeasurePayload(both, put);
  } else if (what == "rate") {
    MeasureRate(both);
  } else if (what == "connect" || what == "reconnect") {
    MeasureConnect(both, what == "reconnect");
  } else {
    fprintf(stderr, "bench: --what=%s: it is none of payload, rate, connect, reconnect\n", what.c_str());
    exit(1);
  }
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  hawser::bench::ServeIfAsked(argc, argv);
  absl::ParseCommandLine(argc, argv);
  const auto [mode, pin] = hawser::bench::ParsePlacement("placement", absl::GetFlag(FLAGS_placement));
  const hawser::CertificateAuthority authority;
  hawser::bench::Both both;
  both.plain.mode = mode;
  both.plain.pin = pin;
  both.tls = both.plain;
  both.tls.credentials = authority.Issue();
  hawser::bench::PinTo(pin, /*server=*/false);
  for (const std::string& what : absl::GetFlag(FLAGS_what)) hawser::bench::Measure(what, both);
}
