#ifndef HAWSER_TRANSPORT_POLLER_CLIENT_H_
#define HAWSER_TRANSPORT_POLLER_CLIENT_H_

#include <cstddef>
#include <cstdint>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/work_id.h"

namespace hawser::transport {

// What a Poller knows of each connection on it.
// Thread:   on the poller.
// Lifetime: owned by the poller from Poller::Adopt() on.
class PollerClient {
 public:
  virtual ~PollerClient() = default;
  PollerClient(const PollerClient&) = delete;
  PollerClient& operator=(const PollerClient&) = delete;

  // Messages that are posted in the middle of a turn, rather than with all others at its end.
  static constexpr size_t kLongQueue = 32;

  // A work request has completed whose wr_id names this client (see index()).
  virtual void OnCompletion(const WorkId& id, const fabric::Completion& completion) = 0;
  // Posts what is queued: at the end of a turn in which Poller::MarkForFlush() was called.
  virtual void Flush() = 0;
  // In the middle of such a turn: posts what is queued if there are kLongQueue of it.
  virtual void FlushIfLong() = 0;
  // The poller is about to end, and to destroy this.
  virtual void Disconnect() = 0;

  // By which it is named in wr_ids.
  uint32_t index() const { return index_; }

 protected:
  PollerClient() = default;

 private:
  friend class Poller;

  uint32_t index_ = 0;
  bool marked_for_flush_ = false;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_CLIENT_H_
