#ifndef HAWSER_TRANSPORT_FABRIC_TCP_COMPLETION_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_COMPLETION_QUEUE_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/base/fork.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/inline_frames.h"
#include "hawser/transport/fabric/tcp/options.h"
#include "hawser/transport/fabric/tcp/send_batch.h"
#include "hawser/transport/fabric/tcp/send_queue.h"
#include "hawser/transport/fabric/tcp/socket.h"
#include "hawser/transport/fabric/tcp/timer_file.h"
#include "hawser/transport/fabric/tcp/turns.h"

namespace hawser::fabric {

class TcpCompletionQueue;

// An object with a socket, and perhaps a timer, on one completion queue. Its owner unregisters it before it
// destroys it.
class EventSource {
 public:
  virtual ~EventSource() = default;

  // `events` as of epoll_wait(2). May destroy this, or any other source.
  virtual void OnEvents(uint32_t events) = 0;
  // The delay given to SetTimer() is over. Likewise.
  virtual void OnTimer() {}

 private:
  friend class TcpCompletionQueue;
  static constexpr uint32_t kUnregistered = ~0u;
  static constexpr int64_t kNoTimer = TimerFile::kNever;
  uint32_t index_ = kUnregistered;
  int64_t timer_ns_ = kNoTimer;  // CLOCK_MONOTONIC
};

// A source that also has completions to deliver: a queue pair.
class CompletionSource : public EventSource, public TurnPlace {
 public:
  // Called once for each Schedule(). Adds completions while there is room, and schedules itself again if
  // there are more; or calls its handler, as the last thing it does.
  // Without `receives` it adds no completions of receives, and calls no handler: these are left for later.
  virtual void Deliver(CompletionSpan& out, bool receives) = 0;
  // Called once for each NotifyEnd(), unless it was unregistered.
  virtual void OnEndDue() = 0;
  // Called once for each OweAcknowledgement(), unless it was cancelled.
  virtual void Acknowledge() = 0;

 private:
  friend class TcpCompletionQueue;
  struct Links {
    CompletionSource* next = nullptr;
    CompletionSource* previous = nullptr;
    bool linked = false;
  };
  Links ending_;
  Links owing_;
  Links carrying_;
};

// Its queue pairs' completions, and the epoll set of everything that belongs to them.
//
// One thread at a time calls Poll(). Wait() may run at the same time, so the two share only atomics. Wait()
// hands the events that epoll_wait(2) reported to the next Poll(), because epoll reports each only once.
class TcpCompletionQueue final : public CompletionQueue {
 public:
  static absl::StatusOr<std::unique_ptr<TcpCompletionQueue>> Create(const TcpFabricOptions& options);
  ~TcpCompletionQueue() = default;

  size_t Poll(absl::Span<Completion> completions) override;
  void WaitUntil(int64_t when_ns) override;
  void Wake() override;

  // For its sources.
  void Register(EventSource& source);
  void Unregister(EventSource& source);  // After Unwatch(): epoll keeps a closed socket that a child shares.
  void Watch(EventSource& source, int fd, uint32_t events);
  void ChangeWatch(EventSource& source, int fd, uint32_t events);
  void Unwatch(int fd);
  // Its connection, or its listening, ends; and it is closed.
  void UnwatchAndEnd(UniqueFd& socket);
  void SetTimer(EventSource& source, absl::Duration delay);  // Instead of the one before. Infinite: none.

  // For its queue pairs. Each call holds until its opposite; a repeated one has no effect.
  void UnregisterQueuePair(CompletionSource& source);
  void Schedule(CompletionSource& source);  // Deliver() will be called.
  // The next Poll() will call OnEndDue(), after the caller has seen the completions of this one.
  void NotifyEnd(CompletionSource& source);
  void OweAcknowledgement(CompletionSource& source);
  void CancelAcknowledgement(CompletionSource& source) {
    if (source.owing_.linked) TakeAcknowledgement(source);
  }
  // Frames, on a socket that is connected to `host`. Once at most.
  void StartCarrying(CompletionSource& source, const PeerHost& host);
  void StopCarrying(CompletionSource& source);
  // Counts the sockets that are full. While one is, each Poll() asks epoll.
  void CountBlocked(int change) { blocked_ += change; }

  // The handshakes of TLS with peers that listeners have accepted, of which one takes 0.3 to 2 ms, by the
  // server's key: one Poll() begins no more after so much time, so that the connections get their turns.
  bool HasTimeForHandshakes() const { return handshakes_ns_ < kHandshakesNsMax; }
  void CountHandshake(int64_t ns) { handshakes_ns_ += ns; }

  // What arrives now may be offered to the handlers of connections (ConnectionHandler::TakeSend()): this
  // Poll() has room, and has returned no completion yet.
  bool offers_sends() const { return offers_sends_; }
  // So many were taken.
  void CountTaken(uint32_t count) { taken_ += count; }

  absl::Span<uint8_t> receive_staging() { return absl::MakeSpan(*receive_staging_); }
  SendBatch& send_batch() { return *send_batch_; }
  InlineFramesStock& inline_frames() { return inline_frames_; }
  const TcpFabricOptions& options() const { return options_; }

