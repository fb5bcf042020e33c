// The smallest server: it returns its input.

#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "examples/echo/echo.rpc.h"
#include "examples/stop_signal.h"
#include "examples/tls_flags.h"
#include "hawser/rpc/server.h"
#include "hawser/services/perf/perf.h"

namespace {

class EchoServiceImpl : public echo::EchoService {
 public:
  absl::Status Echo(hawser::ServerContext&, echo::Echo::EchoParams::Reader request,
                    echo::Echo::EchoResults::Builder reply) override {
    reply.setMessage(request.getMessage());
    return absl::OkStatus();
  }
};

constexpr char kProgram[] = "echo_server";
constexpr char kUsage[] =
    "echo_server --listen=tcp://HOST:PORT [--listen=...] [--polling=adaptive|spin|sleep]\n"
    "            [--status=HOST:PORT] [--perf]\n"
    "            [--tls_certificate=FILE --tls_key=FILE --tls_authorities=FILE]\n"
    "  --listen   address to serve on; may be given several times; port 0 is any free one\n"
    "  --status   where to show over HTTP what the server is doing; a port alone is for this machine only\n"
    "  --perf     lets clients measure it (hawser perf), as much as the network carries\n"
    "  --polling  how it waits for requests: it spins while that pays off, always, or never\n"
    "  --tls_...  PEM files; with them both sides show a certificate, and tcp:// is encrypted (rdma:// is "
    "not)";

}  // namespace

int main(int argc, char** argv) {
  examples::StopSignal stop;  // Made first, before there are other threads.

  std::vector<std::string> uris;
  std::string status_address;
  bool perf = false;
  size_t polling = 0;
  examples::FlagSet flags;
  flags.Texts("listen", &uris)
      .Text("status", &status_address)
      .Switch("perf", &perf)
      .Choice("polling", {"adaptive", "spin", "sleep"}, &polling);
  examples::TlsFlags tls;
  tls.AddTo(flags);
  const auto line = examples::CommandLine::Split({argv + 1, argv + argc});
  if (examples::WantsHelp(line)) {
    std::cout << "usage: " << kUsage << std::endl;
    return 0;
  }
  if (absl::Status status = flags.Apply(line); !status.ok()) {
    return examples::WrongUsage(kProgram, status.message(), kUsage);
  }
  if (!line.words.empty()) {
    return examples::WrongUsage(kProgram, "do not know what to do with \"" + line.words[0] + "\"", kUsage);
  }
  if (uris.empty()) return examples::WrongUsage(kProgram, "no --listen: where to serve?", kUsage);
  const auto credentials = tls.Credentials();
  if (!credentials.ok()) return examples::WrongUsage(kProgram, credentials.status().message(), kUsage);

  EchoServiceImpl service;
  hawser::ServerOptions options;
  constexpr hawser::PollingMode kModes[] = {hawser::PollingMode::kAdaptive, hawser::PollingMode::kSpin,
                                            hawser::PollingMode::kSleep};
  options.poller.mode = kModes[polling];
  options.credentials = *credentials;
  options.status_address = status_address;
  if (perf) options.extensions = {hawser::PerfExtension()};
  hawser::Server server(options);
  if (absl::Status status = server.AddService(&service); !status.ok()) {
    std::cerr << kProgram << ": " << status << std::endl;
    return 1;
  }
  for (const std::string& uri : uris) {
    if (absl::Status status = server.Listen(uri).status(); !status.ok()) {
      std::cerr << kProgram << ": " << status << std::endl;
      return 1;
    }
  }
  for (const std::string& address : server.addresses()) std::cout << "listening on " << address << std::endl;
  if (!server.status_url().empty()) std::cout << "status on " << server.status_url() << std::endl;
  if (const std::string why = server.why_not_rdma(); !why.empty()) {
    std::cerr << kProgram << ": not over RDMA: " << why << std::endl;
  }

  stop.Wait();
  if (absl::Status status = server.Shutdown(absl::Now() + absl::Seconds(5)); !status.ok()) {
    std::cerr << kProgram << ": " << status << std::endl;
  }
  return 0;
}
