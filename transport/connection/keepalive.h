#ifndef HAWSER_TRANSPORT_CONNECTION_KEEPALIVE_H_
#define HAWSER_TRANSPORT_CONNECTION_KEEPALIVE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/control.h"
#include "hawser/transport/connection/inbound.h"
#include "hawser/transport/connection/port.h"

namespace hawser::transport {

// Detects a dead peer. A dead process is announced by the fabric, a dead host or a cut cable is not: a
// connection on which nothing has arrived for ConnectionOptions::keepalive_interval is pinged, by a control
// exchange, and silence for another keepalive_timeout ends it. Halfway through that it calls the connection's
// owner (ConnectionObserver::OnPeerSilent()), which may find that the peer is only busy.
// Thread:   on the poller.
// Lifetime: a part of its Connection.
class Keepalive {
 public:
  // What it asks of its connection.
  class Source {
   public:
    // A request of this side is under way, and nothing has come since the handshake.
    virtual bool waits_for_first_answer() const = 0;
    // This side accepted a client, which has sent nothing since its handshake.
    virtual bool awaits_first_message() const = 0;
    // Something has come since the handshake.
    virtual bool has_received() const = 0;
    // No exchange is under way.
    virtual bool is_idle() const = 0;
    // See ConnectionObserver::OnPeerSilent(). May close the connection.
    virtual void OnPeerSilent(absl::Duration left) = 0;
    // About once per ConnectionOptions::keepalive_interval, busy or idle.
    virtual void OnInterval() = 0;

   protected:
    ~Source() = default;
  };

  Keepalive(Port& port, Control& control, const Inbounds& inbounds, Source& source);

  // The connection carries traffic. `ping_early`: the peer has yet to show that it is there, and the first
  // ping comes after 100 ms, not after an interval.
  void Start(bool ping_early);
  // The connection no longer carries traffic.
  void Stop() { port_.poller().timers().Cancel(timer_); }

  // Something has arrived, or was acknowledged.
  void OnPeerActivity() { last_receive_ns_ = port_.poller().now_ns(); }
  // When that was last; at first, the start.
  int64_t last_receive_ns() const { return last_receive_ns_; }
  // The control exchange has ended.
  void OnControlAck();
  // See Connection::PeerIsBusy().
  void PeerIsBusy(absl::string_view how);

 private:
  // When the peer is taken for dead if it does not answer the control exchange.
  int64_t SilentUntilNs() const;
  // When OnPeerSilent() is due.
  int64_t AskAtNs() const;
  void OnTimer();

  Port& port_;
  Control& control_;
  const Inbounds& inbounds_;
  Source& source_;
  int64_t last_receive_ns_ = 0;
  int64_t quiet_since_ns_ = 0;      // The silence of a peer that is busy counts from here.
  int64_t busy_since_ns_ = kNever;  // In this silence.
  int64_t late_read_ns_ = kNever;   // For which READ, or for none, late_ counts.
  bool asked_ = false;              // OnPeerSilent() was called for this silence.
  uint8_t late_ = 0;                // How often the timer ran late while the peer owed the same thing.
  Timer timer_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_KEEPALIVE_H_
