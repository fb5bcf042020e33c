#include "hawser/transport/sharing/read_budget.h"

#include <algorithm>
#include <utility>

#include "hawser/base/check.h"

namespace hawser::transport {
namespace {

constexpr int64_t kReadTimesUntilStalled = 8;
// The moving average's weight: each new time counts an eighth.
constexpr int64_t kAverageOver = 8;

}  // namespace

// ---- ReadShare

ReadShare::~ReadShare() {
  HAWSER_SUBTRACT(budget_.taken_bytes_, counted_bytes_);
  if (budget_.served_ == this) budget_.served_ = nullptr;
}

bool ReadShare::Take(uint64_t bytes) {
  if (outstanding_ >= window_) return false;  // It waits until one of its own READs completes.
  if (moves_) {
    bool fits = budget_.Fits(bytes);
    if (!fits && budget_.line_.empty() && budget_.ReclaimStalled()) fits = budget_.Fits(bytes);
    if (budget_.served_ == this) {
      (fits ? budget_.served_took_ : budget_.served_short_) = true;
    } else if (!fits || !budget_.line_.empty()) {
      if (!ListLink<InReadLine>::linked()) budget_.line_.MoveToBack(this);
      budget_.SetTimer();
      return false;
    }
    if (!fits) return false;
    budget_.taken_bytes_ += bytes;
    counted_bytes_ += bytes;
  } else {
    uncounted_bytes_ += bytes;
  }
  if (outstanding_++ == 0) moved_ns_ = budget_.poller_.now_ns();
  if (moves_ && !ListLink<InReadOrder>::linked()) budget_.moving_.MoveToBack(this);
  return true;
}

void ReadShare::Return(uint64_t bytes) {
  const int64_t now_ns = budget_.poller_.now_ns();
  const int64_t took_ns = now_ns - std::exchange(moved_ns_, now_ns);
  const int64_t stall_ns = budget_.stall_ns();
  budget_.read_ns_ += (std::min(took_ns, 2 * stall_ns) - budget_.read_ns_) / kAverageOver;
  HAWSER_SUBTRACT(outstanding_, 1);
  const uint64_t uncounted = std::min(bytes, uncounted_bytes_);
  uncounted_bytes_ -= uncounted;
  HAWSER_SUBTRACT(counted_bytes_, bytes - uncounted);
  HAWSER_SUBTRACT(budget_.taken_bytes_, bytes - uncounted);
  if (took_ns <= stall_ns) {
    moves_ = true;
    window_ = std::min(depth_, window_ + 1);
  }
  if (counted_bytes_ == 0) {
    ListLink<InReadOrder>::Unlink();
  } else {
    budget_.moving_.MoveToBack(this);
  }
  budget_.ServeLine();
}

// ---- ReadBudget

ReadBudget::ReadBudget(uint64_t bytes_max, PollerServices& poller)
    : bytes_max_(bytes_max), poller_(poller), timer_([this] { OnTimer(); }) {}

int64_t ReadBudget::stall_ns() const {
  return std::clamp(kReadTimesUntilStalled * read_ns_, absl::ToInt64Nanoseconds(kStallMin),
                    absl::ToInt64Nanoseconds(kStallMax));
}

bool ReadBudget::ReclaimStalled() {
  bool any = false;
  const int64_t stalled_before_ns = poller_.now_ns() - stall_ns();
  while (ReadShare* const share = moving_.front()) {
    if (share->moved_ns_ > stalled_before_ns) break;
    share->ListLink<InReadOrder>::Unlink();
    share->moves_ = false;
    share->window_ = 1;
    HAWSER_SUBTRACT(taken_bytes_, share->counted_bytes_);
    share->uncounted_bytes_ += std::exchange(share->counted_bytes_, 0);
    any = true;
  }
  return any;
}

// Each share in the line takes what it wants. If there is not enough, it moves to the end of the line. If its
// connection fails in its turn, the next share can use what it returns.
void ReadBudget::ServeLine() {
  if (served_ != nullptr) return;
  while (ReadShare* const share = line_.front()) {
    served_ = share;
    served_took_ = served_short_ = false;
    share->owner_.Pump();
    if (served_short_ && !served_took_) break;                 // It stays the first.
    if (std::exchange(served_, nullptr) == nullptr) continue;  // It was destroyed meanwhile.
    if (served_short_) {
      line_.MoveToBack(share);
    } else {
      share->ListLink<InReadLine>::Unlink();
    }
  }
  served_ = nullptr;
  if (line_.empty()) poller_.timers().Cancel(timer_);
}

void ReadBudget::SetTimer() {
  const ReadShare* const oldest = moving_.front();
  if (timer_.is_set() || oldest == nullptr) return;
  poller_.timers().Set(timer_, oldest->moved_ns_ + stall_ns());
}

void ReadBudget::OnTimer() {
  if (ReclaimStalled()) ServeLine();
  if (!line_.empty()) SetTimer();
}

}  // namespace hawser::transport
