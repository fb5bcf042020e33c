#ifndef HAWSER_TRANSPORT_CONNECTION_PORT_H_
#define HAWSER_TRANSPORT_CONNECTION_PORT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/violation.h"
#include "hawser/transport/connection/connection_state.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// A connection as its parts (slots, queues, control exchanges) see it.
// Thread:   on the poller.
// Lifetime: a Connection is one, so it outlives its parts.
class Port : public PollerClient {
 public:
  Poller& poller() { return poller_; }
  // Do not call after a flush has timed out (Ending::OnFlushTimer()), which destroys it.
  fabric::QueuePair& queue_pair() { return *queue_pair_; }
  const ConnectionOptions& options() const { return options_; }
  // The minimum of both sides.
  const Handshake& agreed() const { return agreed_; }
  uint64_t peer_message_bytes_max() const { return peer_message_bytes_max_; }
  // Its name in the log, on the status page and in probes: unique in this process, from 1.
  uint64_t number() const { return number_; }
  // "tcp://10.0.0.2:7470".
  const std::string& peer() const { return peer_; }
  const SocketAddress& peer_address() const { return peer_address_; }
  // Who the peer is, as TLS has found, or as it has proved. Not authenticated: neither. Never null.
  const std::shared_ptr<const PeerIdentity>& peer_identity() const { return peer_identity_; }
  // The peer dialed.
  bool accepted() const { return accepted_; }
  // "connection 12 of tcp://10.0.0.7:51234", for the log.
  std::string Name() const;
  // "; " and the argument of Connection::PeerIsBusy(), while the peer stays silent. Otherwise empty.
  const std::string& peer_is_busy() const { return peer_is_busy_; }
  // For the text of an error: "; nothing has come from it for 5 s", and peer_is_busy(). `heard_ns`: when
  // something came over another connection, at the latest.
  [[gnu::cold]] std::string DescribeSilence(int64_t heard_ns = 0) const;

  ConnectionState::State state() const { return state_; }
  // Messages may be sent, and arrive.
  bool carries_traffic() const { return carries_traffic_; }
  // OK until it has failed.
  const absl::Status& why_closed() const { return why_closed_; }

  void SetPeerIsBusy(std::string text) { peer_is_busy_ = std::move(text); }

  // Posts what is queued, at the end of this turn.
  void FlushLater() { poller_.MarkForFlush(this); }

  // The peer broke the protocol: closes the connection, and sends the peer the reason if the fabric can carry
  // it. If the peer dialed, counts and logs the violation. `what`: without the peer's name. Every waiting
  // handler runs before either Fail() returns: check carries_traffic() afterwards.
  void Fail(Violation violation, absl::string_view what, absl::StatusCode code = absl::StatusCode::kDataLoss);
  // The fabric failed, or this side has to give up.
  void Fail(absl::StatusCode code, absl::string_view what);
  // The same; `why` is the whole text.
  virtual void Fail(const absl::Status& why) = 0;
  // When something last came from the peer or its NIC, or, if nothing has, this side was ready.
  virtual int64_t last_receive_ns() const = 0;
  // An exchange has ended: a slot is free. It may be the last exchange of a connection that drains.
  virtual void OnExchangeEnded() = 0;
  // There are more credits for requests.
  virtual void OnCredits() = 0;
  // All wanted receives are posted, or enough to continue.
  virtual void OnReceivesFilled() = 0;
  // Something is about to be READ, by this side or by the peer. What either has to send for that must not
  // wait for a receive, or memory could wait for itself. May fail the connection.
  virtual void OnBulkTransfer() = 0;

 protected:
  Port(Poller& poller, const ConnectionOptions& options)
      : poller_(poller), number_(next_number_.fetch_add(1, std::memory_order_relaxed)), options_(options) {}

  void Move(ConnectionState::Event event);

  Poller& poller_;
  const uint64_t number_;
  const ConnectionOptions options_;
  Handshake agreed_;
  uint64_t peer_message_bytes_max_ = 0;
  std::string peer_;
  SocketAddress peer_address_;
  std::string peer_is_busy_;
  std::shared_ptr<const PeerIdentity> peer_identity_ = OrNotAuthenticated(nullptr);
  bool carries_traffic_ = false;
  bool accepted_ = false;
  ConnectionState::State state_ = ConnectionState::State::kConnecting;
  absl::Status why_closed_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;

 private:
  // They set what the two handshakes say, and what ends.
  friend class Opening;
  friend class Ending;

  static inline std::atomic<uint64_t> next_number_{1};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_PORT_H_
