#include "hawser/transport/poller/poller.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "hawser/base/check.h"
#include "hawser/base/cores.h"
#include "hawser/base/thread.h"
#include "hawser/transport/poller/queue_depths.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {
namespace {

// Completions of one turn at most, so that posts and timers are not late. Enough for everything that a
// connection of 64 slots can deliver at once, so that its answers are sent together.
constexpr size_t kBatch = 256;

// Completions taken at a time. The clock is read once per so many, since it costs a tenth of a small call.
constexpr size_t kChunkMax = 16;

// After this time a turn takes no more completions. Turns of fast handlers take a tenth of it.
constexpr int64_t kTurnNs = 500'000;

// The time that one chunk should take. If a handler takes longer, a chunk has one completion.
constexpr int64_t kChunkNs = kTurnNs / 4;

// How long the poller's own thread leaves driving to threads that wait for calls, after the last of them has
// left. Meanwhile it wakes up at this interval; at 5 ms that took 0.3 % of the time of calls on one core.
constexpr std::chrono::milliseconds kForegroundLinger(20);

// Several threads wait at once if threads begin to wait so many times more often beside another one than
// alone.
constexpr int kTogetherMax = 24;

// Items that a posting thread runs itself before it leaves the rest to the driving thread. Enough that
// threads which post occasionally never wake the driver.
constexpr size_t kItemsOfPosterMax = 128;

// How often the driving thread checks whether another thread has left the poller, before it sleeps: longer
// than a poster needs, shorter than falling asleep and waking up.
constexpr int kLooksAtHolder = 64;

// From this delay on, the text of an error mentions it.
constexpr absl::Duration kLate = absl::Milliseconds(100);

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class FunctionItem final : public MailboxItem {
 public:
  explicit FunctionItem(absl::AnyInvocable<void()> function) : function_(std::move(function)) {}
  void Run() override {
    function_();
    delete this;
  }

 private:
  absl::AnyInvocable<void()> function_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Poller>> Poller::Create(std::shared_ptr<fabric::Fabric> fabric,
                                                       std::shared_ptr<MessagePool> messages,
                                                       ReadLedger& ledger, const PollerOptions& options,
                                                       Environment& environment) {
  std::unique_ptr<Poller> poller(
      new Poller(std::move(fabric), std::move(messages), ledger, options, environment));
  absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> queue =
      poller->fabric_->CreateCompletionQueue(kCompletionQueueDepth);
  if (!queue.ok()) return queue.status();
  poller->completion_queue_ = *std::move(queue);
  poller->cache_.SetWake([poller = poller.get()] { poller->WakeDriver(); });
  return poller;
}

Poller::Poller(std::shared_ptr<fabric::Fabric> fabric, std::shared_ptr<MessagePool> messages,
               ReadLedger& ledger, const PollerOptions& options, Environment& environment)
    : PollerServices(std::move(fabric), std::move(messages), environment.NowNs()),
      environment_(environment),
      cache_(*messages_),
      read_budget_(options.read_bytes_max, *this),
      chunk_(kChunkMax),
      fine_clock_(&environment == &Environment::Real()),
      memory_queue_(*this),
      read_admission_(*this, ledger, options.host_memory_share),
      response_watch_(*this, ledger, read_admission_, options.host_memory_share),
      idle_(options),
      drive_time_(now_ns_) {}

Poller::~Poller() {
  if (watchdog_ != nullptr) watchdog_->Unwatch(called_out_);
  if (background_.joinable()) {
    {
      std::lock_guard<std::mutex> lock(role_mutex_);
      stopping_ = true;
      yield_.store(true);
      background_wake_.notify_all();
    }
    WakeDriver();
    background_.join();
  }
  // No other thread enters any more, but one may not have left yet. A queue pair may be destroyed only when
  // nothing is outstanding.
  while (!TryHold()) AwaitRelease();
  for (auto& connection : connections_) {
    if (connection != nullptr) connection->Disconnect();
  }
  read_admission_.Stop();
  connections_.clear();
  Release();
}

void Poller::operator delete(Poller* poller, std::destroying_delete_t) {
  if (!poller->usable_in_this_process()) return;
  poller->~Poller();
  Poller::operator delete(static_cast<void*>(poller));
}

absl::Status Poller::Start(const std::set<int>& cores) {
  if (watchdog_ == nullptr) {
    watchdog_ = &Watchdog::Process();
    watchdog_->Watch(called_out_, environment_);
  }
  absl::Notification bound;
  bool refused = false;
  absl::StatusOr<std::thread> started = StartThread("hawser-poller", [&, this] {
    const bool stays = cores.empty() || BindTo(cores);
    refused = !stays;
    bound.Notify();
    if (stays) Background();
  });
  if (!started.ok()) return started.status();
  bound.WaitForNotification();
  if (refused) {
    started->join();
    return absl::InvalidArgumentError(
        absl::StrCat("the system does not let a poller run on core ", absl::StrJoin(cores, ", "),
                     ": this machine has no such core, or the cpuset of this process has not"));
  }
  background_ = *std::move(started);
  return absl::OkStatus();
}

// ---- Being on the poller

// held_ and mailbox_ are sequentially consistent: a thread that posts stores to the mailbox, then loads
// held_; a thread that leaves stores held_, then loads the mailbox. One of the two sees the other's store.
bool Poller::TryHold() {
  int free = kFree;
  // Not an exchange: it could overwrite the note that the driving thread sleeps until the holder leaves.
  if (held_.load(std::memory_order_seq_cst) != kFree ||
      !held_.compare_exchange_strong(free, kHeld, std::memory_order_seq_cst)) {
    return false;
  }
  outer_held_ = std::exchange(innermost_held_, this);
  cache_.Enter();
  return true;
}

void Poller::Release() {
  cache_.Leave();
  innermost_held_ = outer_held_;
  if (held_.exchange(kFree, std::memory_order_seq_cst) == kHeldAndAwaited) held_.notify_one();
}

// For the driving thread only. A poster leaves within a microsecond, unless it was preempted. Spinning would
// then use up a time slice, and under SCHED_FIFO it would keep the poster off this core for ever.
void Poller::AwaitRelease() {
  for (int i = 0; i < kLooksAtHolder; ++i) {
    if (held_.load(std::memory_order_relaxed) == kFree) return;
    Pause();
  }
  int held = kHeld;
  if (held_.compare_exchange_strong(held, kHeldAndAwaited, std::memory_order_seq_cst) ||
      held == kHeldAndAwaited) {
    held_.wait(kHeldAndAwaited, std::memory_order_seq_cst);
  }
}

PollerStats Poller::stats() const {
  PollerStats stats;
  stats.sent = sent_.values();
  stats.sent_bytes = sent_bytes_.value();
  stats.received = received_.values();
  stats.turns_of_waiting_threads = turns_of_waiting_threads_.value();
  stats.turns_of_own_thread = turns_of_own_thread_.value();
  stats.busy = drive_time_.Total(DriveTime::Part::kBusy);
  stats.spun = drive_time_.Total(DriveTime::Part::kSpun);
  stats.slept = drive_time_.Total(DriveTime::Part::kSlept);
  idle_.FillIn(stats);
  return stats;
}

int64_t Poller::NowForDeadlineNs() { return chunk_ < kChunkMax ? ReadClock() : now_ns_; }

bool Poller::HeldBeside() const {
  for (const Poller* poller = innermost_held_; poller != nullptr; poller = poller->outer_held_) {
    if (poller == this) return true;
  }
  return false;
}

// In a child that a handler created with fork(), the parent's pollers do not count.
bool Poller::ThisThreadHoldsOne() {
  for (const Poller* poller = innermost_held_; poller != nullptr; poller = poller->outer_held_) {
    if (poller->usable_in_this_process()) return true;
  }
  return false;
}

std::optional<CalledOut::Call> Poller::CalledOutOnThisThread() {
  for (const Poller* poller = innermost_held_; poller != nullptr; poller = poller->outer_held_) {
    if (!poller->usable_in_this_process()) continue;
    if (std::optional<CalledOut::Call> call = poller->called_out_.Now(); call.has_value()) return call;
  }
  return std::nullopt;
}

void Poller::AssertHeld() const {
#ifndef NDEBUG
  HAWSER_CHECK(Held(), "this code must run on its poller");
#endif
}

void Poller::Post(MailboxItem* item) {
  if (Held()) return item->Run();
  item->next_in_mailbox = mailbox_.load(std::memory_order_relaxed);
  while (!mailbox_.compare_exchange_weak(item->next_in_mailbox, item, std::memory_order_seq_cst,
                                         std::memory_order_relaxed)) {
  }
  if (!OwnThreadTakesMail()) RunMailboxUnlessHeld();
}

// Many threads post, and then wait: they do not contend for the poller while its own thread is awake, which
// takes what they post together. It looks at the mailbox once more after it has said that it sleeps, or
// drives no more.
bool Poller::OwnThreadTakesMail() const {
  return many_wait_.load(std::memory_order_relaxed) && own_thread_drives_.load(std::memory_order_seq_cst) &&
         sleeping_until_ns_.load(std::memory_order_seq_cst) == 0;
}

bool Poller::HasMail() const {
  return mailbox_.load(std::memory_order_seq_cst) != nullptr ||
         left_over_.load(std::memory_order_seq_cst) != nullptr;
}

// A thread that leaves the poller checks the mailbox once more. An item that it does not see is run by the
// thread that posted it. Only code of the library runs here: see MayCallOut().
void Poller::RunMailboxUnlessHeld() {
  size_t count = kItemsOfPosterMax;
  while (HasMail() && TryHold()) {
    ReadClock();
    RunMailbox(count);
    FlushConnections();
    const int64_t next_ns = timers_.next_ns();
    next_timer_ns_.store(next_ns, std::memory_order_seq_cst);
    Release();
    WakeIfSleepingPast(next_ns);
    if (count != 0) continue;
    // Other threads post faster than this one runs what they post.
    if (HasMail()) HandOverMail();
    return;
  }
}

// The driving thread runs the rest, or the next driver does: the poller's own thread, if there is no other.
void Poller::HandOverMail() {
  if (sleeping_until_ns_.load(std::memory_order_seq_cst) != 0) return WakeDriver();
  std::lock_guard<std::mutex> lock(role_mutex_);
  handed_over_ = true;
  if (!has_driver_) background_wake_.notify_one();
}

void Poller::Run(absl::AnyInvocable<void()> function) {
  if (Held()) return function();
  Post(new FunctionItem(std::move(function)));
}

void Poller::WakeIfSleepingPast(int64_t when_ns) {
  if (sleeping_until_ns_.load(std::memory_order_seq_cst) > when_ns) WakeDriver();
}

// ---- A turn

size_t Poller::PollOnce() {
  if (Held()) return Turn();
  if (!TryHold()) return 0;
  const size_t work = TurnOfDriver();
  Release();
  RunMailboxUnlessHeld();
  return work;
}

size_t Poller::TurnOfDriver() {
  may_call_out_ = true;
  const size_t work = Turn();
  may_call_out_ = false;
  return work;
}

size_t Poller::Turn() {
  turn_began_ns_ = ReadClock();
  if (may_call_out_) called_out_.StartTurn(now_ns_);
  size_t work = TakeCompletions();
  if (work > 0 && HasMail()) ReadClock();
  if (RunMailbox()) ++work;
  for (MemoryNews* news : {&memory_queue_.news(), &read_admission_.news()}) {
    if (!news->arrived()) continue;
    news->Deliver();
    ++work;
  }
  if (timers_.next_ns() <= now_ns_) work += timers_.RunDue(now_ns_);
  if (!to_flush_.empty()) ++work;
  FlushConnections();
  next_timer_ns_.store(timers_.next_ns(), std::memory_order_relaxed);
  return work;
}

std::string Poller::WhyLate(int64_t due_ns) const {
  const absl::Duration late = absl::Nanoseconds(now_ns_ - due_ns);
  if (late < kLate) return "";
  std::string text =
      absl::StrCat("; noticed ", RoughDuration(late), " late: the poller was held, or its thread stopped");
  const CalledOut::Call last = called_out_.Last();
  if (last.what != nullptr) absl::StrAppend(&text, "; it last ran ", Describe(last));
  return text;
}

// A turn must be short: work requests are posted at its end, deadlines count from a clock that is rarely
// read, and a peer that connects waits for the next turn. So a turn ends after kTurnNs, and takes few
// completions at a time while their handlers are slow.
size_t Poller::TakeCompletions() {
  // Not initialized: that would take longer than a poll that finds nothing, as most polls do.
  alignas(fabric::Completion) std::byte memory[kChunkMax * sizeof(fabric::Completion)];
  auto* const completions = reinterpret_cast<fabric::Completion*>(memory);
  // A fabric whose completions fill the room need not poll for anything else. A poll with no room does, so
  // new connections are accepted between two turns however many completions wait.
  if (more_waiting_) completion_queue_->Poll({});
  const int64_t end_ns = now_ns_ + kTurnNs;
  size_t taken = 0;
  int64_t since_clock = 0;
  do {
    const size_t wanted = chunk_;
    const size_t count = completion_queue_->Poll(absl::MakeSpan(completions, wanted));
    bool failure = false;
    for (size_t i = 0; i < count; ++i) {
      failure |= completions[i].status != fabric::CompletionStatus::kSuccess;
      Dispatch(completions[i]);
    }
    more_waiting_ = count == wanted;
    taken += count;
    since_clock += static_cast<int64_t>(count);
    dispatched_ += count;
    if (dispatched_ >= chunk_) {
      const int64_t before_ns = now_ns_;
      const int64_t each_ns = std::max<int64_t>(1, (ReadClock() - before_ns) / since_clock);
      chunk_ = std::clamp<int64_t>(kChunkNs / each_ns, 1, kChunkMax);
      dispatched_ = 0;
      since_clock = 0;
      // The cause of a failure may be the next completion. It has to be handled in the same turn.
      if (now_ns_ >= end_ns && !failure) break;
    }
    if (more_waiting_ && taken % PollerClient::kLongQueue == 0) FlushLongQueues();
  } while (more_waiting_ && taken < kBatch);
  return taken;
}

void Poller::Dispatch(const fabric::Completion& completion) {
  const WorkId id = WorkId::Decode(completion.wr_id);
  // A destroyed connection cannot have a late completion: it was destroyed only after all its work requests
  // had completed.
  if (id.connection >= connections_.size() || connections_[id.connection] == nullptr) return;
  connections_[id.connection]->OnCompletion(id, completion);
}

bool Poller::RunMailbox() {
  size_t count = SIZE_MAX;
  return RunMailbox(count);
}

bool Poller::RunMailbox(size_t& count) {
  MailboxItem* left = left_over_.load(std::memory_order_relaxed);
  const bool any_left = left != nullptr;
  if (any_left) {
    left_over_.store(nullptr, std::memory_order_relaxed);
    left = RunItems(left, count);
  }
  if (left == nullptr) {
    if (mailbox_.load(std::memory_order_relaxed) == nullptr) return any_left;
    MailboxItem* newest = mailbox_.exchange(nullptr, std::memory_order_acquire);
    while (newest != nullptr) {
      MailboxItem* const next = newest->next_in_mailbox;
      newest->next_in_mailbox = left;
      left = newest;
      newest = next;
    }
    left = RunItems(left, count);
  }
  if (left != nullptr) left_over_.store(left, std::memory_order_seq_cst);
  return true;
}

// Returns the first that did not run.
MailboxItem* Poller::RunItems(MailboxItem* first, size_t& count) {
  for (; first != nullptr && count != 0; --count) {
    MailboxItem* const next = first->next_in_mailbox;
    first->Run();
    first = next;
  }
  return first;
}

void Poller::FlushConnections() {
  // A flush may require another one, even of the same connection: after a postponed close, or when a send
  // queue has room again. So may destroying a connection, which releases memory.
  while (!to_flush_.empty() || !closed_.empty()) {
    for (size_t i = 0; i < to_flush_.size(); ++i) {
      PollerClient* const connection = to_flush_[i];
      connection->marked_for_flush_ = false;
      connection->Flush();
    }
    to_flush_.clear();
    while (!closed_.empty()) {
      PollerClient* const connection = closed_.back();
      closed_.pop_back();
      Drop(connection);
    }
  }
}

// The peer starts with these while this turn continues.
void Poller::FlushLongQueues() {
  for (size_t i = 0; i < to_flush_.size(); ++i) {
    to_flush_[i]->FlushIfLong();
  }
}

void Poller::MarkForFlush(PollerClient* connection) {
  if (std::exchange(connection->marked_for_flush_, true)) return;
  AssertHeld();
  to_flush_.push_back(connection);
}

void Poller::MarkClosed(PollerClient* connection) { closed_.push_back(connection); }

void Poller::Adopt(std::unique_ptr<PollerClient> connection) {
  ++connection_count_;
  if (free_indexes_.empty()) {
    free_indexes_.push_back(static_cast<uint32_t>(connections_.size()));
    connections_.emplace_back();
  }
  connection->index_ = free_indexes_.back();
  free_indexes_.pop_back();
  connections_[connection->index_] = std::move(connection);
}

void Poller::Drop(PollerClient* connection) {
  --connection_count_;
  to_flush_.erase(std::remove(to_flush_.begin(), to_flush_.end(), connection), to_flush_.end());
  free_indexes_.push_back(connection->index());
  connections_[connection->index()].reset();
}

// ---- Driving

void Poller::Drive(WaitEvent* event) {
  const auto until = [&] {
    return event != nullptr ? event->is_set() : yield_.load(std::memory_order_acquire);
  };
  own_thread_drives_.store(event == nullptr, std::memory_order_relaxed);
  Count& turns = event != nullptr ? turns_of_waiting_threads_ : turns_of_own_thread_;
  for (bool look = idle_.Start(); !until(); look = true) {
    if (look) {
      if (!TryHold()) {
        AwaitRelease();
        idle_.OnHeld();
        continue;
      }
      const size_t work = TurnOfDriver();
      const int64_t began_ns = turn_began_ns_;
      Release();
      drive_time_.Begin(work > 0 ? DriveTime::Part::kBusy : DriveTime::Part::kSpun, began_ns);
      if (work > 0) turns.Add();
      // The turn that ends this drive is the end of a wait, too.
      const bool over = until();
      const int64_t ended_ns = !over && idle_.wants_time() ? environment_.NowNs() : began_ns;
      const Idle::Next next = idle_.After(work > 0, began_ns, ended_ns);
      if (over) break;
      switch (next) {
        case Idle::Next::kLook:
          Pause();
          continue;
        case Idle::Next::kYield:
          sched_yield();
          continue;
        case Idle::Next::kSleep:
          break;
      }
    }
    // Sleep right after the last work: another poll that finds nothing costs a system call on some fabrics,
    // and Wait() polls by itself. From here on a thread that posts, or sets a timer, must wake us; we see
    // what was done before.
    const int64_t next_ns = next_timer_ns_.load(std::memory_order_seq_cst);
    sleeping_until_ns_.store(next_ns, std::memory_order_seq_cst);
    if (!HasMail() && next_timer_ns_.load(std::memory_order_seq_cst) == next_ns &&
        (event == nullptr || event->StartSleep(*completion_queue_))) {
      if (!until()) {
        static_assert(kNever == fabric::CompletionQueue::kNoEnd);
        const int64_t now_ns = environment_.NowNs();
        drive_time_.Begin(DriveTime::Part::kSlept, now_ns);
        idle_.OnSleep(now_ns);
        completion_queue_->WaitUntil(next_ns);
      }
      if (event != nullptr) event->EndSleep();
    }
    sleeping_until_ns_.store(0, std::memory_order_seq_cst);
  }
  drive_time_.End();
  own_thread_drives_.store(false, std::memory_order_seq_cst);
  RunMailboxUnlessHeld();
}

void Poller::Background() {
  uint64_t seen_drives = 0;
  std::unique_lock<std::mutex> lock(role_mutex_);
  has_background_ = true;
  while (!stopping_) {
    const bool others_drive = has_driver_ || (foreground_ > 0 && !many_wait_);
    const bool calls_follow = std::exchange(seen_drives, foreground_drives_) != foreground_drives_;
    if (!others_drive && (!calls_follow || handed_over_ || many_wait_ ||
                          async_interest_.load(std::memory_order_relaxed) > 0)) {
      has_driver_ = background_drives_ = true;
      handed_over_ = false;
      yield_.store(false);
      lock.unlock();
      Drive(nullptr);
      lock.lock();
      has_driver_ = background_drives_ = false;
      seen_drives = foreground_drives_;
      PassOnDriving();
    } else if (calls_follow) {
      // Calls tend to follow each other: their thread is likely to drive again soon.
      background_wake_.wait_for(lock, kForegroundLinger);
    } else {
      // A long wait, during which no other thread needs to drive. Another may follow.
      background_rests_ = true;
      background_wake_.wait(lock);
      background_rests_ = false;
      seen_drives = foreground_drives_ - 1;
    }
  }
}

// A thread that waits alone drives: its answer then wakes no thread. If several threads wait, each would
// drive until its own answer comes, and then wake another one that has no answer yet. So the poller's own
// thread drives for them.
void Poller::NoteHowManyWait() {
  if (!has_background_) return;
  const int step = foreground_.load(std::memory_order_seq_cst) > 1 ? 1 : -1;
  const int together = std::clamp(together_.load(std::memory_order_relaxed) + step, 0, kTogetherMax);
  if (together == kTogetherMax) many_wait_ = true;
  if (together == 0) many_wait_ = false;
  together_.store(together, std::memory_order_seq_cst);
}

// While many threads wait, each only sleeps: taking role_mutex_ twice, they would wait for each other.
// `others`: how many waited when this one was counted. One that waits alone goes on, to be noted.
//
// This thread is counted before it loads together_. So at most one NoteHowManyWait() has not seen it and has
// yet to store: from now on together_ stays at kTogetherMax - 1 or more, and many_wait_ stays true.
// Background(), if it leaves Drive() for an older yield_, drives again before it unlocks role_mutex_.
bool Poller::OwnThreadDrivesForMany(int others) const {
  return others > 0 && together_.load(std::memory_order_seq_cst) == kTogetherMax &&
         own_thread_drives_.load(std::memory_order_seq_cst);
}

bool Poller::WaitFor(WaitEvent& event, absl::FunctionRef<int64_t()> until_ns) {
  if (event.is_set()) return true;
  absl::Duration patience = absl::InfiniteDuration();
  int64_t end_ns = 0;  // 0: not asked for yet.
  const auto sleep = [&] {
    if (end_ns == 0) end_ns = until_ns();
    if (end_ns != kNever) patience = absl::Nanoseconds(end_ns - environment_.NowNs());
    event.AwaitSetOrNudged(patience);
    if (end_ns != kNever && !event.is_set()) patience = absl::Nanoseconds(end_ns - environment_.NowNs());
  };
  const auto over = [&] { return event.is_set() || patience <= absl::ZeroDuration(); };
  if (OwnThreadDrivesForMany(foreground_.fetch_add(1, std::memory_order_seq_cst))) {
    while (!over()) sleep();
    foreground_.fetch_sub(1, std::memory_order_seq_cst);
    return event.is_set();
  }
  std::unique_lock<std::mutex> role(role_mutex_);
  NoteHowManyWait();
  while (!over()) {
    if (!has_driver_ && !many_wait_) {
      has_driver_ = true;
      handed_over_ = false;
      ++foreground_drives_;
      role.unlock();
      Drive(&event);
      role.lock();
      has_driver_ = false;
      break;
    }
    if (!has_driver_) background_wake_.notify_one();
    if (background_drives_ && !many_wait_ && !yield_.exchange(true)) WakeDriver();
    waiting_.MoveToBack(&event);
    role.unlock();
    sleep();
    role.lock();
    event.Unlink();
  }
  foreground_.fetch_sub(1, std::memory_order_seq_cst);
  if (!has_driver_) PassOnDriving();
  return event.is_set();
}

// Another waiting thread continues driving. If there is none, or there are several, the poller's own thread
// does, now or a little later. It is notified only if it would not check soon enough by itself, because a
// notification costs a system call.
void Poller::PassOnDriving() {
  if (!waiting_.empty() && !many_wait_) {
    waiting_.front()->Nudge();
  } else if (!waiting_.empty() ||
             (foreground_ == 0 &&
              (background_rests_ || handed_over_ || async_interest_.load(std::memory_order_relaxed) > 0))) {
    background_wake_.notify_one();
  }
}

void Poller::AddAsyncInterest(int delta) {
  if (async_interest_.fetch_add(delta, std::memory_order_relaxed) != 0 || delta <= 0) return;
  std::lock_guard<std::mutex> lock(role_mutex_);
  background_wake_.notify_one();
}

}  // namespace hawser::transport
