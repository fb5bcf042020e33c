#ifndef HAWSER_RPC_SERVER_SERVER_POLLERS_H_
#define HAWSER_RPC_SERVER_SERVER_POLLERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/socket_address.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server/listeners.h"
#include "hawser/rpc/server/poller_group.h"
#include "hawser/rpc/stats.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// The pollers and the registered memory of a server: a PollerGroup for each network and device, from the
// first need of it to the end of the server.
// Thread:   any. What makes pollers opens devices and starts threads, so not on a poller.
// Lifetime: owned by ServerCore. Destroy it before what it refers to, and on none of its pollers.
// Locks:    see ServerCore.
class ServerPollers {
 public:
  // A poller that serves, as snapshots know it.
  struct Named {
    std::string name;  // "tcp 0", "rdma mlx5_0 1".
    std::string fabric;
    ServingPoller* serving = nullptr;
  };
  using RuntimeOr = absl::StatusOr<std::shared_ptr<transport::Runtime>>;

  // All of these outlive it. Peers go to `clients`.
  ServerPollers(const ServerOptions& options, const MethodTable& methods, ServerCredentials& credentials,
                PollerGroup::Clients& clients)
      : options_(options), methods_(methods), credentials_(credentials), clients_(clients) {}
  ~ServerPollers();
  ServerPollers(const ServerPollers&) = delete;
  ServerPollers& operator=(const ServerPollers&) = delete;

  // Makes no pollers any more.
  void Close();

  // The pollers of the device that `address` is on; makes them if there are none. FailedPrecondition: Close()
  // was called, or the network is less secure than the credentials ask for.
  absl::StatusOr<PollerGroup*> At(const std::string& scheme, const SocketAddress& address);
  // Those that prove, over TCP, who connects over RDMA.
  absl::StatusOr<PollerGroup*> ForProofs();
  // The runtime that serves, or would serve, URIs of `scheme` over `device`. It stays.
  RuntimeOr RuntimeOn(const std::string& scheme, const std::string& device);
  // The runtime that serves clients of `scheme` at this address. Unavailable: the server shuts down.
  RuntimeOr RuntimeAt(absl::string_view scheme, const SocketAddress& address) const;
  // See Server::AllocateBuffer(). With a URI it may make pollers, which stay if it succeeds.
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes, absl::string_view uri);
  // See ServerExtensionHost.
  absl::StatusOr<Buffer> AllocateOn(absl::string_view scheme, size_t size_bytes) const;
  uint64_t RefusalsOn(absl::string_view scheme) const;

  // Takes out those that were made for nothing: they serve no client, nothing listens on them, and neither
  // the application nor a channel has memory or pollers of them. For DestroyUnused(). While this runs, no
  // thread is between At(), or AllocateBuffer(), and the use of what that returned. Not after Close():
  // CloseProofs() then uses them without the lock.
  std::vector<std::unique_ptr<PollerGroup>> TakeUnused(const Listeners& listeners);
  static void DestroyUnused(std::vector<std::unique_ptr<PollerGroup>> unused);
  // Ends the proofs that clients are giving, and refuses later ones.
  void CloseProofs();

  std::vector<ServingPoller*> Serving() const;
  std::vector<Named> NamedServing() const;
  // "tcp", "rdma mlx5_0".
  std::vector<std::pair<std::string, std::shared_ptr<transport::Runtime>>> NamedRuntimes() const;
  // A client has come.
  bool serves() const;
  // This thread is on one of them.
  bool on_one() const;
  // Adds all but the connections.
  void AddTo(ServerStats& stats) const;

 private:
  using Key = std::pair<std::string, std::string>;  // Scheme and device.
  struct Entry {
    std::unique_ptr<PollerGroup> group;
    bool is_kept = false;  // Gives memory to the application, or pollers to channels.
  };

  absl::StatusOr<PollerGroup*> On(const std::string& scheme, const std::string& device, bool keeps);
  absl::StatusOr<PollerGroup*> MakeOnce(const Key& key, absl::FunctionRef<RuntimeOr()> make_runtime,
                                        bool keeps);
  // A new runtime, or the one that the application gave.
  RuntimeOr MakeRuntime(const std::string& scheme, const std::string& device) const;
  // The runtime of `device`, or else the first for `scheme`. Unavailable: none serves that any more.
  RuntimeOr ServingRuntime(absl::string_view scheme, const std::string& device) const;
  RuntimeOr RuntimeForBuffers(absl::string_view uri);
  // The runtime that the application gives has its device already.
  std::string DeviceFor(absl::string_view scheme, const SocketAddress& address) const;

  const ServerOptions& options_;
  const MethodTable& methods_;
  ServerCredentials& credentials_;
  PollerGroup::Clients& clients_;
  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Key, Entry> groups_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVER_POLLERS_H_
