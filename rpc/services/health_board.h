#ifndef HAWSER_RPC_SERVICES_HEALTH_BOARD_H_
#define HAWSER_RPC_SERVICES_HEALTH_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/base/peer_table.h"
#include "hawser/health.rpc.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {

// What a server says of its health, and the service that says it (rpc/hawser/health.capnp).
//
// Each watch has at most one call to its client under way. The board sends what changes meanwhile once that
// call has ended, so a slow client holds nothing but its watches. If a call fails, the board notifies that
// client again after a second, for as long as its connection lives. Of many whose calls fail it notifies
// kAgainAtOnce at a time, so that the pollers have turns for other calls in between.
// Thread:   any. A thread of its own notifies again, from the first failure on until Close().
// Lifetime: shared by its server and the calls to watchers.
class HealthBoard final : public ServerExtension,
                          public health::HealthService,
                          public std::enable_shared_from_this<HealthBoard> {
 public:
  explicit HealthBoard(transport::Environment& environment) : environment_(environment) {}
  ~HealthBoard() override;

  absl::Status Check(ServerContext& context, health::Health::CheckParams::Reader request,
                     health::Health::CheckResults::Builder reply) override;
  absl::Status Watch(ServerContext& context, health::Health::WatchParams::Reader request,
                     health::Health::WatchResults::Builder reply) override;

  // ServerExtension
  uint64_t interface_id() const override;
  // Keeps what SetHealth() has said before.
  void Open(const std::vector<std::string>& services) override;
  // "": the server as a whole. No effect after Close().
  void SetHealth(absl::string_view service, bool serves) override;
  // Nothing serves any more. Waits until the watchers are notified, but not beyond `deadline`, and half a
  // second at most.
  void Close(absl::Time deadline) override;

  // To start so many calls takes a poller some 0.1 ms (one to two microseconds each; docs/guide.md, "Push").
  static constexpr size_t kAgainAtOnce = 64;

  // What Watch() does. `client`, which is to be notified, may be null: then it offers no services.
  // FailedPrecondition: it does not. ResourceExhausted: there are too many watches of it, of its host, or in
  // all.
  absl::Status AddWatch(const std::shared_ptr<Channel>& client, absl::string_view service);

 private:
  using Status = health::ServingStatus;

  // One service that one client watches.
  struct Watched {
    std::string service;
    std::weak_ptr<Channel> client;
    const Channel* key = nullptr;   // The key of that client in clients_.
    Status sent = Status::UNKNOWN;  // In the last call, if there was one.
    bool was_notified = false;
    bool is_being_notified = false;
    bool failed = false;  // A call, after which the client is yet to be notified again: it is in failed_.
  };
  // A client and its watches.
  struct Client {
    std::weak_ptr<Channel> channel;
    PeerHost host;
    std::vector<std::shared_ptr<Watched>> watches;
  };
  using Watches = std::vector<std::shared_ptr<Watched>>;
  struct Failed {
    std::weak_ptr<Watched> watch;
    int64_t again_ns;  // When the client is to be notified: a time of Environment::NowNs().
  };
  using Clients = std::map<const Channel*, Client>;

  Status StatusOf(absl::string_view service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All watches for which MarkDue() is true: the caller notifies their clients, without the lock.
  Watches Due() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks `watch`: its client is being notified of the present status. False: it has that already, or a call
  // to it is under way.
  bool MarkDue(Watched& watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Looks at the next few clients: what a client can cause is bounded, however many others there are.
  void DropSomeGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Clients::iterator DropIfGone(Clients::iterator client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify(const Watches& due);
  void OnNotified(const std::shared_ptr<Watched>& watch, const absl::Status& status);
  void Drop(const std::shared_ptr<Watched>& watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t WatchesOf(const PeerHost& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `count` watches more of `host`, or fewer.
  void Count(const PeerHost& host, ptrdiff_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyAgain();
  // `when_ns` as a time for Await().
  absl::Time TimeOf(int64_t when_ns);
  // Takes the first of failed_ that are due, kAgainAtOnce at most.
  Watches DueAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  transport::Environment& environment_;
  mutable absl::Mutex mutex_;
  absl::CondVar notified_;  // No call to a watcher is under way.
  std::map<std::string, bool, std::less<>> serves_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Clients clients_ ABSL_GUARDED_BY(mutex_);
  const Channel* next_look_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Compared only: may be gone.
  size_t watches_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<PeerHost, size_t> by_host_ ABSL_GUARDED_BY(mutex_);  // Watches of each; none is 0.
  size_t notifying_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread again_ ABSL_GUARDED_BY(mutex_);          // Runs NotifyAgain().
  std::deque<Failed> failed_ ABSL_GUARDED_BY(mutex_);  // In the order in which they failed.
  absl::CondVar failed_or_closed_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVICES_HEALTH_BOARD_H_
