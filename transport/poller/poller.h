#ifndef HAWSER_TRANSPORT_POLLER_POLLER_H_
#define HAWSER_TRANSPORT_POLLER_POLLER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/base/fork.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/clock/fine_clock.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/log/violation_counts.h"
#include "hawser/transport/poller/called_out.h"
#include "hawser/transport/poller/counts.h"
#include "hawser/transport/poller/drive_time.h"
#include "hawser/transport/poller/driver_role.h"
#include "hawser/transport/poller/driver_sleep.h"
#include "hawser/transport/poller/idle.h"
#include "hawser/transport/poller/mailbox.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/poller/poller_clients.h"
#include "hawser/transport/poller/poller_hold.h"
#include "hawser/transport/poller/poller_stats.h"
#include "hawser/transport/poller/wait_event.h"
#include "hawser/transport/poller/watchdog.h"
#include "hawser/transport/sharing/memory_queue.h"
#include "hawser/transport/sharing/poller_services.h"
#include "hawser/transport/sharing/read_admission.h"
#include "hawser/transport/sharing/read_budget.h"
#include "hawser/transport/sharing/response_watch.h"
#include "hawser/transport/wire/message.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// One completion queue, the connections on it, and their timers, driven by one thread at a time.
//
// The thread that holds the poller is "on the poller". The code of its connections runs only there, so it
// needs no locks. The poller's own thread drives it: polls, spins for a while when there is nothing to do,
// then sleeps. A user's thread that waits for a call drives meanwhile, so that the answer needs no switch
// between threads. If several threads wait at once, the poller's own thread drives for them.
//
// Thread: as said for each method; "on the poller" is checked by AssertHeld().
class Poller final : public PollerServices {
 public:
  // `ledger` is shared by the pollers on one buffer pool; it and `environment` outlive them.
  static absl::StatusOr<std::unique_ptr<Poller>> Create(std::shared_ptr<fabric::Fabric> fabric,
                                                        std::shared_ptr<MessagePool> messages,
                                                        ReadLedger& ledger, const PollerOptions& options,
                                                        Environment& environment = Environment::Real());

