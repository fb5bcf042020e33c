#include "hawser/tests/sim/sim_completion_queue.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/base/check.h"
#include "hawser/tests/sim/sim_queue_pair.h"

namespace hawser::sim {

void SimCompletionQueue::PushAt(int64_t when_ns, Entry entry) {
  network_.At(when_ns, [this, &network = network_, entry = std::move(entry)]() mutable {
    // If the queue pair was destroyed, its completions are dropped, and this queue may be destroyed, too.
    if (network.FindQueuePair(entry.completion.qp_num) == nullptr) return;
    ready_.push_back(std::move(entry));
    if (ready_.size() > depth_)
      network_.Violation(absl::StrCat("a completion queue of ", depth_, " overflows"));
  });
}

void SimCompletionQueue::PushNews(std::function<bool()> still, std::function<void()> news,
                                  std::function<bool()> due) {
  news_.push_back({std::move(still), std::move(due), std::move(news)});
}

bool SimCompletionQueue::HasWork() const {
  return !ready_.empty() ||
         std::any_of(news_.begin(), news_.end(), [](const News& news) { return news.is_due(); });
}

size_t SimCompletionQueue::Poll(absl::Span<fabric::Completion> completions) {
  std::unique_lock<std::mutex> lock(network_.mutex());
  HAWSER_CHECK(!std::exchange(polling_, true), "a handler that runs inside Poll() polls");
  ++polls_;
  network_.RunDue();
  if (!HasWork() && network_.options().idle_poll_ns > 0 && !network_.quiet()) {
    lock.unlock();
    const int64_t step_ns = std::min(network_.next_ns(), network_.NowNs() + network_.options().idle_poll_ns);
    network_.AdvanceTo(step_ns);
    lock.lock();
  }
  while (true) {
    const auto due = std::find_if(news_.begin(), news_.end(), [](const News& news) { return news.is_due(); });
    if (due == news_.end()) break;
    const News news = std::move(*due);
    news_.erase(due);
    if (!news.still()) continue;
    lock.unlock();
    news.tell();
    lock.lock();
  }
  size_t count = 0;
  bool taken = false;
  while (count < completions.size() && !ready_.empty()) {
    Entry entry = std::move(ready_.front());
    ready_.pop_front();
    if (network_.FindQueuePair(entry.completion.qp_num) == nullptr) continue;
    if (entry.offer && std::exchange(entry.offer, nullptr)(count == 0 ? &lock : nullptr)) {
      taken = true;
      continue;
    }
    if (taken && entry.completion.opcode == fabric::Opcode::kReceive) {
      ready_.push_front(std::move(entry));
      break;
    }
    if (entry.on_polled) entry.on_polled();
    completions[count++] = entry.completion;
  }
  polling_ = false;
  return count;
}

void SimCompletionQueue::WaitUntil(int64_t when_ns) {
  std::unique_lock<std::mutex> lock(network_.mutex());
  // Only polling makes progress with what is in flight.
  const auto worth_polling = [&] { return woken_ || HasWork() || !network_.quiet(); };
  if (when_ns == kNoEnd) {
    network_.changed().wait(lock, worth_polling);
  } else {
    const std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(when_ns)};
    network_.changed().wait_until(lock, end, worth_polling);
  }
  woken_ = false;
  lock.unlock();
  std::this_thread::yield();  // The thread that polls needs the same lock.
}

void SimCompletionQueue::Wake() {
  std::lock_guard<std::mutex> lock(network_.mutex());
  woken_ = true;
  network_.changed().notify_all();
}

}  // namespace hawser::sim
