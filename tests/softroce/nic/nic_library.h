#ifndef HAWSER_TESTS_SOFTROCE_NIC_NIC_LIBRARY_H_
#define HAWSER_TESTS_SOFTROCE_NIC_NIC_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/tests/softroce/nic/nic_behavior.h"
#include "hawser/transport/fabric/verbs/library.h"

namespace hawser::fabric {

struct NicOptions {
  NicBehavior behavior;
  uint32_t seed = 1;

  // By which what is late arrives. A test may have one that stands still.
  static int64_t MonotonicNs();
  int64_t (*now_ns)() = MonotonicNs;
};

// A table of verbs functions that call those of another table, and behave like a NIC where that one's device,
// rxe or siw, does not:
//
// - What the NIC's provider refuses is refused, and ibv_query_device() reports its limits.
// - READ depths that the driver does not carry arrive as 0.
// - Creating, moving and destroying queue pairs, registrations and windows takes 50 to 200 us.
// - Completions arrive up to half a millisecond late, in any order, but those of one send queue or one
//   receive queue in the order of the device, and before the event that the peer has disconnected. What a
//   queue pair flushes arrives in pieces, for some milliseconds. ibv_poll_cq() may return less than was asked
//   for.
// - One completion event stands for many completions. Some come for none.
// - The side that accepts sees ESTABLISHED after its first receive, or 10 ms late.
// - Rings and registrations are pinned memory, which has a limit.
//
// Stops the process with a message on what a NIC would wait for for ever, or corrupt memory by:
// unacknowledged events of a completion queue that is destroyed, a protection domain or a device that is
// closed before its objects, and a queue pair destroyed beside a poll where the provider does not allow that.
// Over iWARP, too, on a READ into what is not registered for REMOTE_WRITE.
//
// It finds out whether a completion is one of a receive by its wr_id, so those of one queue pair's sends and
// receives must differ.
// Thread:   any. There is one at a time in a process.
class NicLibrary {
 public:
  // `real` must outlive it.
  NicLibrary(const VerbsLibrary& real, const NicOptions& options);
  ~NicLibrary();
  NicLibrary(const NicLibrary&) = delete;
  NicLibrary& operator=(const NicLibrary&) = delete;

  const VerbsLibrary& library() const { return library_; }

  // For rings of queue pairs and completion queues, and for registrations, each counted as often as it is
  // registered. What goes beyond fails with ENOMEM. At first there is no limit.
  void SetMemlock(uint64_t bytes);
  // The post of the `count`-th send work request from now, counted from 1, fails with ENOMEM.
  void FailSend(uint64_t count);

  uint64_t pinned_bytes() const;
  size_t objects() const;  // What was opened, created, registered or allocated, and not the opposite since.

 private:
  friend struct NicCalls;
  class State;

  const std::unique_ptr<State> state_;
  VerbsLibrary library_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_SOFTROCE_NIC_NIC_LIBRARY_H_
