#ifndef HAWSER_TESTS_SIM_CHANNEL_RECORD_H_
#define HAWSER_TESTS_SIM_CHANNEL_RECORD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/tls/peer_identity.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::sim {

// A channel of a simulated client; never destroyed before the world.
struct ChannelRecord {
  int host = 0;
  std::string identity;                             // Whose credentials it has. Empty: none.
  std::unique_ptr<ledger::WatcherService> watcher;  // nullptr: it offers none.
  std::shared_ptr<Channel> channel;                 // nullptr: it was closed or released.
  // One for each connection. Calls in flight keep them alive after that.
  std::vector<std::weak_ptr<internal::ChannelCore>> cores;
  bool ready = false;
  int losses = 0;

  // The rule that is broken if the other side of one of its connections sees `seen`, or if this side does.
  // Empty: none.
  std::string CheckClient(const PeerIdentity& seen) const { return Check(seen, identity); }
  std::string CheckServer(const PeerIdentity& seen) const {
    return Check(seen, identity.empty() ? "" : "server");
  }

 private:
  static std::string Check(const PeerIdentity& seen, const std::string& name) {
    const bool right = name.empty()
                           ? !seen.is_authenticated
                           : seen.is_authenticated && seen.dns_names == std::vector<std::string>{name};
    if (right) return "";
    return absl::StrCat("the peer is \"", name, "\", and is seen as \"", seen.ToString(), "\"");
  }
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_CHANNEL_RECORD_H_
