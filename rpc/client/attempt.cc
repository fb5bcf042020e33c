#include "hawser/rpc/client/attempt.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hawser::internal {
namespace {

// Whether `host` is a numeric address. ("fe80::1%eth0" is not recognised here, but its lookup needs no name
// server either.)
bool IsNumeric(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// How long an address may stay silent before the next one is tried, too: RFC 8305, section 8.
constexpr absl::Duration kNextAddressAfter = absl::Milliseconds(250);

// Addresses that are tried at the same time. Each costs a receive ring here, and a session at the server if
// the connection is established.
constexpr size_t kAtOnceMax = 4;

// Addresses that the text of an error names.
constexpr size_t kFailuresListed = 4;

// Addresses of the two families alternate. The family that the resolver names first begins, and each family
// keeps its order.
std::vector<SocketAddress> Interleave(const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> of_first, of_other, result;
  for (const SocketAddress& each : addresses) {
    (each.family() == addresses.front().family() ? of_first : of_other).push_back(each);
  }
  for (size_t i = 0; i < std::max(of_first.size(), of_other.size()); ++i) {
    if (i < of_first.size()) result.push_back(of_first[i]);
    if (i < of_other.size()) result.push_back(of_other[i]);
  }
  return result;
}

}  // namespace

Attempt::Attempt(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                 const transport::Uri& uri, const ChannelOptions& options,
                 const transport::Security& security, std::shared_ptr<const Serving> offers, Owner& owner,
                 Resolver& resolver)
    : runtime_(std::move(runtime)),
      poller_(poller),
      uri_(uri),
      options_(options),
      security_(security),
      offers_(std::move(offers)),
      resolver_(resolver),
      owner_(&owner),
      resolve_timer_([this] {
        const std::shared_ptr<Attempt> keep = shared_from_this();  // Its owner releases it.
        OnResolved(absl::UnavailableError(
            absl::StrCat("the name ", uri_.host, " was not resolved within ",
                         absl::FormatDuration(options_.connect_timeout),
                         " (ChannelOptions::connect_timeout); is the name server up?")));
      }),
      next_timer_([this] {
        const std::shared_ptr<Attempt> keep = shared_from_this();  // Its owner releases it.
        TryNext();
      }) {}

void Attempt::Start() {
  poller_.AssertHeld();
  give_up_ns_ = transport::After(poller_.now_ns(), options_.connect_timeout);
  if (IsNumeric(uri_.host)) return OnResolved(transport::Resolve(uri_));
  poller_.timers().Set(resolve_timer_, give_up_ns_);
  const absl::Status started = resolver_.Start(uri_, weak_from_this());
  if (!started.ok()) OnResolved(started);
}

void Attempt::OnLookedUp(const Resolver::Addresses& addresses) {
  poller_.Run([attempt = shared_from_this(), addresses] { attempt->OnResolved(addresses); });
}

void Attempt::Abandon() {
  poller_.AssertHeld();
  poller_.timers().Cancel(resolve_timer_);
  CloseAll(absl::CancelledError("the channel was closed"));
  owner_ = nullptr;
}

void Attempt::OnResolved(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  poller_.AssertHeld();
  if (owner_ == nullptr || next_ > 0 || !failures_.empty()) return;  // Too late.
  poller_.timers().Cancel(resolve_timer_);
  if (!addresses.ok()) {
    Note(addresses.status());
    return Fail();
  }
  addresses_ = Interleave(*addresses);
  TryNext();
}

void Attempt::TryNext() {
  poller_.timers().Cancel(next_timer_);
  while (next_ < addresses_.size()) {
    const size_t tried = links_.size();
    Dial(addresses_[next_++]);
    if (links_.size() > tried) return SetNextTimer();
  }
  if (links_.empty()) Fail();
}

void Attempt::Dial(const SocketAddress& address) {
  // If all remaining addresses are being tried, each has all the time that is left. If more remain, the
  // attempt gives up an address that does not answer early enough to try the next.
  const int64_t left_ns = std::max<int64_t>(0, give_up_ns_ - poller_.now_ns());
  const size_t rounds = (addresses_.size() - next_) / kAtOnceMax + 1;
  Link::Observer& observer = *this;
  auto link = std::make_unique<Link>(runtime_, poller_, options_.connection, security_, observer);
  const absl::Status dialing =
      link->Dial(address, absl::Nanoseconds(left_ns / static_cast<int64_t>(rounds)), offers_);
  if (!dialing.ok()) return Note(dialing);
  links_.push_back(std::move(link));
}

// Sets none while kAtOnceMax are being tried: the next address then waits until one of them fails. A short
// timeout is divided among the addresses.
void Attempt::SetNextTimer() {
  if (next_ == addresses_.size() || links_.size() == kAtOnceMax) return;
  const int64_t left_ns = std::max<int64_t>(0, give_up_ns_ - poller_.now_ns());
  const int64_t share_ns = left_ns / static_cast<int64_t>(addresses_.size() - next_ + 1);
  const int64_t wait_ns = std::min(absl::ToInt64Nanoseconds(kNextAddressAfter), share_ns);
  poller_.timers().Set(next_timer_, poller_.now_ns() + wait_ns);
}

std::unique_ptr<Link> Attempt::Take(const Link& link) {
  const auto at =
      std::find_if(links_.begin(), links_.end(), [&](const auto& each) { return each.get() == &link; });
  std::unique_ptr<Link> taken = std::move(*at);
  links_.erase(at);
  return taken;
}

void Attempt::CloseAll(const absl::Status& why) {
  poller_.timers().Cancel(next_timer_);
  for (std::unique_ptr<Link>& each : std::exchange(links_, {})) {
    Link& link = *each;
    owner_->Retire(std::move(each));
    link.Close(why);
  }
}

void Attempt::Fail() {
  // Chooses the most informative code: a refusal says more than a timeout.
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  std::vector<std::string> texts;
  for (const absl::Status& failure : failures_) {
    if (code == absl::StatusCode::kUnavailable) code = failure.code();
    texts.emplace_back(failure.message());
  }
  if (texts.size() > kFailuresListed) {
    const size_t more = texts.size() - kFailuresListed;
    texts.resize(kFailuresListed);
    texts.push_back(absl::StrCat("and ", more, " addresses more"));
  }
  if (texts.empty()) texts.push_back(absl::StrCat(uri_.host, " has no address"));
  std::exchange(owner_, nullptr)->OnAttemptFailed(absl::Status(code, absl::StrJoin(texts, "; ")));
}

void Attempt::OnLinkReady(Link& link) {
  std::unique_ptr<Link> ready = Take(link);
  CloseAll(absl::CancelledError("another address of the same name answered first"));
  std::exchange(owner_, nullptr)->OnAttemptConnected(std::move(ready));
}

// The reverse connection is not up yet. A server that is shutting down is treated as one that is absent.
void Attempt::OnLinkGoingAway(Link& link) {
  const absl::Status why = absl::UnavailableError(absl::StrCat(uri_.host, ": the server is shutting down"));
  OnLinkLost(link, why);
  link.Close(why);
}

void Attempt::OnLinkLost(Link& link, const absl::Status& why) {
  Note(why);
  owner_->Retire(Take(link));
  TryNext();
}

// Never called, because the attempt removes each link before.
void Attempt::OnLinkEnded(Link&) {}

}  // namespace hawser::internal
