#include "hawser/rpc/server/check_server_options.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/option_range.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/rpc/wire/interception.h"
#include "hawser/rpc/wire/read_limits.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/memory/size_class.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {
namespace {

// Small buffers are cut from slabs: one slab for receives, and one for messages.
constexpr uint64_t kPoolMin = 2 * transport::kSlabBytes;

absl::Status CheckProofPorts(const PortRange& ports) {
  if (ports.first == 0 && ports.last == 0) return absl::OkStatus();
  if (ports.first >= transport::kProofPortMin && ports.first <= ports.last) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "ServerOptions::proof_ports is ", ports.first, " to ", ports.last, ": `first` and `last` are from ",
      transport::kProofPortMin, " to 65535, `last` not below `first`; both 0 are any port"));
}

absl::Status CheckExtensions(const ServerExtensionList& extensions) {
  absl::flat_hash_set<absl::string_view> names;
  for (const auto& extension : extensions) {
    if (extension == nullptr) {
      return absl::InvalidArgumentError("ServerOptions::extensions: one of them is null");
    }
    if (!names.insert(extension->name).second) {
      return absl::InvalidArgumentError(absl::StrCat("ServerOptions::extensions has \"", extension->name,
                                                     "\" twice: a server takes it once"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckServerOptions(const ServerOptions& options) {
  absl::Status intercepts = CheckInterceptors(options.interceptors, "ServerOptions::interceptors");
  if (!intercepts.ok()) return intercepts;
  absl::Status in_range = FirstError(
      transport::Connection::CheckOptions(options.connection),
      CheckOption("ServerOptions::handler_grace", options.handler_grace, absl::ZeroDuration(),
                  absl::InfiniteDuration()),
      CheckOption("ServerOptions::connections_max", uint64_t{options.connections_max}, uint64_t{1},
                  uint64_t{std::numeric_limits<uint32_t>::max()}),
      CheckOption("ServerOptions::connections_per_host_max", uint64_t{options.connections_per_host_max},
                  uint64_t{1}, uint64_t{std::numeric_limits<uint32_t>::max()}),
      CheckEnumOption("ServerOptions::introspection", options.introspection, Introspection::kEveryone,
                      "kNever, kThisMachine, kEveryone"),
      CheckProofPorts(options.proof_ports), CheckExtensions(options.extensions),
      CheckReadLimits(options.read, "ServerOptions::read"));
  if (!in_range.ok()) return in_range;
  if (options.runtime == nullptr) {
    absl::Status runtime =
        FirstError(CheckOption("ServerOptions::pollers", int64_t{options.pollers}, int64_t{0},
                               int64_t{transport::kPollersMost}, "0: up to one for each core"),
                   transport::Runtime::CheckOptions({.poller = options.poller, .pool = options.pool}));
    if (!runtime.ok()) return runtime;
  }
  const uint64_t limit_bytes =
      options.runtime != nullptr ? options.runtime->buffers().stats().limit_bytes : options.pool.limit_bytes;
  if (limit_bytes >= kPoolMin) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ServerOptions: BufferPoolOptions::limit_bytes ",
                                                 limit_bytes, " is too little to serve a client: ", kPoolMin,
                                                 " at least"));
}

}  // namespace hawser::internal
