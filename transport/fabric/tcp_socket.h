#ifndef HAWSER_TRANSPORT_FABRIC_TCP_SOCKET_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_SOCKET_H_

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "hawser/transport/fabric/socket_address.h"
#include "hawser/transport/fabric/tcp_options.h"

namespace hawser::fabric {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// "connection refused (ECONNREFUSED)".
std::string DescribeErrno(int error);

// A non-blocking TCP socket that dies with exec(), with the buffer sizes of `options`. ResourceExhausted: no
// file descriptor left. InvalidArgument: `family` is neither IPv4 nor IPv6, or this machine does not have it.
absl::StatusOr<UniqueFd> OpenSocket(int family, const TcpFabricOptions& options);

// What a socket that carries frames needs: no delay for small ones, little queued before them, an end to
// retransmissions.
void PrepareForFrames(int fd, const TcpFabricOptions& options);

SocketAddress LocalAddress(int fd);
SocketAddress PeerAddress(int fd);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_SOCKET_H_
