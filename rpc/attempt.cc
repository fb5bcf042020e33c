#include "hawser/rpc/attempt.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hawser::internal {
namespace {

// Takes no name server to understand. ("fe80::1%eth0" is not understood here, but it is looked up without
// one, too.)
bool IsNumeric(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace

Attempt::Attempt(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                 const transport::Uri& uri, const ChannelOptions& options,
                 std::shared_ptr<const Serving> offers, Owner& owner)
    : runtime_(std::move(runtime)),
      poller_(poller),
      uri_(uri),
      options_(options),
      offers_(std::move(offers)),
      owner_(&owner),
      resolve_timer_([this] {
        const std::shared_ptr<Attempt> keep = shared_from_this();  // Its owner drops it.
        OnResolved(absl::UnavailableError(
            absl::StrCat("the name ", uri_.host, " was not resolved within ",
                         absl::FormatDuration(options_.connect_timeout),
                         " (ChannelOptions::connect_timeout); is the name server up?")));
      }) {}

void Attempt::Start() {
  poller_.AssertHeld();
  give_up_ns_ = transport::After(poller_.now_ns(), options_.connect_timeout);
  if (IsNumeric(uri_.host)) return OnResolved(transport::Resolve(uri_));
  poller_.timers().Set(resolve_timer_, give_up_ns_);
  const absl::Status started = Resolver::Process().Start(uri_, weak_from_this());
  if (!started.ok()) OnResolved(started);
}

void Attempt::OnLookedUp(const Resolver::Addresses& addresses) {
  poller_.Run([attempt = shared_from_this(), addresses] { attempt->OnResolved(addresses); });
}

void Attempt::Abandon() {
  poller_.AssertHeld();
  poller_.timers().Cancel(resolve_timer_);
  Owner* const owner = std::exchange(owner_, nullptr);
  if (link_ != nullptr && owner != nullptr) {
    Link& link = *link_;
    owner->Bury(std::move(link_));
    link.Close(absl::CancelledError("the channel was closed"));
  }
}

void Attempt::OnResolved(absl::StatusOr<std::vector<fabric::SocketAddress>> addresses) {
  poller_.AssertHeld();
  if (owner_ == nullptr || next_ > 0 || !failures_.empty() || link_ != nullptr) return;  // Late.
  poller_.timers().Cancel(resolve_timer_);
  if (!addresses.ok()) {
    Note(addresses.status());
    return Fail();
  }
  addresses_ = *std::move(addresses);
  TryNext();
}

void Attempt::TryNext() {
  while (next_ < addresses_.size()) {
    // What is left of the time is shared out, so that one address without an answer does not use up all of
    // it.
    const int64_t left_ns = std::max<int64_t>(0, give_up_ns_ - poller_.now_ns());
    const auto share_ns = left_ns / static_cast<int64_t>(addresses_.size() - next_);
    Link::Observer& observer = *this;
    link_ = std::make_unique<Link>(runtime_, poller_, options_.connection, observer);
    const absl::Status dialing = link_->Dial(addresses_[next_++], absl::Nanoseconds(share_ns), offers_);
    if (dialing.ok()) return;
    Note(dialing);
    link_.reset();
  }
  Fail();
}

void Attempt::Fail() {
  // The most telling code: somebody who answers and refuses says more than nobody who does.
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::vector<std::string> texts;
  for (const absl::Status& failure : failures_) {
    if (code == absl::StatusCode::kUnavailable) code = failure.code();
    texts.emplace_back(failure.message());
  }
  if (texts.empty()) texts.push_back(absl::StrCat(uri_.host, " has no address"));
  std::exchange(owner_, nullptr)->OnAttemptFailed(absl::Status(code, absl::StrJoin(texts, "; ")));
}

void Attempt::OnLinkReady(Link&) { std::exchange(owner_, nullptr)->OnAttemptConnected(std::move(link_)); }

// Before the reverse connection is up. A server that goes away is as good as none.
void Attempt::OnLinkGoingAway(Link& link) {
  const absl::Status why = absl::UnavailableError(absl::StrCat(uri_.host, ": the server is shutting down"));
  OnLinkDown(link, why);
  link.Close(why);
}

void Attempt::OnLinkDown(Link&, const absl::Status& why) {
  Note(why);
  owner_->Bury(std::move(link_));
  TryNext();
}

// Cannot be: it is buried before.
void Attempt::OnLinkGone(Link&) {}

}  // namespace hawser::internal