  // Ends its thread. Disconnects its connections without notifying their observers: close them before.
  ~Poller();
  // In a child made by fork() a poller is not destroyed but leaked: its thread is not there to be joined, and
  // condition variables that this thread waited on cannot be destroyed.
  static void operator delete(Poller* poller, std::destroying_delete_t);
  // The matching pair: a constructor that throws frees with the second. If inlined, gcc 12 would see
  // ::operator new and warn that the delete above does not match it.
  [[gnu::noinline]] static void* operator new(size_t size_bytes) { return ::operator new(size_bytes); }
  [[gnu::noinline]] static void operator delete(void* memory) { ::operator delete(memory); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // ---- From any thread.

  // Starts the thread that drives when no other does. It runs on `cores` only; if there are none, where this
  // thread may run. Without Start() (a simulation) the caller calls PollOnce(). ResourceExhausted: the system
  // has no thread left. InvalidArgument: it does not let the thread run there.
  absl::Status Start(const std::set<int>& cores = {});

  // Runs `item`, or `function`, on the poller: at once if this thread is on it; usually before this returns
  // if no thread is, unless many threads wait and the poller's own thread is awake; else soon. A thread that
  // finds the poller free also runs some of what other threads have posted, but a bounded number, and leaves
  // the rest to the thread that drives.
  void Post(MailboxItem* item);
  void Run(absl::AnyInvocable<void()> function);

  // Blocks until `event` is set; drives meanwhile, if no other waiting thread does and few wait. One thread
  // an event. Not on the poller.
  void WaitFor(WaitEvent& event) {
    WaitFor(event, [] { return kNever; });
  }
  // The same, but while another thread drives, it waits no longer than `until_ns()` (of its environment's
  // clock), which it calls once, when this thread is about to sleep. False: the event is not set by then.
  bool WaitFor(WaitEvent& event, absl::FunctionRef<int64_t()> until_ns);

  // This thread is on the poller.
  bool Held() const { return hold_.held(); }
  // This thread is on some poller: in a handler or a callback, which must not wait for a network.
  static bool ThisThreadHoldsOne() { return PollerHold::ThisThreadHoldsOne(); }
  // The code of the application that this thread runs there: see CalledOut::Now().
  static std::optional<CalledOut::Call> CalledOutOnThisThread() {
    return PollerHold::CalledOutOnThisThread();
  }
  void AssertHeld() const {
#ifndef NDEBUG
    CheckHeld();
#endif
  }

  // While the sum is above zero, more than waiting threads depends on the poller (callbacks, a server's
  // requests), so its own thread resumes driving as soon as the last waiting thread leaves. Otherwise it
  // leaves driving to the next one for up to 40 ms (two kLinger in driver_role.cc).
  void AddAsyncInterest(int delta) { role_.AddAsyncInterest(delta); }

  // False in a child after fork(): the threads and the sockets are the parent's; nothing may be touched.
  bool usable_in_this_process() const { return !fork_mark_.in_child(); }

  const std::shared_ptr<MessagePool>& shared_messages() { return messages_; }
  fabric::Fabric& fabric() { return *fabric_; }
  Environment& environment() { return environment_; }
  PollerStats stats() const;
  // Which code of the application holds the poller at this moment.
  const CalledOut& called_out() const { return called_out_; }

  // ---- On the poller.

  // Runs one turn: completions, mailbox, timers, then posts the resulting work requests. Returns how much
  // there was to do. Takes the poller if it is free (for simulations and tests). Not from a handler, which
  // may run inside Poll().
  size_t PollOnce();

  // The time now, for measuring what has passed since now_ns(): see FineClock. Costs some instructions.
  int64_t NowFineNs() const { return now_ns_ + fine_clock_.SinceReadNs(); }

  // The time from which a new deadline counts: the clock if handlers have taken long lately, else now_ns().
  int64_t NowForDeadlineNs() { return chunk_ < kChunkMax ? ReadClock() : now_ns_; }

  // Code of the application (a callback, a handler) may be called: this is a turn of the thread that drives,
  // and no such code is running. False on a thread that only posts, within a NoCallOut, and inside a call
  // that such code makes into the library, because that code may hold a lock that the callback takes. The
  // callback then waits for the next turn, behind a timer that is due.
  bool MayCallOut() const { return may_call_out_; }

  // Encloses each call of such code, which `what` and `whose` name; both are static. `id`: of an exchange
  // that it answers.
  class CallOut {
   public:
    CallOut(Poller& poller, const CalledCode& what, const char* whose, const CallId& id = {})
        : poller_(poller),
          may_call_out_(std::exchange(poller.may_call_out_, false)),
          outer_(poller.called_out_.Enter(what, whose, id)) {
      Watchdog* const watchdog = poller.watchdog_;
      if (watchdog != nullptr && watchdog->asleep().load(std::memory_order_relaxed)) watchdog->Wake();
    }
    ~CallOut() {
      poller_.called_out_.Leave(outer_);
      poller_.may_call_out_ = may_call_out_;
    }
    CallOut(const CallOut&) = delete;
    CallOut& operator=(const CallOut&) = delete;

   private:
    Poller& poller_;
    const bool may_call_out_;
    const bool outer_;
  };

  // While it lives no code of the application may be called: the library is in the middle of a step.
  // Callbacks wait for the next turn. One exception: a callback that is destroyed may finish a deferred call,
  // and OnEnd() of an interceptor (rpc/interceptor.h) then runs inside that Finish().
  class NoCallOut {
   public:
    explicit NoCallOut(Poller& poller)
        : poller_(poller), may_call_out_(std::exchange(poller.may_call_out_, false)) {}
    ~NoCallOut() { poller_.may_call_out_ = may_call_out_; }
    NoCallOut(const NoCallOut&) = delete;
    NoCallOut& operator=(const NoCallOut&) = delete;

   private:
    Poller& poller_;
    const bool may_call_out_;
  };

  // For the text of an error: "; noticed 1.95 s late: the poller was held, or its thread stopped; it
  // last ran the callback of kv.capnp:KeyValue.get".
  // Empty if what was due at `due_ns` is less than 100 ms late.
  std::string WhyLate(int64_t due_ns) const;

  ReadBudget& read_budget() { return read_budget_; }
  ViolationCounts& violations() { return violations_; }
  const ViolationCounts& violations() const { return violations_; }
  MemoryQueue& memory_queue() { return memory_queue_; }
  // As those of MessagePool, on the poller, from what it keeps.
  OutgoingMessagePtr NewOutgoing() {
    AssertHeld();
    return cache_.NewOutgoing();
  }
  IncomingMessagePtr NewIncoming() {
    AssertHeld();
    return cache_.NewIncoming();
  }
  // For ConnectionHandler::TakeSend(): a message may be handled now, as its completion would be behind the
  // Poll(). OnSendTaken() follows if it was. False: this turn has had as many as it takes, or as long.
  bool MayTakeSend() const { return sends_left_ != 0; }
  void OnSendTaken() {
    if (--sends_left_ == 0) [[unlikely]]
      AfterSends();
  }
  // How messages cross, for those who send and receive them to add to.
  MessageCounts& sent() { return sent_; }
  Count& sent_bytes() { return sent_bytes_; }
  MessageCounts& received() { return received_; }
  ReadAdmission& read_admission() { return read_admission_; }
  ResponseWatch& response_watch() { return response_watch_; }

  // The poller takes ownership of `connection`, gives it its index, and destroys it once it is closed and the
  // fabric holds none of its buffers.
  void Adopt(std::unique_ptr<PollerClient> connection) { clients_.Adopt(std::move(connection)); }
  // Destroys `connection`, which has nothing posted.
  void Drop(PollerClient* connection) { clients_.Drop(connection); }
  // Calls connection->Flush() at the end of this turn, once per turn and connection.
  [[gnu::always_inline]] void MarkForFlush(PollerClient* connection) {
    AssertHeld();
    clients_.MarkForFlush(connection);
  }
  // Destroys `connection` at the end of this turn.
  void MarkClosed(PollerClient* connection) { clients_.MarkClosed(connection); }
  // Not yet destroyed.
  size_t connection_count() const { return clients_.size(); }

 private:
  Poller(std::shared_ptr<fabric::Fabric> fabric, std::shared_ptr<MessagePool> messages, ReadLedger& ledger,
         const PollerOptions& options, Environment& environment);
  void CheckHeld() const;
  bool TryHold();
  void Release();
  size_t Turn();
  size_t TakeCompletions();
  void CountTaken(size_t count);
  void AllowSends();
  void AfterSends();
  int64_t ReadClock() {
    now_ns_ = environment_.NowNs();
    fine_clock_.OnRead(now_ns_);
    return now_ns_;
  }
  // The time at the end of a turn, for what is only added up: where FineClock runs, the clock is not read.
  int64_t NowForTotalsNs() const { return fine_clock_.runs() ? NowFineNs() : environment_.NowNs(); }
  size_t TurnOfDriver();
  void Dispatch(const fabric::Completion& completion);
  // Drives until `event` is set. Null: this is the poller's own thread, which drives until it is to stop.
  void Drive(WaitEvent* event);
  void RunMailboxUnlessHeld();

  Environment& environment_;
  const ForkMark fork_mark_;

  MessageCache cache_;  // Used by the thread that is on the poller.

  CalledOut called_out_;
  PollerHold hold_;
  Watchdog* watchdog_ = nullptr;  // Null: nothing watches this.

  // Guarded by being on the poller.
  bool may_call_out_ = false;
  ReadBudget read_budget_;
  ViolationCounts violations_;
  // Completions taken at a time. The clock is read once per so many, since it costs a tenth of a small call.
  static constexpr size_t kChunkMax = 16;
  size_t chunk_;           // Completions to take at a time: fewer while handlers are slow.
  size_t dispatched_ = 0;  // Completions since the clock was read.
  // Of this turn's TakeCompletions(). A SEND that is taken inside a Poll() counts as a completion.
  size_t taken_ = 0;
  int64_t since_clock_ = 0;
  int64_t take_until_ns_ = 0;
  // SENDs that may be taken until the clock is looked at, and those of them that were not. 0: none.
  size_t sends_allowed_ = 0;
  size_t sends_left_ = 0;
  FineClock fine_clock_;
  int64_t turn_began_ns_ = 0;
  MemoryQueue memory_queue_;
  ReadAdmission read_admission_;
  ResponseWatch response_watch_;
  MessageCounts sent_, received_;
  Count sent_bytes_;
  PollerClients clients_;

  Mailbox mailbox_;
  DriverSleep sleep_;

  // Used by the driver only.
  Idle idle_;
  DriveTime drive_time_;
  Count turns_of_waiting_threads_, turns_of_own_thread_;

  DriverRole role_;
  std::thread own_thread_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_POLLER_H_
