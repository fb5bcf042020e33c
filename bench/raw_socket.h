#ifndef HAWSER_BENCH_RAW_SOCKET_H_
#define HAWSER_BENCH_RAW_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hawser/measure/raw_socket.h"

// The floors: what the same bytes cost over a TCP socket with nothing in between (measure/raw_floor.h). Each
// is a client and a server that wait in the same way (spinning on the socket, or blocked in it) and are
// pinned as the sides that are compared with them. All exit with a message when they fail.
namespace hawser::bench {

using measure::RawService;
using measure::RawSocket;

// To an IPv4 address, "127.0.0.1:PORT".
RawSocket ConnectRaw(const std::string& address);

// Listens on `host`, an IPv4 address, prints where, then serves connections, each on a thread of its own,
// until it is killed: as the measure::RawService that `what` names ("echo", "ping_pong", "sink", "source"),
// or, for "any", as the RawService says that each connection begins with, in 8 bytes.
[[noreturn]] void ServeRaw(const std::string& what, const std::string& host, bool spin);

// Listens on `host`, prints where, then has `serve` take one connection after the other, until it is killed.
[[noreturn]] void ListenRaw(const std::string& host, const std::function<void(RawSocket socket)>& serve);

// Mean microseconds of one round trip of `bytes`, to "ping_pong". Once on each socket.
double PingPongUs(RawSocket& socket, size_t bytes, int warm_up_rounds, int rounds, bool spin);

// Messages of `bytes` a second, `batch` in flight: sent with one call, received with as few as possible.
double BatchedRate(RawSocket& socket, size_t bytes, int batch, int batches, bool spin);

// Bytes a second of `count` transfers of `bytes`, into or from memory of that size, one after the other
// without a pause.
double StreamInto(RawSocket& socket, std::vector<uint8_t>& memory, int count);
double StreamFrom(RawSocket& socket, std::vector<uint8_t>& memory, int count);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_RAW_SOCKET_H_
