#ifndef HAWSER_RPC_SERVER_SERVER_SNAPSHOT_H_
#define HAWSER_RPC_SERVER_SERVER_SNAPSHOT_H_

#include <vector>

#include "absl/time/time.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server/client_table.h"
#include "hawser/rpc/server/listeners.h"
#include "hawser/rpc/server/server_credentials.h"
#include "hawser/rpc/server/server_pollers.h"
#include "hawser/rpc/serving/server_report.h"
#include "hawser/rpc/stats.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {

// What a server says of itself: adds up what its parts count, and asks the pollers what is on them.
// Thread:   any; not a poller for FillIn(), which waits for them.
// Lifetime: owned by ServerCore.
// Locks:    none of its own, and it holds none while it waits.
class ServerSnapshot {
 public:
  // What it asks. A snapshot makes the pollers work, and takes the slow calls that they have kept.
  struct Sources {
    const ServerOptions& options;
    const MethodTable& methods;
    const Listeners& listeners;
    const ServerCredentials& credentials;
    const ClientTable& clients;
    const ServerPollers& pollers;
    transport::Environment& environment;
  };

  // All of these outlive it. The server was made now.
  explicit ServerSnapshot(const Sources& sources) : of_(sources), made_(sources.environment.Now()) {}
  ServerSnapshot(const ServerSnapshot&) = delete;
  ServerSnapshot& operator=(const ServerSnapshot&) = delete;

  ServerStats Stats() const;
  // All but the server's state, which its owner sets.
  void FillIn(observe::wire::Snapshot::Builder snapshot) const;

 private:
  void FillInServer(observe::wire::Server::Builder server) const;
  void FillInMethods(observe::wire::Snapshot::Builder snapshot,
                     const std::vector<ServerPollers::Named>& pollers, const PollerReports& reports) const;
  // These, and the slowest calls on them.
  void FillInPollers(observe::wire::Snapshot::Builder snapshot,
                     const std::vector<ServerPollers::Named>& pollers, const PollerReports& reports) const;
  void FillInPools(observe::wire::Snapshot::Builder snapshot) const;
  void FillInRefusals(observe::wire::Snapshot::Builder snapshot, const ServerStats& totals) const;
  void FillInSettings(observe::wire::Snapshot::Builder snapshot) const;

  const Sources of_;
  const absl::Time made_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVER_SNAPSHOT_H_
