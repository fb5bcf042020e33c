#include "hawser/transport/fabric/verbs/sinks.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {

VerbsSinks::Registration* VerbsSinks::Find(uint32_t number) {
  const auto it = std::find_if(registrations_.begin(), registrations_.end(),
                               [&](const Registration& each) { return each.number == number; });
  return it != registrations_.end() ? &*it : nullptr;
}

VerbsSinks::OpenSink* VerbsSinks::FindOpen(const Sge& range) {
  for (OpenSink& sink : open_) {
    const uint64_t offset =
        reinterpret_cast<uint64_t>(range.address) - reinterpret_cast<uint64_t>(sink.address);
    if (offset < sink.length_bytes && range.length <= sink.length_bytes - offset) return &sink;
  }
  return nullptr;
}

// What is registered for a READ into `range` of `sink`: from there on, since the next READs follow it.
Sge VerbsSinks::PortionOf(const OpenSink& sink, const Sge& range) const {
  const uint64_t left = sink.length_bytes - static_cast<uint64_t>(range.address - sink.address);
  const uint64_t length_bytes = std::min(left, std::max<uint64_t>(range.length, kPortionBytes));
  const Sge portion = {range.address, static_cast<uint32_t>(length_bytes), range.lkey};
  return memory_.Contains(portion) ? portion : range;
}

absl::StatusOr<VerbsSinks::Begun> VerbsSinks::Begin(const Sge& range) {
  Sge wanted = range;
  OpenSink* const sink = FindOpen(range);
  if (sink != nullptr) {
    Registration* const last = Find(sink->registration);
    if (last != nullptr && last->begin <= range.address && range.address + range.length <= last->end) {
      ++last->reads;
      return Begun{last->number, last->mr->lkey};
    }
    if (absl::Status status = Unkeep(std::exchange(sink->registration, kNone)); !status.ok()) return status;
    wanted = PortionOf(*sink, range);
  }
  errno = 0;  // Some providers set none.
  ibv_mr* mr = device_.verbs().ibv_reg_mr(device_.pd(), wanted.address, wanted.length, access_);
  if (mr == nullptr &&
      wanted.length > range.length) {  // Perhaps it can still pin as much as this READ needs.
    wanted = range;
    errno = 0;
    mr = device_.verbs().ibv_reg_mr(device_.pd(), wanted.address, wanted.length, access_);
  }
  if (mr == nullptr) return RegistrationError("READ into memory", wanted.length, errno);
  do {
    ++last_number_;
  } while (last_number_ == kNone || Find(last_number_) != nullptr);
  registrations_.push_back(
      {last_number_, mr, wanted.address, wanted.address + wanted.length, 1, sink != nullptr});
  if (sink != nullptr) sink->registration = last_number_;
  return Begun{last_number_, mr->lkey};
}

absl::Status VerbsSinks::End(uint32_t number) {
  Registration* const registration = Find(number);
  if (registration == nullptr) return absl::OkStatus();  // Release() has deregistered it.
  --registration->reads;
  return DeregisterIfUnused(*registration);
}

absl::Status VerbsSinks::Close(const uint8_t* address) {
  const auto it =
      std::find_if(open_.begin(), open_.end(), [&](const OpenSink& each) { return each.address == address; });
  if (it == open_.end()) return absl::OkStatus();
  const uint32_t registration = it->registration;
  open_.erase(it);
  return Unkeep(registration);
}

absl::Status VerbsSinks::Unkeep(uint32_t number) {
  Registration* const registration = Find(number);
  if (registration == nullptr) return absl::OkStatus();
  registration->is_kept = false;
  return DeregisterIfUnused(*registration);
}

absl::Status VerbsSinks::DeregisterIfUnused(Registration& registration) {
  if (registration.is_kept || registration.reads != 0) return absl::OkStatus();
  if (const int error = device_.verbs().ibv_dereg_mr(registration.mr); error != 0) {
    refused_ = true;
    return absl::InternalError(
        absl::StrCat("deregister what a READ has filled: ibv_dereg_mr(): ", DescribeErrno(std::abs(error))));
  }
  registrations_.erase(registrations_.begin() + (&registration - registrations_.data()));
  return absl::OkStatus();
}

void VerbsSinks::CloseAll() {
  open_.clear();
  for (size_t i = registrations_.size(); i-- > 0;) {
    registrations_[i].is_kept = false;
    DeregisterIfUnused(registrations_[i]).IgnoreError();  // Release() tries it again.
  }
}

std::vector<ibv_mr*> VerbsSinks::TakeAll() {
  Release();
  std::vector<ibv_mr*> refused;
  for (const Registration& registration : std::exchange(registrations_, {}))
    refused.push_back(registration.mr);
  return refused;
}

void VerbsSinks::Release() {
  open_.clear();
  const bool ours = !device_.in_forked_child();
  std::erase_if(registrations_, [&](const Registration& registration) {
    return !ours || device_.verbs().ibv_dereg_mr(registration.mr) == 0;
  });
}

}  // namespace hawser::fabric
