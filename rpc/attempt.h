#ifndef HAWSER_RPC_ATTEMPT_H_
#define HAWSER_RPC_ATTEMPT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/rpc/link.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/resolver.h"
#include "hawser/transport/timer.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

// One attempt to connect a channel: looks up the name, then tries one address after the other until a Link is
// up.
// Thread:   on the poller.
// Lifetime: its owner lets go of it when it has heard how it ended, or calls Abandon().
class Attempt final : public std::enable_shared_from_this<Attempt>, public Resolver::Client, Link::Observer {
 public:
  class Owner {
   public:
    // One of these two, once. Start() may call OnAttemptFailed() before it returns.
    virtual void OnAttemptConnected(std::unique_ptr<Link> link) = 0;
    virtual void OnAttemptFailed(const absl::Status& why) = 0;
    // `link` is of no use; it is kept, with the owner as its observer, until OnLinkGone().
    virtual void Bury(std::unique_ptr<Link> link) = 0;

   protected:
    ~Owner() = default;
  };

  // All of these, except `options` and `offers`, outlive it. `offers` may be null.
  Attempt(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, const transport::Uri& uri,
          const ChannelOptions& options, std::shared_ptr<const Serving> offers, Owner& owner);
  void Start();

  // Gives up; the owner hears nothing more.
  void Abandon();

 private:
  void OnResolved(absl::StatusOr<std::vector<fabric::SocketAddress>> addresses);
  void TryNext();
  void Fail();
  void Note(const absl::Status& why) { failures_.push_back(why); }

  // Resolver::Client
  void OnLookedUp(const Resolver::Addresses& addresses) override;

  // Link::Observer
  void OnLinkReady(Link& link) override;
  void OnLinkGoingAway(Link& link) override;
  void OnLinkDown(Link& link, const absl::Status& why) override;
  void OnLinkGone(Link& link) override;

  std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const transport::Uri& uri_;
  const ChannelOptions& options_;
  const std::shared_ptr<const Serving> offers_;
  Owner* owner_;  // Null once it is over.
  int64_t give_up_ns_ = 0;
  transport::Timer resolve_timer_;
  std::vector<fabric::SocketAddress> addresses_;
  size_t next_ = 0;
  std::vector<absl::Status> failures_;
  std::unique_ptr<Link> link_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_ATTEMPT_H_
