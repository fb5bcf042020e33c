#ifndef HAWSER_TESTS_TESTING_PROXY_H_
#define HAWSER_TESTS_TESTING_PROXY_H_

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

// A cable between a client and the server at the given URI (tcp://127.0.0.1:port), to be cut or slowed at
// will. Who does not read holds up its own connection only, as on a network.
// Thread: any.
class Proxy {
 public:
  explicit Proxy(const std::string& uri);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  std::string uri() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

  // Every connection is lost, with what was under way; new ones are taken.
  void Cut();
  // False: new connections are lost at once.
  void Pass(bool pass) { pass_ = pass; }
  // What arrives from now on goes on after so much time, in both directions.
  void Delay(std::chrono::milliseconds delay) { delay_ms_ = delay.count(); }
  // Connections taken so far.
  int connections() const { return accepted_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // What goes from one socket to the other.
  struct Direction {
    struct Piece {
      Time due;
      std::vector<char> bytes;
    };
    std::deque<Piece> pieces;
    size_t sent = 0;      // Of the first piece.
    size_t buffered = 0;  // Bytes of all pieces.
    bool ended = false;   // Nothing more will be read.
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
  // False: the connection is over.
  bool Pump(int from, int to, short from_events, Direction& direction, Time now);

  const uint16_t server_port_;
  uint16_t port_ = 0;
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
