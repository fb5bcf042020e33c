#ifndef HAWSER_TESTS_RPC_CABLE_H_
#define HAWSER_TESTS_RPC_CABLE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hawser/rpc/channel.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser {

// The link between clients and the server at `uri`, which a test can cut. Over TCP it is a Proxy. Over RDMA
// it is the clients' ends of the connections, which it can disconnect: both sides see that as they see a peer
// that died. At most one exists at a time.
// Thread:   any.
class Cable {
 public:
  explicit Cable(const std::string& uri);
  ~Cable();
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;

  // For a runtime of the test's own, which ChannelOptions::runtime names.
  std::shared_ptr<fabric::Fabric> NewFabric();
  // Clients of it; as those of Channel.
  absl::StatusOr<std::shared_ptr<Channel>> Connect(ChannelOptions options = {});
  absl::StatusOr<std::shared_ptr<Channel>> Create(ChannelOptions options = {});

  // Every connection is lost, with what was in flight on it; new ones are accepted.
  void Cut();
  // False: new connections are lost at once, or not made.
  void Pass(bool pass);
  // Taken so far, or tried.
  int connections() const;

 private:
  class Ends;
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_CABLE_H_
