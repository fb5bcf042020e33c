#include "examples/kv/client/workload.h"

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"

namespace kv {
namespace {

constexpr Mix kMixes[] = {
    //    read update insert scan read-modify-write
    {'a', {50, 50, 0, 0, 0}, false},  // A session store.
    {'b', {95, 5, 0, 0, 0}, false},   // Tags on photos.
    {'c', {100, 0, 0, 0, 0}, false},  // A cache of profiles.
    {'d', {95, 0, 5, 0, 0}, true},    // Status updates.
    {'e', {0, 0, 5, 95, 0}, false},   // Threads of conversations.
    {'f', {50, 0, 0, 0, 50}, false},  // A user database.
};

constexpr uint64_t kScanLengthMax = 100;

}  // namespace

const Mix* FindMix(absl::string_view name) {
  for (const Mix& mix : kMixes) {
    if (name == absl::string_view(&mix.name, 1)) return &mix;
  }
  return nullptr;
}

Operation Workload::NextOperation(absl::BitGenRef random) const {
  int dice = absl::Uniform(random, 0, 100);
  size_t operation = 0;
  while (dice >= mix_.percent[operation]) dice -= mix_.percent[operation++];
  return static_cast<Operation>(operation);
}

uint64_t Workload::NextRecord(absl::BitGenRef random) const {
  const uint64_t rank = popularity_.Sample(random);
  if (!mix_.latest) return Scramble(rank) % records_;
  absl::MutexLock lock(&mutex_);
  return inserted_ - 1 - rank;
}

uint64_t Workload::Reserve() {
  absl::MutexLock lock(&mutex_);
  return reserved_++;
}

void Workload::Inserted(uint64_t record) {
  absl::MutexLock lock(&mutex_);
  early_.insert(record);
  while (early_.erase(inserted_) > 0) ++inserted_;
}

uint64_t Workload::ScanLength(absl::BitGenRef random) {
  return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, kScanLengthMax);
}

std::string Workload::Key(absl::string_view prefix, uint64_t record) {
  return absl::StrCat(prefix, "user", absl::Hex(Scramble(record), absl::kZeroPad16));
}

}  // namespace kv
