#include "hawser/transport/flat_message.h"

#include <bit>

namespace hawser::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "words are looked at as they came");

// The lowest two bits of a pointer.
constexpr uint32_t kStruct = 0, kList = 1;

// The size of a list's elements, as its pointer says it; between the third and the fourth: 2 and 4 bytes.
constexpr uint32_t kVoid = 0, kBit = 1, kOneByte = 2, kEightBytes = 5, kPointers = 6;  // 7: structs.

// What can be reached from one pointer. Each object is charged to left_, so that the walk ends, however
// pointers lead round in circles.
class Walk {
 public:
  explicit Walk(absl::Span<const uint64_t> words)
      : words_(words.data()), size_(words.size()), left_(words.size() - 1) {}

  // `count` pointers from index `first` on, each of which may lead `depth` objects deep.
  bool Pointers(uint64_t first, uint32_t count, int depth) {
    for (uint64_t at = first; at < first + count; ++at) {
      const uint64_t pointer = words_[at];
      if (pointer == 0) continue;
      if (depth <= 0) return false;
      const auto low = static_cast<uint32_t>(pointer);
      const auto high = static_cast<uint32_t>(pointer >> 32);
      // Of one that leads in front of the message: more than its size.
      const uint64_t target = at + 1 + static_cast<uint64_t>(int64_t{static_cast<int32_t>(low) >> 2});
      const uint32_t element_size = high & 7;
      if ((low & 3) == kStruct) {
        const uint32_t data = high & 0xffff, pointers = high >> 16;
        if (!Take(target, uint64_t{data} + pointers)) return false;
        if (pointers != 0 && !Pointers(target + data, pointers, depth - 1)) return false;
      } else if ((low & 3) == kList && element_size >= kOneByte && element_size <= kEightBytes) {
        if (!Take(target, ((uint64_t{high >> 3} << (element_size - kOneByte)) + 7) / 8)) return false;
      } else if ((low & 3) != kList || !OtherList(target, element_size, high >> 3, depth)) {
        return false;
      }
    }
    return true;
  }

 private:
  [[gnu::noinline]] bool OtherList(uint64_t target, uint32_t element_size, uint32_t count, int depth) {
    if (element_size == kVoid) return Take(target, 0) && Charge(count);
    if (element_size == kBit) return Take(target, (uint64_t{count} + 63) / 64);
    if (element_size == kPointers) return Take(target, count) && Pointers(target, count, depth - 1);
    return Composite(target, count, depth);
  }

  // Structs, after a word that is formed as a pointer to one and has their number in the place of an offset.
  bool Composite(uint64_t target, uint32_t word_count, int depth) {
    if (!Take(target, uint64_t{word_count} + 1)) return false;
    const uint64_t tag = words_[target];
    if ((tag & 3) != kStruct) return false;
    const uint32_t count = static_cast<uint32_t>(tag) >> 2;
    const uint32_t data = static_cast<uint32_t>(tag >> 32) & 0xffff,
                   pointers = static_cast<uint32_t>(tag >> 48);
    const uint64_t each = uint64_t{data} + pointers;
    if (count * each > word_count) return false;
    if (each == 0) return Charge(count);
    if (pointers == 0) return true;
    for (uint32_t i = 0; i < count; ++i) {
      if (!Pointers(target + 1 + i * each + data, pointers, depth - 1)) return false;
    }
    return true;
  }

  // `count` words from `target` on are an object.
  bool Take(uint64_t target, uint64_t count) {
    return target <= size_ && count <= size_ - target && Charge(count);
  }

  // Elements without a size cost a reader as much as words.
  bool Charge(uint64_t words) {
    if (words > left_) return false;
    left_ -= words;
    return true;
  }

  const uint64_t* const words_;
  const uint64_t size_;
  uint64_t left_;  // Words that were not charged yet. The first is the root pointer.
};

}  // namespace

bool IsFlat(absl::Span<const uint64_t> words, int nesting_max) {
  return !words.empty() && words.size() <= kFlatWordsMax && Walk(words).Pointers(0, 1, nesting_max);
}

}  // namespace hawser::transport
