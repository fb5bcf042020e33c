#include "hawser/transport/fabric/tcp/traffic.h"

#include <sys/epoll.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/tcp/farewell.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/why_closed.h"

namespace hawser::fabric {
namespace {

// The kind of violation that was refused with `status`.
Violation ViolationOf(CompletionStatus status) {
  return status == CompletionStatus::kRemoteAccessError ? Violation::kMemoryAccess : Violation::kLimit;
}

}  // namespace

TcpTraffic::TcpTraffic(TcpCompletionQueue& completion_queue, CompletionSource& source,
                       ConnectionHandler& handler, uint32_t qp_num, const QueuePairOptions& options)
    : completion_queue_(completion_queue),
      source_(source),
      handler_(handler),
      life_(qp_num),
      sends_wait_(options.sends_wait),
      send_queue_(options.send_depth, options.read_depth),
      receive_queue_(options, qp_num),
      writer_(send_queue_, receive_queue_),
      reader_(send_queue_, receive_queue_) {}

void TcpTraffic::Start(uint32_t read_depth, uint8_t flags, absl::string_view private_data) {
  pushes_ = (flags & kTakesPushes) != 0;
  reader_.set_takes_pushes(pushes_);
  reader_.set_takes_atomics((flags & kTakesAtomics) != 0);
  send_queue_.set_read_depth(read_depth);
  receive_queue_.set_read_depth(read_depth);
  life_.Establish(private_data);
  stream_.MoveToKernel(completion_queue_.options().counters);
  UpdateWatch();
  completion_queue_.StartCarrying(source_, PeerHost(life_.peer_address()));
  completion_queue_.Schedule(source_);
  if (stream_.tls() == nullptr) return;
  if (stream_.has_unsent()) Transmit(/*with_answers=*/false);
  ReceiveSoon();
}

// --- Reading
// ---------------------------------------------------------------------------------------------------------

// Offers SENDs to the handler, unless it does not know of the connection yet.
[[gnu::always_inline]] inline FrameReader::Result TcpTraffic::Read() {
  FrameReader::Taker taker = {handler_, completion_queue_.fork_mark()};
  const bool offers = completion_queue_.offers_sends() && !life_.has_established();
  const FrameReader::Result result =
      reader_.Read(stream_, completion_queue_.receive_staging(), completion_queue_.options().counters,
                   offers ? &taker : nullptr);
  completion_queue_.CountTaken(taker.taken);
  return result;
}

void TcpTraffic::OnEvents(uint32_t events) { events == EPOLLIN ? Receive() : OnOtherEvents(events); }

void TcpTraffic::OnOtherEvents(uint32_t events) {
  constexpr uint32_t kBroken = EPOLLERR | EPOLLHUP;
  if (paused_ && (events & kBroken)) {
    Fail(absl::UnavailableError(
        absl::StrCat("peer ", life_.Peer(), " died while its message waited for a receive")));
  } else if (events & (EPOLLIN | kBroken)) {
    Receive();
  }
  if ((events & EPOLLOUT) && blocked_) {
    Transmit(/*with_answers=*/true);
  } else if ((events & EPOLLOUT) && stream_.tls() != nullptr && stream_.Flush()) {
    UpdateWatch();  // What TLS kept has gone out in between.
  }
  // One event may report the peer's last bytes and its end; renewing the watch reports the end again. While a
  // SEND waits, renewing the watch would report the same event forever, so Resume() renews it.
  if ((events & EPOLLRDHUP) && !paused_) UpdateWatch();
  if ((events & EPOLLRDHUP) && paused_) watch_was_off_ = true;
}

void TcpTraffic::Receive() {
  if (!stream_.is_open()) return;
  if (paused_ || push_ != PushState::kNone) {
    missed_event_ = true;
    return;
  }
  if (life_.state() == State::kEstablished) {
    OnRead(Read());
    return;
  }
  // Frames behind a refused request are void. Only the end of the connection still matters.
  if (reader_.Discard(stream_, completion_queue_.receive_staging()) == FrameReader::Result::kClosed) {
    OnRead(FrameReader::Result::kClosed);
  }
}

[[gnu::always_inline]] inline void TcpTraffic::OnRead(FrameReader::Result result) {
  if (completion_queue_.in_forked_child()) [[unlikely]]
    return;  // The handler has called fork().
  NoteRest();
  if (result != FrameReader::Result::kDrained) [[unlikely]]
    OnUndrained(result);
  AfterTraffic();
}

// Not inlined, so that the usual read has no room on its stack for texts of errors.
[[gnu::noinline]] void TcpTraffic::OnUndrained(FrameReader::Result result) {
  switch (result) {
    case FrameReader::Result::kDrained:
      break;
    case FrameReader::Result::kMore:
      UpdateWatch();
      if (stream_.tls() != nullptr) ReceiveSoon();
      break;
    case FrameReader::Result::kClosed:
      Fail(WhyClosed(life_, stream_, reader_, writer_, receive_queue_.reason(),
                     ViolationOf(receive_queue_.nak_status())));
      break;
    case FrameReader::Result::kPushed:
      push_ = PushState::kUnpolled;
      if (!reader_.emptied()) missed_event_ = true;
      completion_queue_.Schedule(source_);
      break;
    case FrameReader::Result::kReceiverNotReady:
      paused_ = true;
      // While it is paused, one event for each arrival (EPOLLET) is cheaper than two system calls that change
      // the watch: the caller may post the receive at the end of this turn. A blocked socket is watched
      // without EPOLLET. It would report an event in each Poll(), so its watch must change.
      if (blocked_) UpdateWatch();
      if (!sends_wait_) completion_queue_.SetTimer(source_, completion_queue_.options().rnr_timeout);
      break;
    case FrameReader::Result::kRefused:
      life_.Move(Event::kRefuse);
      UpdateWatch();
      break;
    case FrameReader::Result::kNak:
      if (const CompletionStatus status = send_queue_.copied_refused_with();
          status != CompletionStatus::kSuccess) {
        Fail(absl::UnavailableError(
            absl::StrCat("peer ", life_.Peer(), ": a SEND that was copied failed: ", Describe(status))));
      } else {
        EnterError();  // The completion reports the reason.
      }
      break;
    case FrameReader::Result::kViolation:
      SayFarewell(reader_.violation());
      Fail(ViolationError(
          Violation::kFrame,
          absl::StrCat("peer ", life_.Peer(), " broke the fabric's protocol: ", reader_.violation())));
      break;
  }
}

void TcpTraffic::ReceiveSoon() {
  receive_soon_ = true;
  completion_queue_.NotifyEnd(source_);  // The next Poll() calls OnEndDue().
}

// The caller has posted a receive for the SEND that waits.
void TcpTraffic::Resume() {
  paused_ = false;
  if (!sends_wait_) completion_queue_.SetTimer(source_, absl::InfiniteDuration());
  // The events that happened while the watch was off are lost. Renewing it reports them again.
  if (std::exchange(watch_was_off_, false)) UpdateWatch();
  FrameReader::Result result = reader_.Resume();
  if (result == FrameReader::Result::kMore) {
    missed_event_ = false;
    result = Read();
  }
  OnRead(result);
}

// Called at the start of a Poll(), when the caller has handled what the last Poll() returned.
void TcpTraffic::ResumeAfterPush() {
  push_ = PushState::kNone;
  const FrameReader::Result result = reader_.ResumeAfterPushes();
  if (result != FrameReader::Result::kMore) return OnRead(result);
  NoteRest();
  AfterTraffic();
  if (std::exchange(missed_event_, false) || reader_.in_the_middle_of_a_frame()) Receive();
}

// Notes whether all bytes of a push that was taken before have arrived.
inline void TcpTraffic::NoteRest() {
  if (!taken_.awaits_rest() || reader_.rest_of_taken_push() != 0) [[likely]]
    return;
  taken_.RestHasCome();
  completion_queue_.Schedule(source_);
}

bool TcpTraffic::TakePush(uint64_t wr_id, const Sge& sink, uint64_t remote_address, uint32_t rkey) {
  const auto is_it = [&](const FrameHeader& push) {
    return push.address == remote_address && push.key == rkey && push.length_bytes == sink.length;
  };
  const auto taken = [&](bool all) {
    taken_.Add(wr_id, all);
    if (taken_.HasCompletions(/*flush=*/false)) completion_queue_.Schedule(source_);
    return true;
  };
  if (const FrameHeader* const offered = reader_.offered_push(); offered != nullptr) {
    return is_it(*offered) && taken(reader_.TakeOfferedPush(sink.address));
  }
  if (push_ == PushState::kNone) return false;
  for (WaitingPushes::Push& push : reader_.pushes()) {
    if (!push.is_taken && is_it(push.header)) return taken(reader_.TakePush(push, sink.address));
  }
  return false;
}

void TcpTraffic::OnTimer() {
  if (!paused_) return;
  if (receive_queue_.has_receive()) return;  // Deliver() is about to call Resume().
  paused_ = false;
  receive_queue_.Refuse(CompletionStatus::kRnrRetryExceeded,
                        absl::StrCat("its SEND found no posted receive for ",
                                     absl::FormatDuration(completion_queue_.options().rnr_timeout)));
  life_.Move(Event::kRefuse);
  UpdateWatch();
  AfterTraffic();
}

// --- Writing
// ---------------------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline void TcpTraffic::AfterTraffic() {
  if (stream_.is_open()) {
    if (!blocked_ && (writer_.HasOutput() || stream_.has_unsent())) Transmit(/*with_answers=*/true);
    if (receive_queue_.ack_due() && stream_.is_open()) completion_queue_.OweAcknowledgement(source_);
  }
  if (HasCompletions(life_.state() == State::kError)) completion_queue_.Schedule(source_);
}

