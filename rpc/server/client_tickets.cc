#include "hawser/rpc/server/client_tickets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace hawser::internal {
namespace {

absl::Status Revoked() {
  return absl::FailedPreconditionError("the owner has revoked the memory: its ticket is void");
}

}  // namespace

ClientTickets::ClientTickets(const PeerHost& host, std::shared_ptr<SharedRegions> regions)
    : host_(host), regions_(std::move(regions)) {}

ClientTickets::~ClientTickets() {
  absl::MutexLock lock(&mutex_);
  for (auto each = keys_.begin(); each != keys_.end();) {
    const uint64_t region = std::get<0>(each->first);
    regions_->RemoveHolder(region, *this);
    each = keys_.lower_bound(What(region + 1, 0, 0, 0, 0));
  }
  regions_->RemoveTickets(host_, given_.size());
}

absl::Status ClientTickets::Give(const std::shared_ptr<transport::LentMemory>& memory,
                                 const std::shared_ptr<transport::Arrivals>& arrivals,
                                 transport::LaneTicket& ticket) {
  absl::MutexLock lock(&mutex_);
  const What what(ticket.region, ticket.offset, ticket.length, ticket.access,
                  arrivals == nullptr ? 0 : arrivals->id());
  if (const auto before = keys_.find(what); before != keys_.end()) {
    ticket.key = before->second;
    return absl::OkStatus();
  }
  if (given_.size() >= kMax) ForgetEnded();
  if (given_.size() >= kMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this client has ", given_.size(), " tickets for shared memory"));
  }
  if (!regions_->AddTicket(host_).ok()) {
    ForgetEnded();
    if (absl::Status counted = regions_->AddTicket(host_); !counted.ok()) return counted;
  }
  // From here on OnRevoked() is called, which waits for the lock.
  if (!regions_->AddHolder(ticket.region, weak_from_this())) {
    regions_->RemoveTickets(host_, 1);
    return Revoked();
  }
  regions_->environment().FillRandom(absl::MakeSpan(ticket.key));
  given_[ticket.key] = {ticket, memory, arrivals};
  keys_[what] = ticket.key;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<transport::LentMemory>> ClientTickets::Find(
    const transport::LaneTicket& ticket) {
  if (ticket.owner != regions_->owner()) {
    return absl::FailedPreconditionError(
        "the ticket is of another server, or of an earlier run of this one: ask for a new one");
  }
  // Of these nothing is kept but the number of the region. So a forged ticket with that gets the same answer.
  if (regions_->IsRevoked(ticket.region)) return Revoked();
  absl::MutexLock lock(&mutex_);
  const auto found = given_.find(ticket.key);
  if (found == given_.end()) {
    return absl::PermissionDeniedError(
        "the ticket was not given to this client over this connection: it is of an earlier connection, or of "
        "another client, its counter has ended, or it is forged; ask for a new one");
  }
  if (!(found->second.ticket == ticket)) {
    return absl::PermissionDeniedError("the ticket is forged: it is not as it was given");
  }
  std::shared_ptr<transport::LentMemory> memory = found->second.memory.lock();
  if (memory == nullptr || memory->revoked()) return Revoked();
  return memory;
}

absl::StatusOr<std::shared_ptr<transport::Arrivals>> ClientTickets::FindArrivals(
    const transport::LaneTicket& ticket) {
  absl::MutexLock lock(&mutex_);
  const auto found = given_.find(ticket.key);
  if (found == given_.end() || found->second.arrivals == nullptr || found->second.arrivals->ended()) {
    return absl::FailedPreconditionError("the ticket is void: its counter or its memory has ended");
  }
  return found->second.arrivals;
}

void ClientTickets::ForgetEnded() {
  uint64_t forgotten = 0;
  for (auto each = keys_.begin(); each != keys_.end();) {
    const auto given = given_.find(each->second);
    const std::shared_ptr<transport::Arrivals>& arrivals = given->second.arrivals;
    if (arrivals == nullptr || !arrivals->ended()) {
      ++each;
      continue;
    }
    const uint64_t region = std::get<0>(each->first);
    given_.erase(given);
    each = keys_.erase(each);
    ++forgotten;
    const auto first = keys_.lower_bound(What(region, 0, 0, 0, 0));
    if (first == keys_.end() || std::get<0>(first->first) != region) regions_->RemoveHolder(region, *this);
  }
  regions_->RemoveTickets(host_, forgotten);
}

void ClientTickets::OnRevoked(uint64_t region) {
  absl::MutexLock lock(&mutex_);
  const auto begin = keys_.lower_bound(What(region, 0, 0, 0, 0));
  const auto end = keys_.lower_bound(What(region + 1, 0, 0, 0, 0));
  uint64_t count = 0;
  for (auto each = begin; each != end; ++each) count += given_.erase(each->second);
  keys_.erase(begin, end);
  regions_->RemoveTickets(host_, count);
}

}  // namespace hawser::internal
