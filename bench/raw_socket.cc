#include "hawser/bench/raw_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/measure/one_at_a_time.h"
#include "hawser/measure/raw_floor.h"
#include "hawser/measure/times.h"

namespace hawser::bench {
namespace {

[[noreturn]] void Die(const char* what) {
  perror(what);
  exit(1);
}

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "bench: %s\n", status.ToString().c_str());
  exit(1);
}

measure::Ran OrDie(const absl::StatusOr<measure::Ran>& ran) {
  OrDie(ran.status());
  return *ran;
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

// Empty: each connection says it.
std::optional<RawService> ServiceOf(const std::string& what) {
  if (what == "any") return std::nullopt;
  return what == "echo"        ? RawService::kEcho
         : what == "ping_pong" ? RawService::kPingPong
         : what == "sink"      ? RawService::kSink
                               : RawService::kSource;
}

}  // namespace

RawSocket ConnectRaw(const std::string& address) {
  const size_t colon = address.rfind(':');
  const sockaddr_in to = AddressOf(address.substr(0, colon), atoi(address.c_str() + colon + 1));
  auto socket = RawSocket::Connect(SocketAddress(reinterpret_cast<const sockaddr*>(&to), sizeof(to)));
  OrDie(socket.status());
  return *std::move(socket);
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
    serve(RawSocket(UniqueFd(fd)));
  }
}

void ServeRaw(const std::string& what, const std::string& host, bool spin) {
  ListenRaw(host, [&](RawSocket socket) {
    std::thread([service = ServiceOf(what), spin, socket = std::move(socket)]() mutable {
      if (!service.has_value()) {
        RawService said;
        if (!socket.Receive(&said, sizeof(said), spin)) return;
        service = said;
      }
      measure::ServeRaw(socket, *service, spin, std::numeric_limits<uint64_t>::max());
    }).detach();
  });
}

double PingPongUs(RawSocket& socket, size_t bytes, int warm_up_rounds, int rounds, bool spin) {
  std::vector<uint8_t> buffer(bytes);
  OrDie(measure::BeginPingPong(socket, bytes, spin));
  const auto exchange = [&] { return measure::PingPong(socket, absl::MakeSpan(buffer), spin); };
  OrDie(measure::OneAtATime({.exchanges = warm_up_rounds}, exchange, [](int64_t) {}));
  measure::Times times;
  OrDie(measure::OneAtATime({.exchanges = rounds}, exchange, [&](int64_t ns) { times.Add(ns); }));
  return times.mean_us();
}

double BatchedRate(RawSocket& socket, size_t bytes, int batch, int batches, bool spin) {
  const int64_t exchanges = static_cast<int64_t>(batch) * batches;
  return OrDie(measure::Batches(socket, bytes, batch, {.exchanges = exchanges}, spin)).per_second();
}

double StreamInto(RawSocket& socket, std::vector<uint8_t>& memory, int count) {
  return OrDie(measure::StreamInto(socket, memory, {.exchanges = count})).per_second() *
         static_cast<double>(memory.size());
}

double StreamFrom(RawSocket& socket, std::vector<uint8_t>& memory, int count) {
  return OrDie(measure::StreamFrom(socket, absl::MakeSpan(memory), {.exchanges = count})).per_second() *
         static_cast<double>(memory.size());
}

}  // namespace hawser::bench
