#ifndef HAWSER_BASE_CURSOR_RING_H_
#define HAWSER_BASE_CURSOR_RING_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

namespace hawser {

// A ring of elements that are counted from 0, modulo 2^32; a cursor is such a count. Its owner keeps the
// cursors of the first element and of the end. The ring grows with use and can shrink again, since most
// connections are idle. It initializes no element that T's constructor does not.
template <typename T>
class CursorRing {
 public:
  CursorRing() : elements_(new T[kFirstPlaces]) {}

  T& operator[](uint32_t cursor) { return elements_[cursor & mask_]; }
  const T& operator[](uint32_t cursor) const { return elements_[cursor & mask_]; }

  // A power of two.
  uint32_t places() const { return mask_ + 1; }

  // Makes room for `count` elements behind [first, end). May move all of them.
  void Reserve(uint32_t first, uint32_t end, uint32_t count) {
    if (end - first + count > places()) Resize(first, end, end - first + count);
  }
  // Frees places, as far as those in [first, end) allow. May move all of them.
  void Trim(uint32_t first, uint32_t end) { Resize(first, end, end - first); }

 private:
  static constexpr uint32_t kFirstPlaces = 4;  // A power of two.

  [[gnu::noinline]] void Resize(uint32_t first, uint32_t end, uint32_t places) {
    const uint32_t mask = std::bit_ceil(std::max(places, kFirstPlaces)) - 1;
    if (mask == mask_) return;
    std::unique_ptr<T[]> resized(new T[mask + 1]);
    for (uint32_t cursor = first; cursor != end; ++cursor) resized[cursor & mask] = (*this)[cursor];
    elements_ = std::move(resized);
    mask_ = mask;
  }

  uint32_t mask_ = kFirstPlaces - 1;
  std::unique_ptr<T[]> elements_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_CURSOR_RING_H_
