#include "hawser/rpc/client/remote_lane.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/lane_access.h"
#include "hawser/rpc/wire/called_codes.h"
#include "hawser/transport/fabrics.h"

namespace hawser::internal {
namespace {

// After an attempt to open a lane has failed: doubled with each one.
constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
constexpr absl::Duration kBackoffMax = absl::Seconds(2);

// Lanes that an operation of which nothing was posted is started on, if each of them breaks.
constexpr int kTriesMax = 4;

// Calls that are kept for later operations: as many as a poller keeps of messages.
constexpr size_t kKeptMax = 64;

// The RemoteLane of each channel. A channel itself has no room for it.
struct Table {
  std::atomic<bool> used{false};  // There was one.
  absl::Mutex mutex;
  absl::flat_hash_map<const ChannelCore*, std::weak_ptr<RemoteLane>> lanes ABSL_GUARDED_BY(mutex);
};
Table& AllLanes() {
  static Table* const table = new Table;
  return *table;
}

// What an operation ends with after such an attempt: why it fails, or Unavailable if it may be tried again.
// Not PermissionDenied, which says that a ticket is not for an operation.
absl::Status ForOperation(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnavailable:
      return why;
    default:
      return absl::UnavailableError(why.message());
  }
}

}  // namespace

// The channel keeps it: a client that makes one RemoteMemory after the other has one lane.
std::shared_ptr<RemoteLane> RemoteLane::Of(const std::shared_ptr<ChannelCore>& core) {
  std::shared_ptr<RemoteLane> earlier;  // Its destructor takes the lock.
  std::shared_ptr<RemoteLane> lane;
  {
    Table& table = AllLanes();
    absl::MutexLock lock(&table.mutex);
    std::weak_ptr<RemoteLane>& known = table.lanes[core.get()];
    earlier = known.lock();
    if (earlier != nullptr && !earlier->core_.expired()) return earlier;
    lane = std::shared_ptr<RemoteLane>(new RemoteLane(core));
    known = lane;
    table.used.store(true, std::memory_order_relaxed);
  }
  core->OnClosed([lane] { lane->Close(); });
  return lane;
}

// A channel that reaches no memory pays for a load. One that does has set `used` before its lane was dialed.
void RemoteLane::OnSessionEnded(const ChannelCore& core, const transport::SessionToken& session,
                                const absl::Status& why) {
  Table& table = AllLanes();
  if (!table.used.load(std::memory_order_relaxed)) return;
  std::shared_ptr<RemoteLane> lane;
  {
    absl::MutexLock lock(&table.mutex);
    const auto found = table.lanes.find(&core);
    if (found != table.lanes.end()) lane = found->second.lock();
  }
  if (lane == nullptr || lane->lane_ == nullptr || !(lane->lane_->session() == session)) return;
  std::exchange(lane->lane_, nullptr)
      ->End(absl::UnavailableError(
          absl::StrCat("the connection of the channel was lost, and with it the ticket: ", why.message())));
}

RemoteLane::RemoteLane(const std::shared_ptr<ChannelCore>& core)
    : RemoteCarrier(core->runtime(), core->poller(), core->peer_address()),
      core_(core),
      key_(core.get()),
      backoff_(kBackoffMin),
      call_back_timer_([this] { CallBack(); }),
      deadline_timer_([this] { OnDeadlineTimer(); }) {}

RemoteLane::~RemoteLane() {
  for (RemoteCall* call : kept_) call->Destroy();
  Table& table = AllLanes();
  absl::MutexLock lock(&table.mutex);
  const auto found = table.lanes.find(key_);
  if (found != table.lanes.end() && found->second.expired()) table.lanes.erase(found);
}

bool RemoteLane::by_nic() const { return runtime_->scheme() != transport::kFallbackScheme; }

std::shared_ptr<RemoteTicket> RemoteLane::NewTicket(const transport::LaneTicket& ticket) {
  return {new RemoteTicket(ticket), [self = shared_from_this()](RemoteTicket* gone) {
            if (!self->poller_.usable_in_this_process()) {
              new std::shared_ptr<RemoteLane>(self);  // Leaked, with the ticket.
              return;
            }
            std::unique_ptr<RemoteTicket> owned(gone);
            self->poller_.Run([self, owned = std::move(owned)] { self->Forget(*owned); });
          }};
}

