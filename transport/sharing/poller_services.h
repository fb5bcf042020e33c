#ifndef HAWSER_TRANSPORT_SHARING_POLLER_SERVICES_H_
#define HAWSER_TRANSPORT_SHARING_POLLER_SERVICES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "hawser/transport/clock/timer.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {

// What a Poller offers to its own parts (ReadBudget, MemoryQueue, ReadAdmission): clock, timers, memory.
// Thread: on the poller, but for WakeDriver().
class PollerServices {
 public:
  PollerServices(const PollerServices&) = delete;
  PollerServices& operator=(const PollerServices&) = delete;

  // The clock as of this turn: read at its start and after a number of handlers, not each time, since reading
  // a clock costs as much as parsing a message. A handler that runs long does not see it move.
  int64_t now_ns() const { return now_ns_; }
  Timers& timers() { return timers_; }
  // Completions may wait that this turn has not taken. A peer that sends without end can have it so for ever:
  // what waits until it is over needs a bound, as WatchInterval has one.
  bool behind() const { return more_waiting_; }
  MessagePool& messages() { return *messages_; }
  fabric::CompletionQueue& completion_queue() { return *completion_queue_; }

  // Ends the wait of the thread that drives the poller, or its next one. From any thread.
  void WakeDriver() { completion_queue_->Wake(); }

 protected:
  PollerServices(std::shared_ptr<fabric::Fabric> fabric, std::shared_ptr<MessagePool> messages,
                 int64_t now_ns)
      : fabric_(std::move(fabric)), messages_(std::move(messages)), now_ns_(now_ns) {}
  ~PollerServices() = default;

  // Destroyed in reverse order: the completion queue before its fabric.
  const std::shared_ptr<fabric::Fabric> fabric_;
  const std::shared_ptr<MessagePool> messages_;
  std::unique_ptr<fabric::CompletionQueue> completion_queue_;
  int64_t now_ns_;
  bool more_waiting_ = false;  // The last poll had as many as were asked for.
  Timers timers_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_SHARING_POLLER_SERVICES_H_
