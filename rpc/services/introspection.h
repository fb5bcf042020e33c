#ifndef HAWSER_RPC_SERVICES_INTROSPECTION_H_
#define HAWSER_RPC_SERVICES_INTROSPECTION_H_

#include <capnp/message.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/base/peer_table.h"
#include "hawser/introspection.rpc.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {

// The service of rpc/hawser/introspection.capnp: gives a server's snapshot to clients that may have it.
//
// A snapshot waits for pollers, so the handler, which runs on one, leaves its call to a thread. That thread
// takes one snapshot for all calls that wait, and no other within kAgeNs. So however many clients ask, they
// cost the server four snapshots a second at most, and the copies that they get.
// Thread:   any. The thread, of lower priority, starts at the first call and runs until End().
// Lifetime: that of its server, which calls End() before what the source uses ends.
// Failure:  a call gets an error, and the service goes on: see the schema.
class Introspector final : public ServerExtension, public introspection::IntrospectionService {
 public:
  // Fills in what the server is doing: see Server::FillIn(). On the thread of the Introspector. Not after
  // End().
  using Source = std::function<void(observe::wire::Snapshot::Builder snapshot)>;

  // How old an answer may be.
  static constexpr int64_t kAgeNs = 250'000'000;
  // Calls that wait for a snapshot at once, and those of one host.
  static constexpr size_t kWaitingMax = 64;
  static constexpr size_t kWaitingOfHostMax = kWaitingMax / 2;

  // A snapshot of more than `bytes_max`, as a message, is cut.
  Introspector(Introspection who, uint64_t bytes_max, transport::Environment& environment, Source source);
  ~Introspector() override;

  absl::Status Snapshot(ServerContext& context, introspection::Introspection::SnapshotParams::Reader request,
                        introspection::Introspection::SnapshotResults::Builder reply) override;

  // ServerExtension
  uint64_t interface_id() const override;
  void Close(absl::Time) override {}  // A server that drains still says what it is doing.
  // Ends the calls that wait, with Unavailable, and each later one. Waits for the source at most.
  void End() override;

 private:
  struct Waiting {
    DeferredCall call;
    introspection::Introspection::SnapshotResults::Builder reply;
    PeerHost host;
  };

  void Run();
  // Blocks until there are calls, and takes all of them. Empty: closed.
  std::vector<Waiting> TakeWaiting();
  void TakeSnapshot();
  void Answer(Waiting waiting) const;

  const Introspection who_;
  const uint64_t bytes_max_;
  transport::Environment& environment_;
  const Source source_;

  absl::Mutex mutex_;
  absl::CondVar news_;  // A call waits, or it is closed.
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // Runs Run().

  // Used by the thread. The last snapshot is kept for kAgeNs.
  std::unique_ptr<capnp::MallocMessageBuilder> snapshot_;
  int64_t taken_ns_ = 0;
};

// Leaves parts of `snapshot` out, in the order of introspection.capnp, until it has `bytes_max` at most or
// all of these are gone. connectionsLeftOut, callsLeftOut and channelsLeftOut count what is left out.
void CutSnapshot(observe::wire::Snapshot::Builder snapshot, uint64_t bytes_max);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVICES_INTROSPECTION_H_
