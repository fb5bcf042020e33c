#ifndef HAWSER_RPC_INTERNAL_RAW_PORT_H_
#define HAWSER_RPC_INTERNAL_RAW_PORT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/unique_fd.h"
#include "hawser/measure/raw_socket.h"

namespace hawser::internal {

// A TCP port that serves one connection without Hawser, for a client that measures what the network alone takes.
//
// The connection is the first one that comes from the right host and begins with the token. Others are closed: those of
// other hosts at once, the oldest of this host when more than kUnknownMax have not sent the whole token yet.
// Thread:   any. A thread of its own waits for the connection and serves it.
// Lifetime: the destructor ends the connection, and joins the thread.
// Failure:  what a peer does wrong ends its connection.
class RawPort {
 public:
  using Token = std::array<uint8_t, 16>;
  static constexpr size_t kUnknownMax = 16;
  // What the peer may ask for at once (measure::ServeRaw()).
  static constexpr uint64_t kBytesMax = 16 << 20;

  struct Options {
    SocketAddress address;  // Its port is not used.
    PeerHost host;          // Where the connection comes from.
    Token token = {};
    measure::RawService service = measure::RawService::kEcho;
    bool spin = false;
    absl::Duration accept_time = absl::Seconds(5);  // Within which the token has to be there.
    absl::Time deadline;                            // For its owner, which calls Stop() then.
  };

  // `on_end` runs once, on the thread of the port, as the last thing that it does. ResourceExhausted: the system has no thread
  // or file for it. Or another error of socket(2), bind(2), with the address.
  static absl::StatusOr<std::unique_ptr<RawPort>> Open(const Options& options, std::function<void()> on_end);
  ~RawPort();
  RawPort(const RawPort&) = delete;
  RawPort& operator=(const RawPort&) = delete;

  uint16_t port() const { return port_; }
  absl::Time deadline() const { return options_.deadline; }
  // It serves no more: the destructor does not wait.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Ends the connection soon.
  void Stop();

 private:
  RawPort(const Options& options, UniqueFd listener, uint16_t port)
      : options_(options), port_(port), listener_(std::move(listener)) {}
  void Run();
  // Not open: the time is over, or Stop() was called.
  UniqueFd Await(int listener);

  const Options options_;
  const uint16_t port_;
  std::atomic<bool> ended_{false};
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  UniqueFd listener_ ABSL_GUARDED_BY(mutex_);  // Closed by the thread.
  int connection_ ABSL_GUARDED_BY(mutex_) = -1;
  std::thread thread_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_INTERNAL_RAW_PORT_H_
