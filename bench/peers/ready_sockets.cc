#include "hawser/bench/peers/ready_sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <string>

#include "hawser/bench/peers/peer.h"

namespace hawser::bench::peers {
namespace {

void Control(int epoll, int operation, int fd, int connection, uint32_t events) {
  epoll_event event = {.events = events, .data = {.fd = connection}};
  if (epoll_ctl(epoll, operation, fd, &event) != 0) Die(std::string("epoll_ctl: ") + strerror(errno));
}

}  // namespace

ReadySockets::ReadySockets() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) Die(std::string("epoll_create1: ") + strerror(errno));
}

ReadySockets::~ReadySockets() { close(epoll_); }

void ReadySockets::Add(int fd, int connection) { Control(epoll_, EPOLL_CTL_ADD, fd, connection, EPOLLIN); }

void ReadySockets::WaitForWritable(int fd, int connection, bool writable) {
  Control(epoll_, EPOLL_CTL_MOD, fd, connection, writable ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

const std::vector<int>& ReadySockets::Wait() {
  std::array<epoll_event, 64> events;
  ready_.clear();
  while (ready_.empty()) {
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), /*timeout=*/-1);
    if (count < 0 && errno != EINTR) Die(std::string("epoll_wait: ") + strerror(errno));
    for (int i = 0; i < count; ++i) ready_.push_back(events[static_cast<size_t>(i)].data.fd);
  }
  return ready_;
}

}  // namespace hawser::bench::peers
