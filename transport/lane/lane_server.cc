#include "hawser/transport/lane/lane_server.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {
namespace {

// How long an accepted peer may take to finish the handshake.
constexpr absl::Duration kAcceptTimeout = absl::Seconds(5);

// How long a peer may take to finish the operations on memory that is revoked, from the revocation on. Over a
// network that works, it takes a round trip.
constexpr absl::Duration kRevokeTimeout = absl::Seconds(2);

// `bits`: one at least.
fabric::QueuePair::Access AccessOf(uint8_t bits) {
  using Access = fabric::QueuePair::Access;
  Access access = {};
  if ((bits & kLaneRead) != 0) access = access | Access::kReadRepeatedly;
  if ((bits & kLaneWrite) != 0) access = access | Access::kWrite;
  if ((bits & kLaneAtomic) != 0) access = access | Access::kAtomic;
  return access;
}

// What the accept says of atomics.
uint32_t FeaturesOf(fabric::Atomics atomics) {
  switch (atomics) {
    case fabric::Atomics::kNone:
      return 0;
    case fabric::Atomics::kNic:
      return kFeatureAtomics;
    case fabric::Atomics::kWithProcessor:
      return kFeatureAtomics | kFeatureAtomicsWithProcessor;
  }
  return 0;
}

}  // namespace

LaneServer::LaneServer(std::shared_ptr<Runtime> runtime, Poller& poller, std::shared_ptr<Owner> owner)
    : LaneEnd(poller),
      owner_(std::move(owner)),
      as_lender_(std::make_shared<LendingLane>(LendingLane{std::move(runtime), poller, this})),
      revoke_timer_([this] { OnRevokeTimer(); }),
      accept_timer_([this] {
        End(absl::UnavailableError(absl::StrCat("the peer ", peer(), " did not finish the handshake")));
      }) {}

LaneServer::~LaneServer() {
  poller().timers().Cancel(revoke_timer_);
  poller().timers().Cancel(accept_timer_);
  DestroyQueuePair();
  as_lender_->lender = nullptr;
  LeaveAll();
}

absl::StatusOr<LaneServer*> LaneServer::Accept(std::shared_ptr<Runtime> runtime, Poller& poller,
                                               PeerRequest request, std::shared_ptr<Owner> owner) {
  poller.AssertHeld();
  std::unique_ptr<LaneServer> made(new LaneServer(std::move(runtime), poller, std::move(owner)));
  LaneServer& lane = *made;
  lane.peer_address_ = request.peer_address();
  lane.set_peer(lane.peer_address_);
  lane.peer_counts_ = (request.hello().features & kFeatureArrivals) != 0;
  poller.Adopt(std::move(made));  // Gives it the index that its receives name.
  fabric::QueuePairOptions options;
  options.send_depth = kLaneReceives + kHandlesMax;
  options.read_depth = kLaneReadDepth;
  absl::Status accepted = lane.Create(options);
  if (accepted.ok()) {
    Handshake answer;
    answer.role = request.hello().role;
    answer.features = kFeatureLanePing | kFeatureArrivals | FeaturesOf(poller.fabric().atomics());
    answer.slots = 1;
    answer.receive_buffer_bytes = kReceiveBufferMin;
    const std::optional<Proven>& proven = request.proven_;
    accepted = lane.queue_pair().Accept(
        *request.request_,
        proven.has_value() ? EncodeAccept(answer, proven->key, proven->connect) : Encode(answer));
  }
  if (!accepted.ok()) {
    request.Refuse(accepted);
    poller.Drop(&lane);
    return accepted;
  }
  poller.timers().Set(lane.accept_timer_, After(poller.environment().NowNs(), kAcceptTimeout));
  return &lane;
}

void LaneServer::OnEstablished(absl::string_view) {
  poller().timers().Cancel(accept_timer_);
  BecomeReady();
}

// ---- Tickets

void LaneServer::OnMessage(const LaneMessage& message) {
  poller().timers().Cancel(accept_timer_);
  switch (message.kind) {
    case LaneMessage::Kind::kOpen:
      return Open(message);
    case LaneMessage::Kind::kClose:
      return Close(message.handle);
    case LaneMessage::Kind::kArrived:
      return Count(message);
    case LaneMessage::Kind::kPing:
      if (std::exchange(pinged_, true)) EndBecauseBroken("it sent a second ping");
      return;
    default:
      EndBecauseBroken(absl::StrCat("it sent kind ", static_cast<int>(message.kind), " to the owner"));
  }
}

