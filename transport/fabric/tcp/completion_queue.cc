#include "hawser/transport/fabric/tcp/completion_queue.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"

namespace hawser::fabric {
namespace {

// The epoll_data of files that are no source. The indexes of sources are smaller.
constexpr uint64_t kWakeData = ~uint64_t{0};
constexpr uint64_t kSourceTimerData = kWakeData - 1;
constexpr uint64_t kWaitTimerData = kWakeData - 2;

uint64_t PackData(uint32_t index, uint32_t generation) { return uint64_t{generation} << 32 | index; }

// Not inlined, so that Poll() has no room on its stack for the text.
[[gnu::noinline, gnu::cold]] void EndNestedPoll(bool polling) {
  HAWSER_CHECK(!polling, "a handler that runs inside Poll() polls");
}

absl::Status CreationError(const char* call) {
  const int error = errno;
  return absl::ResourceExhaustedError(absl::StrCat(
      "create a completion queue: ", call, ": ", DescribeErrno(error),
      error == EMFILE ? ": raise the limit of open files (ulimit -n); each completion queue takes four"
                      : ""));
}

}  // namespace

// --- Queue
// -----------------------------------------------------------------------------------------------------------

template <CompletionSource::Links CompletionSource::*kLinks>
void TcpCompletionQueue::Queue<kLinks>::Add(CompletionSource& source) {
  CompletionSource::Links& links = source.*kLinks;
  if (links.linked) return;
  links = {.next = nullptr, .previous = last_, .linked = true};
  (last_ == nullptr ? first_ : (last_->*kLinks).next) = &source;
  last_ = &source;
  ++size_;
}

template <CompletionSource::Links CompletionSource::*kLinks>
void TcpCompletionQueue::Queue<kLinks>::Remove(CompletionSource& source) {
  CompletionSource::Links& links = source.*kLinks;
  if (!links.linked) return;
  (links.previous == nullptr ? first_ : (links.previous->*kLinks).next) = links.next;
  (links.next == nullptr ? last_ : (links.next->*kLinks).previous) = links.previous;
  links = {};
  --size_;
}

template <CompletionSource::Links CompletionSource::*kLinks>
CompletionSource* TcpCompletionQueue::Queue<kLinks>::TakeFirst() {
  CompletionSource* source = first_;
  if (source != nullptr) Remove(*source);
  return source;
}

// --- Sources
// ---------------------------------------------------------------------------------------------------------

TcpCompletionQueue::TcpCompletionQueue(const TcpFabricOptions& options)
    : options_(options),
      events_(new Events),
      receive_staging_(new std::array<uint8_t, 64 * 1024>),
      send_batch_(new SendBatch),
      hint_(new Events) {}

absl::StatusOr<std::unique_ptr<TcpCompletionQueue>> TcpCompletionQueue::Create(
    const TcpFabricOptions& options) {
  std::unique_ptr<TcpCompletionQueue> queue(new TcpCompletionQueue(options));
  queue->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!queue->epoll_.is_open()) return CreationError("epoll_create1()");
  queue->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!queue->wake_.is_open()) return CreationError("eventfd()");
  if (!queue->source_timer_.Open() || !queue->wait_timer_.Open()) return CreationError("timerfd_create()");
  const std::pair<int, uint64_t> files[] = {{queue->wake_.get(), kWakeData},
                                            {queue->source_timer_.fd(), kSourceTimerData},
                                            {queue->wait_timer_.fd(), kWaitTimerData}};
  for (const auto& [fd, data] : files) {
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = data}};
    if (epoll_ctl(queue->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return CreationError("epoll_ctl()");
  }
  return queue;
}

void TcpCompletionQueue::Register(EventSource& source) {
  if (free_indexes_.empty()) {
    free_indexes_.push_back(static_cast<uint32_t>(sources_.size()));
    sources_.emplace_back();
  }
  source.index_ = free_indexes_.back();
  free_indexes_.pop_back();
  sources_[source.index_].source = &source;
}

