#ifndef HAWSER_RPC_SERVER_EXTENSION_H_
#define HAWSER_RPC_SERVER_EXTENSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/service.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// What an extension reaches of its server.
class ServerExtensionHost {
 public:
  // Registered memory for replies over the network of `scheme`. From any thread.
  virtual absl::StatusOr<Buffer> AllocateOn(absl::string_view scheme, size_t size_bytes) = 0;
  // The runtime that serves clients of `scheme` at this address of the server. Unavailable: it shuts down.
  virtual absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeAt(absl::string_view scheme,
                                                                        const SocketAddress& address) = 0;
  // How often memory of that pool was refused: BufferPool::refusals(). From any thread.
  virtual uint64_t RefusalsOn(absl::string_view scheme) const = 0;
  // The addresses that the server listens on.
  virtual std::vector<SocketAddress> listening() const = 0;

 protected:
  ~ServerExtensionHost() = default;
};

// A service of Hawser's own that not every server is to have, and that reaches into its server. A program
// names it (ServerOptions::extensions), so what no program names is linked into none. A service of the
// application with the same interface takes its place.
// Lifetime: the server owns it, calls Close() when it shuts down, and keeps it until the last handler has
//           returned.
class ServerExtension : public virtual Service {
 public:
  // The id of its Cap'n Proto interface.
  virtual uint64_t interface_id() const = 0;
  // Ends what it waits for, and its threads.
  virtual void Close() = 0;
};

// Makes it for a server. `host`, `environment` and `options` outlive what it makes.
struct ServerExtensionFactory {
  std::string name;  // "perf", for the page of the server's configuration.
  std::function<std::unique_ptr<ServerExtension>(
      ServerExtensionHost& host, transport::Environment& environment, const ServerOptions& options)>
      make;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_EXTENSION_H_
