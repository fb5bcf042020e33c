#include "hawser/transport/sharing/memory_queue.h"

#include <utility>

namespace hawser::transport {
namespace {

constexpr absl::Duration kRefusedRetry = absl::Milliseconds(100);

}  // namespace

// ---- MemoryNews

MemoryNews::MemoryNews(PollerServices& poller, absl::AnyInvocable<void()> on_news)
    : poller_(poller), on_news_(std::move(on_news)), refused_timer_([this] { on_news_(); }) {}

MemoryNews::~MemoryNews() { StopAwaiting(); }

void MemoryNews::Await(size_t size_bytes, Shortage why) {
  poller_.messages().buffers().Await(*this, size_bytes);
  if (why == Shortage::kRefused && !refused_timer_.is_set()) {
    poller_.timers().Set(refused_timer_, After(poller_.now_ns(), kRefusedRetry));
  }
}

void MemoryNews::StopAwaiting() {
  poller_.messages().buffers().StopAwaiting(*this);
  poller_.timers().Cancel(refused_timer_);
}

void MemoryNews::Deliver() {
  arrived_.store(false, std::memory_order_seq_cst);
  on_news_();
}

void MemoryNews::OnMemoryMayBeFree() {
  if (arrived_.exchange(true, std::memory_order_seq_cst)) return;
  poller_.WakeDriver();
}

// ---- MemoryQueue

MemoryQueue::MemoryQueue(PollerServices& poller) : news_(poller, [this] { Serve(); }) {}

void MemoryQueue::Waiter::StopWaiting() {
  if (!linked()) return;
  const bool was_first = queue_->waiting_.front() == this;
  Unlink();
  // The queue has asked the pool for notice of this waiter's size only. If the system has refused memory, the
  // next one tries when the timer expires: a try may ask the system again.
  if (was_first && !queue_->waiting_.empty() && !queue_->news_.tries_again_soon()) {
    queue_->news_.OnMemoryMayBeFree();
  }
}

void MemoryQueue::Wait(Waiter& waiter, size_t size_bytes) {
  if (waiter.linked()) return;
  waiter.queue_ = this;
  waiter.size_bytes_ = size_bytes;
  waiting_.MoveToBack(&waiter);
  if (waiting_.front() == &waiter) Serve();
}

void MemoryQueue::Serve() {
  if (std::exchange(serving_, true)) return;
  const Waiter* awaiting = nullptr;
  while (Waiter* const waiter = waiting_.front()) {
    Shortage why = Shortage::kAtLimit;
    if (waiter->OnMemory(why)) {
      waiter->Unlink();
      continue;
    }
    news_.Await(waiter->size_bytes_, why);
    // The second try finds memory that was released before this asked to be notified. If the system has
    // refused memory, there is no second try: it would start the next growth at once, but the timer of
    // MemoryNews starts that.
    if (waiter == awaiting || why == Shortage::kRefused) break;
    awaiting = waiter;
  }
  serving_ = false;
}

}  // namespace hawser::transport