void TcpCompletionQueue::Unregister(EventSource& source) {
  Registration& registration = sources_[source.index_];
  registration.source = nullptr;
  ++registration.generation;
  free_indexes_.push_back(source.index_);
  source.index_ = EventSource::kUnregistered;
}

void TcpCompletionQueue::UnregisterQueuePair(CompletionSource& source) {
  ready_.Leave(source);
  ending_.Remove(source);
  owing_.Remove(source);
  carrying_.Remove(source);
  Unregister(source);
}

void TcpCompletionQueue::StartCarrying(CompletionSource& source, const PeerHost& host) {
  ready_.SetHost(source, host);
  carrying_.Add(source);
}

void TcpCompletionQueue::StopCarrying(CompletionSource& source) { carrying_.Remove(source); }

void TcpCompletionQueue::Watch(EventSource& source, int fd, uint32_t events) {
  epoll_event event = {.events = events,
                       .data = {.u64 = PackData(source.index_, sources_[source.index_].generation)}};
  // Fails only for lack of kernel memory or watches (max_user_watches). Then the source receives no events,
  // and its owner's timeout ends it.
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void TcpCompletionQueue::ChangeWatch(EventSource& source, int fd, uint32_t events) {
  epoll_event event = {.events = events,
                       .data = {.u64 = PackData(source.index_, sources_[source.index_].generation)}};
  if (options_.counters != nullptr) options_.counters->watch_calls.fetch_add(1, std::memory_order_relaxed);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void TcpCompletionQueue::Unwatch(int fd) {
  if (!in_forked_child()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void TcpCompletionQueue::UnwatchAndEnd(UniqueFd& socket) {
  if (in_forked_child()) return socket.Reset();
  Unwatch(socket.get());
  EndAndClose(socket);
}

// --- Timers
// ----------------------------------------------------------------------------------------------------------

void TcpCompletionQueue::SetTimer(EventSource& source, absl::Duration delay) {
  if (in_forked_child()) return;
  source.timer_ns_ = delay == absl::InfiniteDuration() ? EventSource::kNoTimer
                                                       : MonotonicNs() + absl::ToInt64Nanoseconds(delay);
  source_timer_.SetAtLatest(source.timer_ns_);
}

// Timers expire only when something goes wrong, so a walk over all sources is cheap enough.
void TcpCompletionQueue::HandleTimers() {
  source_timer_.Clear();
  const int64_t now_ns = MonotonicNs();
  for (size_t i = 0; i < sources_.size(); ++i) {
    EventSource* source = sources_[i].source;
    if (source == nullptr || source->timer_ns_ > now_ns) continue;
    source->timer_ns_ = EventSource::kNoTimer;
    source->OnTimer();
  }
  for (const Registration& registration : sources_) {
    if (registration.source != nullptr) source_timer_.SetAtLatest(registration.source->timer_ns_);
  }
}

// --- Polling
// ---------------------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline int TcpCompletionQueue::EpollWait(int timeout_ms, Events& events) {
  if (options_.counters != nullptr) options_.counters->epoll_calls.fetch_add(1, std::memory_order_relaxed);
  return std::max(epoll_wait(epoll_.get(), events.event, kEventsMax, timeout_ms), 0);
}

[[gnu::always_inline]] inline bool TcpCompletionQueue::TakeEventsOfWait() {
  if (!has_hint_.load(std::memory_order_acquire)) return false;
  events_.swap(hint_);
  has_hint_.store(false, std::memory_order_release);
  return true;
}

[[gnu::always_inline]] inline void TcpCompletionQueue::HandleEvents() {
  handshakes_ns_ = 0;
  // A handler can remove sources whose events have not been handled yet, so each source is looked up anew.
  // Or call fork(): the child leaves the others alone.
  for (int i = 0; i < events_->count && !in_forked_child(); ++i) {
    const uint64_t data = events_->event[i].data.u64;
    if (data == kWakeData || data == kWaitTimerData) continue;  // For Wait().
    if (data == kSourceTimerData) {
      HandleTimers();
    } else if (const Registration& registered = sources_[static_cast<uint32_t>(data)];
               registered.source != nullptr && registered.generation == data >> 32) {
      registered.source->OnEvents(events_->event[i].events);
    }
  }
}

size_t TcpCompletionQueue::Poll(absl::Span<Completion> completions) {
  if (in_forked_child()) return 0;
  if (polling_) [[unlikely]]
    EndNestedPoll(polling_);
  CompletionSpan out = {completions.data(), completions.data() + completions.size()};
  polling_ = true;
  if (!ending_.empty()) NotifyEnds();
  if (!completions.empty() && !ready_.empty()) Deliver(out);
  bool idle = out.next == completions.data();
  // If the last Poll() left completions of its events undelivered, this one does not look for new events: the
  // answers to all of the former leave first.
  const bool rest = std::exchange(has_rest_, false) && !idle;
  offers_sends_ = idle && !completions.empty();
  taken_ = 0;
  if ((!out.full() && !rest) || completions.empty()) {
    bool found = TakeEventsOfWait();
    if (!found && !completions.empty() && carrying_.size() == 1 && blocked_ == 0 &&
        ++polls_since_look_ < kPollsPerLook) {
      // Receiving at once saves the call to epoll_wait(2).
      carrying_.first()->OnEvents(EPOLLIN);
    } else if (!found) {
      polls_since_look_ = 0;
      found = (events_->count = EpollWait(0, *events_)) > 0;
    }
    if (found) HandleEvents();
    offers_sends_ = false;
    if (in_forked_child()) [[unlikely]] {  // A handler has called fork().
      polling_ = false;
      return 0;
    }
    idle = idle && ready_.empty() && taken_ == 0;
    if (completions.empty()) {
      DeliverOnce(out, /*receives=*/true);
    } else if (!ready_.empty()) {
      // If SENDs were taken, the caller gets their share of its turn before it gets receives.
      taken_ == 0 ? Deliver(out) : DeliverOnce(out, /*receives=*/false);
    }
  }
  // If this Poll() has found a push, the next one begins with that push and need not look for new events. It
  // skips the look at most once in a row, so that a peer that always pushes does not starve the others.
  has_rest_ = ((out.full() || taken_ != 0) && !ready_.empty()) || (!rest && !ending_.empty());
  if (!owing_.empty()) SettleAcknowledgements(idle, rest);
  polling_ = false;
  PublishNews();
  return out.next - completions.data();
}

// Lets sources deliver while there is room.
void TcpCompletionQueue::Deliver(CompletionSpan& out) {
  do {
    auto* const source = static_cast<CompletionSource*>(ready_.TakeFirst());
    if (source == nullptr) return;
    source->Deliver(out, /*receives=*/true);
    if (out.full() && ready_.last() == source) {
      KeepTurn(*source);
    } else if (in_turn_ == source) {
      in_turn_ = nullptr;
    }
  } while (!out.full());
}

// `source` has more completions than this Poll() has room for.
void TcpCompletionQueue::KeepTurn(CompletionSource& source) {
  if (in_turn_ != &source) polls_in_turn_ = 0;
  in_turn_ = ++polls_in_turn_ < kPollsInARow ? &source : nullptr;
  if (in_turn_ != nullptr) ready_.MoveToFront(source);
}

// For a Poll() with no room for completions: lets sources call their handlers. Or for one in which SENDs were
// taken. It visits every source once, so that sources with more keep their order.
void TcpCompletionQueue::DeliverOnce(CompletionSpan& out, bool receives) {
  size_t left = kNewsMax;
  ready_.TakeEach([&](TurnPlace& place) {
    if (left == 0) return ready_.Add(place);
    --left;
    static_cast<CompletionSource&>(place).Deliver(out, receives);
  });
}

void TcpCompletionQueue::NotifyEnds() {
  for (size_t count = std::min(ending_.size(), kNewsMax); count > 0 && !ending_.empty(); --count) {
    ending_.TakeFirst()->OnEndDue();
  }
}

void TcpCompletionQueue::SettleAcknowledgements(bool idle, bool rest) {
  if (in_forked_child()) return;  // As of this Poll().
  polls_owing_ += 1 + taken_ / kTakenPerPoll;
  idle_polls_owing_ = idle ? idle_polls_owing_ + 1 : 0;
  // If another thread sleeps in Wait(), this one may never poll again. If there is a rest, this one polls
  // again at once, and the answers to what it has polled can still carry the acknowledgement.
  const bool now = !rest && (settle_now_.exchange(false, std::memory_order_relaxed) ||
                             waiting_.load(std::memory_order_seq_cst) > 0);
  if (!now && polls_owing_ < kPollsOwing && idle_polls_owing_ < kIdlePollsOwing) return;
  polls_owing_ = 0;
  idle_polls_owing_ = 0;
  for (size_t count = owing_.size(); count > 0 && !owing_.empty(); --count) owing_.TakeFirst()->Acknowledge();
}

void TcpCompletionQueue::Schedule(CompletionSource& source) {
  ready_.Add(source);
  if (!polling_) Publish();
}

void TcpCompletionQueue::NotifyEnd(CompletionSource& source) {
  ending_.Add(source);
  if (!polling_) Publish();
}

void TcpCompletionQueue::OweAcknowledgement(CompletionSource& source) { owing_.Add(source); }

void TcpCompletionQueue::TakeAcknowledgement(CompletionSource& source) {
  owing_.Remove(source);
  if (owing_.empty()) polls_owing_ = 0;
  if (!polling_ && owing_.empty() && is_owing_.load(std::memory_order_relaxed)) Publish();
}

// Tells Wait() that there is work for Poll(). Publish() stores the flags, then loads `waiting_`; Wait()
// stores `waiting_`, then loads the flags. With seq_cst at least one of the two sees the other's store.
void TcpCompletionQueue::Publish() {
  const bool work = !ready_.empty() || !ending_.empty();
  const bool owing = !owing_.empty();
  if (has_work_.load(std::memory_order_relaxed) != work) has_work_.store(work, std::memory_order_seq_cst);
  if (is_owing_.load(std::memory_order_relaxed) != owing) is_owing_.store(owing, std::memory_order_seq_cst);
  if ((work || owing) && waiting_.load(std::memory_order_seq_cst) > 0) Wake();
}

// --- Waiting
// ---------------------------------------------------------------------------------------------------------

void TcpCompletionQueue::WaitUntil(int64_t when_ns) {
  if (in_forked_child()) return;
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (is_owing_.load(std::memory_order_seq_cst)) {
    settle_now_.store(true, std::memory_order_relaxed);
  } else if (!has_work_.load(std::memory_order_seq_cst) && !has_hint_.load(std::memory_order_acquire)) {
    SleepUntil(when_ns);
  }
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
}

// If `when_ns` has passed, the timer expires at once.
inline void TcpCompletionQueue::SleepUntil(int64_t when_ns) {
  wait_timer_.SetAtLatest(when_ns);
  const int found = EpollWait(-1, *hint_);
  hint_->count = 0;
  for (int i = 0; i < found; ++i) {
    const uint64_t data = hint_->event[i].data.u64;
    if (data == kWakeData) {
      // Reads the eventfd before it clears `woken_`. A Wake() in between is for this Wait(), which ends now.
      uint64_t wakes;
      [[maybe_unused]] const ssize_t n = read(wake_.get(), &wakes, sizeof(wakes));
      woken_.exchange(false, std::memory_order_acq_rel);
    } else if (data == kWaitTimerData) {
      wait_timer_.Clear();
    } else {
      // In place, unless one before it was for this Wait() alone.
      if (hint_->count != i) hint_->event[hint_->count] = hint_->event[i];
      ++hint_->count;
    }
  }
  if (hint_->count > 0) has_hint_.store(true, std::memory_order_release);
}

void TcpCompletionQueue::Wake() {
  if (in_forked_child()) return;
  if (woken_.exchange(true, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof(one));
}

}  // namespace hawser::fabric