void LaneServer::Open(const LaneMessage& message) {
  if (handles_.contains(message.handle)) {
    return EndBecauseBroken(absl::StrCat("handle ", message.handle, " is open already"));
  }
  absl::StatusOr<LaneMessage> answer = Grant(message);
  if (ending()) return;
  if (!answer.ok()) {
    LaneMessage refused;
    refused.kind = LaneMessage::Kind::kRefused;
    refused.why = answer.status();
    answer = std::move(refused);
  }
  answer->handle = message.handle;
  SendMessage(*answer);
}

absl::StatusOr<LaneMessage> LaneServer::Grant(const LaneMessage& message) {
  const LaneTicket& ticket = message.ticket;
  // Those that end do not count, unless they are as many again.
  if (handles_.size() - revoking_ >= kHandlesMax || revoking_ >= kHandlesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this client has ", kHandlesMax,
                     " tickets in use; it should destroy RemoteMemory that it does not need"));
  }
  absl::StatusOr<std::shared_ptr<LentMemory>> memory = owner_->OnTicket(ticket);
  if (!memory.ok()) return memory.status();
  const uint64_t size = (*memory)->size_bytes();
  if (ticket.length == 0 || ticket.length > kLaneBytesMax || ticket.offset > size ||
      ticket.length > size - ticket.offset) {
    return absl::OutOfRangeError("the ticket is for a range that is not in the memory");
  }
  if (!IsLaneAccess(ticket.access)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the ticket is for access ", ticket.access, ", which there is not"));
  }
  if ((ticket.access & kLaneAtomic) != 0 && poller().fabric().atomics() == fabric::Atomics::kNone) {
    return absl::UnimplementedError("the owner's device has no atomics");
  }
  std::shared_ptr<Arrivals> arrivals;
  if ((ticket.access & kLaneCounted) != 0) {
    if (!peer_counts_) {
      return absl::UnimplementedError(
          "the client is of an older version, which does not say when its WRITEs have arrived: grant it the "
          "memory without a counter");
    }
    absl::StatusOr<std::shared_ptr<Arrivals>> counted_by = owner_->OnCountedTicket(ticket);
    if (!counted_by.ok()) return counted_by.status();
    arrivals = *std::move(counted_by);
  }
  if (absl::Status taken = owner_->TakeGrant(); !taken.ok()) return taken;
  const absl::StatusOr<uint32_t> lkey = (*memory)->Enter(as_lender_);
  if (!lkey.ok()) {
    owner_->GiveBackGrants(1);
    return lkey.status();
  }
  const fabric::Sge range{(*memory)->address() + ticket.offset, static_cast<uint32_t>(ticket.length), *lkey};
  const absl::StatusOr<fabric::Granted> granted = queue_pair().Grant(range, AccessOf(ticket.access));
  if (!granted.ok()) {
    (*memory)->Leave(as_lender_);
    owner_->GiveBackGrants(1);
    return granted.status();
  }
  handles_[message.handle] = {*std::move(memory), std::move(arrivals), granted->rkey};
  LaneMessage opened;
  opened.kind = LaneMessage::Kind::kOpened;
  opened.address = granted->address;
  opened.rkey = granted->rkey;
  opened.length = ticket.length;
  opened.access = ticket.access;
  return opened;
}

void LaneServer::Close(uint32_t number) {
  const auto found = handles_.find(number);
  if (found == handles_.end() || found->second.stage == Stage::kEnding) {
    return EndBecauseBroken(absl::StrCat("handle ", number, " is not open"));
  }
  Handle& handle = found->second;
  if (handle.stage == Stage::kRevokeSent) HAWSER_SUBTRACT(revokes_sent_, 1);
  handle.stage = Stage::kEnding;
  SetRevokeTimer();
  ++revoking_;
  RevokeGrant(handle.rkey, number);
  AskToClose();
}