void TcpTraffic::Transmit(bool with_answers) {
  const FrameWriter::Result result =
      writer_.Write(stream_, with_answers, completion_queue_.send_batch(), completion_queue_.inline_frames(),
                    completion_queue_.options().counters);
  if (!receive_queue_.ack_due()) completion_queue_.CancelAcknowledgement(source_);
  // After kBroken nothing can be sent any more. Reading still returns what the peer sent before the end, and
  // why the connection ended. TLS may hold that already, or have found the error itself: no event of the
  // socket tells of either, so the next Poll() reads.
  if (result == FrameWriter::Result::kBroken && stream_.tls() != nullptr) ReceiveSoon();
  const bool blocked = result == FrameWriter::Result::kBlocked;
  if (blocked != blocked_) {
    blocked_ = blocked;
    completion_queue_.CountBlocked(blocked ? 1 : -1);
    UpdateWatch();
  }
  if (life_.state() == State::kRefusing) [[unlikely]]
    EndIfNakWasSent();
}

[[gnu::noinline]] void TcpTraffic::EndIfNakWasSent() {
  if (receive_queue_.nak_due() || writer_.in_the_middle_of_a_frame()) return;
  // The NAK was sent. After RNR only the peer is in error, and it disconnects; otherwise both sides are in
  // error. The socket stays open to be drained: if it is closed with unread bytes, the kernel resets the
  // connection, and the NAK may be lost.
  if (receive_queue_.nak_status() == CompletionStatus::kRnrRetryExceeded) return;
  const std::string why = absl::StrCat("peer ", life_.Peer(), " was refused: ", receive_queue_.reason());
  life_.NoteEnd(ViolationError(ViolationOf(receive_queue_.nak_status()), why));
  life_.Move(Event::kRefused);
  completion_queue_.Schedule(source_);
}

