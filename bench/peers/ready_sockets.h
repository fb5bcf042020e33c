#ifndef HAWSER_BENCH_PEERS_READY_SOCKETS_H_
#define HAWSER_BENCH_PEERS_READY_SOCKETS_H_

#include <vector>

namespace hawser::bench::peers {

// Waits until some of a client's sockets can be read or written (epoll(7), level-triggered).
// Thread: one.
class ReadySockets {
 public:
  ReadySockets();
  ~ReadySockets();
  ReadySockets(const ReadySockets&) = delete;
  ReadySockets& operator=(const ReadySockets&) = delete;

  // Waits for `fd` to be readable. Wait() returns `connection` for it.
  void Add(int fd, int connection);
  // Also waits for it to be writable, or no longer.
  void WaitForWritable(int fd, int connection, bool writable);

  // Blocks; returns connections that are ready, at least one. Valid until the next call.
  const std::vector<int>& Wait();

 private:
  const int epoll_;
  std::vector<int> ready_;
};

}  // namespace hawser::bench::peers

#endif  // HAWSER_BENCH_PEERS_READY_SOCKETS_H_
