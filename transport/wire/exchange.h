#ifndef HAWSER_TRANSPORT_WIRE_EXCHANGE_H_
#define HAWSER_TRANSPORT_WIRE_EXCHANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {

// Names one exchange of a connection: the slot that carries it, and which of the slot's exchanges it is. A
// late message about an earlier exchange of the slot does not match.
struct ExchangeId {
  uint16_t slot = 0;
  uint32_t generation = 0;

  friend bool operator==(const ExchangeId& a, const ExchangeId& b) {
    return a.slot == b.slot && a.generation == b.generation;
  }
};

// The side that sent a request.
// Thread:   on the poller.
class ResponseHandler : public OutgoingMessage::Taker {
 public:
  // Called exactly once: the response, or why there is none.
  //   DeadlineExceeded, Cancelled: no longer waited for; the peer may be running it. Unavailable: the
  //   connection was lost; the peer may or may not have run it. ResourceExhausted: no memory for a large
  //   response, or it is larger than we take.
  // While READs into landing() are outstanding it waits for these, also at the deadline, after a cancellation
  // and when the connection is lost: nothing is written there any more when it is called. If they do not
  // complete within the time that bounds all READs, the connection is ended.
  virtual void OnResponse(absl::StatusOr<IncomingMessagePtr>&& response) = 0;

  // The request's name in errors. Static storage.
  virtual absl::string_view name() const { return "a request"; }

  // Where a large response is to be READ to: the longest of its segments that are READ and that fit lands
  // there. Null: nowhere, it takes memory of the pool. Asked when a response is announced that is not an
  // error; the memory is the fabric's from then on, until OnResponse().
  virtual const Landing* landing() const { return nullptr; }

  // The fabric no longer uses `request`, which could be sent again. Called only if one of the two below
  // returned true.
  void OnRequestReturned(OutgoingMessagePtr request) override { (void)request; }
  // Asked before OnResponse(Unavailable). True: OnRequestReturned() follows, after OnResponse().
  virtual bool WantsRequestBack() { return false; }
  // Asked before OnResponse() with a response for which MayReturnRequest() holds (rpc/PROTOCOL.md). True:
  // OnRequestReturned() follows, before or after OnResponse().
  virtual bool WantsRequestBackAfter(const IncomingMessage& error) {
    (void)error;
    return false;
  }

 protected:
  ~ResponseHandler() = default;
};

// The side that answers requests.
// Thread:   on the poller. Each request is answered by exactly one Connection::Respond(), at any time, from
// inside OnRequest() as well.
class RequestHandler {
 public:
  // `request` may be kept as long as the handler likes. `deadline_ns`: of the poller's clock; kNever: none.
  virtual void OnRequest(ExchangeId id, IncomingMessagePtr request, int64_t deadline_ns) = 0;

  // A request could not be received (too large, no memory, deadline passed or cancelled while it was READ).
  // The handler answers it with `why` in its own words.
  virtual void OnBadRequest(ExchangeId id, const absl::Status& why) = 0;

  // The connection drains, and the large request `id` was not, or not completely, READ: the handler answers
  // that it did not run it, so that the caller may send it elsewhere.
  virtual void OnRefusedByDrain(ExchangeId id) {
    OnBadRequest(id, absl::UnavailableError("this side drains and READs no further requests"));
  }

  // The caller of `id` no longer waits: it has cancelled, its deadline has passed, or the connection is lost
  // (Unavailable; then no answer is needed). Called at most once, and only between OnRequest() and Respond().
  // The slot is busy until Respond(), which may be called in here.
  virtual void OnCancel(ExchangeId id, const absl::Status& why) = 0;

  // Of the exchanges that this is to answer: those whose answer is ready, an error that goes out when the
  // peer has acknowledged another one. Asked while the connection drains, and the peer of all of these is not
  // waited for if it stands still.
  virtual uint32_t answers_behind_peer() const { return 0; }

 protected:
  ~RequestHandler() = default;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WIRE_EXCHANGE_H_
