#ifndef HAWSER_RPC_SERVING_ERROR_SENDER_H_
#define HAWSER_RPC_SERVING_ERROR_SENDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "hawser/rpc/metadata.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/sharing/memory_queue.h"
#include "hawser/transport/wire/exchange.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// Sends the errors of one connection, each of which a caller waits for. When the pool has no memory for them,
// it owes them: they go out in the pool's reserve, shortened, the oldest first and one at a time, so that a
// peer that acknowledges none holds no more of the reserve.
// Thread:   on the poller.
// Lifetime: owned by its ServingConnection.
// Failure:  an error that cannot be sent at all closes the connection, because its caller would wait until
//           the deadline.
class ErrorSender final : transport::MemoryQueue::Waiter {
 public:
  // `poller` outlives this.
  explicit ErrorSender(transport::Poller& poller);
  ~ErrorSender() override;
  ErrorSender(const ErrorSender&) = delete;
  ErrorSender& operator=(const ErrorSender&) = delete;

  // Before Send(): the errors are for `connection`, until OnClosed().
  void Open(transport::Connection& connection) { connection_ = &connection; }
  // The connection is closed. Forgets what it owes.
  void OnClosed();

  // What an error says of the handler.
  enum class Handler : uint8_t {
    kUnsaid,   // It may have run.
    kRefused,  // It was not called: WasSent() is false at the caller, which may call elsewhere, or later.
    kNotRun,   // It was not called, and the connection goes away: the caller may send the call again.
  };
  // Answers the exchange `id` with `status`. `metadata`: nullptr: none, as always with kNotRun. Left out if
  // it cannot be sent.
  void Send(transport::ExchangeId id, const absl::Status& status, Handler handler,
            const Metadata* metadata = nullptr);
  // Errors that have found no memory, and wait until the peer acknowledges the one that is in the reserve.
  // Those that wait for the reserve do not count.
  uint32_t behind_peer() const;

 private:
  // An error that has found no memory.
  struct Owed {
    transport::ExchangeId id;
    absl::Status status;
    Handler handler;
  };
  class ReserveUse;

  // Sends an error in `message`. ResourceExhausted: there was no memory for it.
  absl::Status SendIn(transport::OutgoingMessagePtr message, transport::ExchangeId id,
                      const absl::Status& status, Handler handler, const Metadata* metadata = nullptr);
  // Sends what it owes, as far as there is memory now. False: some still wait, for `why`.
  bool SendOwed(transport::Shortage& why);
  // Sends what is owed, or waits for memory.
  void SendOwedOrWait();
  bool OnMemory(transport::Shortage& why) override { return SendOwed(why); }

  transport::Poller& poller_;
  transport::Connection* connection_ = nullptr;  // Null until Open(), and from OnClosed() on.
  std::vector<Owed> owed_;                       // The oldest first. One a slot at most.
  std::shared_ptr<ReserveUse> reserve_use_;
  transport::Timer owed_timer_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_ERROR_SENDER_H_
