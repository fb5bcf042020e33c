#ifndef HAWSER_RPC_REGISTERED_MEMORY_H_
#define HAWSER_RPC_REGISTERED_MEMORY_H_

// Registers memory of the program's own once, so that a NIC reads and writes it without a copy:
//
//   absl::StatusOr<hawser::RegisteredMemory> cache =
//       channel->Register({.address = blocks.data(), .length_bytes = blocks.size()});
//   if (!cache.ok()) return cache.status();
//   absl::Status read = table.Read(row * kRowBytes, cache->bytes().subspan(0, kRowBytes)).Wait();
//   if (!read.ok()) return read;

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace hawser {

namespace transport {
class Runtime;
class UserRegion;
}  // namespace transport

// What the memory of a MemoryRange is.
enum class MemoryKind : uint8_t {
  // Mapped in this process. Over RDMA all of it is pinned, and counts against the memlock limit.
  kHost,
  // Of a dma-buf, which another device may have exported: a GPU, an NVMe controller. Over RDMA, where the
  // driver of the NIC takes them (ibv_reg_dmabuf_mr() of rdma-core 34).
  kDmabuf,
  // Mapped in this process, and not pinned: the NIC takes page faults (on-demand paging). Over RDMA, where
  // the NIC can (mlx5 does, most others do not). Over TCP it is as kHost.
  kOnDemand,
};

// Memory of the program's own.
struct MemoryRange {
  // Where it begins. If the processor does not see it: what names it, such as the address that a GPU has
  // given it; memory that the processor sees has none of these addresses.
  uint8_t* address = nullptr;
  size_t length_bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  // kDmabuf: it begins so many bytes behind the beginning of this dma-buf, at the same place of a page as
  // `address`. The file descriptor is duplicated.
  struct Dmabuf {
    int fd = -1;
    uint64_t offset = 0;
  };
  Dmabuf dmabuf = {};
  // False: the processor must not access it. One-sided operations then copy nothing of it, and what a NIC
  // cannot do in place is refused. Call::Attach() copies, and must not be given any of it. Over RDMA only.
  bool cpu_visible = true;
};

// Memory of the program's own that is registered with the device of a channel: Channel::Register() makes it.
// While this object lives, operations of a RemoteMemory on any part of it are carried out in place: without a
// copy, and without a registration each. (Over iWARP the device asks for one for each READ all the same.)
// Large results of calls land there (Call::ReceiveInto()). It serves all channels of the runtime that the
// channel uses, which by default are all over the same device.
//
// No peer reaches it, whatever the kind of grants: it is registered for this side's operations only. An
// operation takes a range that lies in one RegisteredMemory as a whole. Ranges may be registered twice, and
// may overlap.
// Thread:   any, one at a time. The memory itself may be used by any thread.
// After fork(): in the child it may be destroyed, which leaves the parent's registration alone. Over RDMA the
//           child may lack the pages of the memory: where the kernel does not copy them on fork(), libibverbs
//           takes them from it (MADV_DONTFORK), whole pages with all else that is on them. So register whole
//           pages, which hold nothing that the child needs.
// Lifetime: may outlive the channel. The destructor, and an assignment to it, wait as Release() does, so that
//           the program may free the memory then. On a poller (in a handler or a callback) they would wait
//           for themselves, which is a CHECK, also if nothing uses the memory: Release() it first.
class [[nodiscard]] RegisteredMemory {
 public:
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  ~RegisteredMemory();

  // What was moved from is empty.
  uint8_t* data() const { return bytes_.data(); }
  size_t size_bytes() const { return bytes_.size(); }
  absl::Span<uint8_t> bytes() const { return bytes_; }

  // Deregisters it. Operations that are in flight on it, and calls with ReceiveInto() there, go on, and this
  // returns when the last one has ended: no NIC touches the memory any more. Cancel those that have no
  // deadline first. Operations that begin meanwhile, and later, copy, as with other memory of the program's;
  // calls with ReceiveInto() there end with InvalidArgument. If the processor does not see the memory,
  // operations and calls that begin meanwhile end with FailedPrecondition, and no later one may name it:
  // nothing here knows of it any more, and the copy would be a SIGSEGV. FailedPrecondition: on a poller (in a
  // handler or callback) while an operation or a call uses it, where it would wait for itself, and it stays
  // registered; in a child after fork(); it was released, or moved from.
  absl::Status Release();

  // For the library.
  static absl::StatusOr<RegisteredMemory> Register(const std::shared_ptr<transport::Runtime>& runtime,
                                                   const MemoryRange& range);

 private:
  RegisteredMemory(std::shared_ptr<transport::Runtime> runtime, transport::UserRegion* region,
                   absl::Span<uint8_t> bytes);
  void End();
  bool in_child() const;

  std::shared_ptr<transport::Runtime> runtime_;
  transport::UserRegion* region_ = nullptr;  // Null: it was released, or moved from.
  absl::Span<uint8_t> bytes_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_REGISTERED_MEMORY_H_
