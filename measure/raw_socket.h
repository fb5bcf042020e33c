#ifndef HAWSER_MEASURE_RAW_SOCKET_H_
#define HAWSER_MEASURE_RAW_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/unique_fd.h"

// The floor of what Hawser does over TCP: what the same bytes cost over a socket with nothing in between.
// Here is the socket, and the side that serves; raw_floor.h has the side that measures.
namespace hawser::measure {

// A TCP socket on which one thread waits, blocked in the kernel or spinning on it.
// Thread: one.
class RawSocket {
 public:
  // Sets TCP_NODELAY.
  explicit RawSocket(UniqueFd fd);
  // Blocks until it is connected. The error of connect(2), with the address. A peer that takes nothing, or
  // sends nothing, for `patience` counts as closed from then on.
  static absl::StatusOr<RawSocket> Connect(const SocketAddress& to,
                                           absl::Duration patience = absl::InfiniteDuration());

  // Exactly `size` bytes; false when the peer has closed. `spin`: never sleeps in the kernel.
  bool Receive(void* data, size_t size, bool spin);
  // At least one byte, at most `size`; 0 when the peer has closed.
  size_t ReceiveSome(void* data, size_t size, bool spin);
  // What is there already, at most `size`; 0: nothing, or the peer has closed.
  size_t ReceiveReady(void* data, size_t size);
  // All of it; false when the peer has closed.
  bool Send(const void* data, size_t size, bool spin);

  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  absl::Duration patience_ = absl::InfiniteDuration();
};

// What a raw socket does for its peer until that closes.
enum class RawService : uint64_t {
  kEcho,      // Sends back every byte that it gets, as many at a time as there are.
  kPingPong,  // Takes a number N of 8 bytes, then sends back N bytes when it has all of them, repeatedly.
  kSink,      // Takes a number N of 8 bytes and N bytes, then sends one byte, repeatedly.
  kSource,    // Takes a number N of 8 bytes, then sends N bytes, repeatedly.
};

// Serves `socket`. Returns when the peer has closed, or has said a number above `bytes_max`: so many bytes of
// memory it takes at most.
void ServeRaw(RawSocket& socket, RawService service, bool spin, uint64_t bytes_max);

}  // namespace hawser::measure

#endif  // HAWSER_MEASURE_RAW_SOCKET_H_
