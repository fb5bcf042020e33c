#ifndef HAWSER_TRANSPORT_SIZE_CLASS_H_
#define HAWSER_TRANSPORT_SIZE_CLASS_H_

#include <algorithm>
#include <cstddef>

// The sizes that buffers of a pool come in, numbered from the smallest.
namespace hawser::transport {

// A slab is one transparent huge page. https://docs.kernel.org/admin-guide/mm/transhuge.html
inline constexpr size_t kSlabBytes = size_t{2} << 20;

// Classes of which a slab holds several buffers.
inline constexpr size_t kSmallClasses = 5;
inline constexpr size_t kSmallClassBytes[kSmallClasses] = {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10};

// Above: four classes to each doubling, so a buffer is at most a quarter larger than what was asked for. Each
// buffer is a region of its own.
inline constexpr size_t kLargeBase = 256 << 10;
inline constexpr size_t kLargeClasses = 4 * 16;  // Up to 16 GiB.
inline constexpr size_t kSizeClasses = kSmallClasses + kLargeClasses;

inline bool IsSmall(size_t size_class) { return size_class < kSmallClasses; }

inline size_t ClassBytes(size_t size_class) {
  if (IsSmall(size_class)) return kSmallClassBytes[size_class];
  const size_t step = size_class - kSmallClasses;
  const size_t base = kLargeBase << (step / 4);
  return base + (step % 4 + 1) * (base / 4);
}

// What is mapped and registered at once for buffers of the class.
inline size_t RegionBytes(size_t size_class) {
  return IsSmall(size_class) ? kSlabBytes : ClassBytes(size_class);
}

// kSizeClasses: too large for any.
inline size_t ClassOf(size_t size_bytes) {
  for (size_t i = 0; i < kSmallClasses; ++i) {
    if (size_bytes <= kSmallClassBytes[i]) return i;
  }
  size_t size_class = kSmallClasses;
  while (size_class < kSizeClasses && ClassBytes(size_class) < size_bytes) ++size_class;
  return size_class;
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SIZE_CLASS_H_
