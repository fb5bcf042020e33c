#ifndef HAWSER_TRANSPORT_FABRIC_TCP_OPTIONS_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_OPTIONS_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "hawser/tls/kernel_tls.h"

namespace hawser::fabric {

// Counts what the fabric does, for tests and benchmarks.
struct TcpFabricCounters {
  std::atomic<uint64_t> send_calls = 0;           // sendmsg(2)
  std::atomic<uint64_t> receive_calls = 0;        // recv(2), readv(2), recvmsg(2)
  std::atomic<uint64_t> epoll_calls = 0;          // epoll_wait(2), in Poll() and in Wait()
  std::atomic<uint64_t> watch_calls = 0;          // epoll_ctl(2), of sockets in the set
  std::atomic<uint64_t> read_bytes = 0;           // READ payload that has arrived,
  std::atomic<uint64_t> read_bytes_copied = 0;    // and how much of it through staging: of 4 KiB at most.
  std::atomic<uint64_t> kernel_tls_sends = 0;     // Connections whose TLS the kernel makes,
  std::atomic<uint64_t> kernel_tls_receives = 0;  // and opens.
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

  // Peers of a listener that have connected and not yet sent a whole greeting. A host with more than its
  // share loses its oldest one; when all hosts together have too many, the host with the most loses its
  // oldest one: the one with the most in the network with the most (PeerHost::Network()). With TLS half of
  // the bounds are for those that no handshake has been begun with, and half for the others. If a quarter of
  // RLIMIT_NOFILE is less, that is the bound.
  uint32_t half_open_max = 1024;
  uint32_t half_open_per_host_max = 768;
  absl::Duration half_open_timeout = absl::Seconds(5);
  int listen_backlog = 1024;

  // SO_SNDBUF, SO_RCVBUF in bytes. 0: the kernel tunes them by itself, which is best except in tests.
  int send_buffer_bytes = 0;
  int receive_buffer_bytes = 0;

  // Which connections with TLS leave their records to the kernel, where it can.
  tls::KernelUse kernel_tls = tls::KernelUse::kWhereKeysLast;

  // For tests: tls::Session::set_key_records_max(). 0: as long as a key may last.
  uint64_t tls_key_records_max = 0;

  // Outlives the fabric. Null: counts nothing.
  TcpFabricCounters* counters = nullptr;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_OPTIONS_H_