// Also of a handle that is being revoked: the peer closes it after this.
void LaneServer::Count(const LaneMessage& message) {
  const auto found = handles_.find(message.handle);
  if (found == handles_.end() || found->second.stage == Stage::kEnding || found->second.arrivals == nullptr) {
    return EndBecauseBroken(
        absl::StrCat("it counts WRITEs on handle ", message.handle, ", which is not open, or not for that"));
  }
  const std::shared_ptr<Arrivals> arrivals = found->second.arrivals;
  // First: a client that has the answer finds it counted.
  const uint64_t reached = arrivals->Add(message.count);
  LaneMessage counted;
  counted.kind = LaneMessage::Kind::kCounted;
  counted.handle = message.handle;
  SendMessage(counted);
  // Last: it runs code of the program.
  arrivals->RunCallbacks(reached, poller());
}

void LaneServer::OnRevoked(uint32_t number) {
  const auto found = handles_.find(number);
  if (found == handles_.end()) return;
  const std::shared_ptr<LentMemory> memory = std::move(found->second.memory);
  handles_.erase(found);
  HAWSER_SUBTRACT(revoking_, 1);
  LaneMessage closed;
  closed.kind = LaneMessage::Kind::kClosed;
  closed.handle = number;
  SendMessage(closed);
  memory->Leave(as_lender_);
  owner_->GiveBackGrants(1);
}

// ---- Revocation

void LaneServer::Revoke(const LentMemory& memory) {
  poller().AssertHeld();
  if (ending()) return;
  for (auto& [number, handle] : handles_) {
    if (handle.memory.get() != &memory || handle.stage != Stage::kGranted) continue;
    if (handle.close_by_ns != kNever) continue;  // It waits already.
    handle.close_by_ns = After(poller().environment().NowNs(), kRevokeTimeout);
    to_revoke_.push_back(number);
  }
  SetRevokeTimer();
  AskToClose();
}

// The peer gets no more time by what it gives back meanwhile.
void LaneServer::SetRevokeTimer() {
  int64_t by_ns = kNever;
  for (const auto& [number, handle] : handles_) {
    if (handle.stage != Stage::kEnding) by_ns = std::min(by_ns, handle.close_by_ns);
  }
  poller().timers().Set(revoke_timer_, by_ns);
}

void LaneServer::AskToClose() {
  while (!ending() && !to_revoke_.empty() && revokes_sent_ < kLaneRequestsMax) {
    const uint32_t number = to_revoke_.front();
    to_revoke_.pop_front();
    const auto found = handles_.find(number);
    // The peer may have closed it meanwhile.
    if (found == handles_.end() || found->second.stage != Stage::kGranted) continue;
    found->second.stage = Stage::kRevokeSent;
    ++revokes_sent_;
    LaneMessage revoke;
    revoke.kind = LaneMessage::Kind::kRevoke;
    revoke.handle = number;
    SendMessage(revoke);
  }
}

void LaneServer::OnRevokeTimer() {
  End(absl::UnavailableError(absl::StrCat("the peer ", peer(),
                                          " did not give back memory that was revoked within ",
                                          absl::FormatDuration(kRevokeTimeout))));
}

// ---- Its end

void LaneServer::OnViolation(Violation violation, absl::string_view text) {
  poller().violations().Record(violation, peer_address_, text);
}

void LaneServer::OnEnding() {
  poller().timers().Cancel(accept_timer_);
  poller().timers().Cancel(revoke_timer_);
  // A queue pair that has grants is destroyed by a command of the device, for which the poller would wait.
  for (auto& [number, handle] : handles_) {
    if (handle.stage == Stage::kEnding) continue;
    handle.stage = Stage::kEnding;
    ++revoking_;
    RevokeGrant(handle.rkey, number);
  }
}

// Those of its grants that are not revoked have ended with the queue pair.
void LaneServer::OnGone() {
  as_lender_->lender = nullptr;
  LeaveAll();
  owner_->OnLaneGone(*this);
}

void LaneServer::LeaveAll() {
  for (auto& [number, handle] : handles_) handle.memory->Leave(as_lender_);
  if (!handles_.empty()) owner_->GiveBackGrants(handles_.size());
  handles_.clear();
  revoking_ = 0;
}

}  // namespace hawser::transport
