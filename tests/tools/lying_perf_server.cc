// A server that lets clients measure it, and answers what they did not ask for: --lie=short, long, none,
// bytes, raw, older, ticket.

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "examples/arguments.h"
#include "examples/stop_signal.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"

namespace {

using hawser::perf::Perf;

class LyingPerf : public hawser::perf::PerfService {
 public:
  explicit LyingPerf(std::string lie) : lie_(std::move(lie)) {}
  // Before it listens.
  void set_server(hawser::Server& server) { server_ = &server; }

  absl::Status Limits(hawser::ServerContext&, Perf::LimitsParams::Reader,
                      Perf::LimitsResults::Builder reply) override {
    reply.setMessageBytesMax(~uint64_t{0});
    reply.setSlots(~uint32_t{0});
    reply.setReceiveBufferBytes(~uint32_t{0});
    return absl::OkStatus();
  }
  absl::Status Echo(hawser::ServerContext&, Perf::EchoParams::Reader request,
                    Perf::EchoResults::Builder reply) override {
    Fill(reply.initPayload(static_cast<uint32_t>(Bytes(request.getPayload().size()))), 'p');
    return absl::OkStatus();
  }
  absl::Status Put(hawser::ServerContext&, Perf::PutParams::Reader request,
                   Perf::PutResults::Builder reply) override {
    reply.setBytes(Bytes(request.getPayload().size()));
    return absl::OkStatus();
  }
  absl::Status Get(hawser::ServerContext&, Perf::GetParams::Reader request,
                   Perf::GetResults::Builder reply) override {
    Fill(reply.initPayload(static_cast<uint32_t>(Bytes(request.getBytes()))), 'g');
    return absl::OkStatus();
  }
  // A port where nothing listens, and a token that is none.
  absl::Status OpenRaw(hawser::ServerContext&, Perf::OpenRawParams::Reader,
                       Perf::OpenRawResults::Builder reply) override {
    if (lie_ != "raw") return absl::ResourceExhaustedError("no port \x1b[2J for you");
    reply.setPort(1);
    return absl::OkStatus();
  }
  // Memory that is not filled, or a ticket that is none.
  absl::Status Share(hawser::ServerContext& context, Perf::ShareParams::Reader,
                     Perf::ShareResults::Builder reply) override {
    if (lie_ == "older") return absl::UnimplementedError("no such method");
    if (lie_ == "ticket") {
      auto ticket = reply.initMemory();
      ticket.setLength(1 << 20);
      ticket.setAccess(1);
      return absl::OkStatus();
    }
    if (!shared_.has_value()) {
      absl::StatusOr<hawser::SharedMemory> made = server_->Share(1 << 20);
      if (!made.ok()) return made.status();
      shared_.emplace(*std::move(made));
    }
    return context.Grant(*shared_, {}, reply.initMemory());
  }

 private:
  uint64_t Bytes(uint64_t asked) const {
    return lie_ == "short" ? asked - 1 : lie_ == "long" ? asked + 1 : lie_ == "none" ? 0 : asked;
  }
  void Fill(capnp::Data::Builder payload, char byte) const {
    std::fill(payload.begin(), payload.end(), static_cast<kj::byte>(lie_ == "bytes" ? 'x' : byte));
  }

  hawser::Server* server_ = nullptr;
  const std::string lie_;
  std::optional<hawser::SharedMemory> shared_;
};

}  // namespace

int main(int argc, char** argv) {
  examples::StopSignal stop;
  std::string uri = "tcp://127.0.0.1:0", lie;
  examples::FlagSet flags;
  flags.Text("listen", &uri).Text("lie", &lie);
  if (absl::Status status = flags.Apply(examples::CommandLine::Split({argv + 1, argv + argc}));
      !status.ok()) {
    std::cerr << status << std::endl;
    return 2;
  }
  LyingPerf perf(lie);
  hawser::Server server;
  perf.set_server(server);
  absl::Status status = server.AddService(&perf);
  if (status.ok()) status = server.Listen(uri).status();
  if (!status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  for (const std::string& address : server.addresses()) std::cout << "listening on " << address << std::endl;
  stop.Wait();
  server.Shutdown(absl::Now()).IgnoreError();
  return 0;
}
