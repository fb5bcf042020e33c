#include "hawser/rpc/client/redial.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace hawser::internal {
namespace {

// How old an error of an attempt to connect is when its text begins to say so.
constexpr int64_t kNewNs = 10'000'000;

}  // namespace

Redial::Redial(absl::Duration backoff_min, absl::AnyInvocable<void()> on_due)
    : timer_(std::move(on_due)), backoff_(backoff_min) {}

void Redial::OnReady(int64_t now_ns) {
  ready_since_ns_ = now_ns;
  why_ = absl::OkStatus();
}

void Redial::OnFailed(const absl::Status& why, int64_t now_ns) {
  why_ = absl::Status(why.code(), absl::StrCat("not connected: ", absl::string_view(why.message())));
  failed_ns_ = now_ns;
}

void Redial::BackOff(transport::Poller& poller, const ChannelOptions& options) {
  // Spreads out clients that lost the same server at the same time.
  uint8_t byte;
  poller.environment().FillRandom(absl::MakeSpan(&byte, 1));
  const absl::Duration wait = backoff_ * (256 + byte) / 512;
  poller.timers().Set(timer_, transport::After(poller.now_ns(), wait));
  backoff_ = std::min(backoff_ * 2, std::max(options.backoff_min, options.backoff_max));
}

bool Redial::MayConnectNow(int64_t now_ns, absl::Duration backoff_min) {
  if (now_ns - ready_since_ns_ < absl::ToInt64Nanoseconds(backoff_)) return false;
  backoff_ = backoff_min;
  return true;
}

// A server that lacks memory or has too many connections is reported as such, not as unreachable. So is a
// TLS handshake that failed: another try helps only after a certificate is replaced.
absl::StatusCode Redial::code() const {
  const bool says_more = absl::IsResourceExhausted(why_) || absl::IsUnauthenticated(why_);
  return says_more ? why_.code() : absl::StatusCode::kUnavailable;
}

std::string Redial::Describe(int64_t now_ns) const {
  if (why_.ok()) return "no attempt to connect has ended since it was lost or the channel made";
  const auto rough = [](int64_t ns) {
    return transport::RoughDuration(absl::Nanoseconds(std::max<int64_t>(0, ns)));
  };
  const int64_t age_ns = now_ns - failed_ns_;
  return absl::StrCat(
      absl::string_view(why_.message()), age_ns < kNewNs ? "" : absl::StrCat(" (", rough(age_ns), " ago)"),
      "; the next attempt ",
      timer_.is_set() ? absl::StrCat("is in ", rough(timer_.when_ns() - now_ns)) : "is under way");
}

}  // namespace hawser::internal
