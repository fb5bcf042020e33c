#include "hawser/tests/sim/one_sided_region.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/one_sided_access.h"

namespace hawser::sim {
namespace {

using Kind = OneSidedAccess::Kind;

// Those of the bytes from `from` to `to`, exclusive, of a word.
uint64_t MaskOf(size_t from, size_t to) {
  uint64_t mask = 0;
  std::memset(reinterpret_cast<uint8_t*>(&mask) + from, 0xff, to - from);
  return mask;
}

}  // namespace

OneSidedRegion::OneSidedRegion(uint64_t id, uint64_t server_life, std::vector<uint8_t> own,
                               SharedMemory memory)
    : id_(id),
      server_life_(server_life),
      own_(std::move(own)),
      memory_(std::move(memory)),
      address_(memory_->data()),
      words_(kBytes / kWordBytes) {
  std::memcpy(words_.data(), address_, kBytes);
}

std::string OneSidedRegion::Name() const { return absl::StrCat("memory ", id_, ": "); }

uint64_t OneSidedRegion::WordInMemory(size_t word) const {
  uint64_t value;
  std::memcpy(&value, address_ + word * kWordBytes, kWordBytes);
  return value;
}

void OneSidedRegion::Record(size_t offset, size_t length_bytes) {
  for (size_t word = offset / kWordBytes; word * kWordBytes < offset + length_bytes; ++word) {
    const uint64_t value = WordInMemory(word);
    if (value != words_[word]) changes_.push_back({word, std::exchange(words_[word], value)});
  }
}

void OneSidedRegion::OwnerWrites(size_t offset, absl::Span<const uint8_t> bytes) {
  if (!memory_.has_value()) return;
  std::memcpy(address_ + offset, bytes.data(), bytes.size());
  Record(offset, bytes.size());
}

std::string OneSidedRegion::OnAccess(const uint8_t* address, size_t length_bytes, bool writes) {
  if (!Contains(address, length_bytes)) {
    return absl::StrCat(Name(), "a NIC has ", writes ? "changed " : "read ", length_bytes,
                        " bytes at offset ", address - address_, ", which are not all of it");
  }
  const auto offset = static_cast<size_t>(address - address_);
  if (unreachable) {
    return absl::StrCat(Name(), "a NIC has ", writes ? "changed " : "read ", length_bytes,
                        " bytes at offset ", offset, ", which must not be reached any more");
  }
  if (!writes) return "";
  std::string broken = offset < kDataFrom ? OnAtomic(offset, length_bytes) : OnWrite(offset, length_bytes);
  Record(offset, length_bytes);
  return broken;
}

// Each part of a WRITE is of one that has not ended, or that may have happened.
std::string OneSidedRegion::OnWrite(size_t offset, size_t length_bytes) {
  std::vector<OneSidedAccess*> causes;
  for (OneSidedAccess* access : changers_) {
    if (access->kind != Kind::kWrite) continue;
    const uint64_t from = access->ranges.front().offset;
    if (offset < from || offset + length_bytes > from + access->written.size()) continue;
    if (std::memcmp(address_ + offset, access->written.data() + (offset - from), length_bytes) != 0) continue;
    causes.push_back(access);
    std::fill_n(access->landed.begin() + static_cast<std::ptrdiff_t>(offset - from), length_bytes, true);
    if (access->is_counted() && !access->landed_whole &&
        std::find(access->landed.begin(), access->landed.end(), false) == access->landed.end()) {
      access->landed_whole = true;
      ++landed_counted_;
    }
  }
  if (causes.empty()) {
    return absl::StrCat(Name(), length_bytes, " bytes at offset ", offset,
                        " were written, and no WRITE that could have done it is in flight");
  }
  if (causes.size() == 1) causes.front()->landed_alone = true;
  return "";
}

// Each has its own addend, or its own new word.
std::string OneSidedRegion::OnAtomic(size_t offset, size_t length_bytes) {
  const size_t word = offset / kWordBytes;
  if (offset % kWordBytes != 0 || length_bytes != kWordBytes) {
    return absl::StrCat(Name(), length_bytes, " bytes at offset ", offset, " were changed, by no atomic");
  }
  const uint64_t before = words_[word];
  const uint64_t after = WordInMemory(word);
  const bool adds = offset < kAddBytes;
  const uint64_t id = adds ? after - before : after;
  for (OneSidedAccess* access : changers_) {
    if (access->id != id || access->kind != (adds ? Kind::kFetchAdd : Kind::kCompareSwap) ||
        access->ranges.front().offset != offset) {
      continue;
    }
    if (access->landed_alone) return absl::StrCat(Name(), access->Name(), " has happened twice");
    if (!adds && access->compare != before) {
      return absl::StrCat(Name(), access->Name(), " has found ", before, ", and not what it compares with");
    }
    access->landed_alone = true;
    access->before = before;
    return "";
  }
  return absl::StrCat(Name(), "the word at offset ", offset, " has changed from ", before, " to ", after,
                      ", and no atomic that could have done it is in flight");
}

// ---- Operations

void OneSidedRegion::Begin(OneSidedAccess& access) {
  access.since = changes_.size();
  access.landed.assign(access.written.size(), false);
  if (access.changes()) changers_.push_back(&access);
}

std::string OneSidedRegion::End(OneSidedAccess& access, std::optional<bool> happened) {
  if (!access.changes() || !happened.has_value()) return "";
  std::erase(changers_, &access);
  if (!*happened) {
    return access.landed_alone
               ? absl::StrCat(Name(), access.Name(), " says that it has not happened, and it has")
               : "";
  }
  if (access.kind == Kind::kWrite) {
    if (std::find(access.landed.begin(), access.landed.end(), false) == access.landed.end()) return "";
    return absl::StrCat(Name(), access.Name(), " says that it has happened, and not all of it is there");
  }
  uint64_t got;
  std::memcpy(&got, access.local.data(), kWordBytes);
  const size_t word = access.ranges.front().offset / kWordBytes;
  if (access.kind == Kind::kCompareSwap && !access.landed_alone) {
    return got != access.compare && WasHeld(word, got, ~uint64_t{0}, access.since)
               ? ""
               : absl::StrCat(Name(), access.Name(), " has swapped nothing, and says that it found ", got);
  }
  return access.landed_alone && got == access.before
             ? ""
             : absl::StrCat(Name(), access.Name(), " says that it found ", got, ", and it found ",
                            access.landed_alone ? absl::StrCat(access.before) : "nothing");
}

bool OneSidedRegion::WasHeld(size_t word, uint64_t value, uint64_t mask, size_t since) const {
  if (((words_[word] ^ value) & mask) == 0) return true;
  return std::any_of(
      changes_.begin() + static_cast<std::ptrdiff_t>(since), changes_.end(),
      [&](const Change& change) { return change.word == word && ((change.before ^ value) & mask) == 0; });
}

std::string OneSidedRegion::CheckRead(const OneSidedAccess& access) const {
  const uint8_t* got = access.local.data();
  for (const auto& [offset, length] : access.ranges) {
    for (size_t at = offset; at < offset + length;) {
      const size_t word = at / kWordBytes;
      // Words are whole only in a READ that begins at one.
      const size_t end =
          offset % kWordBytes == 0 ? std::min<size_t>((word + 1) * kWordBytes, offset + length) : at + 1;
      const size_t from = at % kWordBytes, count = end - at;
      uint64_t value = 0;
      std::memcpy(reinterpret_cast<uint8_t*>(&value) + from, got, count);
      if (!WasHeld(word, value, MaskOf(from, from + count), access.since)) {
        return absl::StrCat(Name(), access.Name(), " has read at offset ", at,
                            " what was not there since it began");
      }
      got += count;
      at = end;
    }
  }
  return "";
}

std::string OneSidedRegion::CheckCount() {
  const uint64_t count = counter_.count();
  if (count > landed_counted_) {
    return absl::StrCat(Name(), count, " WRITEs are counted, and all bytes of ", landed_counted_,
                        " are there");
  }
  if (!unreachable) return "";
  if (!last_count_.has_value()) last_count_ = count;
  return count == *last_count_ ? "" : absl::StrCat(Name(), "a WRITE is counted, and nothing can reach it");
}

std::string OneSidedRegion::CheckFinalCount(uint64_t sure, uint64_t perhaps) const {
  const uint64_t count = counter_.count();
  if (count >= sure && count <= sure + perhaps) return "";
  return absl::StrCat(Name(), count, " WRITEs are counted, where ", sure, " are by their result, and ",
                      perhaps, " may be");
}

std::string OneSidedRegion::CheckContent() const {
  if (!memory_.has_value() && own_.empty()) return "";  // It may be unmapped.
  for (size_t word = 0; word < words_.size(); ++word) {
    if (WordInMemory(word) != words_[word]) {
      return absl::StrCat(Name(), "the word at offset ", word * kWordBytes, " is ", WordInMemory(word),
                          ", which no operation has written");
    }
  }
  return "";
}

}  // namespace hawser::sim
