#ifndef HAWSER_TRANSPORT_POLLER_POLLER_CLIENT_H_
#define HAWSER_TRANSPORT_POLLER_POLLER_CLIENT_H_

#include <cstddef>
#include <cstdint>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {

// What a Poller knows of each connection on it.
// Thread:   on the poller.
// Lifetime: owned by the poller from Poller::Adopt() on.
class PollerClient {
 public:
  virtual ~PollerClient() = default;
  PollerClient(const PollerClient&) = delete;
  PollerClient& operator=(const PollerClient&) = delete;

  // A send queue of this length is posted in the middle of a turn, not at its end.
  static constexpr size_t kLongQueue = 32;

  // A work request has completed whose wr_id names this client (see index()).
  virtual void OnCompletion(const WorkId& id, const fabric::Completion& completion) = 0;
  // Posts what is queued: at the end of a turn in which Poller::MarkForFlush() was called.
  virtual void Flush() = 0;
  // In the middle of such a turn: posts what is queued if that is kLongQueue messages or more, and the peer
  // does not share this core.
  virtual void FlushIfLong() = 0;
  // The poller is being destroyed, and this with it. The observer is not notified.
  virtual void Disconnect() = 0;

  // This client's number in wr_ids. Valid from Adopt() on; used again after this is destroyed.
  uint32_t index() const { return index_; }

 protected:
  PollerClient() = default;

 private:
  friend class PollerClients;

  uint32_t index_ = 0;
  bool marked_for_flush_ = false;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_POLLER_CLIENT_H_
