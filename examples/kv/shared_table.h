#ifndef EXAMPLES_KV_SHARED_TABLE_H_
#define EXAMPLES_KV_SHARED_TABLE_H_

#include <capnp/blob.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/kv/kv.capnp.h"

namespace kv {

// The values that clients find by READs: a table of buckets and, behind it, blocks for larger values, in
// memory that clients may read (kv.capnp, Bucket). A quarter of the memory is buckets.
//
// Clients read at any time, and what they read may have been freed and used again meanwhile. Each bucket and
// each block is a VersionedCell, so they see that. A block is written before the bucket that names it, and
// used again after the bucket that named it. Before that it is cleared: what was removed or replaced cannot
// be READ any more.
//
// All buckets have one size, so a READ of one is certainly one version. The values of a block may differ in
// size; if they do, it is the checksum that shows a mixture of versions that are 65,536 apart.
//
// A key is left out, and only counted, if its value is larger than kBlockMax, if the memory has no block for
// it, or if its bucket has no room. It may come in when it is put again.
// Thread: one at a time.
class SharedTable {
 public:
  static constexpr size_t kBucketBytes = 1024;
  static constexpr size_t kSmallMax = 256;              // A value that is in the bucket: one READ brings it.
  static constexpr size_t kBlockMax = TABLE_BYTES_MAX;  // A call READs a larger one as well.
  static constexpr size_t kMemoryMin = 1 << 20;

  // `memory` has kMemoryMin at least, begins at a multiple of 8, and outlives the table.
  explicit SharedTable(absl::Span<uint8_t> memory);

  // `replaces`: the key was there before.
  void Put(absl::string_view key, capnp::Data::Reader value, uint64_t revision, bool replaces);
  // The key was there.
  void Remove(absl::string_view key);

  uint64_t buckets() const { return buckets_; }

 private:
  class Change;

  absl::Span<uint8_t> CellOf(absl::string_view key) const;
  // A block for a value of that size. nullopt: there is none.
  std::optional<uint64_t> NewBlock(size_t value_bytes);
  // Such a value is not in the block any more: clients may READ what no bucket names, too.
  void Clear(uint64_t offset, size_t value_bytes);
  void FreeBlock(uint64_t offset, size_t value_bytes);
  void FreeBlockOf(const std::optional<Bucket::Entry::Reader>& entry);

  const absl::Span<uint8_t> memory_;
  const uint64_t buckets_;
  // Blocks have a power of two of bytes, and stay as large as they were made.
  uint64_t unused_;                             // The offset behind all that were made.
  std::array<std::vector<uint64_t>, 18> free_;  // Their offsets, by that power.
};

}  // namespace kv

#endif  // EXAMPLES_KV_SHARED_TABLE_H_
