#include "hawser/tests/chaos/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace hawser::chaos {
namespace {

absl::StatusOr<Ledger*> Map(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  void* memory = MAP_FAILED;
  if (ftruncate(fd, sizeof(Ledger)) == 0) {
    memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(error, absl::StrCat("cannot map ", path));
  return static_cast<Ledger*>(memory);
}

}  // namespace

absl::StatusOr<Ledger*> Ledger::Create(const std::string& path) { return Map(path, O_CREAT | O_EXCL); }

absl::StatusOr<Ledger*> Ledger::Open(const std::string& path) { return Map(path, 0); }

void KeyRecord::Enter(uint64_t epoch) {
  if (epoch_ == epoch) return;
  known_ = 0;
  for (auto& revision : revisions_) revision = 0;
  // The last one may have been sent before and run now. The one before that had ended.
  first_ = issued_.load();
  epoch_ = epoch;
}

uint64_t KeyRecord::Issue(uint64_t epoch) {
  Enter(epoch);
  const uint64_t sequence = issued_ + 1;
  revision(sequence) = 0;
  issued_ = sequence;
  return sequence;
}

std::string KeyRecord::RanAs(uint64_t sequence, uint64_t found) {
  if (issued_ - sequence >= kRemembered) return "";
  const uint64_t before = revision(sequence);
  if (before != 0 && before != found) {
    return absl::StrCat("put ", sequence, " ran twice: as revision ", before, " and as ", found);
  }
  revision(sequence) = found;
  return "";
}

std::string KeyRecord::Acknowledged(uint64_t sequence, uint64_t revision_now) {
  const uint64_t known = known_;
  if (known != 0 && revision(known) >= revision_now) {
    return absl::StrCat("put ", sequence, " was acknowledged as revision ", revision_now,
                        ", not above that of put ", known, " before it, ", revision(known).load());
  }
  std::string wrong = RanAs(sequence, revision_now);
  if (wrong.empty()) known_ = sequence;
  return wrong;
}

std::string KeyRecord::Found(uint64_t epoch, uint64_t sequence, uint64_t revision_now) {
  Enter(epoch);
  if (sequence > issued_) {
    return absl::StrCat("put ", sequence, " was found, of ", issued_.load(), " that were sent");
  }
  if (sequence < first_) return absl::StrCat("put ", sequence, " was found, which an earlier server had");
  if (std::string wrong = RanAs(sequence, revision_now); !wrong.empty()) return wrong;
  const uint64_t known = known_;
  // An older put that was never answered may have run late, but then it has a later revision.
  if (known != 0 && known != sequence && revision_now <= revision(known)) {
    return absl::StrCat("put ", sequence, " of revision ", revision_now, " was found behind put ", known,
                        " of revision ", revision(known).load(), ", which was there before");
  }
  // Too old to be remembered: then what was known before stays the measure.
  if (issued_ - sequence < kRemembered) known_ = sequence;
  return "";
}

std::string KeyRecord::NotFound(uint64_t epoch) {
  Enter(epoch);
  if (known_ == 0) return "";
  return absl::StrCat("lost: put ", known_.load(), " was there before, as revision ",
                      revision(known_).load());
}

}  // namespace hawser::chaos
