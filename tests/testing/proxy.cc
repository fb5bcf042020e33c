#include "hawser/tests/testing/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace hawser {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// The most bytes of one direction: more than a link of 1 Gbit/s holds in 30 ms. Beyond that the sender has to
// wait.
constexpr size_t kBufferedMax = 4 << 20;

// Of tcp://10.0.0.1:7470.
sockaddr_in AddressOf(const std::string& uri) {
  const size_t host = uri.find("://") + 3, colon = uri.rfind(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(atoi(uri.substr(colon + 1).c_str())));
  if (inet_pton(AF_INET, uri.substr(host, colon - host).c_str(), &address.sin_addr) != 1) {
    fprintf(stderr, "a proxy needs an IPv4 address and a port, not %s\n", uri.c_str());
    abort();
  }
  return address;
}

// Turns off Nagle's algorithm, so that the kernel adds no delay.
void SendAtOnce(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

}  // namespace

Proxy::Proxy(const std::string& uri) : server_(AddressOf(uri)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = server_;
  address.sin_port = 0;
  socklen_t length = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    abort();
  }
  char host[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
  uri_ = "tcp://" + std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { Run(); });
}

Proxy::~Proxy() {
  stopping_ = true;
  Wake();
  thread_.join();
  close(listener_);
  close(wake_);
}

Proxy::Pair::~Pair() {
  close(client);
  close(server);
}

void Proxy::Wake() {
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof(one)) < 0) abort();
}

void Proxy::Cut() {
  const int mine = ++cuts_wanted_;
  Wake();
  while (cuts_done_ < mine) std::this_thread::yield();
}

void Proxy::Accept() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  ++accepted_;
  auto pair = std::make_unique<Pair>(client, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const server = reinterpret_cast<const sockaddr*>(&server_);
  if (!pass_ || connect(pair->server, server, sizeof(server_)) != 0) return;
  SendAtOnce(pair->client);
  SendAtOnce(pair->server);
  pairs_.push_back(std::move(pair));
}

bool Proxy::Pump(int from, int to, short from_events, Direction& direction, Time now) {
  if (from_events != 0 && !direction.ended && direction.buffered < kBufferedMax) {
    std::vector<char> bytes(kPieceBytes);
    const ssize_t count = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN) return false;
    if (count == 0) direction.ended = true;
    if (count > 0) {
      bytes.resize(static_cast<size_t>(count));
      direction.buffered += bytes.size();
      direction.pieces.push_back({now + std::chrono::milliseconds(delay_ms_), std::move(bytes)});
    }
  }
  while (!direction.pieces.empty() && direction.pieces.front().due <= now) {
    const std::vector<char>& bytes = direction.pieces.front().bytes;
    const ssize_t count =
        send(to, bytes.data() + direction.sent, bytes.size() - direction.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN;
    direction.sent += static_cast<size_t>(count);
    if (direction.sent < bytes.size()) continue;
    direction.buffered -= bytes.size();
    direction.sent = 0;
    direction.pieces.pop_front();
  }
  // Bytes from before the end are delivered first.
  return !direction.ended || !direction.pieces.empty();
}

void Proxy::Run() {
  while (!stopping_) {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    Time now = std::chrono::steady_clock::now();
    Time next = Time::max();
    const auto events = [&](const Direction& in, const Direction& out) {
      short wanted = !in.ended && in.buffered < kBufferedMax ? POLLIN : 0;
      if (!out.pieces.empty()) {
        if (out.pieces.front().due <= now) {
          wanted |= POLLOUT;
        } else {
          next = std::min(next, out.pieces.front().due);
        }
      }
      return wanted;
    };
    for (const auto& pair : pairs_) {
      fds.push_back({pair->client, events(pair->up, pair->down), 0});
      fds.push_back({pair->server, events(pair->down, pair->up), 0});
    }
    const int timeout_ms =
        next == Time::max()
            ? -1
            : static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
    poll(fds.data(), fds.size(), timeout_ms);
    uint64_t count;
    if (fds[1].revents != 0 && read(wake_, &count, sizeof(count)) < 0) count = 0;
    if (const int wanted = cuts_wanted_; wanted != cuts_done_) {
      pairs_.clear();
      cuts_done_ = wanted;
      continue;
    }
    now = std::chrono::steady_clock::now();
    for (size_t i = pairs_.size(); i-- > 0;) {
      Pair& pair = *pairs_[i];
      // Detects a reset even while nothing is read.
      const short client_events = fds[2 + 2 * i].revents, server_events = fds[3 + 2 * i].revents;
      const bool reset = ((client_events | server_events) & POLLERR) != 0;
      if (reset || !Pump(pair.client, pair.server, client_events, pair.up, now) ||
          !Pump(pair.server, pair.client, server_events, pair.down, now)) {
        pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    if (fds[0].revents != 0) Accept();
  }
  pairs_.clear();
}

}  // namespace hawser
