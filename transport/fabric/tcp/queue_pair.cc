#include "hawser/transport/fabric/tcp/queue_pair.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/base/peer_text.h"
#include "hawser/base/state_machine.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/tcp/connect_request.h"

namespace hawser::fabric {
namespace {

// The most unread bytes of the peer that this side reads and drops after it has sent a farewell.
constexpr size_t kDrainBytesMax = 256 * 1024;

// The kind of violation that was refused with `status`.
Violation ViolationOf(CompletionStatus status) {
  return status == CompletionStatus::kRemoteAccessError ? Violation::kMemoryAccess : Violation::kLimit;
}

}  // namespace

TcpQueuePair::TcpQueuePair(TcpCompletionQueue& completion_queue, const RegionTable& regions, uint32_t qp_num,
                           const QueuePairOptions& options, ConnectionHandler& handler)
    : completion_queue_(completion_queue),
      regions_(regions),
      handler_(handler),
      qp_num_(qp_num),
      sends_wait_(options.sends_wait),
      tls_(options.tls),
      tls_host_(options.tls_host),
      local_address_(options.local_address),
      send_queue_(options.send_depth, options.read_depth),
      receive_queue_(options, qp_num),
      writer_(send_queue_, receive_queue_),
      reader_(send_queue_, receive_queue_) {
  completion_queue_.Register(*this);
}

TcpQueuePair::~TcpQueuePair() {
  CloseSocket();
  completion_queue_.UnregisterQueuePair(*this);
}

void TcpQueuePair::Move(Event event) {
  state_ = Moved<TcpQueuePairState>(state_, event,
                                    [this] { return absl::StrCat("queue pair ", qp_num_, " to ", Peer()); });
}

// --- Posting
// ---------------------------------------------------------------------------------------------------------

absl::Status TcpQueuePair::NotUsable(absl::string_view call) const {
  if (completion_queue_.in_forked_child()) {
    return absl::FailedPreconditionError(absl::StrCat(
        call, " to ", Peer(), ": this process is a child after fork(), and the connection is its parent's"));
  }
  if (state_ != State::kError) {
    return absl::FailedPreconditionError(absl::StrCat(call, ": the queue pair is not connected yet"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(call, " to ", Peer(), ": the queue pair is in error: ",
                   error_.ok() ? "Disconnect() was called, or a work request failed" : error_.message()));
}

absl::Status TcpQueuePair::CheckSend(const SendWorkRequest& request, uint32_t* length_bytes) const {
  if (request.sges.empty() || request.sges.size() > kSgeMax || request.opcode > Opcode::kPush) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PostSend to ", Peer(), ": ", request.sges.size(), " sges, opcode ", static_cast<int>(request.opcode),
        ": 1 to ", kSgeMax, " sges of a SEND, READ, WRITE or push needed"));
  }
  uint64_t total_bytes = 0;
  for (const Sge& sge : request.sges) {
    if (!regions_.Contains(sge)) return regions_.Refusal(sge);
    total_bytes += sge.length;
  }
  if (total_bytes > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", Peer(), ": ", total_bytes,
                                                   " bytes in one work request, at most ", kMessageBytesMax,
                                                   " are possible"));
  }
  if (request.opcode == Opcode::kPush && total_bytes > push_bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat("PostSend to ", Peer(), ": a push of ", total_bytes,
                                                   " bytes, at most ", push_bytes_max(), " are possible"));
  }
  if (request.opcode == Opcode::kRead && read_depth() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("PostSend to ", Peer(), ": a READ, but a READ depth of 0 was agreed"));
  }
  *length_bytes = static_cast<uint32_t>(total_bytes);
  return absl::OkStatus();
}

