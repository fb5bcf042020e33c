#ifndef HAWSER_TESTS_SIM_CALL_RECORD_H_
#define HAWSER_TESTS_SIM_CALL_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/server_context.h"
#include "tests/sim/ledger.rpc.h"

// What a simulated world records of its calls, on both sides, and the rules that they must keep.
namespace hawser::sim {

struct CallRecord;
struct ChannelRecord;

// One run of a handler.
struct Execution {
  enum class End { kRunning, kAnswered, kRefused, kThrew, kDropped };

  CallRecord* call = nullptr;
  uint64_t server_life = 0;
  End end = End::kRunning;
  bool cancelled = false;  // The handler was notified that its caller no longer waits.
  DeferredCall deferred;   // Set while it runs.
};

// One call; never destroyed before the world.
struct CallRecord {
  // The client sends an idempotent call at most three times.
  static constexpr size_t kRunsMax = 3;

  uint64_t id = 0;
  int host = 0;
  bool once = false;  // Its method is not idempotent.
  size_t bytes = 0;
  size_t answer_bytes = 0;
  bool has_metadata = false;
  int64_t deadline_ns = 0;
  bool wait_for_ready = false;
  bool demanded = false;  // Made on a good day, so it must succeed.
  bool cancelled = false;
  bool closed = false;     // Its channel was closed while it was open.
  bool abandoned = false;  // Its host has lost power.
  const ChannelRecord* channel = nullptr;
  std::optional<PendingCall<ledger::Entry>> pending;  // Not set if a coroutine awaits the call.
  std::vector<Execution*> runs;
  int ends = 0;

  bool RanTo(Execution::End end) const;

  // The rule that this end of the call breaks; empty: none.
  std::string CheckAnswer(const Reply<ledger::Entry>& reply) const;
  std::string CheckFailure(const absl::Status& status, int64_t now_ns) const;
  // Likewise the metadata that came, of the request or the answer. Some are short, some do not fit a receive
  // buffer.
  std::string CheckMetadata(MetadataView metadata) const;
  Metadata MakeMetadata() const;
  // The rule that the number of its runs breaks; empty: none.
  std::string CheckRuns() const;
};

// The content of a message of `bytes` bytes; it differs for each `id`.
std::string PatternOf(uint64_t id, size_t bytes);

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_CALL_RECORD_H_
