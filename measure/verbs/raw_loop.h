#ifndef HAWSER_MEASURE_VERBS_RAW_LOOP_H_
#define HAWSER_MEASURE_VERBS_RAW_LOOP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/idle.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// One completion queue, and how a thread waits for it: as a poller of that PollingMode does, but with nothing
// beside.
// Thread:   one at a time, except Stop().
// Lifetime: outlives what is made on completion_queue().
class RawLoop {
 public:
  static absl::StatusOr<std::unique_ptr<RawLoop>> Create(fabric::Fabric& fabric, PollingMode mode);

  fabric::CompletionQueue& completion_queue() { return *queue_; }

  // Polls once, and waits a little if there is nothing; so it may return none. What it returns is valid until
  // the next call. Cancelled: Stop() was called. DeadlineExceeded: the time of set_end() has come, or nothing
  // has happened during that of set_patience().
  absl::StatusOr<absl::Span<const fabric::Completion>> Turn();
  // A handler was called: the caller may find work, so this turn does not wait.
  void OnEvent() { event_ = true; }

  void set_end(int64_t end_ns) { end_ns_ = end_ns; }
  void set_patience(absl::Duration patience) { patience_ = patience; }

  // From any thread: soon Turn() fails.
  void Stop();

 private:
  static constexpr size_t kBatch = 64;
  // Turns without work for each look at the clock, if the mode itself needs none.
  static constexpr uint32_t kTurnsPerLook = 256;

  RawLoop(std::unique_ptr<fabric::CompletionQueue> queue, PollingMode mode);

  std::unique_ptr<fabric::CompletionQueue> queue_;
  Idle idle_;
  std::array<fabric::Completion, kBatch> completions_;
  bool event_ = false;
  uint32_t vain_turns_ = 0;  // Since the last work.
  int64_t quiet_since_ns_ = 0;
  int64_t end_ns_ = kNever;
  absl::Duration patience_ = absl::InfiniteDuration();
  std::atomic<bool> stopped_{false};
};

}  // namespace hawser::transport

#endif  // HAWSER_MEASURE_VERBS_RAW_LOOP_H_