absl::Status TcpQueuePair::PostSend(absl::Span<const SendWorkRequest> requests) {
  if ((state_ != State::kEstablished && state_ != State::kRefusing && !ends_soon()) ||
      completion_queue_.in_forked_child()) {
    return NotUsable("PostSend");
  }
  if (requests.size() > send_queue_.room()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("PostSend to ", Peer(), ": ", requests.size(), " work requests, but the send queue of ",
                     send_queue_.depth(), " has room for ", send_queue_.room(),
                     ": wait for completions, and signal one request in every queue's length at least"));
  }
  // Numbers what was posted before.
  writer_.RingDoorbell();
  send_queue_.Reserve(static_cast<uint32_t>(requests.size()));
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const SendWorkRequest& request = requests[i];
    if (request.opcode == Opcode::kSend && request.sges.size() == 1 &&
        request.sges[0].length <= kMessageBytesMax && regions_.Contains(request.sges[0])) [[likely]] {
      send_queue_.Place(i, request, request.sges[0].length);
      continue;
    }
    uint32_t length_bytes;
    if (absl::Status status = CheckSend(request, &length_bytes); !status.ok()) return status;
    send_queue_.Place(i, request, length_bytes);
    if (request.opcode == Opcode::kPush && i > 0 && requests[i - 1].opcode == Opcode::kSend) {
      send_queue_.MarkPushFollows(i - 1);
    }
  }
  send_queue_.Post(static_cast<uint32_t>(requests.size()));
  // The rest of an answer to a READ, if there is one, continues with EPOLLOUT.
  if (!blocked_ && stream_.is_open()) Transmit(/*with_answers=*/false);
  return absl::OkStatus();
}

bool TcpQueuePair::PostInline(absl::Span<const uint8_t> message) {
  if (state_ != State::kEstablished || blocked_ || message.empty() || message.size() > SendBatch::kCopyMax ||
      completion_queue_.in_forked_child()) [[unlikely]] {
    return false;
  }
  return writer_.PostInline(message, completion_queue_.inline_frames());
}

void TcpQueuePair::RingDoorbell() {
  if (!completion_queue_.in_forked_child() && writer_.RingDoorbell() && !blocked_ && stream_.is_open())
    Transmit(/*with_answers=*/false);
}

// SO_INCOMING_CPU is the core that received the peer's last packet. Over loopback the peer sent it on that
// core.
bool TcpQueuePair::PeerSharesCore() const {
  int core = -1;
  socklen_t length_bytes = sizeof(core);
  return stream_.is_open() &&
         getsockopt(stream_.fd(), SOL_SOCKET, SO_INCOMING_CPU, &core, &length_bytes) == 0 &&
         core == sched_getcpu();
}

absl::Status TcpQueuePair::PostReceive(absl::Span<const ReceiveWorkRequest> requests) {
  if (state_ == State::kError && !ends_soon()) return NotUsable("PostReceive");
  if (requests.size() > receive_queue_.room()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("PostReceive: ", requests.size(), " work requests, but the receive queue of ",
                     receive_queue_.depth(), " has room for ", receive_queue_.room()));
  }
  receive_queue_.Reserve(static_cast<uint32_t>(requests.size()));
  for (uint32_t i = 0; i < requests.size(); ++i) {
    if (!regions_.Contains(requests[i].buffer)) return regions_.Refusal(requests[i].buffer);
    receive_queue_.Place(i, requests[i]);
  }
  receive_queue_.Post(static_cast<uint32_t>(requests.size()));
  if (paused_) completion_queue_.Schedule(*this);
  return absl::OkStatus();
}

size_t TcpQueuePair::WithdrawReceives(absl::Span<uint64_t> wr_ids) {
  if (state_ == State::kError) return 0;  // Each is about to complete as flushed.
  const uint32_t count = receive_queue_.Withdraw(wr_ids, reader_.IsReceiving());
  receive_queue_.Trim();
  send_queue_.Trim();
  return count;
}

absl::StatusOr<Granted> TcpQueuePair::Grant(const Sge& range, Access access) {
  if (!regions_.Contains(range)) return regions_.Refusal(range);
  if (state_ == State::kIdle || (state_ == State::kError && !ends_soon())) return NotUsable("Grant");
  const Granted granted = receive_queue_.grants().Add(range, access);
  if (granted.rkey == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("Grant to ", Peer(), ": all ", GrantTable::kGrantsMax,
                                                     " grants of this queue pair are in use"));
  }
  return granted;
}

void TcpQueuePair::Revoke(uint32_t rkey, uint64_t wr_id) {
  revoked_.push_back(wr_id);
  completion_queue_.Schedule(*this);
  if (!receive_queue_.grants().Remove(rkey)) return;
  if (receive_queue_.IsAnswering(rkey) || reader_.IsWriting(rkey)) {
    Fail(absl::UnavailableError(
        absl::StrCat("memory was revoked while ", Peer(), " was reading or writing it (rkey ", rkey, ")")));
  }
}

