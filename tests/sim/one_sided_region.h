#ifndef HAWSER_TESTS_SIM_ONE_SIDED_REGION_H_
#define HAWSER_TESTS_SIM_ONE_SIDED_REGION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "hawser/rpc/arrival_counter.h"
#include "hawser/rpc/shared_memory.h"

namespace hawser::sim {

struct OneSidedAccess;

// Memory of a simulated server that clients reach by themselves, and all that it has ever held. The network
// reports each access of a NIC to it, so that every change has an operation as its cause.
//
// Its first words are for fetch-and-add, the next ones for compare-and-swap, and the others for WRITEs of
// clients and for the server's own writes. All can be read.
class OneSidedRegion {
 public:
  static constexpr size_t kBytes = 4096;
  static constexpr size_t kWordBytes = 8;
  static constexpr size_t kAddBytes = 4 * kWordBytes;  // For fetch-and-add.
  static constexpr size_t kDataFrom = 2 * kAddBytes;   // Behind those for compare-and-swap.

  // `own`: the memory, if it is the program's; empty: the library has made it.
  OneSidedRegion(uint64_t id, uint64_t server_life, std::vector<uint8_t> own, SharedMemory memory);

  uint64_t id() const { return id_; }
  uint64_t server_life() const { return server_life_; }
  // Unset: it was destroyed.
  std::optional<SharedMemory>& memory() { return memory_; }
  bool is_own() const { return !own_.empty(); }
  // Counts WRITEs of some of its tickets.
  const ArrivalCounter& counter() const { return counter_; }

  // Revoke() was called, or the destructor: operations may be refused.
  bool refused = false;
  // Revoke() has returned, or the server has ended: no NIC may touch it any more.
  bool unreachable = false;

  // Whether an access to [address, +length_bytes) is one to it, or to a part of it and to what is beside it.
  // Memory that the library has made and unmapped is none any more: something else may be at its address.
  bool Has(const uint8_t* address, size_t length_bytes) const {
    if (memory_.has_value() || is_own())
      return address < address_ + kBytes && address_ < address + length_bytes;
    return !unreachable && Contains(address, length_bytes);
  }

  // ---- What changes it. Each returns the rule that is broken; empty: none.

  // The server writes there. It may no more once the region was destroyed.
  void OwnerWrites(size_t offset, absl::Span<const uint8_t> bytes);
  // A NIC has changed or read this, which it Has().
  std::string OnAccess(const uint8_t* address, size_t length_bytes, bool writes);

  // ---- Operations. One begins, and ends with `happened`: yes, no, or unset for perhaps.

  void Begin(OneSidedAccess& access);
  std::string End(OneSidedAccess& access, std::optional<bool> happened);
  // What a READ has returned: words that were there at some time since it began.
  std::string CheckRead(const OneSidedAccess& access) const;

  // Of counted WRITEs: no more are counted than all of which is there, and none when nothing can reach it.
  std::string CheckCount();
  // At the end: it has counted each of `sure` once, perhaps some of `perhaps`, and nothing else.
  std::string CheckFinalCount(uint64_t sure, uint64_t perhaps) const;

  // The memory itself is as the reported changes have left it.
  std::string CheckContent() const;

 private:
  // The word had this value before a change.
  struct Change {
    size_t word;
    uint64_t before;
  };

  bool Contains(const uint8_t* address, size_t length_bytes) const {
    return address >= address_ && address + length_bytes <= address_ + kBytes;
  }
  uint64_t WordInMemory(size_t word) const;
  void Record(size_t offset, size_t length_bytes);
  bool WasHeld(size_t word, uint64_t value, uint64_t mask, size_t since) const;
  std::string OnWrite(size_t offset, size_t length_bytes);
  std::string OnAtomic(size_t offset, size_t length_bytes);
  std::string Name() const;

  const uint64_t id_;
  const uint64_t server_life_;
  std::vector<uint8_t> own_;
  std::optional<SharedMemory> memory_;
  uint8_t* const address_;
  std::vector<uint64_t> words_;            // As they are now.
  std::vector<Change> changes_;            // All of them, the oldest first.
  std::vector<OneSidedAccess*> changers_;  // That may still change it.
  ArrivalCounter counter_;
  uint64_t landed_counted_ = 0;         // Counted WRITEs all of which is there, or may be.
  std::optional<uint64_t> last_count_;  // Once it is unreachable.
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_ONE_SIDED_REGION_H_