void RemoteLane::Forget(const RemoteTicket& ticket) {
  if (lane_ != nullptr && ticket.lane_number == lane_number_) lane_->Close(ticket.handle);
}

// ---- Operations

void RemoteLane::Start(RemoteCall& call) {
  poller_.AssertHeld();
  ++call.tries;
  transport::Lane* lane = CurrentLane();
  if (lane == nullptr) [[unlikely]] {
    const absl::StatusOr<transport::Lane*> opening = LaneNow();
    if (!opening.ok()) return call.OnEnd(ForOperation(opening.status()));
    lane = *opening;
  }
  // Behind LaneNow(): a request that names such memory would end the lane, and others with it.
  if (absl::Status usable = call.CheckMemory(); !usable.ok()) return call.OnEnd(usable);
  RemoteTicket& ticket = call.ticket();
  const bool is_open = ticket.lane_number == lane_number_;
  const bool lacks_room = is_open && lane->LacksRoom(ticket.handle);
  if (lacks_room) lane->Close(ticket.handle);
  if (!is_open || lacks_room) {
    ticket.handle = lane->Open(ticket.ticket);
    ticket.lane_number = lane_number_;
  }
  lane->Start(call, ticket.handle);
}

transport::Lane* RemoteLane::CurrentLane() const {
  if (lane_ == nullptr || closed_) return nullptr;
  const std::shared_ptr<ChannelCore> core = core_.lock();
  return core != nullptr && LaneAccess(*core).HasSession(lane_->session()) ? lane_ : nullptr;
}

absl::StatusOr<transport::Lane*> RemoteLane::LaneNow() {
  const std::shared_ptr<ChannelCore> core = core_.lock();
  if (closed_ || core == nullptr) return absl::CancelledError("the channel is closed");
  const absl::StatusOr<transport::SessionToken> session = LaneAccess(*core).Session();
  if (!session.ok()) return session.status();
  if (lane_ != nullptr && lane_->session() != *session) {
    transport::Lane* const earlier = std::exchange(lane_, nullptr);
    earlier->End(absl::UnavailableError("the channel has connected anew, and the ticket is void"));
  }
  if (lane_ != nullptr) return lane_;
  if (poller_.now_ns() < dial_again_ns_) {
    return absl::Status(
        why_no_lane_.code(),
        absl::StrCat(why_no_lane_.message(), "; the next attempt is made in ",
                     absl::FormatDuration(absl::Nanoseconds(dial_again_ns_ - poller_.now_ns()))));
  }
  const absl::StatusOr<transport::Lane::Target> target = LaneAccess(*core).Target();
  if (!target.ok()) return target.status();
  transport::Lane::Owner& owner = *this;
  absl::StatusOr<transport::Lane*> dialed =
      transport::Lane::Dial(poller_, *target, LaneAccess(*core).connect_timeout(), owner);
  if (!dialed.ok()) {
    OnDialFailed(dialed.status());
    return dialed.status();
  }
  lane_ = *dialed;
  ++lane_number_;
  ++lanes_;
  self_ = shared_from_this();
  return lane_;
}

void RemoteLane::OnDialFailed(const absl::Status& why) {
  why_no_lane_ = ForOperation(why);
  dial_again_ns_ = transport::After(poller_.now_ns(), backoff_);
  backoff_ = std::min(2 * backoff_, kBackoffMax);
}

void RemoteLane::Abort(RemoteCall& call, const absl::Status& why) {
  // On a lane that ends already, its result comes with that end.
  if (lane_ != nullptr) lane_->Abort(call, why);
}

std::string RemoteLane::DescribeSilence() {
  const std::shared_ptr<ChannelCore> core = core_.lock();
  if (closed_ || core == nullptr) return "";
  return LaneAccess(*core).DescribeSilence(lane_ != nullptr ? lane_->last_heard_ns() : 0);
}

