#include "hawser/transport/sharing/response_watch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/transport/sharing/read_admission.h"

namespace hawser::transport {
namespace {

constexpr absl::Duration kInterval = ReadAdmission::kWatchInterval;

}  // namespace

// ---- ResponseAccount

ResponseAccount::~ResponseAccount() {
  if (host_ == nullptr) return;
  watch_.Release(*host_, holds_.held);
  watch_.ledger_.Part(*host_);
  if (claimed_bytes_ != 0) watch_.ledger_.Unclaim(claimed_bytes_);
}

ReadLedger::Host& ResponseAccount::Host() {
  if (host_ == nullptr) host_ = &watch_.ledger_.Join(owner_.peer_host());
  return *host_;
}

absl::Status ResponseAccount::MayGrant(const Bytes& bytes) {
  if (watch_.ledger_.MayHoldResponse(Host(), bytes.held, watch_.host_share_)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the peers of this host hold ", Host().response_bytes.load(std::memory_order_relaxed),
      " bytes of large messages that they have not released, and one that takes ", bytes.held,
      " more would exceed the share of one host (PollerOptions::host_memory_share) of what is free; let "
      "fewer large calls be in flight, or raise BufferPoolOptions::limit_bytes of the server"));
}

void ResponseAccount::OnGranted(const Bytes& bytes) {
  watch_.ledger_.AddResponse(Host(), bytes.held);
  holds_.held += bytes.held;
  holds_.granted += bytes.granted;
  unread_bytes_ += bytes.granted;
  if (bytes.granted == 0 || linked()) return;
  still_since_ns_ = watch_.poller_.now_ns();
  look_ = 0;
  watch_.holders_.MoveToBack(this);
  if (!watch_.watch_timer_.is_set()) watch_.Look();
}

void ResponseAccount::OnReleased(const Bytes& bytes) {
  watch_.Release(*host_, bytes.held);
  HAWSER_SUBTRACT(holds_.held, bytes.held);
  HAWSER_SUBTRACT(holds_.granted, bytes.granted);
  released_bytes_ += bytes.granted;
  unread_bytes_ = std::min(unread_bytes_, holds_.granted);
  if (holds_.granted == 0) Unlink();
}

void ResponseAccount::CountHeldAgain() {
  const uint64_t held = owner_.CountHeld();
  if (held > holds_.held) watch_.ledger_.AddResponse(*host_, held - holds_.held);
  if (held < holds_.held) watch_.Release(*host_, holds_.held - held);
  holds_.held = held;
}

// ---- ResponseWatch

ResponseWatch::ResponseWatch(PollerServices& poller, ReadLedger& ledger, ReadAdmission& reads,
                             double host_share)
    : poller_(poller),
      ledger_(ledger),
      reads_(reads),
      host_share_(host_share),
      watch_timer_([this] { Watch(); }),
      interval_(poller, watch_timer_, kInterval) {}

void ResponseWatch::Release(ReadLedger::Host& host, uint64_t bytes) {
  ledger_.ReleaseResponse(host, bytes);
  if (ledger_.any_misses()) reads_.OnOthersReleased();
}

uint64_t ResponseWatch::Refusals() const {
  return poller_.messages().buffers().refusals() + ledger_.refused_responses();
}

void ResponseWatch::Look() {
  ++looks_;
  looked_ns_ = poller_.now_ns();
  refusals_then_ = Refusals();
  for (ResponseAccount* account = holders_.front(); account != nullptr; account = holders_.after(account)) {
    account->CountHeldAgain();
    account->look_ = looks_;
    account->granted_bytes_then_ = account->holds_.granted;
    account->released_bytes_then_ = account->released_bytes_;
    account->answered_bytes_then_ = account->owner_.answered_read_bytes().value_or(0);
  }
  interval_.Begin();
}

// Bytes that the peer READs a second time do not count, or it could hold a response forever.
bool ResponseWatch::HardlyMoves(ResponseAccount& account) const {
  const uint64_t answered = account.owner_.answered_read_bytes().value_or(0) - account.answered_bytes_then_;
  const uint64_t read = std::min(answered, account.unread_bytes_);
  account.unread_bytes_ -= read;
  const uint64_t then = account.granted_bytes_then_;
  return account.released_bytes_ - account.released_bytes_then_ + read <
         std::min(then, std::max(ReadAdmission::kWatchedBytesMin, then / ReadAdmission::kWatchedFraction));
}

bool ResponseWatch::HasHadItsTime(const ResponseAccount& account) const {
  if (account.owner_.answered_read_bytes().has_value()) return true;  // All of an interval.
  return poller_.now_ns() >= After(account.still_since_ns_, UnseenTime(kInterval, account.holds_.granted));
}

uint64_t ResponseWatch::ClaimMissing() {
  const BufferPool& pool = poller_.messages().buffers();
  const bool is_short = Refusals() != refusals_then_ || pool.AnyWaitsAtLimit();
  return ledger_.ClaimMissing(looked_ns_, is_short, pool.stats().limit_bytes / kPoolFraction);
}

void ResponseWatch::Watch() {
  if (holders_.empty() || !interval_.IsOver()) return;  // Without holders the next grant looks.
  struct Still {
    ResponseAccount* account;
    uint64_t held_by_host;  // Read once: other pollers change it.
  };
  std::vector<Still> still;
  for (ResponseAccount *next = nullptr, *account = holders_.front(); account != nullptr; account = next) {
    next = holders_.after(account);
    if (account->look_ != looks_) continue;
    account->look_ = 0;  // It may be moved to where this loop meets it again.
    if (!HardlyMoves(*account)) {
      account->still_since_ns_ = poller_.now_ns();
      holders_.MoveToBack(account);
    } else if (account->claimed_bytes_ == 0 && HasHadItsTime(*account)) {
      still.push_back({account, ledger_.HeldBy(*account->host_)});
    }
  }
  std::vector<ResponseAccount::Owner*> to_end;
  if (const uint64_t missing = still.empty() ? 0 : ClaimMissing(); missing != 0) {
    std::stable_sort(still.begin(), still.end(),
                     [](const Still& a, const Still& b) { return a.held_by_host > b.held_by_host; });
    uint64_t freed = 0;
    for (const auto& [account, held_by_host] : still) {
      if (freed >= missing) break;
      account->claimed_bytes_ = std::min(account->holds_.granted, missing - freed);
      freed += account->claimed_bytes_;
      to_end.push_back(&account->owner_);
    }
    ledger_.Unclaim(missing - freed);
  }
  Look();
  for (ResponseAccount::Owner* const owner : to_end) owner->EndForMemory();
}

}  // namespace hawser::transport
