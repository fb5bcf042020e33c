#include "hawser/rpc/versioned_cell.h"

#include <endian.h>

#include <atomic>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/endian.h"

namespace hawser {
namespace {

constexpr int kTagBits = 16;
constexpr uint64_t kTag = (uint64_t{1} << kTagBits) - 1;

// One step of the checksum. It maps different sums to different sums, and different words as well, so two
// sequences that differ in one word have different sums. Zeros leave a sum of zero as it is.
uint64_t Mix(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15;
  return sum ^ (sum >> 32);
}

// The share of the value that begins at `offset`.
template <size_t kBytes>
uint64_t ShareAt(absl::Span<const uint8_t> value, size_t offset) {
  uint8_t share[sizeof(uint64_t)] = {};
  if (offset + kBytes <= value.size()) {
    std::memcpy(share, value.data() + offset, kBytes);
  } else if (offset < value.size()) {
    std::memcpy(share, value.data() + offset, value.size() - offset);
  }
  return LoadLittle64(share);
}

template <size_t kBytes>
void SetShareAt(absl::Span<uint8_t> value, size_t offset, uint64_t word) {
  // Two bytes too many, of zeros: those of the next share, which follows.
  if (offset + sizeof(word) <= value.size()) return StoreLittle64(value.data() + offset, word);
  uint8_t share[sizeof(uint64_t)];
  StoreLittle64(share, word);
  if (offset + kBytes <= value.size()) {
    std::memcpy(value.data() + offset, share, kBytes);
  } else if (offset < value.size()) {
    std::memcpy(value.data() + offset, share, value.size() - offset);
  }
}

}  // namespace

VersionedCell::VersionedCell(absl::Span<uint8_t> memory)
    : words_(reinterpret_cast<uint64_t*>(memory.data()), memory.size() / kWordBytes) {
  HAWSER_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kWordBytes == 0 &&
                   memory.size() % kWordBytes == 0 && words_.size() >= kOtherWords,
               "a VersionedCell of ", memory.size(), " bytes at ",
               absl::Hex(reinterpret_cast<uintptr_t>(memory.data())),
               ": it must begin at a multiple of 8, and have the CellBytes() of some size");
}

// Released: a reader that has this word, and acquires it, sees what was written before.
void VersionedCell::Store(size_t index, uint64_t word) {
  std::atomic_ref<uint64_t>(words_[index]).store(htole64(word), std::memory_order_release);
}

uint64_t VersionedCell::Load(size_t index) const {
  return le64toh(std::atomic_ref<uint64_t>(words_[index]).load(std::memory_order_acquire));
}

uint64_t VersionedCell::version() const { return Load(0); }

// Whatever of the words a reader sees of this Write(), each shows its version. So they need no order.
absl::StatusOr<uint64_t> VersionedCell::Write(absl::Span<const uint8_t> value) {
  const size_t last = words_.size() - 1;
  if (value.size() > (last - 1) * kShareBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(value.size(), " bytes into a VersionedCell for ", (last - 1) * kShareBytes));
  }
  const uint64_t version = Load(0) + 1;
  const uint64_t tag = version & kTag;
  uint64_t sum = Mix(0, version);
  Store(0, version);
  for (size_t i = 1; i < last; ++i) {
    const uint64_t share = ShareAt<kShareBytes>(value, (i - 1) * kShareBytes);
    sum = Mix(sum, share);
    Store(i, share << kTagBits | tag);
  }
  Store(last, (sum & ~kTag) | tag);
  return version;
}

template <typename WordAt>
std::optional<uint64_t> VersionedCell::DecodeWords(size_t words, const WordAt& word_at,
                                                   absl::Span<uint8_t> value) {
  if (words < kOtherWords || value.size() > (words - kOtherWords) * kShareBytes) return std::nullopt;
  const uint64_t version = word_at(0);
  uint64_t sum = Mix(0, version);
  for (size_t i = 1; i < words - 1; ++i) {
    const uint64_t word = word_at(i);
    if (((word ^ version) & kTag) != 0) return std::nullopt;
    sum = Mix(sum, word >> kTagBits);
    SetShareAt<kShareBytes>(value, (i - 1) * kShareBytes, word >> kTagBits);
  }
  if (word_at(words - 1) != ((sum & ~kTag) | (version & kTag))) return std::nullopt;
  return version;
}

std::optional<uint64_t> VersionedCell::Decode(absl::Span<const uint8_t> read, absl::Span<uint8_t> value) {
  if (read.size() % kWordBytes != 0) return std::nullopt;
  return DecodeWords(
      read.size() / kWordBytes, [&](size_t index) { return LoadLittle64(read.data() + index * kWordBytes); },
      value);
}

std::optional<uint64_t> VersionedCell::Read(absl::Span<uint8_t> value) const {
  return DecodeWords(
      words_.size(), [&](size_t index) { return Load(index); }, value);
}

}  // namespace hawser
