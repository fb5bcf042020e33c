#ifndef HAWSER_TESTS_RPC_CABLE_H_
#define HAWSER_TESTS_RPC_CABLE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hawser/rpc/channel.h"

namespace hawser {

// What lies between clients and the server at `uri`, to be cut at will. Over TCP a Proxy; over RDMA the ends
// of the connections that clients of it have, which it can disconnect: both sides hear of that as they hear
// of a peer that died. One at a time.
// Thread:   any.
class Cable {
 public:
  explicit Cable(const std::string& uri);
  ~Cable();
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;

  // Clients of it; as those of Channel.
  absl::StatusOr<std::shared_ptr<Channel>> Connect(ChannelOptions options = {});
  absl::StatusOr<std::shared_ptr<Channel>> Create(ChannelOptions options = {});

  // Every connection is lost, with what was under way; new ones are taken.
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
