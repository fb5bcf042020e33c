#include "hawser/rpc/server/session_memory.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::internal {

SessionMemory::SessionMemory(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                             const PeerHost& host, std::shared_ptr<SharedRegions> regions)
    : runtime_(std::move(runtime)),
      poller_(poller),
      host_(host),
      regions_(std::move(regions)),
      tickets_(std::make_shared<ClientTickets>(host_, regions_)) {}

SessionMemory::~SessionMemory() {
  regions_->RemoveLanes(on_gone_.size());  // Which have ended with their poller.
}

absl::StatusOr<transport::LaneTicket> SessionMemory::Grant(
    const std::shared_ptr<transport::LentMemory>& memory, uint64_t offset, uint64_t length, uint8_t access,
    const std::shared_ptr<transport::Arrivals>& arrivals) {
  if (memory->name().owner != regions_->owner()) {
    return absl::InvalidArgumentError("the memory is shared by another server, which alone can grant it");
  }
  const uint64_t size = memory->size_bytes();
  if (length == std::numeric_limits<uint64_t>::max() && offset <= size) length = size - offset;
  if (offset > size) {
    return absl::OutOfRangeError(
        absl::StrCat("a grant at offset ", offset, " is beyond the ", size, " bytes of the memory"));
  }
  if (length > size - offset) {
    return absl::OutOfRangeError(absl::StrCat("a grant of ", length, " bytes at offset ", offset,
                                              " is beyond the ", size, " bytes of the memory"));
  }
  if (length == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grant of no bytes, at offset ", offset, " of a memory of ", size, " bytes"));
  }
  if (length > transport::kLaneBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a grant of ", length, " bytes: 1 to ",
                                                   transport::kLaneBytesMax,
                                                   " are possible; grant it in parts"));
  }
  if (!transport::IsLaneAccess(access) || (access & transport::kLaneCounted) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a grant for access ", access, ", which there is not"));
  }
  if (arrivals != nullptr) {
    if ((access & transport::kLaneWrite) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("a grant with a counter, which counts WRITEs, for ",
                                                     transport::DescribeAccess(access)));
    }
    access |= transport::kLaneCounted;
  }
  if ((access & transport::kLaneAtomic) != 0 &&
      reinterpret_cast<uintptr_t>(memory->address() + offset) % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grant for atomics begins at offset ", offset, ": not at a multiple of 8"));
  }
  // Slow the first time with this fabric.
  if (absl::Status registered = memory->RegisterWith(runtime_); !registered.ok()) return registered;
  transport::LaneTicket ticket;
  ticket.owner = memory->name().owner;
  ticket.region = memory->name().region;
  ticket.offset = offset;
  ticket.length = length;
  ticket.access = access;
  if (absl::Status given = tickets_->Give(memory, arrivals, ticket); !given.ok()) return given;
  return ticket;
}

absl::StatusOr<std::shared_ptr<transport::LentMemory>> SessionMemory::OnTicket(
    const transport::LaneTicket& ticket) {
  return tickets_->Find(ticket);
}

absl::StatusOr<std::shared_ptr<transport::Arrivals>> SessionMemory::OnCountedTicket(
    const transport::LaneTicket& ticket) {
  return tickets_->FindArrivals(ticket);
}

absl::Status SessionMemory::Accept(transport::PeerRequest request, absl::AnyInvocable<void()> on_gone) {
  if (closed_) {
    const absl::Status refused = absl::NotFoundError("the session has ended");
    request.Refuse(refused);
    return refused;
  }
  absl::StatusOr<transport::LaneServer*> lane =
      transport::LaneServer::Accept(runtime_, poller_, std::move(request), shared_from_this());
  if (!lane.ok()) return lane.status();
  on_gone_[*lane] = std::move(on_gone);
  regions_->AddLane();
  // A client opens another one when it has broken the one before, whose end may come later.
  if (transport::LaneServer* const before = std::exchange(lane_, *lane); before != nullptr) {
    before->End(absl::UnavailableError("the client has opened another lane"));
  }
  return absl::OkStatus();
}

void SessionMemory::Close(const absl::Status& why) {
  closed_ = true;
  if (lane_ != nullptr)
    lane_->End(absl::UnavailableError(absl::StrCat("the session has ended: ", why.message())));
}

absl::Status SessionMemory::TakeGrant() { return regions_->AddGrant(host_); }

void SessionMemory::GiveBackGrants(size_t count) { regions_->RemoveGrants(host_, count); }

void SessionMemory::OnLaneGone(transport::LaneServer& lane) {
  if (lane_ == &lane) lane_ = nullptr;
  const auto found = on_gone_.find(&lane);
  if (found == on_gone_.end()) return;
  absl::AnyInvocable<void()> on_gone = std::move(found->second);
  on_gone_.erase(found);
  regions_->RemoveLanes(1);
  on_gone();
}

}  // namespace hawser::internal
