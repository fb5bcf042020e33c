#ifndef HAWSER_RPC_INTERNAL_ADMISSION_H_
#define HAWSER_RPC_INTERNAL_ADMISSION_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "hawser/base/peer_table.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/buffer_pool.h"

namespace hawser::internal {

// Which connections a server takes: so many, in all and from one host, that the memory for their receives
// leaves enough of each pool for messages. A session whose client has sent nothing since its handshake is a
// newcomer; when there are too many of those, the oldest of the host with the most makes room.
//
// Thread:   any, under its owner's lock.
// Failure:  ResourceExhausted, with a text that fits a rejection.
class Admission {
 public:
  // What one connection takes.
  struct Place {
    PeerHost host;
    const transport::BufferPool* pool = nullptr;
    // Of the pool, for its receives, at most: an idle connection over TCP has few.
    uint64_t receive_bytes = 0;
  };
  using Newcomer = PeerTable::Entry;

  explicit Admission(const ServerOptions& options);

  // OK: `place` is taken, and its connection open, until Close() and then Release() of it.
  absl::Status Admit(const Place& place);
  // The connection is closed, and its file is free. Its memory is not: handlers may hold requests where they were
  // received.
  void Close(const Place& place);
  void Release(const Place& place);
  uint64_t open() const { return open_; }

  // `newcomer` has the admitted `place`. Returns the newcomer that has to be closed, which is one no more;
  // null: none has to.
  Newcomer* AddNewcomer(Newcomer& newcomer, const Place& place);
  // It has sent something, or is closed. Does nothing if it is no newcomer.
  void RemoveNewcomer(Newcomer& newcomer) { newcomers_.Remove(newcomer); }

 private:
  struct Host {
    uint32_t places = 0;
    uint32_t open = 0;
  };
  struct Memory {
    uint64_t receives_max_bytes = 0;
    uint64_t receive_bytes = 0;
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

#endif  // HAWSER_RPC_INTERNAL_ADMISSION_H_
