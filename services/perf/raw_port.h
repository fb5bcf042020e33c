#ifndef HAWSER_SERVICES_PERF_RAW_PORT_H_
#define HAWSER_SERVICES_PERF_RAW_PORT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/socket_address.h"
#include "hawser/rpc/options.h"

namespace hawser::internal {

// A port that serves one connection without Hawser, for a client that measures what the network alone takes.
// The connection comes from the host of the client, and shows the token.
// Thread:   any. A thread of its own waits for the connection and serves it.
// Lifetime: the destructor ends the connection, and joins the thread.
// Failure:  what a peer does wrong ends its connection.
class RawPort {
 public:
  using Token = std::array<uint8_t, 16>;

  struct Options {
    SocketAddress address;  // Its port is not used.
    PeerHost host;          // Where the connection comes from.
    Token token = {};
    PollingMode polling = PollingMode::kAdaptive;   // Sockets spin, or are waited for in the kernel.
    absl::Duration accept_time = absl::Seconds(5);  // Within which the token has to be there.
    absl::Time deadline;                            // For its owner, which calls Stop() then.
  };

  virtual ~RawPort() = default;
  RawPort(const RawPort&) = delete;
  RawPort& operator=(const RawPort&) = delete;

  uint16_t port() const { return port_; }
  const PeerHost& host() const { return options_.host; }
  absl::Time deadline() const { return options_.deadline; }
  // It serves no more: the destructor does not wait.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Ends the connection soon.
  virtual void Stop() = 0;

 protected:
  RawPort(const Options& options, uint16_t port) : options_(options), port_(port) {}

  const Options& options() const { return options_; }

  // `on_end` runs once, on the thread of the port, as the last thing that it does. ResourceExhausted: the
  // system has no thread.
  absl::Status Start(std::function<void()> on_end);
  // For the destructor of what has Run(), after Stop().
  void Join();

 private:
  // On the thread of the port: waits for the connection and serves it.
  virtual void Run() = 0;

  const Options options_;
  const uint16_t port_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace hawser::internal

#endif  // HAWSER_SERVICES_PERF_RAW_PORT_H_
