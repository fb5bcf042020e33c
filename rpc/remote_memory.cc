#include "hawser/rpc/remote_memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/endian.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/remote_call.h"
#include "hawser/rpc/client/remote_lane.h"
#include "hawser/rpc/client/remote_ticket.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/lane/lane_message.h"

namespace hawser {
namespace {

using Kind = internal::RemoteCall::Kind;

constexpr uint64_t kTicketBytesMax = transport::kLaneBytesMax;

absl::Status InChild() {
  return absl::FailedPreconditionError("this process is a child made by fork() after the channel was");
}

transport::LaneTicket TicketOf(memory::Ticket::Reader reader) {
  transport::LaneTicket ticket;
  ticket.owner = reader.getOwner();
  ticket.region = reader.getRegion();
  ticket.offset = reader.getOffset();
  ticket.length = reader.getLength();
  ticket.access = reader.getAccess();
  StoreLittle64(ticket.key.data(), reader.getKeyLow());
  StoreLittle64(ticket.key.data() + 8, reader.getKeyHigh());
  return ticket;
}

absl::Status CheckTicket(const transport::LaneTicket& ticket) {
  if (ticket.length == 0 || ticket.length > kTicketBytesMax || !transport::IsLaneAccess(ticket.access)) {
    return absl::InvalidArgumentError(absl::StrCat("no ticket of a server: it is for ", ticket.length,
                                                   " bytes, and for access ", ticket.access));
  }
  return absl::OkStatus();
}

}  // namespace

// ---- RemoteOperation

absl::Status RemoteOperation::WhyNone() const {
  return failed_.ok() ? absl::FailedPreconditionError("the RemoteOperation was moved from") : failed_;
}

void RemoteOperation::End() {
  EndInChild();
  if (call_ && !is_taken_) call_->Drop();
}

// The call is the parent's, and its locks may be held for good: leaked.
void RemoteOperation::EndInChild() {
  if (!call_ || !call_->in_child()) return;
  call_.Leak();
  failed_ = InChild();
}

absl::Status RemoteOperation::Wait() {
  EndInChild();
  if (!call_) return WhyNone();
  Take();
  return call_->Wait();
}

void RemoteOperation::Take() {
  HAWSER_CHECK(!is_taken_, "the result of a RemoteOperation was taken twice");
  is_taken_ = true;
}

void RemoteOperation::Then(absl::AnyInvocable<void(const absl::Status&)> callback) {
  EndInChild();
  if (!call_) return callback(WhyNone());
  Take();
  // Kept: the callback may destroy this.
  const internal::RemoteCallHandle call = call_.Share();
  call->Then(std::move(callback));
}

void RemoteOperation::Cancel() {
  if (call_ && !call_->in_child()) call_->Cancel();
}

bool RemoteOperation::Awaiter::await_suspend(std::coroutine_handle<> waiting) {
  operation_.EndInChild();
  if (!operation_.call_) return false;
  // Kept: resume() may destroy this before it returns.
  const internal::RemoteCallHandle call = operation_.call_.Share();
  call->Then([this, waiting](const absl::Status& result) {
    operation_.failed_ = result;
    operation_.call_.Reset();
    waiting.resume();
  });
  return true;
}

// ---- RemoteMemory

RemoteMemory::RemoteMemory(std::shared_ptr<Channel> channel, memory::Ticket::Reader reader)
    : channel_(std::move(channel)) {
  if (channel_ == nullptr) {
    why_not_ = absl::FailedPreconditionError("the RemoteMemory has no channel");
    return;
  }
  const transport::LaneTicket ticket = TicketOf(reader);
  why_not_ = CheckTicket(ticket);
  if (why_not_.ok() && !channel_->sender()->poller().usable_in_this_process()) why_not_ = InChild();
  const std::shared_ptr<internal::ChannelCore> core = channel_->core();
  if (why_not_.ok() && core->group() != nullptr) {
    why_not_ = absl::FailedPreconditionError(
        "a channel with several connections (ChannelOptions::connections) reaches no memory: a ticket is "
        "good "
        "for one of them");
  }
  if (!why_not_.ok()) return;
  lane_ = internal::RemoteLane::Of(core);
  ticket_ = lane_->NewTicket(ticket);
}

RemoteMemory::RemoteMemory(RemoteMemory&& other) noexcept
    : channel_(std::move(other.channel_)),
      why_not_(std::exchange(other.why_not_, absl::OkStatus())),
      lane_(std::move(other.lane_)),
      ticket_(std::move(other.ticket_)) {}

RemoteMemory& RemoteMemory::operator=(RemoteMemory&& other) noexcept {
  // As the destructor does it. The ticket goes first: its end closes its handle on the lane. The channel is
  // kept until both are gone.
  ticket_ = std::move(other.ticket_);
  lane_ = std::move(other.lane_);
  why_not_ = std::exchange(other.why_not_, absl::OkStatus());
  channel_ = std::move(other.channel_);
  return *this;
}

struct RemoteMemory::What {
  Kind kind = Kind::kRead;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
};

uint64_t RemoteMemory::size_bytes() const { return ticket_ == nullptr ? 0 : ticket_->ticket.length; }

RemoteOperation RemoteMemory::Begin(const What& what, absl::Span<const RemoteRange> ranges,
                                    absl::Span<uint8_t> local, const RemoteOptions& options) {
  if (lane_ == nullptr) {
    return RemoteOperation(why_not_.ok() ? absl::FailedPreconditionError("the RemoteMemory was moved from")
                                         : why_not_);
  }
  if (!lane_->poller().usable_in_this_process()) return RemoteOperation(InChild());
  if (ranges.size() > kRangesMax) {
    return RemoteOperation(absl::InvalidArgumentError(
        absl::StrCat("an operation of ", ranges.size(), " ranges: up to ", kRangesMax, " are possible")));
  }
  int64_t timeout_ns = channel_->sender()->default_timeout_ns();
  if (options.timeout.has_value()) {
    timeout_ns = *options.timeout == absl::InfiniteDuration() ? transport::kNever
                                                              : absl::ToInt64Nanoseconds(*options.timeout);
  }
  absl::InlinedVector<internal::RemotePart, 1> parts;
  parts.reserve(ranges.size());
  for (const RemoteRange& range : ranges) {
    if (range.length > 0) parts.push_back({range.offset, range.length});
  }
  internal::RemoteCallHandle call =
      internal::RemoteCall::New(lane_, ticket_, what.kind, parts, local, timeout_ns);
  call->compare_add = what.compare_add;
  call->swap = what.swap;
  call->Begin();
  return RemoteOperation(std::move(call));
}

RemoteOperation RemoteMemory::Read(uint64_t offset, absl::Span<uint8_t> into, const RemoteOptions& options) {
  const RemoteRange range{offset, into.size()};
  return Begin({}, {&range, 1}, into, options);
}

RemoteOperation RemoteMemory::Read(absl::Span<const RemoteRange> ranges, absl::Span<uint8_t> into,
                                   const RemoteOptions& options) {
  return Begin({}, ranges, into, options);
}

RemoteOperation RemoteMemory::Read(const RemoteStride& stride, absl::Span<uint8_t> into,
                                   const RemoteOptions& options) {
  const uint64_t count = std::min<uint64_t>(stride.count, kRangesMax + 1);
  std::vector<RemoteRange> ranges;
  ranges.reserve(count);
  uint64_t offset = stride.offset;
  for (uint64_t i = 0; i < count; ++i) {
    ranges.push_back({offset, stride.length});
    // One that wraps would begin inside the memory again.
    offset = stride.stride > std::numeric_limits<uint64_t>::max() - offset
                 ? std::numeric_limits<uint64_t>::max()
                 : offset + stride.stride;
  }
  return Begin({}, ranges, into, options);
}

RemoteOperation RemoteMemory::Write(uint64_t offset, absl::Span<const uint8_t> from,
                                    const RemoteOptions& options) {
  const RemoteRange range{offset, from.size()};
  // Not written to: a WRITE only reads it.
  return Begin({.kind = Kind::kWrite}, {&range, 1}, {const_cast<uint8_t*>(from.data()), from.size()},
               options);
}

RemoteOperation RemoteMemory::CompareAndSwap(uint64_t offset, uint64_t expected, uint64_t desired,
                                             uint64_t& before, const RemoteOptions& options) {
  const RemoteRange range{offset, sizeof(before)};
  return Begin({.kind = Kind::kCompareSwap, .compare_add = expected, .swap = desired}, {&range, 1},
               {reinterpret_cast<uint8_t*>(&before), sizeof(before)}, options);
}

RemoteOperation RemoteMemory::FetchAdd(uint64_t offset, uint64_t addend, uint64_t& before,
                                       const RemoteOptions& options) {
  const RemoteRange range{offset, sizeof(before)};
  return Begin({.kind = Kind::kFetchAdd, .compare_add = addend}, {&range, 1},
               {reinterpret_cast<uint8_t*>(&before), sizeof(before)}, options);
}

RemoteCapabilities RemoteMemory::capabilities() const {
  RemoteCapabilities capabilities;
  if (lane_ == nullptr) return capabilities;
  capabilities.by_nic = lane_->by_nic();
  capabilities.read_depth = lane_->read_depth();
  capabilities.is_known = capabilities.read_depth != 0;
  if (capabilities.is_known) capabilities.depth = transport::Lane::kPostedMax;
  if (lane_->atomics()) {
    capabilities.atomics =
        lane_->atomics_with_processor() ? RemoteAtomics::kWithProcessor : RemoteAtomics::kNic;
  }
  capabilities.operation_bytes_max = kTicketBytesMax;
  capabilities.ranges_max = kRangesMax;
  return capabilities;
}

uint64_t RemoteMemory::Random() const {
  using transport::Environment;
  Environment& environment = lane_ == nullptr ? Environment::Real() : lane_->runtime()->environment();
  uint64_t number = 0;
  environment.FillRandom({reinterpret_cast<uint8_t*>(&number), sizeof(number)});
  return number;
}

absl::Duration RemoteMemory::default_timeout() const {
  if (lane_ == nullptr) return absl::InfiniteDuration();
  const int64_t timeout_ns = channel_->sender()->default_timeout_ns();
  return timeout_ns == transport::kNever ? absl::InfiniteDuration() : absl::Nanoseconds(timeout_ns);
}

}  // namespace hawser
