#include "hawser/services/perf/perf_memory.h"

#include <string.h>

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/steady_now.h"

namespace hawser::internal {
namespace {

absl::Status NoMoreMemory() { return absl::UnavailableError("the server is shutting down"); }

}  // namespace

absl::Status PerfMemory::Share(ServerContext& context, uint8_t wanted,
                               perf::Perf::ShareResults::Builder reply) {
  const auto access = static_cast<Access>(wanted);
  if (access != Access::kRead && access != Access::kReadWrite && access != Access::kAtomic) {
    return absl::InvalidArgumentError(
        absl::StrCat("share for access ", wanted, ": 1 (READs), 3 (WRITEs) and 4 (atomics) are possible"));
  }
  std::shared_ptr<const SharedMemory> memory;
  {
    const absl::MutexLock lock(&mutex_);
    if (closed_) return NoMoreMemory();
    Shared& shared = by_access_[access];
    if (shared.memory == nullptr) {
      if (SteadyNow() < shared.refused_until) return shared.refusal;
      shared.waiting.emplace_back(context.Defer(), reply);
      return absl::OkStatus();
    }
    memory = shared.memory;
  }
  return context.Grant(*memory, {.access = access}, reply.initMemory());
}

PerfMemory::ByAccess::const_iterator PerfMemory::FindWanted() const {
  return std::find_if(by_access_.begin(), by_access_.end(),
                      [](const auto& each) { return !each.second.waiting.empty(); });
}

bool PerfMemory::is_wanted() const {
  const absl::MutexLock lock(&mutex_);
  return FindWanted() != by_access_.end();
}

void PerfMemory::MakeNext() {
  Access access;
  {
    const absl::MutexLock lock(&mutex_);
    const auto wanted = FindWanted();
    if (wanted == by_access_.end()) return;
    access = wanted->first;
  }
  absl::StatusOr<SharedMemory> made = host_.Share(access == Access::kAtomic ? kAtomicBytes : kRemoteBytes);
  const absl::Status status = made.status();
  std::shared_ptr<const SharedMemory> memory;
  if (made.ok()) {
    if (access == Access::kRead) memset(made->data(), kByte, made->size_bytes());
    memory = std::make_shared<const SharedMemory>(*std::move(made));
  }
  std::vector<Asking> waiting;
  {
    const absl::MutexLock lock(&mutex_);
    if (closed_) return;  // Close() has answered them.
    Shared& shared = by_access_[access];
    waiting.swap(shared.waiting);
    shared.memory = memory;
    if (!status.ok()) {
      shared.refusal = status;
      shared.refused_until = SteadyNow() + refusal_time_;
    }
  }
  for (Asking& each : waiting) {
    each.call.Finish(!status.ok()
                         ? status
                         : each.call.context().Grant(*memory, {.access = access}, each.reply.initMemory()));
  }
}

void PerfMemory::Close() {
  ByAccess by_access;
  {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
    by_access.swap(by_access_);
  }
  for (auto& [access, shared] : by_access) {
    for (Asking& each : shared.waiting) each.call.Finish(NoMoreMemory());
  }
}

}  // namespace hawser::internal
