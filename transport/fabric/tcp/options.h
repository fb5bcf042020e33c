#ifndef HAWSER_TRANSPORT_FABRIC_TCP_OPTIONS_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_OPTIONS_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace hawser::fabric {

// What the fabric did, for tests and benchmarks.
struct TcpFabricCounters {
  std::atomic<uint64_t> send_calls = 0;         // sendmsg(2)
  std::atomic<uint64_t> receive_calls = 0;      // recv(2) and readv(2)
  std::atomic<uint64_t> epoll_calls = 0;        // epoll_wait(2), in Poll() and in Wait()
  std::atomic<uint64_t> watch_calls = 0;        // epoll_ctl(2), for what was watched before
  std::atomic<uint64_t> read_bytes = 0;         // Of READ payload that arrived,
  std::atomic<uint64_t> read_bytes_copied = 0;  // and how many of them not straight into their sink: 0.
};

struct TcpFabricOptions {
  // How long a SEND waits for the peer to post a receive: what 6 retries (rnr_retry; 7 would be for ever) of
  // about 1 ms (min_rnr_timer) are on a NIC. Peers that keep count of each other's receives never need it.
  absl::Duration rnr_timeout = absl::Milliseconds(6);

  // TCP_USER_TIMEOUT: sent bytes that the peer's kernel did not take for so long end the connection, as a
  // NIC's retry_cnt does. Without it TCP tries for about 15 minutes. It says nothing about idle connections
  // (the keepalive above the fabric does), and it ends a peer that is stopped, in a debugger for example,
  // while bulk data waits for it.
  absl::Duration unacknowledged_timeout = absl::Seconds(10);

  // Of a listener: peers that the kernel has accepted and that have not sent their whole greeting yet. When a
  // host has more than its share, its oldest is dropped; when all hosts together have too many, the oldest of
  // the host that has the most. A quarter of the open files that the process may have (RLIMIT_NOFILE) is the
  // bound if that is less.
  uint32_t half_open_max = 1024;
  uint32_t half_open_per_host_max = 768;
  absl::Duration half_open_timeout = absl::Seconds(5);
  int listen_backlog = 1024;

  // SO_SNDBUF, SO_RCVBUF in bytes. 0: the kernel tunes them by itself, which is best except in tests.
  int send_buffer_bytes = 0;
  int receive_buffer_bytes = 0;

  // Outlives the fabric. Null: nothing is counted.
  TcpFabricCounters* counters = nullptr;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_OPTIONS_H_
