#include "hawser/services/perf/raw_socket_port.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/base/describe_errno.h"

namespace hawser::internal {
namespace {

constexpr int kBacklog = 256;
// Connections that wait and are accepted in one turn.
constexpr int kAcceptsMax = 64;

// A connection that has not sent the whole token.
struct Unknown {
  UniqueFd fd;
  RawPort::Token token = {};
  size_t bytes = 0;
};

enum class Verdict { kWait, kWrong, kRight };

Verdict Read(Unknown& unknown, const RawPort::Token& token) {
  const ssize_t n = recv(unknown.fd.get(), unknown.token.data() + unknown.bytes,
                         unknown.token.size() - unknown.bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Verdict::kWait;
  if (n <= 0) return Verdict::kWrong;
  unknown.bytes += static_cast<size_t>(n);
  if (unknown.bytes < token.size()) return Verdict::kWait;
  uint8_t difference = 0;  // In the same time, wherever it is: the token cannot be guessed byte by byte.
  for (size_t i = 0; i < token.size(); ++i) difference |= unknown.token[i] ^ token[i];
  return difference == 0 ? Verdict::kRight : Verdict::kWrong;
}

// Accepts what waits, and keeps what is of the right host. The one that has sent the token already, as most
// do that have it, goes to `right`. False: no more can come.
bool Accept(int listener, const RawPort::Options& options, std::vector<Unknown>& unknown, UniqueFd& right) {
  for (int i = 0; i < kAcceptsMax && !right.is_open(); ++i) {
    sockaddr_storage from = {};
    socklen_t length = sizeof(from);
    UniqueFd fd(accept4(listener, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC));
    if (!fd.is_open()) return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&from), length)) != options.host) continue;
    Unknown newcomer = {std::move(fd), {}, 0};
    const Verdict verdict = Read(newcomer, options.token);
    if (verdict == Verdict::kRight) right = std::move(newcomer.fd);
    if (verdict != Verdict::kWait) continue;
    if (unknown.size() >= RawSocketPort::kUnknownMax) unknown.erase(unknown.begin());
    unknown.push_back(std::move(newcomer));
  }
  return true;
}

absl::Status Failure(const SocketAddress& address) {
  const int error = errno;
  const std::string text =
      absl::StrCat("cannot open a raw port on ", address.ToString(), ": ", DescribeErrno(error));
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM
             ? absl::ResourceExhaustedError(text)
             : absl::UnavailableError(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawPort>> RawSocketPort::Open(const Options& options,
                                                             measure::RawService service,
                                                             std::function<void()> on_end) {
  SocketAddress address = options.address;
  address.set_port(0);
  UniqueFd listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.is_open()) return Failure(address);
  if (address.family() == AF_INET6 && address.is_unspecified()) {
    const int off = 0;  // Clients of IPv4, too.
    setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  sockaddr_storage real = {};
  socklen_t length = sizeof(real);
  if (bind(listener.get(), address.get(), address.length_bytes()) != 0 ||
      listen(listener.get(), kBacklog) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&real), &length) != 0) {
    return Failure(address);
  }
  const uint16_t port = SocketAddress(reinterpret_cast<sockaddr*>(&real), length).port();
  std::unique_ptr<RawSocketPort> made(new RawSocketPort(options, service, std::move(listener), port));
  if (absl::Status started = made->Start(std::move(on_end)); !started.ok()) return started;
  return made;
}

RawSocketPort::~RawSocketPort() {
  Stop();
  Join();
}

// shutdown() wakes a thread that is blocked in poll(), recv() or send().
void RawSocketPort::Stop() {
  const absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (listener_.is_open()) shutdown(listener_.get(), SHUT_RDWR);
  if (connection_ >= 0) shutdown(connection_, SHUT_RDWR);
}

void RawSocketPort::Run() {
  int listener;
  {
    const absl::MutexLock lock(&mutex_);
    listener = listener_.get();
  }
  UniqueFd connection = Await(listener);
  {
    const absl::MutexLock lock(&mutex_);
    listener_.Reset();
    if (stopped_ || !connection.is_open()) return;
    connection_ = connection.get();
  }
  measure::RawSocket socket(std::move(connection));
  try {
    measure::ServeRaw(socket, service_, options().polling == PollingMode::kSpin, kBytesMax);
  } catch (const std::bad_alloc&) {  // The peer chooses how much it takes: this ends its connection.
  }
  const absl::MutexLock lock(&mutex_);
  connection_ = -1;  // Before the socket is closed, and its number another's.
}

UniqueFd RawSocketPort::Await(int listener) {
  const absl::Time end = absl::Now() + options().accept_time;
  std::vector<Unknown> unknown;
  std::vector<pollfd> polled;
  while (true) {
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return UniqueFd();
    {
      const absl::MutexLock lock(&mutex_);
      if (stopped_) return UniqueFd();
    }
    polled.assign(1, {.fd = listener, .events = POLLIN, .revents = 0});
    for (const Unknown& each : unknown)
      polled.push_back({.fd = each.fd.get(), .events = POLLIN, .revents = 0});
    const int64_t timeout_ms = std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 60'000);
    if (poll(polled.data(), polled.size(), static_cast<int>(timeout_ms)) < 0 && errno != EINTR)
      return UniqueFd();
    UniqueFd right;
    if (polled[0].revents != 0 && !Accept(listener, options(), unknown, right)) return UniqueFd();
    if (right.is_open()) return right;
    for (auto each = unknown.begin(); each != unknown.end();) {
      const Verdict verdict = Read(*each, options().token);
      if (verdict == Verdict::kRight) return std::move(each->fd);
      each = verdict == Verdict::kWrong ? unknown.erase(each) : each + 1;
    }
  }
}

}  // namespace hawser::internal
