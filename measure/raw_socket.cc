#include "hawser/measure/raw_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/base/describe_errno.h"

namespace hawser::measure {
namespace {

// As much as kEcho receives at once.
constexpr size_t kEchoBytes = 256 << 10;

// How long one wait for the peer may go on.
class Patience {
 public:
  Patience(absl::Duration most, bool spin) : most_(most), spin_(spin) {}

  // After a call on the socket has failed.
  bool MayTryAgain() {
    if (errno == EINTR) return true;
    if (errno != EAGAIN) return false;
    // A call that blocks has this error when SO_RCVTIMEO or SO_SNDTIMEO is over.
    if (!spin_) return most_ == absl::InfiniteDuration();
    // Rarely: reading the clock takes as long as a call that finds nothing.
    if (most_ == absl::InfiniteDuration() || ++spins_ % 1024 != 0) return true;
    const absl::Time now = absl::Now();
    if (spins_ == 1024) since_ = now;
    return now - since_ < most_;
  }

 private:
  const absl::Duration most_;
  const bool spin_;
  uint64_t spins_ = 0;
  absl::Time since_;
};

void Echo(RawSocket& socket, bool spin) {
  std::vector<uint8_t> buffer(kEchoBytes);
  while (size_t n = socket.ReceiveSome(buffer.data(), buffer.size(), spin)) {
    if (!socket.Send(buffer.data(), n, spin)) return;
  }
}

void PingPong(RawSocket& socket, bool spin, uint64_t bytes_max) {
  uint64_t size;
  if (!socket.Receive(&size, sizeof(size), spin) || size > bytes_max || size == 0) return;
  std::vector<uint8_t> memory(size);
  while (socket.Receive(memory.data(), size, spin) && socket.Send(memory.data(), size, spin)) continue;
}

void Sink(RawSocket& socket, bool spin, uint64_t bytes_max) {
  std::vector<uint8_t> memory;
  uint64_t size;
  while (socket.Receive(&size, sizeof(size), spin) && size <= bytes_max) {
    memory.resize(size);
    if (!socket.Receive(memory.data(), size, spin) || !socket.Send("", 1, spin)) return;
  }
}

void Source(RawSocket& socket, bool spin, uint64_t bytes_max) {
  std::vector<uint8_t> memory;
  uint64_t size;
  while (socket.Receive(&size, sizeof(size), spin) && size <= bytes_max) {
    if (memory.size() != size) memory.assign(size, 'x');
    if (!socket.Send(memory.data(), size, spin)) return;
  }
}

}  // namespace

RawSocket::RawSocket(UniqueFd fd) : fd_(std::move(fd)) {
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

absl::StatusOr<RawSocket> RawSocket::Connect(const SocketAddress& to, absl::Duration patience) {
  UniqueFd fd(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.is_open() && patience != absl::InfiniteDuration()) {
    const timeval time = absl::ToTimeval(patience);
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));  // For connect(), too.
  }
  if (!fd.is_open() || connect(fd.get(), to.get(), to.length_bytes()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect a raw socket to ", to.ToString(), ": ", DescribeErrno(errno)));
  }
  RawSocket socket(std::move(fd));
  socket.patience_ = patience;
  return socket;
}

size_t RawSocket::ReceiveSome(void* data, size_t size, bool spin) {
  Patience patience(patience_, spin);
  while (true) {
    const ssize_t n = recv(fd_.get(), data, size, spin ? MSG_DONTWAIT : 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (!patience.MayTryAgain()) return 0;
  }
}

size_t RawSocket::ReceiveReady(void* data, size_t size) {
  const ssize_t n = recv(fd_.get(), data, size, MSG_DONTWAIT);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

bool RawSocket::Receive(void* data, size_t size, bool spin) {
  auto* at = static_cast<uint8_t*>(data);
  while (size > 0) {
    const size_t n = ReceiveSome(at, size, spin);
    if (n == 0) return false;
    at += n;
    size -= n;
  }
  return true;
}

bool RawSocket::Send(const void* data, size_t size, bool spin) {
  const auto* at = static_cast<const uint8_t*>(data);
  Patience patience(patience_, spin);
  while (size > 0) {
    const ssize_t n = send(fd_.get(), at, size, MSG_NOSIGNAL | (spin ? MSG_DONTWAIT : 0));
    if (n < 0 && !patience.MayTryAgain()) return false;
    if (n > 0) {
      at += n;
      size -= static_cast<size_t>(n);
    }
  }
  return true;
}

void ServeRaw(RawSocket& socket, RawService service, bool spin, uint64_t bytes_max) {
  switch (service) {
    case RawService::kEcho:
      return Echo(socket, spin);
    case RawService::kPingPong:
      return PingPong(socket, spin, bytes_max);
    case RawService::kSink:
      return Sink(socket, spin, bytes_max);
    case RawService::kSource:
      return Source(socket, spin, bytes_max);
  }
}

}  // namespace hawser::measure
