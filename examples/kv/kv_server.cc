// A key-value server: examples/kv/kv.capnp over a Store in memory.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "examples/kv/authorize.h"
#include "examples/kv/kv_service.h"
#include "examples/kv/shared_table.h"
#include "examples/stop_signal.h"
#include "examples/tls_flags.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/services/perf/perf.h"

namespace {

constexpr char kProgram[] = "kv_server";
constexpr char kUsage[] =
    "kv_server --listen=tcp://HOST:PORT [--listen=...] [--memory=4GiB] [--message_max=513MiB] [--pollers=0]\n"
    "          [--tls_certificate=FILE --tls_key=FILE --tls_authorities=FILE [--writer=NAME]...]\n"
    "          [--one_sided [--shared_memory=64MiB]] [--status=HOST:PORT] [--perf]\n"
    "  --listen       address to serve on; may be given several times; port 0 is any free one\n"
    "  --memory       registered memory at most, without --shared_memory; values get three quarters of it\n"
    "  --message_max  largest message; a value may have 8 KiB less\n"
    "  --pollers      threads that serve connections; 0: up to one for each core\n"
    "  --watch_log    memory for changes that watchers have not seen yet (default 16MiB)\n"
    "  --one_sided    lets clients find values in memory by themselves, without a call (kv get --one_sided)\n"
    "  --shared_memory  that memory, beside --memory: a quarter for keys and small values,\n"
    "                 the rest for values up to 64KiB\n"
    "  --status       where to show over HTTP what the server is doing; a port alone is for this machine "
    "only\n"
    "  --perf         lets clients measure it (hawser perf), as much as the network carries\n"
    "  --tls_...      PEM files; with them both sides show a certificate, and tcp:// is encrypted (rdma:// "
    "is not)\n"
    "  --writer       a DNS name or URI in a certificate: only clients with one of those given may change\n"
    "                 anything, or measure (--perf); without --writer, every client with a certificate may";

// Bytes of a put beside its value: the key, and Cap'n Proto's pointers.
constexpr uint64_t kBesideValue = 8 << 10;
// The most bytes of Cap'n Proto's Data, whose length has 29 bits.
constexpr uint64_t kDataBytesMax = (uint64_t{1} << 29) - 1;

}  // namespace

int main(int argc, char** argv) {
  examples::StopSignal stop;  // Made first, before there are other threads.

  std::vector<std::string> uris, writers;
  uint64_t memory_bytes = uint64_t{4} << 30;
  uint64_t message_bytes_max = uint64_t{513} << 20;
  uint64_t log_bytes = 16 << 20;
  uint64_t pollers = 0;
  examples::FlagSet flags;
  flags.Texts("listen", &uris).Bytes("memory", 16 << 20, uint64_t{1} << 50, &memory_bytes);
  flags.Bytes("message_max", 64 << 10, uint64_t{513} << 20, &message_bytes_max);
  flags.Bytes("watch_log", 1, uint64_t{1} << 40, &log_bytes).Number("pollers", 0, 1024, &pollers);
  std::string status_address;
  bool perf = false, one_sided = false;
  uint64_t shared_bytes = 64 << 20;
  flags.Switch("one_sided", &one_sided);
  flags.Bytes("shared_memory", kv::SharedTable::kMemoryMin, uint64_t{1} << 31, &shared_bytes);
  flags.Texts("writer", &writers).Text("status", &status_address).Switch("perf", &perf);
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
  if (!writers.empty() && !credentials->has_value()) {
    return examples::WrongUsage(kProgram, "--writer needs --tls_...: without it no client has a name",
                                kUsage);
  }

  // The last quarter is for receive rings and messages in flight, so that clients can still remove keys from
  // a full server.
  kv::KvService service(memory_bytes / 4 * 3, log_bytes,
                        std::min(message_bytes_max - kBesideValue, kDataBytesMax));
  hawser::ServerOptions options;
  options.pollers = static_cast<int>(pollers);
  options.pool.limit_bytes = memory_bytes;
  options.connection.message_bytes_max = message_bytes_max;
  options.credentials = *credentials;
  options.status_address = status_address;
  if (perf) options.extensions = {hawser::PerfExtension()};
  if (!writers.empty()) {
    options.authorize = [&writers](const hawser::ServerContext& context) {
      return kv::Authorize(writers, context.peer_identity(), context.method());
    };
  }
  hawser::Server server(options);
  service.ReportOn(&server);
  if (one_sided) {
    absl::StatusOr<hawser::SharedMemory> memory = server.Share(shared_bytes);
    const absl::Status shared = memory.ok() ? service.ShareIn(*std::move(memory)) : memory.status();
    if (!shared.ok()) {
      std::cerr << kProgram << ": " << shared << std::endl;
      return 1;
    }
  }
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
