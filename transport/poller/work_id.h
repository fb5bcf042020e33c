#ifndef HAWSER_TRANSPORT_POLLER_WORK_ID_H_
#define HAWSER_TRANSPORT_POLLER_WORK_ID_H_

#include <cstdint>

namespace hawser::transport {

// A wr_id: whose work request it is. The one thing that is defined in every completion, good or bad
// (ibv_poll_cq(3)).
struct WorkId {
  enum Kind : uint8_t { kSendQueue = 1, kReceive = 2, kRevocation = 3, kTakenPush = 4 };

  uint32_t connection = 0;  // PollerClient::index(); 24 bits.
  Kind kind = kSendQueue;
  // kSendQueue: of the work request; kReceive: of the ring's entry; kRevocation: of its Outbound; kTakenPush:
  // as Inbounds counts them.
  uint32_t number = 0;

  uint64_t Encode() const { return uint64_t{connection} << 40 | uint64_t{kind} << 32 | number; }
  static WorkId Decode(uint64_t wr_id) {
    return {static_cast<uint32_t>(wr_id >> 40), static_cast<Kind>(wr_id >> 32 & 0xff),
            static_cast<uint32_t>(wr_id)};
  }
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_WORK_ID_H_
