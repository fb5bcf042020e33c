#include "hawser/transport/lane/lane.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hawser::transport {
namespace {

// Of a chain that PostSend() has refused because of `why`: with all other codes nothing was posted
// (fabric.h).
bool MayBePostedInPart(const absl::Status& why) {
  return !absl::IsFailedPrecondition(why) && !absl::IsResourceExhausted(why) && !absl::IsInvalidArgument(why);
}

// What an owner says with PermissionDenied, on the wire, is that the ticket is not one of this session. To
// the user that is a ticket that is void, as after a revocation: a new one helps. PermissionDenied is for an
// operation that the ticket is not for, where a new one of the same kind would not
// (LaneOperation::CheckAgainst()).
absl::Status AsVoidTicket(const absl::Status& refused) {
  return absl::IsPermissionDenied(refused) ? absl::FailedPreconditionError(refused.message()) : refused;
}

}  // namespace

Lane::Lane(Poller& poller, const Target& target, Owner& owner)
    : LaneEnd(poller),
      owner_(owner),
      opening_(poller, target, *this),
      connect_timer_([this] { OnNotOpened(absl::UnavailableError("no answer in time")); }),
      requests_(
          poller, [this](const LaneMessage& message) { SendMessage(message); },
          [this] {
            End(absl::UnavailableError(absl::StrCat("the owner ", peer(), " has answered nothing for ",
                                                    absl::FormatDuration(LaneRequests::kAnswerTimeout))));
          }),
      requests_to_post_(kPostedMax) {
  set_peer(target.address);
}

Lane::~Lane() {
  poller().timers().Cancel(connect_timer_);
  // At the end of the poller: from here on no NIC touches any memory of an operation.
  DestroyQueuePair();
  std::vector<LaneOperation*> left = announcements_.TakeAll(handles_);
  for (LaneOperation* operation : posts_.TakeAll()) left.push_back(operation);
  left.insert(left.end(), ready_.begin(), ready_.end());
  for (const auto& [number, handle] : handles_.all()) {
    left.insert(left.end(), handle->waiting.begin(), handle->waiting.end());
  }
  std::sort(left.begin(), left.end());  // One may be there twice: posted in part.
  left.erase(std::unique(left.begin(), left.end()), left.end());
  for (LaneOperation* operation : left) {
    absl::Status why = operation->result_;
    if (why.ok()) {
      why = operation->EndedBy(
          absl::UnavailableError(absl::StrCat("the lane to ", peer(), " ended with its poller")));
    }
    Finish(*operation, why);
  }
}

absl::StatusOr<Lane*> Lane::Dial(Poller& poller, const Target& target, absl::Duration connect_timeout,
                                 Owner& owner) {
  poller.AssertHeld();
  std::unique_ptr<Lane> made(new Lane(poller, target, owner));
  Lane& lane = *made;
  poller.Adopt(std::move(made));  // Gives it the index that its receives name.
  fabric::QueuePairOptions options;
  options.send_depth = kLaneReceives + kPostedMax;
  options.read_depth = kLaneReadDepth;
  lane.opening_.SetOptions(options);
  absl::Status started = lane.Create(options);
  if (started.ok()) started = lane.opening_.Start(connect_timeout);
  if (!started.ok()) {
    poller.Drop(&lane);
    return started;
  }
  // What proves it may have failed already.
  if (lane.state() == State::kConnecting) {
    poller.timers().Set(lane.connect_timer_, After(poller.environment().NowNs(), connect_timeout));
  }
  return &lane;
}

absl::Status Lane::ConnectWith(absl::string_view private_data) {
  return queue_pair().Connect(opening_.target().address, private_data);
}

void Lane::OnNotOpened(const absl::Status& why) {
  End(absl::Status(why.code(), absl::StrCat("a lane to ", peer(), " was not opened: ", why.message())));
}

void Lane::OnEstablished(absl::string_view private_data) {
  const absl::Status answer = opening_.TakeAnswer(private_data, queue_pair().peer_identity());
  if (!answer.ok()) return OnNotOpened(answer);
  poller().timers().Cancel(connect_timer_);
  was_ready_ = true;
  BecomeReady();
  owner_.OnLaneReady();
  if (!ending()) requests_.Start(opening_.owner_knows_ping());
}

// ---- Tickets

