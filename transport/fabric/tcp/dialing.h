#ifndef HAWSER_TRANSPORT_FABRIC_TCP_DIALING_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_DIALING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/tls/context.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/options.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// How a queue pair dials: the TCP connection, then TLS if it is asked for, then both greetings. It uses the
// queue pair's stream; the queue pair has the state, watches the socket and calls the step that is next.
// Thread:   that of the queue pair.
// Lifetime: owned by its TcpQueuePair, until the queue pair is established; one that fails keeps it, for
//           failure().
// Failure:  a step returns kFailed, and failure() says why. No step follows.
class Dialing {
 public:
  enum class Progress {
    kWaits,       // For the next event of the socket.
    kWantsRead,   // For the next that it can be read,
    kWantsWrite,  // or written.
    kDone,        // The next step can follow.
    kFailed,
  };

  // `tls`: null for none.
  Dialing(std::shared_ptr<tls::Context> tls, std::string tls_host)
      : tls_(std::move(tls)), tls_host_(std::move(tls_host)) {}

  // Starts to connect `stream`, a new socket, from `local` if that is an address. kWantsWrite or kFailed.
  Progress Start(Stream& stream, const SocketAddress& local, const SocketAddress& peer, uint32_t read_depth,
                 absl::string_view private_data);
  // In kConnecting.
  Progress FinishConnect(Stream& stream);
  // In kSecuring. Without TLS it does nothing.
  Progress Secure(Stream& stream, const TcpFabricOptions& options);
  // Then: sends the greeting.
  Progress Greet(Stream& stream);
  // In kGreeting.
  Progress ReadAnswer(Stream& stream);

  // What the peer has answered, and the private data of that.
  const Greeting& answer() const { return greeting_.greeting(); }
  absl::string_view private_data() const { return greeting_.private_data(); }

  const absl::Status& failure() const { return failure_; }
  // The private data with which the peer has rejected; empty if it has not.
  absl::string_view rejection() const { return is_rejected_ ? private_data() : absl::string_view(); }

 private:
  Progress Fail(absl::Status why) {
    failure_ = std::move(why);
    return Progress::kFailed;
  }
  Progress FailToConnect(int error);  // errno
  Progress FailToSecure(const Stream& stream);
  std::string Who() const;  // "connect to 10.0.0.1:7470: "

  const std::shared_ptr<tls::Context> tls_;
  const std::string tls_host_;
  SocketAddress peer_;
  uint32_t read_depth_ = 0;  // Offered.
  std::string greeting_to_send_;
  GreetingReader greeting_{kAcceptPrivateDataMax};
  bool is_rejected_ = false;
  absl::Status failure_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_DIALING_H_
