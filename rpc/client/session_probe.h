#ifndef HAWSER_RPC_CLIENT_SESSION_PROBE_H_
#define HAWSER_RPC_CLIENT_SESSION_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

// Asks a server about a session whose connection is silent. It dials a connection of its own
// (transport::Role::kProbe), which the server rejects; the rejection is the answer. The server's listening
// poller gives it, which no handler can hold.
// Thread:   on the poller.
// Lifetime: its owner keeps it until OnProbeEnded().
class SessionProbe final : transport::ConnectionObserver {
 public:
  class Owner {
   public:
    // Once. Aborted: the server lives, but the session's poller is held; the text says by what. NotFound: the
    // server has no such session. Anything else: it is not busy, does not answer, or knows no probes.
    virtual void OnProbeAnswer(const absl::Status& answer) = 0;
    // Once, the last call. The owner may destroy the probe here.
    virtual void OnProbeEnded() = 0;

   protected:
    ~Owner() = default;
  };

  SessionProbe(transport::Poller& poller, Owner& owner) : poller_(poller), owner_(owner) {}
  SessionProbe(const SessionProbe&) = delete;
  SessionProbe& operator=(const SessionProbe&) = delete;

  // `options`, `security`: of the silent connection. Not OK: it did not start, and the owner is not called.
  absl::Status Dial(const SocketAddress& address, const transport::ConnectionOptions& options,
                    const transport::SessionToken& session, absl::Duration give_up_after,
                    const transport::Security& security);
  void Close();

 private:
  // transport::ConnectionObserver
  void OnReady(const transport::Handshake& peer) override;
  void OnLost(const absl::Status& why) override;
  void OnClosed(const absl::Status& why) override;

  transport::Poller& poller_;
  Owner& owner_;
  transport::Connection* connection_ = nullptr;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_SESSION_PROBE_H_