void RemoteLane::SetDeadline(RemoteCall& call) {
  if (!deadlines_.empty() && call.deadline_ns() < last_deadline_ns_) {
    return poller_.timers().Set(call.deadline_timer(), call.deadline_ns());
  }
  last_deadline_ns_ = call.deadline_ns();
  deadlines_.MoveToBack(&call);
  if (!deadline_timer_.is_set()) poller_.timers().Set(deadline_timer_, last_deadline_ns_);
}

void RemoteLane::EndDeadline(RemoteCall& call) {
  if (call.deadline_timer().is_set()) return poller_.timers().Cancel(call.deadline_timer());
  if (!call.linked()) return;  // It has passed.
  call.Unlink();
  if (deadlines_.empty()) poller_.timers().Cancel(deadline_timer_);
}

void RemoteLane::OnDeadlineTimer() {
  const std::shared_ptr<RemoteLane> keep = shared_from_this();
  const int64_t now_ns = poller_.now_ns();
  while (!deadlines_.empty() && deadlines_.front()->deadline_ns() <= now_ns) {
    RemoteCall& call = *deadlines_.front();
    call.Unlink();
    call.OnDeadline();
  }
  if (!deadlines_.empty()) poller_.timers().Set(deadline_timer_, deadlines_.front()->deadline_ns());
}

void RemoteLane::CallBackSoon(RemoteCallHandle call) {
  to_call_back_.push_back(std::move(call));
  if (!call_back_timer_.is_set()) poller_.timers().Set(call_back_timer_, poller_.now_ns());
}

RemoteCall* RemoteLane::TakeKept() {
  if (kept_.empty()) return nullptr;
  RemoteCall* const call = kept_.back();
  kept_.pop_back();
  return call;
}

void RemoteLane::CallBack() {
  const std::shared_ptr<RemoteLane> keep = shared_from_this();
  std::vector<RemoteCallHandle> calls = std::exchange(to_call_back_, std::move(calling_back_));
  for (RemoteCallHandle& handle : calls) {
    {
      const transport::Poller::CallOut out(poller_, kCallback, "a one-sided operation");
      handle->RunCallback();
    }
    RemoteCall& call = *handle;
    handle.Leak();
    if (!call.Unref()) continue;
    if (kept_.size() >= kKeptMax || !poller_.usable_in_this_process()) {
      call.Destroy();
      continue;
    }
    call.Clear();
    kept_.push_back(&call);
  }
  calls.clear();
  calling_back_ = std::move(calls);
}

void RemoteLane::Close() {
  poller_.AssertHeld();
  closed_ = true;
  if (lane_ != nullptr) std::exchange(lane_, nullptr)->End(absl::CancelledError("the channel was closed"));
}

// ---- Its lanes

void RemoteLane::OnLaneReady() {
  read_depth_.store(lane_->read_depth(), std::memory_order_relaxed);
  using Atomics = decltype(lane_->atomics());
  const Atomics atomics = lane_->atomics();
  atomics_.store(atomics != Atomics::kNone, std::memory_order_relaxed);
  atomics_with_processor_.store(atomics == Atomics::kWithProcessor, std::memory_order_relaxed);
  backoff_ = kBackoffMin;
  dial_again_ns_ = 0;
}

void RemoteLane::OnUnsent(transport::LaneOperation& operation, bool was_ready, const absl::Status& why) {
  auto& call = static_cast<RemoteCall&>(operation);
  if (lane_ != nullptr && lane_->ending()) {
    lane_ = nullptr;
    if (!was_ready) OnDialFailed(why);
  }
  if (closed_ || call.tries >= kTriesMax || !was_ready) {
    return call.OnEnd(ForOperation(why));
  }
  Start(call);
}

void RemoteLane::OnLaneGone(transport::Lane& lane, bool was_ready, const absl::Status& why) {
  if (lane_ == &lane) {
    lane_ = nullptr;
    if (!was_ready) OnDialFailed(why);
  }
  if (--lanes_ == 0) {
    const std::shared_ptr<RemoteLane> last = std::move(self_);
  }
}

}  // namespace hawser::internal
