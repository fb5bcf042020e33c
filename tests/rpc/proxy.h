#ifndef HAWSER_TESTS_RPC_PROXY_H_
#define HAWSER_TESTS_RPC_PROXY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hawser {

// A cable between a client and the server at the given URI (tcp://127.0.0.1:port), to be cut at will.
class Proxy {
 public:
  explicit Proxy(const std::string& uri)
      : server_port_(static_cast<uint16_t>(std::atoi(uri.substr(uri.rfind(':') + 1).c_str()))) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t length = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stopping_ = true;
    Wake();
    thread_.join();
    close(listener_);
    close(wake_);
  }

  std::string uri() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

  // Every connection is lost; new ones are taken.
  void Cut() {
    cuts_wanted_ = cuts_wanted_ + 1;
    Wake();
    while (cuts_done_ < cuts_wanted_) std::this_thread::yield();
  }
  // False: new connections are lost at once.
  void Pass(bool pass) { pass_ = pass; }
  int connections() const { return accepted_; }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Wake() {
    const uint64_t one = 1;
    if (write(wake_, &one, sizeof(one)) < 0) std::abort();
  }

  void Accept() {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    ++accepted_;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(server_port_);
    if (!pass_ || connect(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(client);
      close(server);
      return;
    }
    pairs_.push_back({client, server});
  }

  static bool Pump(int from, int to) {
    char bytes[65536];
    const ssize_t count = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN;
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t n = send(to, bytes + sent, count - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += n;
    }
    return count > 0;
  }

  void Run() {
    while (!stopping_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
      for (const auto& [client, server] : pairs_) {
        fds.push_back({client, POLLIN, 0});
        fds.push_back({server, POLLIN, 0});
      }
      poll(fds.data(), fds.size(), -1);
      uint64_t count;
      if (fds[1].revents != 0 && read(wake_, &count, sizeof(count)) < 0) count = 0;
      if (const int wanted = cuts_wanted_; wanted != cuts_done_) {
        CloseAll();
        cuts_done_ = wanted;
        continue;
      }
      const size_t pumped = pairs_.size();
      if (fds[0].revents != 0) Accept();
      for (size_t i = pumped; i-- > 0;) {
        const auto [client, server] = pairs_[i];
        const bool alive = (fds[2 + 2 * i].revents == 0 || Pump(client, server)) &&
                           (fds[3 + 2 * i].revents == 0 || Pump(server, client));
        if (alive) continue;
        close(client);
        close(server);
        pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    CloseAll();
  }

  void CloseAll() {
    for (const auto& [client, server] : pairs_) {
      close(client);
      close(server);
    }
    pairs_.clear();
  }

  const uint16_t server_port_;
  uint16_t port_ = 0;
  int listener_ = -1;
  int wake_ = -1;
  std::vector<std::pair<int, int>> pairs_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> pass_{true};
  std::atomic<int> cuts_wanted_{0};
  std::atomic<int> cuts_done_{0};
  std::atomic<int> accepted_{0};
  std::thread thread_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_PROXY_H_
