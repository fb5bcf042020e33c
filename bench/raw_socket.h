#ifndef HAWSER_BENCH_RAW_SOCKET_H_
#define HAWSER_BENCH_RAW_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// The floors: what the same bytes cost over a TCP socket with nothing in between. Each is a client and a
// server that wait in the same way (spinning on the socket, or blocked in it) and are pinned as the sides
// that are compared with them.
namespace hawser::bench {

class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  RawSocket(const RawSocket&) = delete;
  ~RawSocket();

  // To an IPv4 address, "127.0.0.1:PORT".
  static RawSocket Connect(const std::string& address);

  // Exactly `size` bytes; false when the peer has closed. `spin`: never sleeps in the kernel.
  bool Receive(void* data, size_t size, bool spin);
  // At least one byte, at most `size`; 0 when the peer has closed.
  size_t ReceiveSome(void* data, size_t size, bool spin);
  bool Send(const void* data, size_t size, bool spin);

  int fd() const { return fd_; }

 private:
  int fd_;
};

// Listens on `host`, an IPv4 address, prints where, then serves connections, each on a thread of its own,
// until it is killed.
//   "echo":   sends back every byte that it gets, as many at a time as there are.
//   "ping_pong": takes a number N of 8 bytes, then sends back N bytes when it has all of them, repeatedly.
//   "sink":   takes everything. A client that sends a number N of 8 bytes, and then N bytes, gets one byte
//             back.
//   "source": for each number N of 8 bytes it sends N bytes.
//   "any": each connection begins with a RawService of 8 bytes, and is served as that says.
enum class RawService : uint64_t { kEcho, kPingPong, kSink, kSource };
[[noreturn]] void ServeRaw(const std::string& what, const std::string& host, bool spin);

// Listens on `host`, prints where, then has `serve` take one connection after the other, until it is killed.
[[noreturn]] void ListenRaw(const std::string& host, const std::function<void(RawSocket socket)>& serve);

// Microseconds of one round trip of `bytes`, to "ping_pong". Once on each socket.
double PingPongUs(RawSocket& socket, size_t bytes, int warm_up_rounds, int rounds, bool spin);

// Messages of `bytes` a second, `batch` in flight: sent with one call, received with as few as possible.
double BatchedRate(RawSocket& socket, size_t bytes, int batch, int batches, bool spin);

// Bytes a second of `count` transfers of `bytes`, into or from memory of that size, one after the other
// without a pause.
double StreamInto(RawSocket& socket, std::vector<uint8_t>& memory, int count);
double StreamFrom(RawSocket& socket, std::vector<uint8_t>& memory, int count);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_RAW_SOCKET_H_
