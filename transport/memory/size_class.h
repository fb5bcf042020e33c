#ifndef HAWSER_TRANSPORT_MEMORY_SIZE_CLASS_H_
#define HAWSER_TRANSPORT_MEMORY_SIZE_CLASS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

// The sizes that buffers of a pool come in, numbered from the smallest.
//
// A buffer takes at most 1.25 times the bytes that were asked for and 512 more, with its share of what is
// left over where the slab is divided. Storage speaks in pages, and a page comes with a key and a header, so
// there is a class a little larger than each power of two from 4 KiB on.
namespace hawser::transport {

// A slab is one transparent huge page. https://docs.kernel.org/admin-guide/mm/transhuge.html
inline constexpr size_t kSlabBytes = size_t{2} << 20;
// Where registering is dear (Fabric::pins_memory()), the next slab of a class has a quarter of the bytes that
// the class has already, as a power of two, from kSlabBytes to this; if it is cut from parts, to
// kPartsBytesMax: receive rings, which connections keep, hold one for as long as a single one of its buffers
// is in use.
inline constexpr size_t kSlabBytesMax = size_t{16} << 20;
inline constexpr size_t kPartsBytesMax = size_t{4} << 20;

// The smallest classes are cut from parts of a slab. So a class of which a single buffer is leased takes a
// part from the others, not a slab.
inline constexpr size_t kPartsPerSlab = 8;
inline constexpr size_t kPartBytes = kSlabBytes / kPartsPerSlab;

// Classes of which a slab, or a part, holds several buffers. Multiples of 64 bytes.
inline constexpr size_t kSmallClassBytes[] = {
    // Up to a receive buffer.
    1024, 1536, 2304, 3072, 4096,
    // 4, 8 and 16 KiB and what goes with a page; between them.
    4672, 5696, 7040, 8192, 8704, 10880, 13760, 16384, 17472, 21824, 26176,
    // 32 KiB, and what goes with it. Five buffers of the last one fill a part.
    32768, 37440, 43648, 52416,
    // From here on a slab is divided: 64, 128 and 256 KiB, and what goes with each.
    65536, 67648, 83840, 104832, 131072, 139776, 174720, 209664, 262144, 299584};
inline constexpr size_t kSmallClasses = std::size(kSmallClassBytes);
inline constexpr size_t kPartClasses = 20;

// Above: steps of a quarter of a power of two, up to the next one, so a buffer is at most a quarter larger
// than what was asked for. One class more holds that power of two and what goes with it: what came with a
// page in the same message fits a receive buffer, which has 4 KiB by default. Each buffer is a region of its
// own.
inline constexpr size_t kLargeBase = 256 << 10;
inline constexpr size_t kBesidePageBytes = 4096;
inline constexpr size_t kLargePerDoubling = 5;
inline constexpr size_t kLargeClasses = kLargePerDoubling * 16;  // Up to 16 GiB.
inline constexpr size_t kSizeClasses = kSmallClasses + kLargeClasses;

inline bool IsSmall(size_t size_class) { return size_class < kSmallClasses; }
inline bool IsInParts(size_t size_class) { return size_class < kPartClasses; }

inline size_t ClassBytes(size_t size_class) {
  if (IsSmall(size_class)) return kSmallClassBytes[size_class];
  const size_t step = size_class - kSmallClasses;
  const size_t base = kLargeBase << (step / kLargePerDoubling);
  const size_t quarters = step % kLargePerDoubling + 1;
  return quarters <= 4 ? base + quarters * (base / 4) : 2 * base + kBesidePageBytes;
}

// What is mapped and registered at once for buffers of the class.
inline size_t RegionBytes(size_t size_class) {
  return IsSmall(size_class) ? kSlabBytes : ClassBytes(size_class);
}

// The classes up to kTinyBytes, by size in units of 64 bytes: each call looks one up.
inline constexpr size_t kTinyBytes = 4096;
inline constexpr size_t kTinyClasses = 5;
static_assert(kSmallClassBytes[kTinyClasses - 1] == kTinyBytes);
inline constexpr std::array<uint8_t, kTinyBytes / 64 + 1> kTinyClassOf = [] {
  std::array<uint8_t, kTinyBytes / 64 + 1> class_of = {};
  for (size_t i = 0; i < class_of.size(); ++i) {
    while (kSmallClassBytes[class_of[i]] < i * 64) ++class_of[i];
  }
  return class_of;
}();

// kSizeClasses: too large for any.
inline size_t ClassOf(size_t size_bytes) {
  if (size_bytes <= kTinyBytes) [[likely]]
    return kTinyClassOf[(size_bytes + 63) / 64];
  if (size_bytes <= kSmallClassBytes[kSmallClasses - 1]) {
    return static_cast<size_t>(
        std::lower_bound(std::begin(kSmallClassBytes), std::end(kSmallClassBytes), size_bytes) -
        std::begin(kSmallClassBytes));
  }
  size_t size_class = kSmallClasses;
  while (size_class < kSizeClasses && ClassBytes(size_class) < size_bytes) ++size_class;
  return size_class;
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_SIZE_CLASS_H_
