#ifndef HAWSER_TRANSPORT_GRANTS_H_
#define HAWSER_TRANSPORT_GRANTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "hawser/transport/message.h"

namespace hawser::transport {

class Port;
class SendQueue;

// What the peer may READ of one message: the rkeys, to be revoked when it needs them no more.
class Grants {
 public:
  Grants() = default;
  Grants(const Grants&) = delete;
  Grants& operator=(const Grants&) = delete;

  bool empty() const { return rkeys_.empty(); }
  void Add(uint32_t rkey) { rkeys_.push_back(rkey); }

 private:
  friend class Revocations;
  absl::InlinedVector<uint32_t, 2> rkeys_;
};

// Grants that are being taken back, with the messages they are of. A NIC takes its time over it, so a message
// is let go only when the last of its grants is gone.
// Thread:   on the poller.
class Revocations {
 public:
  Revocations(Port& port, SendQueue& sends) : port_(port), sends_(sends) {}

  // The peer needs `message`, of work request `number`, no more: it is kept until the fabric does not either.
  void LetGo(OutgoingMessagePtr&& message, uint32_t number, Grants& grants);
  // The peer was never told of `grants`.
  void TakeBack(Grants& grants);

  // One grant of entry `index` is gone.
  void OnCompletion(uint32_t index);

  // The queue pair is no more, and so are its grants.
  void Abandon();

  // The fabric has not said of all of them yet that they are gone.
  bool pending() const { return free_.size() != entries_.size(); }

 private:
  struct Entry {
    OutgoingMessagePtr message;
    uint32_t number;
    uint32_t grants_left = 0;
  };

  // Takes back all of `grants`, which are not empty. `message`, of work request `number`, is kept until that
  // is done and the work request is proved; null: there is nothing to keep.
  void Start(Grants& grants, OutgoingMessagePtr message, uint32_t number);

  Port& port_;
  SendQueue& sends_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_GRANTS_H_
