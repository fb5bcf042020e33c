#include "hawser/transport/poller/poller.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "hawser/base/check.h"
#include "hawser/base/cores.h"
#include "hawser/base/thread.h"
#include "hawser/transport/poller/cpu_pause.h"
#include "hawser/transport/poller/queue_depths.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {
namespace {

// Completions of one turn at most, so that posts and timers are not late. Enough for everything that a
// connection of 64 slots can deliver at once, so that its answers are sent together.
constexpr size_t kBatch = 256;

// After this time a turn takes no more completions. Turns of fast handlers take a tenth of it.
constexpr int64_t kTurnNs = 500'000;

// The time that one chunk should take. If a handler takes longer, a chunk has one completion.
constexpr int64_t kChunkNs = kTurnNs / 4;

// Items that a posting thread runs itself before it leaves the rest to the driving thread. Enough that
// threads which post occasionally never wake the driver.
constexpr size_t kItemsOfPosterMax = 128;

// From this delay on, the text of an error mentions it.
constexpr absl::Duration kLate = absl::Milliseconds(100);

// Not inlined: few turns have news. Returns how many had.
[[gnu::noinline]] size_t DeliverNews(std::initializer_list<MemoryNews*> all) {
  size_t delivered = 0;
  for (MemoryNews* news : all) {
    if (!news->arrived()) continue;
    news->Deliver();
    ++delivered;
  }
  return delivered;
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

// Runs `run` on a thread of its own, on these cores; if there are none, where this thread may run.
absl::StatusOr<std::thread> StartOn(const std::set<int>& cores, absl::AnyInvocable<void()> run) {
  absl::Notification bound;
  bool refused = false;
  absl::StatusOr<std::thread> started =
      StartThread("hawser-poller", [&cores, &bound, &refused, run = std::move(run)]() mutable {
        const bool stays = cores.empty() || BindTo(cores);
        refused = !stays;
        bound.Notify();
        if (stays) run();
      });
  if (!started.ok()) return started;
  bound.WaitForNotification();
  if (!refused) return started;
  started->join();
  return absl::InvalidArgumentError(
      absl::StrCat("the system does not let a poller run on core ", absl::StrJoin(cores, ", "),
                   ": this machine has no such core, or the cpuset of this process has not"));
}

std::string NoticedLate(absl::Duration late, const CalledOut::Call& last) {
  std::string text =
      absl::StrCat("; noticed ", RoughDuration(late), " late: the poller was held, or its thread stopped");
  if (last.what != nullptr) absl::StrAppend(&text, "; it last ran ", Describe(last));
  return text;
}

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
      hold_(fork_mark_, called_out_),
      read_budget_(options.read_bytes_max, *this),
      chunk_(kChunkMax),
      fine_clock_(&environment == &Environment::Real()),
      memory_queue_(*this),
      read_admission_(*this, ledger, options.host_memory_share),
      response_watch_(*this, ledger, read_admission_, options.host_memory_share),
      idle_(options),
      drive_time_(now_ns_),
      role_(*this, environment) {}

Poller::~Poller() {
  if (watchdog_ != nullptr) watchdog_->Unwatch(called_out_);
  if (own_thread_.joinable()) {
    role_.Stop();
    own_thread_.join();
  }
  // No other thread enters any more, but one may not have left yet. A queue pair may be destroyed only when
  // nothing is outstanding.
  while (!TryHold()) hold_.AwaitRelease();
  clients_.Disconnect();
  read_admission_.Stop();
  clients_.Clear();
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
  absl::StatusOr<std::thread> started = StartOn(cores, [this] {
    while (role_.AwaitAsOwnThread()) Drive(nullptr);
  });
  if (!started.ok()) return started.status();
  own_thread_ = *std::move(started);
  return absl::OkStatus();
}

// ---- Being on the poller

[[gnu::always_inline]] inline bool Poller::TryHold() {
  if (!hold_.TryTake()) return false;
  cache_.Enter();
  return true;
}

[[gnu::always_inline]] inline void Poller::Release() {
  cache_.Leave();
  hold_.Release();
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

void Poller::CheckHeld() const { HAWSER_CHECK(Held(), "this code must run on its poller"); }

void Poller::Post(MailboxItem* item) {
  if (Held()) return item->Run();
  mailbox_.Add(item);
  if (!role_.OwnThreadTakesItems() || sleep_.asleep()) RunMailboxUnlessHeld();
}

// A thread that leaves the poller checks the mailbox once more. An item that it does not see is run by the
// thread that posted it. The order of these steps is that of the table in driver_role.cc. Only code of the
// library runs here: see MayCallOut().
void Poller::RunMailboxUnlessHeld() {
  size_t count = kItemsOfPosterMax;
  while (mailbox_.HasItems() && TryHold()) {
    ReadClock();
    mailbox_.Run(count);
    clients_.Flush();
    const int64_t next_ns = timers_.next_ns();
    sleep_.SetNextTimerOfPoster(next_ns);
    Release();
    if (sleep_.EndsAfter(next_ns)) WakeDriver();
    if (count != 0) continue;
    // Other threads post faster than this one runs what they post. The driving thread runs the rest.
    if (!mailbox_.HasItems()) return;
    return sleep_.asleep() ? WakeDriver() : role_.HandOverItems();
  }
}

void Poller::Run(absl::AnyInvocable<void()> function) {
  if (Held()) return function();
  Post(new FunctionItem(std::move(function)));
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

[[gnu::always_inline]] inline size_t Poller::TurnOfDriver() {
  may_call_out_ = true;
  const size_t work = Turn();
  may_call_out_ = false;
  return work;
}

size_t Poller::Turn() {
  turn_began_ns_ = ReadClock();
  if (may_call_out_) called_out_.StartTurn(now_ns_);
  size_t work = TakeCompletions();
  if (mailbox_.HasItems()) {
    if (work++ > 0) ReadClock();
    mailbox_.RunAll();
  }
  if (memory_queue_.news().arrived() || read_admission_.news().arrived()) [[unlikely]]
    work += DeliverNews({&memory_queue_.news(), &read_admission_.news()});
  if (timers_.next_ns() <= now_ns_) work += timers_.RunDue(now_ns_);
  if (clients_.Flush()) ++work;
  sleep_.SetNextTimer(timers_.next_ns());
  return work;
}

std::string Poller::WhyLate(int64_t due_ns) const {
  const absl::Duration late = absl::Nanoseconds(now_ns_ - due_ns);
  return late < kLate ? "" : NoticedLate(late, called_out_.Last());
}

[[gnu::always_inline]] inline void Poller::Dispatch(const fabric::Completion& completion) {
  const WorkId id = WorkId::Decode(completion.wr_id);
  // A destroyed connection cannot have a late completion: it was destroyed only after all its work requests
  // had completed.
  if (PollerClient* const client = clients_.Find(id.connection)) client->OnCompletion(id, completion);
}

// A turn must be short: work requests are posted at its end, deadlines count from a clock that is rarely
// read, and a peer that connects waits for the next turn. So a turn ends after kTurnNs, and takes few
// completions at a time while their handlers are slow.
[[gnu::always_inline]] inline size_t Poller::TakeCompletions() {
  // Not initialized: that would take longer than a poll that finds nothing, as most polls do.
  alignas(fabric::Completion) std::byte memory[kChunkMax * sizeof(fabric::Completion)];
  auto* const completions = reinterpret_cast<fabric::Completion*>(memory);
  // A fabric whose completions fill the room need not poll for anything else. A poll with no room does, so
  // new connections are accepted between two turns however many completions wait.
  if (more_waiting_) completion_queue_->Poll({});
  take_until_ns_ = now_ns_ + kTurnNs;
  taken_ = 0;
  clients_.StartTurn();
  since_clock_ = 0;
  while (true) {
    const size_t wanted = chunk_;
    AllowSends();
    const size_t count = completion_queue_->Poll(absl::MakeSpan(completions, wanted));
    CountTaken(std::exchange(sends_allowed_, 0) - std::exchange(sends_left_, 0));
    bool failure = false;
    if (count > 0) {
      for (size_t i = 0; i < count; ++i) {
        failure |= completions[i].status != fabric::CompletionStatus::kSuccess;
        Dispatch(completions[i]);
      }
      CountTaken(count);
    }
    more_waiting_ = count == wanted;
    // The cause of a failure may be the next completion. It has to be handled in the same turn.
    if (!more_waiting_ || taken_ >= kBatch || (now_ns_ >= take_until_ns_ && !failure)) return taken_;
    clients_.FlushLongQueues(taken_);
  }
}

// So many more were handled. Reads the clock once in a chunk.
[[gnu::always_inline]] inline void Poller::CountTaken(size_t count) {
  taken_ += count;
  since_clock_ += static_cast<int64_t>(count);
  dispatched_ += count;
  if (dispatched_ < chunk_ || since_clock_ == 0) return;
  const int64_t before_ns = now_ns_;
  const int64_t each_ns = std::max<int64_t>(1, (ReadClock() - before_ns) / since_clock_);
  chunk_ = std::clamp<int64_t>(kChunkNs / each_ns, 1, kChunkMax);
  dispatched_ = 0;
  since_clock_ = 0;
}

[[gnu::always_inline]] inline void Poller::AllowSends() {
  if (taken_ < kBatch && now_ns_ < take_until_ns_) sends_allowed_ = sends_left_ = chunk_;
}

// In the middle of a Poll(), after a chunk of SENDs. What this turn does not take any more completes its
// receive, for the next turn.
void Poller::AfterSends() {
  CountTaken(std::exchange(sends_allowed_, 0));
  clients_.FlushLongQueues(taken_);
  AllowSends();
}

// ---- Driving

void Poller::Drive(WaitEvent* event) {
  const auto until = [&] { return event != nullptr ? event->is_set() : role_.own_thread_is_to_stop(); };
  role_.BeginDrive(/*is_own_thread=*/event == nullptr);
  Count& turns = event != nullptr ? turns_of_waiting_threads_ : turns_of_own_thread_;
  for (bool look = idle_.Start(); !until(); look = true) {
    // When this thread falls asleep, if it does.
    int64_t now_ns = look ? 0 : environment_.NowNs();
    if (look) {
      if (!TryHold()) {
        hold_.AwaitRelease();
        idle_.OnHeld();
        continue;
      }
      const size_t work = TurnOfDriver();
      const int64_t began_ns = turn_began_ns_;
      now_ns = idle_.sleeps_at_once() ? NowForTotalsNs() : began_ns;
      Release();
      drive_time_.Begin(work > 0 ? DriveTime::Part::kBusy : DriveTime::Part::kSpun, began_ns);
      if (work > 0) turns.Add();
      // The turn that ends this drive is the end of a wait, too.
      const bool over = until();
      if (!over && idle_.wants_time()) now_ns = environment_.NowNs();
      const Idle::Next next = idle_.After(work > 0, began_ns, now_ns);
      if (over) break;
      switch (next) {
        case Idle::Next::kLook:
          CpuPause();
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
    // what was done before. The order of these steps is that of the table in driver_role.cc.
    const int64_t next_ns = sleep_.Announce();
    if (!mailbox_.HasItems() && sleep_.StillEndsAt(next_ns) &&
        (event == nullptr || event->StartSleep(*completion_queue_))) {
      if (!until()) {
        static_assert(kNever == fabric::CompletionQueue::kNoEnd);
        drive_time_.Begin(DriveTime::Part::kSlept, now_ns);
        idle_.OnSleep(now_ns);
        completion_queue_->WaitUntil(next_ns);
      }
      if (event != nullptr) event->EndSleep();
    }
    sleep_.End();
  }
  drive_time_.End();
  role_.EndDrive();
  RunMailboxUnlessHeld();
}

bool Poller::WaitFor(WaitEvent& event, absl::FunctionRef<int64_t()> until_ns) {
  if (event.is_set()) return true;
  if (role_.Await(event, until_ns)) {
    Drive(&event);
    role_.Leave();
  }
  return event.is_set();
}

}  // namespace hawser::transport
