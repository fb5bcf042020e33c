#include "hawser/measure/verbs/raw_loop.h"

#include <sched.h>

#include <algorithm>

#include "absl/status/status.h"
#include "hawser/measure/verbs/raw_plan.h"

namespace hawser::transport {
namespace {

// The completions of one queue pair: its receives, which are twice its depth, and its sends.
constexpr uint32_t kCompletionsMax = 8 * RawPlan::kDepthMax;

}  // namespace

absl::StatusOr<std::unique_ptr<RawLoop>> RawLoop::Create(fabric::Fabric& fabric, PollingMode mode) {
  auto queue = fabric.CreateCompletionQueue(kCompletionsMax);
  if (!queue.ok()) return queue.status();
  return std::unique_ptr<RawLoop>(new RawLoop(*std::move(queue), mode));
}

RawLoop::RawLoop(std::unique_ptr<fabric::CompletionQueue> queue, PollingMode mode)
    : queue_(std::move(queue)), idle_({.mode = mode}) {
  idle_.Start();
}

absl::StatusOr<absl::Span<const fabric::Completion>> RawLoop::Turn() {
  if (stopped_.load(std::memory_order_acquire)) return absl::CancelledError("the raw queue pair was stopped");
  const size_t count = queue_->Poll(absl::MakeSpan(completions_));
  const bool work = std::exchange(event_, false) || count > 0;
  if (work) vain_turns_ = 0;
  const bool looks = idle_.wants_time() || (!work && vain_turns_ % kTurnsPerLook == 0);
  const int64_t now_ns = looks ? fabric::MonotonicNs() : 0;
  Idle::Next next = idle_.After(work, now_ns, now_ns);
  if (work) return absl::MakeConstSpan(completions_).first(count);
  if (vain_turns_++ == 0) quiet_since_ns_ = now_ns;
  const int64_t until_ns = std::min(end_ns_, After(quiet_since_ns_, patience_));
  if (looks && now_ns >= until_ns) {
    return absl::DeadlineExceededError("the other end of the raw queue pair was silent for too long");
  }
  switch (next) {
    case Idle::Next::kLook:
      break;
    case Idle::Next::kYield:
      sched_yield();
      break;
    case Idle::Next::kSleep:
      if (idle_.wants_time()) idle_.OnSleep(now_ns);
      vain_turns_ = kTurnsPerLook;  // The next turn looks at the clock.
      queue_->WaitUntil(until_ns);
      break;
  }
  return absl::Span<const fabric::Completion>();
}

void RawLoop::Stop() {
  stopped_.store(true, std::memory_order_release);
  queue_->Wake();
}

}  // namespace hawser::transport