void TcpTraffic::Acknowledge() {
  if (receive_queue_.ack_due() && !blocked_ && stream_.is_open()) Transmit(/*with_answers=*/false);
}

// The reader reads until the socket is empty, so one event for each arrival is enough (EPOLLET), and epoll
// checks each ready socket only once. If something is left unread, a call of UpdateWatch() makes another
// event. EPOLLET is off while the socket is blocked, because the writer also stops at the limit of its turn,
// with room left in the socket.
void TcpTraffic::UpdateWatch() {
  if (!stream_.is_open()) return;
  if (paused_) watch_was_off_ = true;
  uint32_t events =
      (paused_ ? 0u : EPOLLIN | EPOLLRDHUP) | (blocked_ || stream_.has_unsent() ? EPOLLOUT : 0u);
  if (life_.state() == State::kEstablished && !blocked_) events |= EPOLLET;
  completion_queue_.ChangeWatch(source_, stream_.fd(), events);
}

// --- Completing
// ---------------------------------------------------------------------------------------------------------

void TcpTraffic::Deliver(CompletionSpan& out, bool receives) {
  if (!receives && life_.state() == State::kError) return completion_queue_.Schedule(source_);
  // First what completed before the end, then the end, then what the end flushed.
  const bool flush = life_.state() == State::kError && !life_.has_news();
  taken_.Deliver(life_.qp_num(), flush, out);
  if (receives) receive_queue_.Deliver(life_.qp_num(), flush, out);
  send_queue_.Deliver(life_.qp_num(), flush, out);
  for (; !out.full() && !revoked_.empty(); revoked_.pop_back()) {
    out.Add(revoked_.back(), life_.qp_num(), flush ? CompletionStatus::kFlushed : CompletionStatus::kSuccess,
            Opcode::kRevoke, 0);
  }
  if (receives && push_ == PushState::kUnpolled && !receive_queue_.HasCompletions(flush)) {
    push_ = PushState::kOffered;
    completion_queue_.NotifyEnd(source_);  // The next Poll() calls OnEndDue().
  }
  if (HasCompletions(flush) || (!receives && (paused_ || push_ == PushState::kUnpolled))) {
    completion_queue_.Schedule(source_);
    return;
  }
  if (life_.has_news()) completion_queue_.NotifyEnd(source_);
}

