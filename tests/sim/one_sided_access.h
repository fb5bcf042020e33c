#ifndef HAWSER_TESTS_SIM_ONE_SIDED_ACCESS_H_
#define HAWSER_TESTS_SIM_ONE_SIDED_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/transport/memory/user_regions.h"

namespace hawser::sim {

class OneSidedRegion;
struct ChannelRecord;

// A ticket that a simulated client has, and what it gives.
struct OneSidedTicket {
  ChannelRecord* channel = nullptr;
  OneSidedRegion* region = nullptr;
  uint64_t offset = 0;  // In the region.
  uint64_t length = 0;
  uint8_t access = 0;
  bool honest = true;                  // Otherwise it is forged, or of another channel, and gives nothing.
  int losses = 0;                      // Of the channel, when the client asked for it.
  bool counted = false;                // The server counts its WRITEs.
  uint64_t last_word = 0;              // What a compare-and-swap has left.
  std::optional<RemoteMemory> remote;  // Unset: the client has dropped it.

  // The connection that it is for is up.
  bool has_session() const;
};

// One operation of a simulated client on memory of the server, and the rules that it must keep. Never
// destroyed before the world.
struct OneSidedAccess {
  enum class Kind { kRead, kWrite, kCompareSwap, kFetchAdd };
  // What is wrong with it, so that it must fail.
  enum class Wrong { kNothing, kRange, kRight, kAlignment };

  struct Range {
    uint64_t offset = 0;  // In the region.
    uint64_t length = 0;
  };

  uint64_t id = 0;  // From 1: what a fetch-and-add adds, and a compare-and-swap writes.
  int host = 0;
  OneSidedTicket* ticket = nullptr;
  Kind kind = Kind::kRead;
  Wrong wrong = Wrong::kNothing;
  std::vector<Range> ranges;       // For all but a READ: one.
  std::optional<uint64_t> stride;  // The ranges of a READ have this distance.
  uint64_t compare = 0;
  int64_t deadline_ns = 0;
  bool demanded = false;   // On a good day: it must succeed.
  bool cancelled = false;  // By the client.
  bool abandoned = false;  // Its host has lost power.
  bool dropped = false;    // Its RemoteOperation is destroyed, at some time, and its result is lost.
  std::optional<RemoteOperation> pending;
  int ends = 0;
  int64_t ended_ns = 0;

  // Its memory here: of the pool, or the client's own, which may be registered. Once it has ended, it holds
  // kAfterwards in each byte.
  static constexpr uint8_t kAfterwards = 0x5a;
  std::vector<uint8_t> plain;
  Buffer registered;
  transport::UserRegions* own_regions = nullptr;  // Of the client's runtime.
  transport::UserRegion* own_region = nullptr;    // `plain` is registered there. Null: it is not.
  absl::Span<uint8_t> local;

  // ---- For its region.
  std::optional<bool> was_counted;  // Once it has ended. Unset: perhaps.
  size_t since = 0;                 // Changes of the region when it began.
  std::string written;              // What a WRITE writes.
  std::vector<bool> landed;         // The bytes of that which have arrived, or may have.
  bool landed_whole = false;        // All of them.
  bool landed_alone = false;        // Of no other operation is what has arrived.
  uint64_t before = 0;              // Of an atomic that has changed its word: the word before.

  bool changes() const { return kind != Kind::kRead; }
  bool is_atomic() const { return changes() && kind != Kind::kWrite; }
  size_t bytes() const;
  // "WRITE 17 of host 2"
  std::string Name() const;

  bool is_counted() const { return kind == Kind::kWrite && ticket->counted; }

  // Whether it has happened, by what its status says; unset: perhaps.
  std::optional<bool> Happened(const absl::Status& status) const;
  // Likewise whether the server has counted it.
  std::optional<bool> WasCounted(const absl::Status& status) const;
  // The rule that is broken if it ends with `status` at `now_ns`; empty: none.
  std::string CheckStatus(const absl::Status& status, uint64_t server_life, int64_t now_ns) const;
  // Its memory is the client's from now on. The rule that is broken; empty: none.
  std::string ReleaseOwnAndMark();
  // No NIC has touched that since.
  std::string CheckMemory() const;
  void ReleaseMemory();
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_ONE_SIDED_ACCESS_H_