uint32_t Lane::Open(const LaneTicket& ticket) {
  const uint32_t number = handles_.Add(ticket).number;
  LaneMessage open;
  open.kind = LaneMessage::Kind::kOpen;
  open.handle = number;
  open.ticket = ticket;
  requests_.Add(std::move(open));
  return number;
}

void Lane::Close(uint32_t number) {
  LaneHandle* const found = handles_.Find(number);
  if (found == nullptr || ending()) return;
  LaneHandle& handle = *found;
  handle.close_asked = true;
  if (handle.stage == Stage::kUseless) {
    handles_.Erase(handle);
  } else if (handle.stage == Stage::kOpen) {
    handle.stage = Stage::kRevoked;
    CloseIfUnused(handle);
  } else if (handle.stage == Stage::kOpening && requests_.Drop(number)) {
    handles_.Erase(handle);
  }
}

void Lane::OnMessage(const LaneMessage& message) {
  const bool answers =
      message.kind == LaneMessage::Kind::kOpened || message.kind == LaneMessage::Kind::kRefused ||
      message.kind == LaneMessage::Kind::kClosed || message.kind == LaneMessage::Kind::kCounted;
  LaneHandle* const found = handles_.Find(message.handle);
  if (answers && !requests_.TakeAnswer()) return EndBecauseBroken("it answers what was not asked");
  if (found == nullptr) return EndBecauseBroken(absl::StrCat("there is no handle ", message.handle));
  LaneHandle& handle = *found;
  switch (message.kind) {
    case LaneMessage::Kind::kOpened:
      if (handle.stage != Stage::kOpening) return EndBecauseBroken("it opens a handle twice");
      OnOpened(message, handle);
      break;
    case LaneMessage::Kind::kRefused:
      if (handle.stage != Stage::kOpening) return EndBecauseBroken("it refuses a handle that is open");
      Refuse(handle, AsVoidTicket(message.why));
      break;
    case LaneMessage::Kind::kClosed:
      if (handle.stage != Stage::kClosing) return EndBecauseBroken("it closes a handle unasked");
      if (handle.close_asked) {
        handles_.Erase(handle);
      } else {
        handle.stage = Stage::kUseless;
      }
      break;
    case LaneMessage::Kind::kCounted:
      if (!handle.counting) return EndBecauseBroken("it counts what was not announced");
      OnCounted(handle);
      break;
    case LaneMessage::Kind::kRevoke:
      // Otherwise this end's own kClose has crossed with it.
      if (handle.stage == Stage::kOpen) {
        Refuse(handle, absl::FailedPreconditionError(
                           "the owner has revoked the memory: its ticket is void, and a new one is needed"));
      } else if (handle.stage == Stage::kOpening) {
        return EndBecauseBroken("it revokes a handle that is not open");
      }
      break;
    default:
      return EndBecauseBroken("it sent what only a requester sends");
  }
  requests_.SendNext();
}

void Lane::OnOpened(const LaneMessage& message, LaneHandle& handle) {
  if (message.length != handle.ticket.length || message.access != handle.ticket.access) {
    return End(absl::UnavailableError(absl::StrCat("the owner ", peer(), " gave ", message.length,
                                                   " bytes for a ticket of ", handle.ticket.length)));
  }
  handle.stage = Stage::kOpen;
  handle.address = message.address;
  handle.rkey = message.rkey;
  std::deque<LaneOperation*> waiting = std::exchange(handle.waiting, {});
  for (LaneOperation* operation : waiting) Enqueue(*operation);
  if (handle.close_asked) Close(message.handle);
}

// The handle has no rkey, or is about to lose it. What is posted completes first.
void Lane::Refuse(LaneHandle& handle, const absl::Status& why) {
  const bool has_grant = handle.stage != Stage::kOpening;
  handle.stage = has_grant ? Stage::kRevoked : Stage::kUseless;
  handle.why = why;
  std::deque<LaneOperation*> waiting = std::exchange(handle.waiting, {});
  for (LaneOperation* operation : std::exchange(ready_, {})) {
    if (operation->handle_ != &handle) {
      ready_.push_back(operation);
      continue;
    }
    operation->result_ = operation->EndedBy(why);
    if (operation->posted_ == operation->done_) waiting.push_back(operation);
  }
  // Those whose last pieces are posted may end well.
  for (LaneOperation* operation : waiting) {
    if (operation->posted_ > 0) --handle.in_flight;
    operation->lane_ = nullptr;  // OnEnd() of one may cancel another, which has ended then.
  }
  if (has_grant) {
    CloseIfUnused(handle);
  } else if (handle.close_asked) {
    handles_.Erase(handle);
  }
  // Last: with an operation its ticket may go, and with that the handle.
  for (LaneOperation* operation : waiting) Finish(*operation, operation->EndedBy(why));
}

