#ifndef HAWSER_RPC_CLIENT_RETIRED_LINKS_H_
#define HAWSER_RPC_CLIENT_RETIRED_LINKS_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "hawser/rpc/client/link.h"

namespace hawser::internal {

// The links of a channel that carry no new calls: they drain, or close, until the fabric has returned their
// memory.
// Thread:   on the poller.
// Lifetime: a part of ChannelCore, which observes them and is kept until there is none.
class RetiredLinks {
 public:
  bool empty() const { return links_.empty(); }
  size_t size() const { return links_.size(); }
  void Add(std::unique_ptr<Link> link) { links_.push_back(std::move(link)); }
  // It has ended. Destroys it.
  void Remove(const Link& link);

  // Links that a server has asked to leave stay open until their calls have ended, at most so many.
  void CloseOldest();
  void CloseAll(const absl::Status& why);

 private:
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_RETIRED_LINKS_H_