bool TcpQueuePair::TakePush(uint64_t wr_id, const Sge& sink, uint64_t remote_address, uint32_t rkey) {
  if (push_ == PushState::kNone || !regions_.Contains(sink)) return false;
  for (FrameReader::Push& push : reader_.pushes()) {
    if (push.is_taken || push.header.address != remote_address || push.header.key != rkey ||
        push.header.length_bytes != sink.length) {
      continue;
    }
    if (reader_.TakePush(push, sink.address)) {
      taken_.push_back(wr_id);
      completion_queue_.Schedule(*this);
    } else {
      filling_ = wr_id;
    }
    return true;
  }
  return false;
}

// --- Traffic
// ---------------------------------------------------------------------------------------------------------

void TcpQueuePair::OnEvents(uint32_t events) {
  switch (state_) {
    case State::kIdle:
      return;
    case State::kConnecting:
      FinishConnect();
      return;
    case State::kSecuring:
      Secure();
      return;
    case State::kGreeting:
      if (stream_.has_unsent() && stream_.Flush()) UpdateWatch();
      ReadGreeting();
      return;
    case State::kEstablished:
    case State::kRefusing:
    case State::kError:
    case State::kImpossible:  // It never is.
      break;
  }
  constexpr uint32_t kBroken = EPOLLERR | EPOLLHUP;
  if (paused_ && (events & kBroken)) {
    Fail(absl::UnavailableError(
        absl::StrCat("peer ", Peer(), " died while its message waited for a receive")));
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

void TcpQueuePair::Receive() {
  if (!stream_.is_open()) return;
  if (paused_ || push_ != PushState::kNone) {
    missed_event_ = true;
    return;
  }
  if (state_ == State::kEstablished) {
    OnRead(reader_.Read(stream_, completion_queue_.receive_staging(), completion_queue_.options().counters));
    return;
  }
  // Frames behind a refused request are void. Only the end of the connection still matters.
  if (reader_.Discard(stream_, completion_queue_.receive_staging()) == FrameReader::Result::kClosed) {
    OnRead(FrameReader::Result::kClosed);
  }
}

void TcpQueuePair::OnRead(FrameReader::Result result) {
  NoteTaken();
  switch (result) {
    case FrameReader::Result::kDrained:
      break;
    case FrameReader::Result::kMore:
      UpdateWatch();
      if (stream_.tls() != nullptr) ReceiveSoon();
      break;
    case FrameReader::Result::kClosed:
      Fail(WhyClosed());
      break;
    case FrameReader::Result::kPushed:
      push_ = PushState::kUntold;
      if (!reader_.emptied()) missed_event_ = true;
      completion_queue_.Schedule(*this);
      break;
    case FrameReader::Result::kReceiverNotReady:
      paused_ = true;
      // While it is paused, one event for each arrival (EPOLLET) is cheaper than two system calls that change
      // the watch: the caller may post the receive at the end of this turn. A blocked socket is watched
      // without EPOLLET. It would report an event in each Poll(), so its watch must change.
      if (blocked_) UpdateWatch();
      if (!sends_wait_) completion_queue_.SetTimer(*this, completion_queue_.options().rnr_timeout);
      break;
    case FrameReader::Result::kRefused:
      Move(Event::kRefuse);
      UpdateWatch();
      break;
    case FrameReader::Result::kNak:
      if (const CompletionStatus status = send_queue_.copied_refused_with();
          status != CompletionStatus::kSuccess) {
        Fail(absl::UnavailableError(
            absl::StrCat("peer ", Peer(), ": a SEND that was copied failed: ", Describe(status))));
      } else {
        EnterError();  // The completion reports the reason.
      }
      break;
    case FrameReader::Result::kViolation:
      SayFarewell(reader_.violation());
      Fail(ViolationError(Violation::kFrame, absl::StrCat("peer ", Peer(), " broke the fabric's protocol: ",
                                                          reader_.violation())));
      break;
  }
  AfterTraffic();
}

void TcpQueuePair::ReceiveSoon() {
  receive_soon_ = true;
  completion_queue_.NotifyEnd(*this);  // The next Poll() calls OnEndDue().
}

absl::Status TcpQueuePair::WhyClosed() const {
  const std::string farewell = EscapePeerText(reader_.farewell());
  if (!farewell.empty()) {
    return absl::UnavailableError(
        absl::StrCat("peer ", Peer(), " closed the connection, and says why: ", farewell));
  }
  if (stream_.tls() != nullptr &&
      (hawser::ViolationOf(stream_.tls()->error()).has_value() || reader_.error() == EPROTO)) {
    const absl::Status& why = stream_.tls()->error();
    absl::Status status(why.code(), absl::StrCat("peer ", Peer(), ": ", why.message()));
    CopyViolation(why, status);
    return status;
  }
  const int error = reader_.error() != 0 ? reader_.error() : writer_.error();
  absl::Status why = absl::UnavailableError(absl::StrCat(
      "peer ", Peer(),
      error == 0 ? " closed the connection: it disconnected, or its process ended"
                 : absl::StrCat(" is lost: ", DescribeErrno(error)),
      reader_.in_the_middle_of_a_frame() ? ", in the middle of a frame" : "",
      error == ETIMEDOUT ? ": its host is down, frozen or cut off" : "",
      state_ == State::kRefusing ? absl::StrCat(", after it was refused: ", receive_queue_.reason()) : ""));
  if (state_ == State::kRefusing) {
    SetViolation(why, ViolationOf(receive_queue_.nak_status()));
  } else if ((error == 0 || error == ECONNRESET || error == EPIPE) && !reader_.in_the_middle_of_a_frame()) {
    // A system resets the connections of a program that closes its socket, or ends, with unread bytes.
    SetPeersEnd(why);
  }
  return why;
}

// The caller has posted a receive for the SEND that waits.
void TcpQueuePair::Resume() {
  paused_ = false;
  if (!sends_wait_) completion_queue_.SetTimer(*this, absl::InfiniteDuration());
  // The events that happened while the watch was off are lost. Renewing it reports them again.
  if (std::exchange(watch_was_off_, false)) UpdateWatch();
  FrameReader::Result result = reader_.Resume();
  if (result == FrameReader::Result::kMore) {
    missed_event_ = false;
    result = reader_.Read(stream_, completion_queue_.receive_staging(), completion_queue_.options().counters);
  }
  OnRead(result);
}

// Called at the start of a Poll(), when the caller has handled what the last Poll() returned.
void TcpQueuePair::ResumeAfterPush() {
  push_ = PushState::kNone;
  const FrameReader::Result result = reader_.ResumeAfterPushes();
  if (result != FrameReader::Result::kMore) return OnRead(result);
  NoteTaken();
  AfterTraffic();
  if (std::exchange(missed_event_, false) || reader_.in_the_middle_of_a_frame()) Receive();
}

// Notes whether all bytes of the push in `filling_` have arrived.
void TcpQueuePair::NoteTaken() {
  if (!filling_.has_value() || reader_.is_taking_push()) return;
  taken_.push_back(*filling_);
  filling_.reset();
  completion_queue_.Schedule(*this);
}

void TcpQueuePair::DeliverTaken(bool flush, CompletionSpan& out) {
  size_t count = 0;
  for (; count < taken_.size() && !out.full(); ++count) {
    out.Add(taken_[count], qp_num_, CompletionStatus::kSuccess, Opcode::kRead, 0);
  }
  taken_.erase(taken_.begin(), taken_.begin() + static_cast<ptrdiff_t>(count));
  if (!flush || !filling_.has_value() || out.full()) return;
  out.Add(*std::exchange(filling_, std::nullopt), qp_num_, CompletionStatus::kFlushed, Opcode::kRead, 0);
}

void TcpQueuePair::OnTimer() {
  if (!paused_) return;
  if (receive_queue_.has_receive()) return;  // Deliver() is about to call Resume().
  paused_ = false;
  receive_queue_.Refuse(CompletionStatus::kRnrRetryExceeded,
                        absl::StrCat("its SEND found no posted receive for ",
                                     absl::FormatDuration(completion_queue_.options().rnr_timeout)));
  Move(Event::kRefuse);
  UpdateWatch();
  AfterTraffic();
}

void TcpQueuePair::AfterTraffic() {
  if (stream_.is_open()) {
    if (!blocked_ && (writer_.HasOutput() || stream_.has_unsent())) Transmit(/*with_answers=*/true);
    if (receive_queue_.ack_due() && stream_.is_open()) completion_queue_.OweAcknowledgement(*this);
  }
  if (HasCompletions(state_ == State::kError)) completion_queue_.Schedule(*this);
}

void TcpQueuePair::Transmit(bool with_answers) {
  const FrameWriter::Result result =
      writer_.Write(stream_, with_answers, completion_queue_.send_batch(), completion_queue_.inline_frames(),
                    completion_queue_.options().counters);
  if (!receive_queue_.ack_due()) completion_queue_.CancelAcknowledgement(*this);
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
  if (state_ != State::kRefusing || receive_queue_.nak_due() || writer_.in_the_middle_of_a_frame()) return;
  // The NAK was sent. After RNR only the peer is in error, and it disconnects; otherwise both sides are in
  // error. The socket stays open to be drained: if it is closed with unread bytes, the kernel resets the
  // connection, and the NAK may be lost.
  if (receive_queue_.nak_status() == CompletionStatus::kRnrRetryExceeded) return;
  const std::string why = absl::StrCat("peer ", Peer(), " was refused: ", receive_queue_.reason());
  error_ = ViolationError(ViolationOf(receive_queue_.nak_status()), why);
  if (!disconnected_) {
    news().ended = true;
    news().why = error_;
  }
  Move(Event::kRefused);
  completion_queue_.Schedule(*this);
}

void TcpQueuePair::Acknowledge() {
  if (receive_queue_.ack_due() && !blocked_ && stream_.is_open()) Transmit(/*with_answers=*/false);
}

// The reader reads until the socket is empty, so one event for each arrival is enough (EPOLLET), and epoll
// checks each ready socket only once. If something is left unread, a call of UpdateWatch() makes another
// event. EPOLLET is off while the socket is blocked, because the writer also stops at the limit of its turn,
// with room left in the socket.
void TcpQueuePair::UpdateWatch() {
  if (!stream_.is_open()) return;
  if (paused_) watch_was_off_ = true;
  uint32_t events =
      (paused_ ? 0u : EPOLLIN | EPOLLRDHUP) | (blocked_ || stream_.has_unsent() ? EPOLLOUT : 0u);
  if (state_ == State::kEstablished && !blocked_) events |= EPOLLET;
  completion_queue_.ChangeWatch(*this, stream_.fd(), events);
}

// --- Completing
// ------------------------------------------------------------------------------------------------------

void TcpQueuePair::Deliver(CompletionSpan& out) {
  if (paused_ && receive_queue_.has_receive()) Resume();
  if (news_ != nullptr && news_->established) {
    news_->established = false;
    const std::string private_data = std::move(news_->private_data);
    if (!news_->ended) news_.reset();
    completion_queue_.Schedule(*this);
    if (receive_soon_) completion_queue_.NotifyEnd(*this);
    handler_.OnEstablished(private_data);
    return;
  }

  // First what completed before the end, then the end, then what the end flushed.
  const bool flush = state_ == State::kError && news_ == nullptr;
  DeliverTaken(flush, out);
  receive_queue_.Deliver(qp_num_, flush, out);
  send_queue_.Deliver(qp_num_, flush, out);
  for (; !out.full() && !revoked_.empty(); revoked_.pop_back()) {
    out.Add(revoked_.back(), qp_num_, flush ? CompletionStatus::kFlushed : CompletionStatus::kSuccess,
            Opcode::kRevoke, 0);
  }
  if (push_ == PushState::kUntold && !receive_queue_.HasCompletions(flush)) {
    push_ = PushState::kOffered;
    completion_queue_.NotifyEnd(*this);  // The next Poll() calls OnEndDue().
  }
  if (HasCompletions(flush)) {
    completion_queue_.Schedule(*this);
    return;
  }
  if (news_ != nullptr) completion_queue_.NotifyEnd(*this);
}

void TcpQueuePair::OnEndDue() {
  if (news_ != nullptr && news_->established) return completion_queue_.Schedule(*this);
  if (std::exchange(receive_soon_, false)) {
    Receive();
    if (push_ != PushState::kOffered) return completion_queue_.Schedule(*this);
  }
  if (push_ == PushState::kOffered) {
    ResumeAfterPush();
    if (news_ != nullptr) completion_queue_.Schedule(*this);
    return;
  }
  if (news_ == nullptr) return;  // Disconnect() was called.
  // Something has completed since NotifyEnd(), which may have been called for pushes.
  if (HasCompletions(/*flush=*/false)) return completion_queue_.Schedule(*this);
  const std::unique_ptr<News> last = std::move(news_);
  completion_queue_.Schedule(*this);
  if (last->ended_before_established) {
    handler_.OnConnectFailed(last->why, last->private_data);
  } else {
    handler_.OnDisconnected(last->why);
  }
}

// --- Ending
// ----------------------------------------------------------------------------------------------------------

TcpQueuePair::News& TcpQueuePair::news() {
  if (news_ == nullptr) news_ = std::make_unique<News>();
  return *news_;
}

void TcpQueuePair::Fail(absl::Status why, absl::string_view private_data) {
  if (state_ == State::kError) {  // The end was reported before, when the peer was refused.
    CloseSocket();
    return;
  }
  error_ = std::move(why);
  if (!disconnected_) {
    news().ended = true;
    news().ended_before_established =
        state_ == State::kConnecting || state_ == State::kSecuring || state_ == State::kGreeting;
    news().why = error_;
    if (!private_data.empty()) news().private_data = std::string(private_data);
  }
  EnterError();
}

void TcpQueuePair::EnterError() {
  Move(Event::kEnd);
  CloseSocket();
  completion_queue_.Schedule(*this);
}

void TcpQueuePair::CloseSocket() {
  completion_queue_.CancelAcknowledgement(*this);
  completion_queue_.StopCarrying(*this);
  if (blocked_) completion_queue_.CountBlocked(-1);
  blocked_ = false;
  if (paused_ && !sends_wait_) completion_queue_.SetTimer(*this, absl::InfiniteDuration());
  paused_ = false;
  push_ = PushState::kNone;
  receive_queue_.PushHasCome();  // No push will arrive any more.
  if (!stream_.is_open()) return;
  completion_queue_.UnwatchAndEnd(stream_.EndTls());
}

void TcpQueuePair::Disconnect() { DisconnectBecause({}); }

void TcpQueuePair::DisconnectBecause(absl::string_view why) {
  if (disconnected_) return;
  disconnected_ = true;
  news_.reset();
  // Sends the acknowledgement that the peer waits for before the connection ends. A forked child must not
  // send on its copy of the socket.
  if (state_ == State::kEstablished && !completion_queue_.in_forked_child()) {
    Acknowledge();
    if (!why.empty()) SayFarewell(why);
    if (stream_.tls() != nullptr && !blocked_) stream_.tls()->End();
  }
  EnterError();
}

void TcpQueuePair::SayFarewell(absl::string_view why) {
  // Blocked: the peer does not read what was sent before. In the middle of a frame nothing else can be sent.
  if (state_ != State::kEstablished || !stream_.is_open() || blocked_ || writer_.in_the_middle_of_a_frame()) {
    return;
  }
  why = why.substr(0, kFarewellBytesMax);
  FrameHeader header = {.kind = FrameKind::kFarewell,
                        .length_bytes = static_cast<uint32_t>(why.size()),
                        .acknowledged = receive_queue_.executed()};
  char frame[sizeof(header) + kFarewellBytesMax];
  std::memcpy(frame, &header, sizeof(header));
  std::memcpy(frame + sizeof(header), why.data(), why.size());
  // If the socket has no room for all of it, the peer finds the end in the middle of a frame.
  iovec segment = {frame, sizeof(header) + why.size()};
  if (stream_.Send(&segment, 1) <= 0) return;
  if (stream_.tls() != nullptr) stream_.tls()->End();
  shutdown(stream_.fd(), SHUT_WR);
  // If the socket is closed with unread bytes, the kernel resets the connection, and the farewell may be
  // lost. If bytes arrive after this loop, the peer may lose the reason; this side loses nothing.
  const absl::Span<uint8_t> staging = completion_queue_.receive_staging();
  for (size_t drained = 0; drained < kDrainBytesMax;) {
    const ssize_t n = recv(stream_.fd(), staging.data(), staging.size(), MSG_DONTWAIT);
    if (n <= 0) return;
    drained += static_cast<size_t>(n);
  }
}

}  // namespace hawser::fabric
