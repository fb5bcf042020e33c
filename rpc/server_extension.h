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
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/shared_memory.h"
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
  // As Server::Share().
  virtual absl::StatusOr<SharedMemory> Share(size_t size_bytes) = 0;
  // The addresses that the server listens on.
  virtual std::vector<SocketAddress> listening() const = 0;
  // What it serves, extensions included. It does not change once the server runs.
  virtual const MethodTable& methods() const = 0;
  // See Server::FillIn(). Not after ServerExtension::End().
  virtual void FillIn(observe::wire::Snapshot::Builder snapshot) = 0;

 protected:
  ~ServerExtensionHost() = default;
};

// A service of Hawser's own that reaches into its server. Each server has those of BuiltInServices()
// (rpc/services/built_in_services.h). A program names the others (ServerOptions::extensions), so what no
// program names is linked into none. A service of the application with the same interface takes its place.
// Lifetime: the server owns it and calls Open() at its first Listen(), Close() when it shuts down, and End()
//           while what the host uses is still there. It keeps it until the last handler has returned.
class ServerExtension : public virtual Service {
 public:
  // The id of its Cap'n Proto interface.
  virtual uint64_t interface_id() const = 0;
  // Whether its handlers return at once: MethodTable::Entry says what for.
  virtual bool on_poller() const { return true; }
  // The server begins to serve `services`, those of the application. With a lock of the server held, so a
  // lock that this takes, or AddMethods(), is never held while the host is called.
  virtual void Open(const std::vector<std::string>& /*services*/) {}
  // See Server::SetHealth(). Also before Open().
  virtual void SetHealth(absl::string_view /*service*/, bool /*serves*/) {}
  // The server shuts down. The extension may send until `deadline`; then it ends what it waits for.
  virtual void Close(absl::Time deadline) = 0;
  // No more snapshots are wanted; Close() may still run on another thread. It does not call its host any
  // more.
  virtual void End() {}
};

// Makes it for a server, or returns null if its options want none. `host`, `environment` and `options`
// outlive what it makes.
struct ServerExtensionFactory {
  std::string name;  // "perf", for the page of the server's configuration.
  std::function<std::shared_ptr<ServerExtension>(
      ServerExtensionHost& host, transport::Environment& environment, const ServerOptions& options)>
      make;
};

using ServerExtensionList = std::vector<std::shared_ptr<const ServerExtensionFactory>>;

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_EXTENSION_H_
