#ifndef HAWSER_TESTS_CHAOS_TABLE_SLOT_H_
#define HAWSER_TESTS_CHAOS_TABLE_SLOT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/versioned_cell.h"

// A hash table in memory that clients READ: slots of one size, each the VersionedCell of a key and its value.
// A key is in the slot that its hash names, or in one of the next ones; it stays there.
namespace table {

inline constexpr size_t kKeyMax = 31;
inline constexpr size_t kValueMax = 200;

// What a cell has. A key length of 0: nothing.
struct Slot {
  uint8_t key_bytes = 0;
  char key[kKeyMax] = {};
  uint8_t value_bytes = 0;
  uint8_t value[kValueMax] = {};

  absl::string_view name() const { return {key, key_bytes <= kKeyMax ? size_t{key_bytes} : size_t{0}}; }
  absl::Span<uint8_t> bytes() { return {reinterpret_cast<uint8_t*>(this), sizeof(*this)}; }
};
static_assert(sizeof(Slot) == 2 + kKeyMax + kValueMax, "no padding");

inline constexpr size_t kSlotBytes = hawser::VersionedCell::CellBytes(sizeof(Slot));

inline uint64_t SlotOf(absl::string_view key, uint64_t slots) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a.
  for (const char byte : key) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash % slots;
}

// Keys that the server itself changes, without end, on a thread of its own.
inline constexpr int kChurned = 8;
inline constexpr absl::string_view kChurnPrefix = "churn/";

}  // namespace table

#endif  // HAWSER_TESTS_CHAOS_TABLE_SLOT_H_
