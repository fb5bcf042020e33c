#ifndef HAWSER_RPC_CLIENT_ATTEMPT_H_
#define HAWSER_RPC_CLIENT_ATTEMPT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/rpc/client/link.h"
#include "hawser/rpc/client/resolver.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/security.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

// One attempt to connect a channel: looks up the name, then tries its addresses as Happy Eyeballs does
// (RFC 8305): IPv6 and IPv4 in turn, the next one when the last one has failed or has not answered for a
// quarter of a second, a few at once. The first Link that is up wins, and the others are closed.
// Thread:   on the poller.
// Lifetime: its owner releases it after the result, or calls Abandon().
class Attempt final : public std::enable_shared_from_this<Attempt>, public Resolver::Client, Link::Observer {
 public:
  class Owner {
   public:
    // One of these two, once. Start() may call OnAttemptFailed() before it returns.
    virtual void OnAttemptConnected(std::unique_ptr<Link> link) = 0;
    virtual void OnAttemptFailed(const absl::Status& why) = 0;
    // Takes over `link`, which is not used any more, and observes it until OnLinkEnded().
    virtual void Retire(std::unique_ptr<Link> link) = 0;

   protected:
    ~Owner() = default;
  };

  // All of these, except `offers`, outlive it. `offers` may be null.
  Attempt(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller, const transport::Uri& uri,
          const ChannelOptions& options, const transport::Security& security,
          std::shared_ptr<const Serving> offers, Owner& owner, Resolver& resolver = Resolver::Process());
  void Start();

  // Gives up, and does not call the owner any more.
  void Abandon();

 private:
  void OnResolved(absl::StatusOr<std::vector<SocketAddress>> addresses);
  // Dials the next address, if there is one. Called only while fewer than kAtOnceMax are being tried. Fails
  // if nothing is left to wait for.
  void TryNext();
  void Dial(const SocketAddress& address);
  void SetNextTimer();
  // Removes `link` from those that are being tried.
  std::unique_ptr<Link> Take(const Link& link);
  void CloseAll(const absl::Status& why);
  void Fail();
  void Note(const absl::Status& why) { failures_.push_back(why); }

  // Resolver::Client
  void OnLookedUp(const Resolver::Addresses& addresses) override;

  // Link::Observer
  void OnLinkReady(Link& link) override;
  void OnLinkGoingAway(Link& link) override;
  void OnLinkLost(Link& link, const absl::Status& why) override;
  void OnLinkEnded(Link& link) override;

  std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const transport::Uri& uri_;
  const ChannelOptions& options_;
  const transport::Security& security_;
  const std::shared_ptr<const Serving> offers_;
  Resolver& resolver_;
  Owner* owner_;  // Null after the end.
  int64_t give_up_ns_ = 0;
  transport::Timer resolve_timer_;
  transport::Timer next_timer_;
  std::vector<SocketAddress> addresses_;
  size_t next_ = 0;
  std::vector<absl::Status> failures_;
  std::vector<std::unique_ptr<Link>> links_;  // Being tried.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_ATTEMPT_H_
