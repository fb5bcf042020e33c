#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_EXECUTING_VERBS_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_EXECUTING_VERBS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/rings.h"

namespace hawser::fabric {

// A device in memory: a VerbsLibrary whose work requests are executed, so that both ends of a connection in
// one process talk to each other, without a driver. (FakeVerbs executes nothing, and completes what a test
// says.) It serves the loopback addresses of IPv4, as the device "fake0", and checks what a NIC cannot: a
// work request that overflows its queue, and a completion that overflows its own, end the process.
//
// A work request is executed when it is posted. Its SEND finds a receive or fails at once (RNR): nothing is
// tried again. A READ or WRITE that is not granted fails, and both queue pairs with it.
// Thread:   any. There is one such object at a time.
class ExecutingVerbs {
 public:
  struct Options {
    bool windows = true;  // Memory windows of type 2B.
    // The driver moves the queue pair of the side that dials, all work requests have completions, a queue
    // pair that the program has moved to IBV_QPS_ERR takes none, and what a READ fills must be registered for
    // REMOTE_WRITE.
    bool iwarp = false;
    // The driver takes dma-bufs. A file that can be mapped is one here: the device maps it by itself, and
    // accesses that mapping, whatever is mapped at the address that work requests name.
    bool dmabufs = true;
    bool on_demand = true;  // Memory that is registered with IBV_ACCESS_ON_DEMAND.
  };

  // What a device was asked for.
  struct Counts {
    uint64_t work_requests = 0;  // Of send queues and receive queues.
    uint64_t completions = 0;    // That were polled.
    uint64_t doorbells = 0;      // Calls of ibv_post_send() and ibv_post_recv().
    // Calls that a NIC's driver makes a command to the firmware of: ibv_create_qp(), ibv_modify_qp(),
    // ibv_destroy_qp(), ibv_reg_mr(), ibv_dereg_mr(), ibv_alloc_mw(), ibv_dealloc_mw().
    uint64_t commands = 0;
  };

  explicit ExecutingVerbs(const Options& options);
  ~ExecutingVerbs();
  ExecutingVerbs(const ExecutingVerbs&) = delete;

  const VerbsLibrary& library() const;

  // What the calling thread asks for from now on is added to `counts`; null: to nothing.
  static void CountIn(Counts* counts);

  struct QueuePairState {
    rings::QueuePairShape shape;  // As it was asked for.
    uint64_t receive_bytes = 0;   // Of its posted receives.
  };
  // In the order of their creation.
  std::vector<QueuePairState> queue_pairs() const;
  // Memory that is registered for READs of peers alone: grants of a fabric without windows.
  size_t registered_grants() const;

  // The next call of ibv_post_send() with more work requests than this takes so many, executes them, and
  // fails at the one behind them. Those after it do not.
  void FailOnePostAt(size_t work_request);

  class Device;

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_EXECUTING_VERBS_H_
