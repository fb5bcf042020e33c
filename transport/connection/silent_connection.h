#ifndef HAWSER_TRANSPORT_CONNECTION_SILENT_CONNECTION_H_
#define HAWSER_TRANSPORT_CONNECTION_SILENT_CONNECTION_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::transport {

// A connection that carries no message: both sides say in the handshake what they have to say (proof.h), and
// it ends after a time.
// Thread:   on the poller.
// Lifetime: owned by the poller from Poller::Adopt() on, until End() or the end of the poller.
class SilentConnection : public PollerClient, public fabric::ConnectionHandler {
 public:
  ~SilentConnection() override { poller_.timers().Cancel(timer_); }

  // Once; later calls have no effect. OnEnd() is called first.
  void End();

 protected:
  explicit SilentConnection(Poller& poller) : poller_(poller), timer_([this] { OnTimeout(); }) {}

  // Its handshake, but for what the role needs beside it.
  static Handshake Hello(Role role);

  // Makes the queue pair, the smallest that there is, and sets the time for OnTimeout().
  absl::Status Create(absl::Duration timeout, fabric::QueuePairOptions options = {});
  // Not null after Create() has succeeded.
  fabric::QueuePair& queue_pair() { return *queue_pair_; }
  Poller& poller() { return poller_; }
  bool ended() const { return ended_; }

 private:
  virtual void OnTimeout() = 0;
  virtual void OnEnd() = 0;

  // PollerClient
  void OnCompletion(const WorkId&, const fabric::Completion&) final {}
  void Flush() final {}
  void FlushIfLong() final {}
  void Disconnect() final;

  Poller& poller_;
  bool ended_ = false;
  Timer timer_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_SILENT_CONNECTION_H_