void Lane::CloseIfUnused(LaneHandle& handle) {
  if (handle.stage != Stage::kRevoked || handle.in_flight > 0 || handle.counting) return;
  handle.stage = Stage::kClosing;
  LaneMessage close;
  close.kind = LaneMessage::Kind::kClose;
  close.handle = handle.number;
  requests_.Add(std::move(close));
}

// Before it closes the handle: what was posted meanwhile is announced first.
void Lane::OnCounted(LaneHandle& handle) {
  const std::vector<LaneOperation*> counted = announcements_.TakeCounted(handle);
  CloseIfUnused(handle);
  // Last: with an operation its ticket may go, and with that the handle.
  for (LaneOperation* operation : counted) Finish(*operation, absl::OkStatus());
}

// ---- Operations

void Lane::Start(LaneOperation& operation, uint32_t number) {
  LaneHandle* const found = handles_.Find(number);
  operation.handle_ = found;
  operation.lane_ = this;
  operation.posted_ = operation.done_ = 0;
  operation.result_ = absl::OkStatus();
  operation.counting_ = Counting::kNone;
  if (ending()) {
    operation.lane_ = nullptr;
    return owner_.OnUnsent(operation, was_ready_, why());
  }
  LaneHandle& handle = *found;
  absl::Status possible = operation.CheckAgainst(handle.ticket);
  if (possible.ok() && (handle.stage == Stage::kUseless || handle.stage == Stage::kRevoked ||
                        handle.stage == Stage::kClosing)) {
    possible = handle.why;
  }
  if (!possible.ok()) return Finish(operation, possible);
  if ((handle.ticket.access & kLaneCounted) != 0 && operation.kind == LaneOperation::Kind::kWrite) {
    operation.counting_ = Counting::kWanted;
  }
  if (handle.stage == Stage::kOpening) {
    handle.waiting.push_back(&operation);
  } else {
    Enqueue(operation);
  }
}

void Lane::Enqueue(LaneOperation& operation) {
  if (operation.is_atomic() && atomics() == fabric::Atomics::kNone) {
    return Finish(operation, absl::UnimplementedError("this connection has no atomics: a device has none"));
  }
  if (operation.counting_ != Counting::kNone && !opening_.owner_counts()) {
    return Finish(operation,
                  absl::UnimplementedError("the owner is of an older version, and counts no WRITEs"));
  }
  ready_.push_back(&operation);
  poller().MarkForFlush(this);
}

void Lane::OnFlush() {
  while (!ready_.empty() && !ending() && PostSome()) continue;
  announcements_.AnnounceAll();
}

bool Lane::PostSome() {
  std::vector<LanePosts::Post>& chain = chain_;
  chain.clear();
  size_t size = 0;  // Of the chain, in work requests.
  const size_t room_now = room();
  for (LaneOperation* operation : ready_) {
    const size_t left = operation->pieces.size() - operation->posted_;
    const size_t places = room_now - size;
    // Two chains share the send queue, so that the fabric always has one.
    const size_t count = left <= places ? left : std::min<size_t>(places, kPostedMax / 2);
    if (count == 0) break;
    const LaneHandle& handle = *operation->handle_;
    operation->FillIn(absl::MakeSpan(requests_to_post_).subspan(size, count), operation->posted_,
                      handle.address, handle.rkey);
    size += count;
    chain.push_back({size, operation, static_cast<uint32_t>(count)});
  }
  if (chain.empty()) return false;
  uint64_t last = 0;
  const absl::Status posted = PostWork(absl::MakeSpan(requests_to_post_).first(size), last);
  if (!posted.ok() && !MayBePostedInPart(posted)) {
    EndUnposted(posted);
    return false;
  }
  // Also if only a part may be posted: no operation of the chain is then started on another lane, where it
  // would run twice, and each ends with the lane.
  for (LanePosts::Post& post : chain) {
    LaneOperation& operation = *post.operation;
    if (operation.posted_ == 0) ++operation.handle_->in_flight;
    operation.posted_ += post.pieces;
    post.last += last - size;
    posts_.Add(post);
    ready_.pop_front();
    // The others have their turn.
    if (operation.posted_ < operation.pieces.size()) {
      ready_.push_back(&operation);
    } else if (operation.counting_ != Counting::kNone) [[unlikely]] {
      announcements_.Add(operation);
    }
  }
  if (!posted.ok()) EndUnposted(posted);
  return posted.ok();
}

