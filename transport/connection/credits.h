#ifndef HAWSER_TRANSPORT_CONNECTION_CREDITS_H_
#define HAWSER_TRANSPORT_CONNECTION_CREDITS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "hawser/transport/connection/receive_ring.h"
#include "hawser/transport/wire/handshake.h"

// How many requests a peer may have in flight at once, where its SENDs cannot wait for a receive. A credit is
// one request in flight and the posted receive for it. A connection starts with FirstCredits() and
// never has more than slots:
//
//   requester                                            responder
//   request, "with it L are in flight", all of its L     posts receives for as many again; then the next
//   credits                                              message says how many credits were ever given
//   return: a SEND of nothing else, when it has not      does not post the receive again
//   used the credit for a while
//
// Header::credits carries it. What the responder says is a sum that only grows, modulo 2^16, and what the
// requester returns it counts itself. So a sum that crosses returns on the way means the same to both sides.
// Credits become fewer only by the requester's own act: it knows first what it does not need, and a receive
// cannot be withdrawn from a queue pair, but its SEND uses one up.
//
// Without kFeatureCredits there is a credit for each slot, and Header::credits is always 0.
// Thread: on the poller.
namespace hawser::transport {

// At the side that answers requests.
class CreditGiver {
 public:
  // `ring` has ReceiveRing::Kind::kCredits if they are `agreed`.
  CreditGiver(ReceiveRing& ring, uint32_t slots, bool agreed)
      : ring_(ring),
        slots_(slots),
        agreed_(agreed),
        limit_(agreed ? FirstCredits(slots) : slots),
        wanted_(limit_),
        given_(agreed ? static_cast<uint16_t>(limit_) : uint16_t{0}),
        advertised_(given_) {}

  // Requests that the peer may have in flight now.
  uint32_t limit() const { return limit_; }
  // limit(), and those for which receives wait for memory.
  uint32_t wanted() const { return wanted_; }

  bool agreed() const { return agreed_; }

  // Header::credits of every message to the peer: queuing a message advertises them.
  uint16_t given() const { return given_; }
  void OnAdvertised() { advertised_ = given_; }
  bool has_news() const { return advertised_ != given_; }

  // A request came that says `in_flight`; with it this side has `unanswered` ones. Gives more if all credits
  // are in use and the pool has memory; a post that fails fails the connection. DataLoss: the peer had no
  // credit for it; the text goes behind the peer's name.
  absl::Status OnRequest(uint16_t in_flight, uint32_t unanswered) {
    if (!agreed_ && in_flight == 0) [[likely]]
      return absl::OkStatus();
    if (in_flight == 0 || std::max<uint32_t>(in_flight, unanswered) > limit_ || !agreed_) [[unlikely]] {
      return Refused(in_flight, unanswered);
    }
    if (in_flight == limit_ && wanted_ == limit_ && limit_ < slots_) GiveMore();
    return absl::OkStatus();
  }
  // At the end of a turn: if more were wanted, and there is memory meanwhile, they are given.
  void GiveWhatIsPosted() {
    if (wanted_ != limit_ && ring_.has_allowed()) Give();
  }
  // A return came; errors as above.
  absl::Status OnReturn(uint32_t unanswered);

 private:
  absl::Status Refused(uint16_t in_flight, uint32_t unanswered) const;
  void GiveMore();
  // The receives for wanted_ are posted.
  void Give();

  ReceiveRing& ring_;
  const uint32_t slots_;
  const bool agreed_;
  uint32_t limit_;
  uint32_t wanted_;      // More than limit_: receives for so many wait for memory.
  uint16_t given_;       // Ever, modulo 2^16.
  uint16_t advertised_;  // To the peer.
};

// At the side that sends requests.
class CreditTaker {
 public:
  CreditTaker(uint32_t slots, bool agreed)
      : slots_(slots),
        agreed_(agreed),
        limit_(agreed ? FirstCredits(slots) : slots),
        given_(agreed ? static_cast<uint16_t>(limit_) : uint16_t{0}) {}

  // Requests that may be in flight now.
  uint32_t limit() const { return limit_; }

  // Header::credits of a request with which `in_flight` are; at most limit().
  uint16_t OnRequest(uint32_t in_flight) {
    most_in_flight_ = std::max(most_in_flight_, in_flight);
    return agreed_ ? static_cast<uint16_t>(in_flight) : uint16_t{0};
  }

  // Header::credits of a message of the peer is not news.
  bool knows(uint16_t given) const { return given == given_; }
  // It is. DataLoss: it cannot be right; the text goes behind the peer's name.
  absl::Status Take(uint16_t given);

  // Takes off the credits that were not needed since the last call, with `in_flight` requests now. Returns
  // how many these are: for each of them the caller sends a Kind::kReturn.
  uint32_t TakeOffUnused(uint32_t in_flight);

 private:
  const uint32_t slots_;
  const bool agreed_;
  uint32_t limit_;
  uint16_t given_;               // Ever, modulo 2^16.
  uint32_t most_in_flight_ = 0;  // At once, since the last TakeOffUnused().
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_CREDITS_H_
