#include "hawser/bench/raw_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hawser::bench {
namespace {

[[noreturn]] void Die(const char* what) {
  perror(what);
  exit(1);
}

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    fprintf(stderr, "bench: raw sockets need an IPv4 address, not '%s'\n", host.c_str());
    exit(1);
  }
  return address;
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Echo(RawSocket socket, bool spin) {
  std::vector<uint8_t> buffer(256 << 10);
  while (size_t n = socket.ReceiveSome(buffer.data(), buffer.size(), spin)) {
    if (!socket.Send(buffer.data(), n, spin)) return;
  }
}

void PingPong(RawSocket socket, bool spin) {
  uint64_t size;
  if (!socket.Receive(&size, sizeof(size), spin)) return;
  std::vector<uint8_t> memory(size);
  while (socket.Receive(memory.data(), size, spin) && socket.Send(memory.data(), size, spin)) continue;
}

void Sink(RawSocket socket, bool spin) {
  std::vector<uint8_t> memory;
  uint64_t size;
  while (socket.Receive(&size, sizeof(size), spin)) {
    memory.resize(size);
    if (!socket.Receive(memory.data(), size, spin) || !socket.Send("", 1, spin)) return;
  }
}

void Source(RawSocket socket, bool spin) {
  std::vector<uint8_t> memory;
  uint64_t size;
  while (socket.Receive(&size, sizeof(size), spin)) {
    if (memory.size() != size) memory.assign(size, 'x');
    if (!socket.Send(memory.data(), size, spin)) return;
  }
}

void Any(RawSocket socket, bool spin) {
  RawService service;
  if (!socket.Receive(&service, sizeof(service), spin)) return;
  switch (service) {
    case RawService::kEcho:
      return Echo(std::move(socket), spin);
    case RawService::kPingPong:
      return PingPong(std::move(socket), spin);
    case RawService::kSink:
      return Sink(std::move(socket), spin);
    case RawService::kSource:
      return Source(std::move(socket), spin);
  }
}

}  // namespace

RawSocket::~RawSocket() {
  if (fd_ >= 0) close(fd_);
}

RawSocket RawSocket::Connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  const sockaddr_in to = AddressOf(address.substr(0, colon), atoi(address.c_str() + colon + 1));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) Die("bench: connect");
  SetNoDelay(fd);
  return RawSocket(fd);
}

size_t RawSocket::ReceiveSome(void* data, size_t size, bool spin) {
  while (true) {
    const ssize_t n = recv(fd_, data, size, spin ? MSG_DONTWAIT : 0);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EAGAIN && errno != EINTR) return 0;
  }
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
  while (size > 0) {
    const ssize_t n = send(fd_, at, size, MSG_NOSIGNAL | (spin ? MSG_DONTWAIT : 0));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n > 0) {
      at += n;
      size -= static_cast<size_t>(n);
    }
  }
  return true;
}

void ListenRaw(const std::string& host, const std::function<void(RawSocket socket)>& serve) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = AddressOf(host, 0);
  socklen_t length = sizeof(address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 1024) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    Die("bench: listen");
  }
  printf("%s:%d\n", host.c_str(), ntohs(address.sin_port));
  fflush(stdout);
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) Die("bench: accept");
    SetNoDelay(fd);
    serve(RawSocket(fd));
  }
}

void ServeRaw(const std::string& what, const std::string& host, bool spin) {
  const auto serve = what == "echo"        ? Echo
                     : what == "ping_pong" ? PingPong
                     : what == "sink"      ? Sink
                     : what == "any"       ? Any
                                           : Source;
  ListenRaw(host, [&](RawSocket socket) {
    std::thread([serve, spin, socket = std::move(socket)]() mutable {
      serve(std::move(socket), spin);
    }).detach();
  });
}

double PingPongUs(RawSocket& socket, size_t bytes, int warm_up_rounds, int rounds, bool spin) {
  std::vector<uint8_t> buffer(bytes);
  const uint64_t size = bytes;
  if (!socket.Send(&size, sizeof(size), spin)) Die("bench: ping-pong");
  absl::Time start = absl::Now();
  for (int i = -warm_up_rounds; i < rounds; ++i) {
    if (i == 0) start = absl::Now();
    if (!socket.Send(buffer.data(), bytes, spin) || !socket.Receive(buffer.data(), bytes, spin))
      Die("bench: ping-pong");
  }
  return absl::ToDoubleMicroseconds(absl::Now() - start) / rounds;
}

double BatchedRate(RawSocket& socket, size_t bytes, int batch, int batches, bool spin) {
  std::vector<uint8_t> buffer(bytes * static_cast<size_t>(batch));
  const absl::Time start = absl::Now();
  for (int i = 0; i < batches; ++i) {
    if (!socket.Send(buffer.data(), buffer.size(), spin) ||
        !socket.Receive(buffer.data(), buffer.size(), spin)) {
      Die("bench: batch");
    }
  }
  return batch * static_cast<double>(batches) / absl::ToDoubleSeconds(absl::Now() - start);
}

double StreamInto(RawSocket& socket, std::vector<uint8_t>& memory, int count) {
  const uint64_t size = memory.size();
  const absl::Time start = absl::Now();
  // The answers are taken at the end: the stream never stops for one.
  for (int i = 0; i < count; ++i) {
    if (!socket.Send(&size, sizeof(size), false) || !socket.Send(memory.data(), size, false))
      Die("bench: stream");
  }
  for (int i = 0; i < count; ++i) {
    uint8_t answer;
    if (!socket.Receive(&answer, 1, false)) Die("bench: stream");
  }
  return static_cast<double>(size) * count / absl::ToDoubleSeconds(absl::Now() - start);
}

double StreamFrom(RawSocket& socket, std::vector<uint8_t>& memory, int count) {
  const uint64_t size = memory.size();
  const std::vector<uint64_t> wishes(static_cast<size_t>(count), size);
  const absl::Time start = absl::Now();
  if (!socket.Send(wishes.data(), wishes.size() * sizeof(uint64_t), false)) Die("bench: stream");
  for (int i = 0; i < count; ++i) {
    if (!socket.Receive(memory.data(), size, false)) Die("bench: stream");
  }
  return static_cast<double>(size) * count / absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace hawser::bench
