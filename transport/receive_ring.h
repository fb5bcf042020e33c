#ifndef HAWSER_TRANSPORT_RECEIVE_RING_H_
#define HAWSER_TRANSPORT_RECEIVE_RING_H_

#include <cstdint>
#include <vector>

#include "hawser/transport/buffer_pool.h"
#include "hawser/transport/memory_queue.h"

namespace hawser::transport {

class Port;

// The receives of one connection: as many as the peer may send messages before it has to wait for us (a
// message for each slot, one control request, one answer to ours) and some to spare, so an honest peer never
// meets RNR. A received message takes its buffer along; the ring is refilled from the pool, so code that
// keeps a message starves no other. What there is to spare is posted anew in one chain when all of it is used
// up, which spares small calls a post each.
// Thread:   on the poller.
class ReceiveRing final : public MemoryQueue::Waiter {
 public:
  explicit ReceiveRing(Port& port) : port_(port) {}

  // What a ring of so many slots leases from the pool.
  static uint64_t LeasedBytes(uint32_t slots, uint32_t buffer_bytes);

  // Returns the receive depth that the queue pair needs.
  uint32_t Size(uint32_t slots, uint32_t buffer_bytes);

  // Posts what is missing, as one chain. False: the pool has no memory now (see Connection::Flush()). A
  // failed post fails the connection.
  bool Refill();
  // Refills it when the pool has memory, and then marks the connection for a flush.
  void RefillLater();

  // The buffer of entry `number`, which has completed. Null: there is no such receive.
  Lease Take(uint32_t number);

  // The queue pair is no more: none is posted.
  void Abandon();

  // All that there was to spare has been used up.
  bool wants_refill() const { return missing_.size() >= spare_; }
  uint32_t posted() const { return static_cast<uint32_t>(entries_.size() - missing_.size()); }

 private:
  bool OnMemory(Shortage& why) override;
  bool Refill(Shortage& why);

  Port& port_;
  uint32_t buffer_bytes_ = 0;
  size_t spare_ = 1;
  std::vector<Lease> entries_;
  std::vector<uint32_t> missing_;  // Entries with no receive posted.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_RECEIVE_RING_H_