  // A child shares the sockets, the epoll set and the timers with its parent, and must not use them. Poll()
  // finds nothing, and destroying objects ends no connection.
  bool in_forked_child() const { return fork_mark_.in_child(); }
  const ForkMark& fork_mark() const { return fork_mark_; }

 private:
  static constexpr int kEventsMax = 64;
  // Polls of a lone busy connection, between two looks at all the other sockets.
  static constexpr uint32_t kPollsPerLook = 32;
  // The next request or answer carries an acknowledgement. If there is none, it goes out by itself after so
  // many polls that found nothing, or so many of any kind, of which a busy poller makes 16 in a turn. A poll
  // whose SENDs were taken counts as the polls that would have returned their completions.
  static constexpr uint32_t kIdlePollsOwing = 4;
  static constexpr uint32_t kPollsOwing = 64;
  static constexpr uint32_t kTakenPerPoll = 16;
  // A source that has more completions than a Poll() takes has so many Poll()s in a row before the next one
  // has its turn: enough, at 16 each, that what answers the 64 requests of one peer leaves with one system
  // call, though its turn may begin in the middle of a Poll(). When the poller takes fewer, because each
  // takes long, turns are as much shorter.
  static constexpr uint32_t kPollsInARow = 8;
  static constexpr int64_t kHandshakesNsMax = 500'000;
  // Sources that one Poll() without room for completions asks for news; ends that one Poll() reports.
  static constexpr size_t kNewsMax = 64;

  // A queue of sources that know by themselves whether they are in it.
  template <CompletionSource::Links CompletionSource::*kLinks>
  class Queue {
   public:
    void Add(CompletionSource& source);
    void Remove(CompletionSource& source);
    CompletionSource* TakeFirst();
    CompletionSource* first() const { return first_; }
    bool empty() const { return first_ == nullptr; }
    size_t size() const { return size_; }

   private:
    CompletionSource* first_ = nullptr;
    CompletionSource* last_ = nullptr;
    size_t size_ = 0;
  };

  struct Events {
    int count = 0;
    epoll_event event[kEventsMax];
  };

  explicit TcpCompletionQueue(const TcpFabricOptions& options);

  int EpollWait(int timeout_ms, Events& events);
  void Deliver(CompletionSpan& out);
  void KeepTurn(CompletionSource& source);
  void DeliverOnce(CompletionSpan& out, bool receives);
  void NotifyEnds();
  void SleepUntil(int64_t when_ns);
  bool TakeEventsOfWait();
  void HandleEvents();
  void HandleTimers();
  void SettleAcknowledgements(bool idle, bool rest);
  [[gnu::noinline]] void TakeAcknowledgement(CompletionSource& source);
  [[gnu::noinline]] void Publish();
  // At the end of a Poll(): most have neither work nor acknowledgements, and Wait() knows of none.
  void PublishNews() {
    const bool told = has_work_.load(std::memory_order_relaxed) || is_owing_.load(std::memory_order_relaxed);
    if (told || !ready_.empty() || !ending_.empty() || !owing_.empty()) Publish();
  }

  const TcpFabricOptions& options_;
  const ForkMark fork_mark_;
  UniqueFd epoll_;
  UniqueFd wake_;           // eventfd(2)
  TimerFile source_timer_;  // For the sources' timers. Poll()'s.
  TimerFile wait_timer_;    // For the timeout of Wait(). Wait()'s.

  // Sources by index; in epoll_data with a generation, because events can be older than what now has the
  // index.
  struct Registration {
    EventSource* source = nullptr;
    uint32_t generation = 0;
  };
  std::vector<Registration> sources_;
  std::vector<uint32_t> free_indexes_;
  Turns ready_;
  Queue<&CompletionSource::ending_> ending_;
  Queue<&CompletionSource::owing_> owing_;
  Queue<&CompletionSource::carrying_> carrying_;
  int blocked_ = 0;
  bool polling_ = false;
  bool offers_sends_ = false;
  uint32_t taken_ = 0;     // SENDs that were taken in this Poll().
  bool has_rest_ = false;  // The last Poll() had no room for all that was at hand, or reported a push.
  // Compared only: may be gone.
  const CompletionSource* in_turn_ = nullptr;
  uint32_t polls_in_turn_ = 0;
  uint32_t polls_since_look_ = 0;
  uint32_t polls_owing_ = 0, idle_polls_owing_ = 0;
  std::unique_ptr<Events> events_;  // Being handled.
  int64_t handshakes_ns_ = 0;       // Spent while they are.

  const std::unique_ptr<std::array<uint8_t, 64 * 1024>> receive_staging_;
  const std::unique_ptr<SendBatch> send_batch_;
  InlineFramesStock inline_frames_;

  // Shared with Wait() and Wake().
  std::atomic<bool> has_work_ = false;  // ready_ or ending_ is not empty, outside of Poll().
  std::atomic<bool> is_owing_ = false;  // owing_ is not empty, likewise.
  std::atomic<bool> settle_now_ = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<bool> woken_ = false;
  std::atomic<bool> has_hint_ = false;
  // has_hint_: Poll()'s, which swaps it with events_. Otherwise Wait()'s.
  std::unique_ptr<Events> hint_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_COMPLETION_QUEUE_H_
