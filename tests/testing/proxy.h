#ifndef HAWSER_TESTS_TESTING_PROXY_H_
#define HAWSER_TESTS_TESTING_PROXY_H_

#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hawser {

// A cable between a client and the server at the given URI (tcp://127.0.0.1:port), which a test can cut or
// slow down. It listens at the server's address, at a port of its own. An end that does not read blocks only
// its own connection, as on a network.
// Thread: any.
class Proxy {
 public:
  explicit Proxy(const std::string& uri);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  const std::string& uri() const { return uri_; }

  // Closes every connection and drops the bytes in flight. New connections still pass.
  void Cut();
  // With false, new connections are closed at once.
  void Pass(bool pass) { pass_ = pass; }
  // Delays bytes that arrive from now on by so much time, in both directions.
  void Delay(std::chrono::milliseconds delay) { delay_ms_ = delay.count(); }
  // Connections accepted so far.
  int connections() const { return accepted_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // The bytes that go from one socket to the other.
  struct Direction {
    struct Piece {
      Time due;
      std::vector<char> bytes;
    };
    std::deque<Piece> pieces;
    size_t sent = 0;      // Bytes of the first piece.
    size_t buffered = 0;  // Bytes of all pieces.
    bool ended = false;   // The sender has closed its end.
  };
  struct Pair {
    Pair(int client_fd, int server_fd) : client(client_fd), server(server_fd) {}
    ~Pair();
    const int client, server;
    Direction up, down;
  };

  void Wake();
  void Run();
  void Accept();
  // False: the connection has ended.
  bool Pump(int from, int to, short from_events, Direction& direction, Time now);

  const sockaddr_in server_;
  std::string uri_;
  int listener_ = -1;
  int wake_ = -1;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> pass_{true};
  std::atomic<int64_t> delay_ms_{0};
  std::atomic<int> cuts_wanted_{0};
  std::atomic<int> cuts_done_{0};
  std::atomic<int> accepted_{0};
  std::thread thread_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_PROXY_H_
