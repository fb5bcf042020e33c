#ifndef HAWSER_RPC_SERVER_ADMISSION_H_
#define HAWSER_RPC_SERVER_ADMISSION_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "hawser/base/peer_table.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/memory/buffer_pool.h"

namespace hawser::internal {

// Decides which connections a server accepts. It bounds them in all, by host, and by the memory for their
// receives, in all and by host, so that each pool keeps enough for messages, and for the receives of other
// hosts. A session whose client has sent nothing since its handshake is a newcomer. When there are too many
// newcomers, the server closes the oldest one of the host that has the most.
//
// Thread:   any, under its owner's lock.
// Failure:  ResourceExhausted, with a text that fits a rejection.
class Admission {
 public:
  // The resources of one connection.
  struct Place {
    PeerHost host;
    const transport::BufferPool* pool = nullptr;
    // What its receives take of the pool at most: an idle connection over TCP has few.
    uint64_t receive_bytes = 0;
  };
  using Newcomer = PeerTable::Entry;

  explicit Admission(const ServerOptions& options);

  // OK: `place` counts as taken until Release(), and its connection as open until Close(), which comes first.
  absl::Status Admit(const Place& place);
  // The connection is closed, and its file descriptor is free. Its memory is not: handlers may still hold
  // requests in the buffers that received them.
  void Close(const Place& place);
  void Release(const Place& place);
  uint64_t open() const { return open_; }

  // Adds `newcomer`, which has the admitted `place`. Returns the newcomer that the caller must close, already
  // removed; null: none.
  Newcomer* AddNewcomer(Newcomer& newcomer, const Place& place);
  // Call it when `newcomer` has sent a message, or is closed. No effect if it is not a newcomer.
  void RemoveNewcomer(Newcomer& newcomer) { newcomers_.Remove(newcomer); }

 private:
  struct Host {
    uint32_t places = 0;
    uint32_t open = 0;
  };
  struct Memory {
    uint64_t receives_max_bytes = 0;
    uint64_t receive_bytes = 0;
    absl::flat_hash_map<PeerHost, uint64_t> by_host;  // These, by host; without hosts that have none.
  };

  const uint32_t connections_max_;
  const uint32_t connections_per_host_max_;
  uint64_t places_ = 0;
  uint64_t open_ = 0;
  absl::flat_hash_map<PeerHost, Host> by_host_;
  absl::flat_hash_map<const transport::BufferPool*, Memory> memory_;
  PeerTable newcomers_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_ADMISSION_H_