bool TcpTraffic::OnEndDue() {
  if (std::exchange(receive_soon_, false)) {
    Receive();
    if (push_ != PushState::kOffered) {
      completion_queue_.Schedule(source_);
      return true;
    }
  }
  if (push_ != PushState::kOffered) return false;
  ResumeAfterPush();
  if (life_.has_news()) completion_queue_.Schedule(source_);
  return true;
}

void TcpTraffic::Revoke(uint32_t rkey, uint64_t wr_id) {
  revoked_.push_back(wr_id);
  completion_queue_.Schedule(source_);
  if (!receive_queue_.grants().Remove(rkey)) return;
  if (receive_queue_.IsAnswering(rkey) || reader_.IsWriting(rkey)) {
    Fail(absl::UnavailableError(absl::StrCat("memory was revoked while ", life_.Peer(),
                                             " was reading or writing it (rkey ", rkey, ")")));
  }
}

// --- Ending
// ---------------------------------------------------------------------------------------------------------

void TcpTraffic::Fail(absl::Status why, absl::string_view private_data) {
  if (life_.state() == State::kError) {  // The end was reported before, when the peer was refused.
    CloseSocket();
    return;
  }
  life_.NoteEnd(std::move(why), private_data);
  EnterError();
}

void TcpTraffic::EnterError() {
  life_.Move(Event::kEnd);
  CloseSocket();
  completion_queue_.Schedule(source_);
}

void TcpTraffic::CloseSocket() {
  completion_queue_.CancelAcknowledgement(source_);
  completion_queue_.StopCarrying(source_);
  if (blocked_) completion_queue_.CountBlocked(-1);
  blocked_ = false;
  if (paused_ && !sends_wait_) completion_queue_.SetTimer(source_, absl::InfiniteDuration());
  paused_ = false;
  push_ = PushState::kNone;
  receive_queue_.PushHasCome();  // No push will arrive any more.
  writer_.DropCopied(completion_queue_.inline_frames());
  if (!stream_.is_open()) return;
  completion_queue_.UnwatchAndEnd(stream_.EndTls());
}

void TcpTraffic::Disconnect(absl::string_view why) {
  if (!life_.Disconnect()) return;
  // Sends the acknowledgement that the peer waits for before the connection ends. A forked child must not
  // send on its copy of the socket.
  if (life_.state() == State::kEstablished && !completion_queue_.in_forked_child()) {
    Acknowledge();
    if (!why.empty()) SayFarewell(why);
    if (stream_.tls() != nullptr && !blocked_) stream_.tls()->End();
  }
  EnterError();
}

void TcpTraffic::SayFarewell(absl::string_view why) {
  // Blocked: the peer does not read what was sent before. In the middle of a frame nothing else can be sent.
  if (life_.state() != State::kEstablished || !stream_.is_open() || blocked_ ||
      writer_.in_the_middle_of_a_frame()) {
    return;
  }
  SendFarewell(stream_, why, receive_queue_.executed());
}

}  // namespace hawser::fabric
