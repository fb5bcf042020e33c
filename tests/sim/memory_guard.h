#ifndef HAWSER_TESTS_SIM_MEMORY_GUARD_H_
#define HAWSER_TESTS_SIM_MEMORY_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hawser::sim {

// Watches the memory that a fabric owns, from post to completion. Meanwhile no other code may write to it,
// nor read memory that the fabric has yet to fill.
//
// Ranges that overlap another guarded one are not watched, because their content then depends on both.
// Thread: any; the caller holds the network's lock.
class MemoryGuard {
 public:
  // 0: not watched. Guards are numbered from 1.
  using Id = uint64_t;

  // The fabric reads from there until Release(). ReleaseAllOf(`owner`) ends all guards of one owner.
  Id WatchSource(const uint8_t* address, size_t length_bytes, uint32_t owner);
  // The fabric will write there. Until then the memory holds poison. If the fabric does not write, Release()
  // restores the old content.
  Id Poison(uint8_t* address, size_t length_bytes, uint32_t owner);

  // The fabric itself writes into [address, +length_bytes), which belongs to the guard `own`, or to none.
  void FabricWrites(uint8_t* address, const uint8_t* data, size_t length_bytes, Id own);

  // Ends the guard. Returns the violation; empty: none.
  std::string Release(Id id);
  void ReleaseAllOf(uint32_t owner);

  size_t count() const { return guards_.size(); }

 private:
  struct Guard {
    uint8_t* address;
    size_t length_bytes;
    uint32_t owner;
    bool poisoned;
    uint64_t hash;                                   // The hash of a source.
    std::vector<uint8_t> before;                     // The old content of poisoned memory.
    std::vector<std::pair<size_t, size_t>> written;  // Written by the fabric: [from, to).
  };
  bool Overlaps(const uint8_t* address, size_t length_bytes) const;
  Id Add(Guard guard);

  Id last_ = 0;
  std::map<Id, Guard> guards_;
  std::map<const uint8_t*, Id> by_start_;  // They do not overlap.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_MEMORY_GUARD_H_
