#ifndef HAWSER_RPC_VERSIONED_CELL_H_
#define HAWSER_RPC_VERSIONED_CELL_H_

// Reads a value that its owner changes meanwhile:
//
//   std::vector<uint8_t> cell(hawser::VersionedCell::CellBytes(kRowBytes));
//   std::vector<uint8_t> row(kRowBytes);
//   for (int reads = 0; reads < 100; ++reads) {
//     absl::Status read = table.Read(0, absl::MakeSpan(cell)).Wait();
//     if (!read.ok()) return read;
//     if (hawser::VersionedCell::Decode(cell, absl::MakeSpan(row)).has_value()) {
//       return std::string(row.begin(), row.end());
//     }
//   }
//   return absl::AbortedError("the row has changed each time that it was read");

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hawser {

// A value in memory that clients READ while its owner changes it. What one READ of the whole cell brings is
// one version of the value, or is seen not to be; then the client READs again.
//
// A READ copies the words of a cell in any order, at different times. A version at both ends would not show a
// mixture in between, so each word shows its version. A cell is an array of 64-bit words, little-endian:
//   the first         the version, of 64 bits
//   the next ones     16 bits of the version, then 6 bytes of the value; zeros behind its end
//   the last          16 bits of the version, then 48 bits of a checksum of version and value
// Memory of zeros is a cell of version 0, whose value is zeros.
//
// What Decode() accepts is certainly one version if three things hold: a READ copies 8 aligned bytes at once
// (TCP, InfiniBand, RoCE), the owner writes fewer than 65,535 times during one READ, and all cells of that
// memory had the same size. Otherwise only the checksum shows a mixture: it misses one with a probability of
// 2^-48. Over iWARP a word may be torn. Words behind the end of a smaller cell keep the tag that they had, so
// a larger cell of 65,536 versions later cannot tell them from its own. Nothing here protects against an
// owner that lies.
//
// A client that has a version sees with its next READs all that the owner wrote into the memory before
// that Write(). An owner that is stopped within Write() leaves a cell that nothing can read until it goes on:
// a client that reads again does so a limited number of times.
// Thread: Write() one at a time, Read() any. The memory outlives the cell, which has no other state: another
//         VersionedCell of the same memory goes on with it.
class VersionedCell {
 public:
  // Bytes of memory of a cell for a value of that size; and the largest value of a cell of that size.
  static constexpr size_t CellBytes(size_t value_bytes) {
    return kWordBytes * (kOtherWords + (value_bytes + kShareBytes - 1) / kShareBytes);
  }
  static constexpr size_t ValueBytes(size_t cell_bytes) {
    return cell_bytes / kWordBytes < kOtherWords ? 0 : (cell_bytes / kWordBytes - kOtherWords) * kShareBytes;
  }

  // `memory` begins at a multiple of 8, and has CellBytes() of some size. Anything else is a CHECK.
  explicit VersionedCell(absl::Span<uint8_t> memory);

  // Makes it the value, and returns its version, one more than the one before. InvalidArgument: the value is
  // too large, as one of a client's may be, and the cell is as it was.
  [[nodiscard]] absl::StatusOr<uint64_t> Write(absl::Span<const uint8_t> value);
  // What the last Write() that was OK returned; 0 before the first.
  uint64_t version() const;

  // What a READ of a whole cell has brought. Sets all of `value`, which may be shorter than that of the cell,
  // and returns its version. nullopt: a mixture, or no cell with so large a value; `value` is undefined.
  [[nodiscard]] static std::optional<uint64_t> Decode(absl::Span<const uint8_t> read,
                                                      absl::Span<uint8_t> value);
  // The same for a thread of the owner's. nullopt: a thread is writing.
  [[nodiscard]] std::optional<uint64_t> Read(absl::Span<uint8_t> value) const;

 private:
  static constexpr size_t kWordBytes = 8;
  static constexpr size_t kShareBytes = 6;  // A word has so many bytes of the value.
  static constexpr size_t kOtherWords = 2;  // The first and the last.

  void Store(size_t index, uint64_t word);
  uint64_t Load(size_t index) const;
  // `word_at(index)` is called once for each word.
  template <typename WordAt>
  static std::optional<uint64_t> DecodeWords(size_t words, const WordAt& word_at, absl::Span<uint8_t> value);

  absl::Span<uint64_t> words_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_VERSIONED_CELL_H_
