#ifndef HAWSER_RPC_SHARED_MEMORY_H_
#define HAWSER_RPC_SHARED_MEMORY_H_

// A service that shares memory with its clients, which read it by themselves (rpc/remote_memory.h):
//
//   absl::Status Start(hawser::Server& server) {  // Before its first Listen().
//     absl::StatusOr<hawser::SharedMemory> table = server.Share(64 << 20);
//     if (!table.ok()) return table.status();
//     table_ = *std::move(table);
//     return absl::OkStatus();
//   }
//   absl::Status Open(hawser::ServerContext& context, Tables::OpenParams::Reader,
//                     Tables::OpenResults::Builder reply) override {
//     return context.Grant(*table_, {.length = 1 << 20, .access = hawser::Access::kRead}, reply.initTable());
//   }
//   std::optional<hawser::SharedMemory> table_;

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace hawser {

namespace transport {
class LentMemory;
}

class ArrivalCounter;  // rpc/arrival_counter.h

// What a client may do with memory that is granted to it.
// Several are joined with |.
enum class Access : uint8_t {
  kRead = 1,
  kWrite = 2,
  kAtomic = 4,  // RemoteMemory::CompareAndSwap() and FetchAdd(). The part begins at a multiple of 8.
  kReadWrite = kRead | kWrite,
};
constexpr Access operator|(Access one, Access other) {
  return static_cast<Access>(static_cast<uint8_t>(one) | static_cast<uint8_t>(other));
}

// Which part of a SharedMemory a client gets, and for what.
struct GrantOptions {
  uint64_t offset = 0;
  // Bytes: 1 to 2^31; more memory is granted in parts. By default all that follows `offset`.
  uint64_t length = std::numeric_limits<uint64_t>::max();
  Access access = Access::kRead;
  // Counts the client's WRITEs; `access` has kWrite. Null: nothing counts them. It may be destroyed before
  // the memory, and before the grant ends.
  const ArrivalCounter* counter = nullptr;
};

// Memory of a server that clients reach by themselves, with READ and WRITE: no handler runs, and over RDMA
// not even a thread of the server's. Server::Share() makes it, ServerContext::Grant() gives a client the
// ticket, and the client gives that to a RemoteMemory (rpc/remote_memory.h).
//
// What this process writes there, clients may see in any order and in part: a READ returns at most 8 aligned
// bytes as one write has left them, and over iWARP not even these, and this process gets no sign that a
// client has read, nor that it has written unless the grant names an ArrivalCounter. Values that change need
// a layout of which a reader can see that it has read a mixture: VersionedCell (rpc/versioned_cell.h) is one.
// Thread:   any, one at a time, but any number of handlers may grant it at once. The memory itself may be
//           used by any thread.
// After fork(): in the child it may be destroyed, which leaves the memory and the parent's clients alone.
// Lifetime: may outlive the Server. The destructor revokes the memory. For memory of the program's own it
//           waits, as Revoke() does, so that the program may free it then; on a poller (a handler or a
//           callback) it would wait for itself, which is a CHECK. Memory that Share() has made goes when the
//           last client has lost it.
class [[nodiscard]] SharedMemory {
 public:
  SharedMemory(SharedMemory&& other) noexcept = default;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // What Share() has made begins at a page. What was moved from is empty.
  uint8_t* data() const;
  size_t size_bytes() const;
  absl::Span<uint8_t> bytes() const { return {data(), size_bytes()}; }

  // Takes the memory from every client, and returns when no client, and no NIC for one, can reach it any
  // more. Operations that clients have begun end first; their later ones fail with FailedPrecondition. The
  // connection of a client that does not answer within two seconds is ended for it, the one for one-sided
  // operations only. Grant() fails from here on. A second time it is OK. FailedPrecondition: on a poller (in
  // a handler or callback), where it would wait for itself; in a child after fork(); it was moved from.
  absl::Status Revoke();

  // For the library.
  explicit SharedMemory(std::shared_ptr<transport::LentMemory> memory) : memory_(std::move(memory)) {}
  const std::shared_ptr<transport::LentMemory>& lent() const { return memory_; }

 private:
  void End();

  std::shared_ptr<transport::LentMemory> memory_;  // Null: it was moved from.
};

}  // namespace hawser

#endif  // HAWSER_RPC_SHARED_MEMORY_H_