void Lane::OnSent(uint64_t done) {
  for (LanePosts::Post post; posts_.TakeDone(done, post);) OnPiecesDone(*post.operation, post.pieces);
}

void Lane::OnPiecesDone(LaneOperation& operation, uint32_t pieces) {
  operation.done_ += pieces;
  if (operation.done_ < operation.posted_) return;
  // The rest is in `ready_`, or it is not counted yet.
  if (!operation.complete() && operation.result_.ok() && !ending()) return;
  // A completion that comes while the lane ends is a success like any other.
  const absl::Status result = operation.complete() ? absl::OkStatus() : operation.WhyNot(why());
  EndUse(*operation.handle_);
  Finish(operation, result);
}

// Before OnEnd(), with which the ticket of the operation may go, and the handle.
void Lane::EndUse(LaneHandle& handle) {
  --handle.in_flight;
  if (!ending()) CloseIfUnused(handle);
}

void Lane::OnSendFailed(uint64_t number, fabric::CompletionStatus status) {
  if (ending() || status == fabric::CompletionStatus::kFlushed) return;
  LaneOperation* const failed = posts_.Find(number);
  if (failed != nullptr) failed->result_ = failed->FailedWith(status);
}

void Lane::Finish(LaneOperation& operation, const absl::Status& status) {
  operation.lane_ = nullptr;
  operation.OnEnd(status);
}

// Finds it near the front, as a rule: deadlines pass in the order in which operations were begun.
void Lane::Forget(LaneOperation& operation) {
  const auto erase_from = [&operation](auto& queue) {
    const auto at = std::find(queue.begin(), queue.end(), &operation);
    if (at != queue.end()) queue.erase(at);
  };
  LaneHandle& handle = *operation.handle_;
  if (operation.done_ == operation.pieces.size()) return LaneAnnouncements::Forget(operation);
  erase_from(handle.stage == Stage::kOpening ? handle.waiting : ready_);
}

void Lane::Abort(LaneOperation& operation, const absl::Status& why) {
  if (operation.lane_ != this) return;
  if (operation.posted_ == operation.done_) {
    Forget(operation);
    if (operation.posted_ > 0) EndUse(*operation.handle_);
    return Finish(operation, operation.EndedBy(why));
  }
  // A refusal that waits for what is posted waits for the peer, and with a deadline no longer.
  if (operation.result_.ok()) operation.result_ = operation.EndedBy(why);
  End(
      absl::UnavailableError("another operation ended before its completion (its deadline passed, or it was "
                             "cancelled), which breaks the lane"));
}

// ---- Its end

void Lane::OnEnding() {
  poller().timers().Cancel(connect_timer_);
  opening_.Stop();
  requests_.Stop();
  // Of which nothing is posted.
  std::deque<LaneOperation*> unsent;
  // And of which nothing is posted any more.
  std::vector<LaneOperation*> ended = announcements_.TakeAll(handles_);
  for (LaneOperation* operation : std::exchange(ready_, {})) {
    if (operation->posted_ == 0) {
      unsent.push_back(operation);
    } else if (operation->posted_ == operation->done_) {
      ended.push_back(operation);
    }
  }
  for (auto& [number, handle] : handles_.all()) {
    for (LaneOperation* operation : std::exchange(handle->waiting, {})) unsent.push_back(operation);
  }
  // OnEnd() of one may cancel another, which has ended then.
  for (LaneOperation* operation : ended) operation->lane_ = nullptr;
  for (LaneOperation* operation : unsent) operation->lane_ = nullptr;
  for (LaneOperation* operation : ended) Finish(*operation, operation->WhyNot(why()));
  for (LaneOperation* operation : unsent) owner_.OnUnsent(*operation, was_ready_, why());
}

void Lane::OnGone() {
  for (LaneOperation* operation : posts_.TakeAll()) Finish(*operation, operation->WhyNot(why()));
  owner_.OnLaneGone(*this, was_ready_, why());
}

}  // namespace hawser::transport
