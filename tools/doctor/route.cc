#include "hawser/tools/doctor/route.h"

#include <ifaddrs.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace hawser::doctor {
namespace {

class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Unavailable(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

bool SameHost(const sockaddr* a, const SocketAddress& b) {
  if (a == nullptr || a->sa_family != b.family()) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b.get())->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                &reinterpret_cast<const sockaddr_in6*>(b.get())->sin6_addr, sizeof(in6_addr)) == 0;
}

std::string NetdevWith(const SocketAddress& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* each = all; each != nullptr && name.empty(); each = each->ifa_next) {
    if (SameHost(each->ifa_addr, address)) name = each->ifa_name;
  }
  freeifaddrs(all);
  return name;
}

}  // namespace

absl::StatusOr<Route> FindRoute(const SocketAddress& address) {
  const Socket socket(address.family(),
                      SOCK_DGRAM);  // Connecting one asks the routing table and sends nothing.
  if (socket.fd() < 0) return Unavailable("socket()", errno);
  if (connect(socket.fd(), address.get(), address.length_bytes()) != 0) {
    return Unavailable("no route leads there", errno);
  }
  sockaddr_storage source = {};
  socklen_t length = sizeof(source);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&source), &length) != 0) {
    return Unavailable("getsockname()", errno);
  }
  Route route;
  route.source = SocketAddress(reinterpret_cast<const sockaddr*>(&source), length);
  route.netdev = NetdevWith(route.source);
  return route;
}

absl::Status TryTcp(const SocketAddress& address, absl::Duration timeout) {
  const Socket socket(address.family(), SOCK_STREAM);
  if (socket.fd() < 0) return Unavailable("socket()", errno);
  if (connect(socket.fd(), address.get(), address.length_bytes()) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return Unavailable("connect()", errno);
  const absl::Time deadline = absl::Now() + timeout;
  pollfd waiting = {.fd = socket.fd(), .events = POLLOUT};
  int ready = 0;
  do {
    const int64_t left_ms =
        absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
    ready = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(0, left_ms)));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Unavailable("poll()", errno);
  if (ready == 0) {
    return absl::UnavailableError(absl::StrCat("no answer to connect() in ", absl::FormatDuration(timeout),
                                               ": the host is down, or a firewall drops the packets"));
  }
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? absl::OkStatus() : Unavailable("connect()", error);
}

}  // namespace hawser::doctor
