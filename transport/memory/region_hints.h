#ifndef HAWSER_TRANSPORT_MEMORY_REGION_HINTS_H_
#define HAWSER_TRANSPORT_MEMORY_REGION_HINTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hawser::transport {

// Where the regions are that were found last: most one-sided operations use memory next to that of an earlier
// one, and find its region here without a lock.
//
// Each hint is guarded by a version, which is odd while the hint changes. A reader that has seen a new value
// of any field also sees that the version has changed, since each field is stored with release and loaded
// with acquire.
// Thread:   Find(): any. Note() and Forget(): one at a time.
class RegionHints {
 public:
  // The lkey of the region that holds the whole range; 0: it has to be looked up.
  uint32_t Find(const uint8_t* address, size_t length_bytes) const {
    const Hint& hint = HintFor(address);
    const uint32_t version = hint.version.load(std::memory_order_acquire);
    // Wraps if the range begins below the region: too large.
    const uint64_t offset =
        reinterpret_cast<uint64_t>(address) - hint.address.load(std::memory_order_acquire);
    const uint64_t size = hint.size_bytes.load(std::memory_order_acquire);
    const uint32_t lkey = hint.lkey.load(std::memory_order_acquire);
    if (offset >= size || length_bytes > size - offset) return 0;
    return version % 2 == 0 && hint.version.load(std::memory_order_relaxed) == version ? lkey : 0;
  }

  // [region, region + size_bytes) has this lkey; `address` is in it.
  void Note(const uint8_t* address, const uint8_t* region, size_t size_bytes, uint32_t lkey) {
    Store(hints_[IndexOf(address)], reinterpret_cast<uint64_t>(region), size_bytes, lkey);
  }
  // That region is about to go. Nothing in it is in use.
  void Forget(const uint8_t* region) {
    for (Hint& hint : hints_) {
      if (hint.address.load(std::memory_order_relaxed) == reinterpret_cast<uint64_t>(region)) {
        Store(hint, 0, 0, 0);
      }
    }
  }

 private:
  struct Hint {
    std::atomic<uint32_t> version{0};
    std::atomic<uint32_t> lkey{0};
    std::atomic<uint64_t> address{0};
    std::atomic<uint64_t> size_bytes{0};
  };
  // Regions are 2 MiB and more, and each such part of the address space has one hint.
  static constexpr size_t kPartBits = 21;
  static constexpr size_t kHints = 8;

  static size_t IndexOf(const uint8_t* address) {
    return (reinterpret_cast<uint64_t>(address) >> kPartBits) % kHints;
  }
  const Hint& HintFor(const uint8_t* address) const { return hints_[IndexOf(address)]; }
  static void Store(Hint& hint, uint64_t address, uint64_t size_bytes, uint32_t lkey) {
    const uint32_t version = hint.version.load(std::memory_order_relaxed);
    hint.version.store(version + 1, std::memory_order_relaxed);
    hint.address.store(address, std::memory_order_release);
    hint.size_bytes.store(size_bytes, std::memory_order_release);
    hint.lkey.store(lkey, std::memory_order_release);
    hint.version.store(version + 2, std::memory_order_release);
  }

  std::array<Hint, kHints> hints_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_MEMORY_REGION_HINTS_H_
