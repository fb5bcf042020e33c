#ifndef HAWSER_RPC_REMOTE_MEMORY_H_
#define HAWSER_RPC_REMOTE_MEMORY_H_

// Reads memory of a server without a handler, with a ticket that a call has returned:
//
//   auto opened = TablesStub(channel).Open().Send().Wait();
//   if (!opened.ok()) return opened.status();
//   hawser::RemoteMemory table(channel, (*opened)->getTable());
//   absl::StatusOr<hawser::Buffer> bytes = channel->AllocateBuffer(kRowBytes);
//   if (!bytes.ok()) return bytes.status();
//   absl::Status read = table.Read(row * kRowBytes, {bytes->data(), kRowBytes}).Wait();
//   if (!read.ok()) return read;

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/remote_call_handle.h"
#include "hawser/rpc/memory.capnp.h"

namespace hawser {

namespace internal {
class RemoteLane;     // rpc/client/remote_lane.h
struct RemoteTicket;  // rpc/client/remote_ticket.h
}  // namespace internal

// Bytes of remote memory: an offset from the beginning of what the ticket gives.
struct RemoteRange {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// `count` ranges of `length` bytes, each `stride` bytes behind the one before.
struct RemoteStride {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t stride = 0;
  uint64_t count = 0;
};

struct RemoteOptions {
  // After which the operation ends. Unset: ChannelOptions::default_timeout. Zero or negative: it is not sent,
  // and ends with DeadlineExceeded. Infinite: it has no deadline.
  std::optional<absl::Duration> timeout = std::nullopt;
};

// What an atomic is atomic with.
enum class RemoteAtomics : uint8_t {
  kNone,           // There are none: a device, on either side, has none. Such an operation is Unimplemented.
  kNic,            // The atomics of all clients that come through the same device of the server.
  kWithProcessor,  // These, and what the server does to the same bytes with std::atomic_ref.
};

// What one-sided operations of a channel can do. Said by the connection that carries them, which the first
// operation opens.
struct RemoteCapabilities {
  // That connection was up. Before, only `by_nic` and the last two are known.
  bool is_known = false;
  // The server's NIC carries the operations out. False, over TCP: all of them are emulated, by the thread
  // that drives the poller of the connection, also while handlers run on an executor, but not while one runs
  // on that poller. They mean the same, and are atomic in the same units.
  bool by_nic = false;
  RemoteAtomics atomics = RemoteAtomics::kNone;
  // READs and atomics that are outstanding at a time, of all operations of the channel; those beyond wait.
  uint32_t read_depth = 0;
  // The same of ranges, of operations of any kind.
  uint32_t depth = 0;
  // Of one operation: the most bytes, as many as a ticket gives at most, and the most ranges.
  uint64_t operation_bytes_max = 0;
  size_t ranges_max = 0;
};

// A READ, a WRITE or an atomic that was begun. One of Wait(), Then() and co_await takes its one result; a
// second one is a CHECK. The result is there when no NIC can touch the memory of the operation any more,
// however it ended.
//
// An operation whose deadline passes, or that is cancelled, before it is complete can be stopped in one way
// only: its connection, which is one for the one-sided operations of the channel, is broken off. The result
// follows when the NIC has let go of everything, which may be seconds after the deadline. The channel's other
// operations on it end with Unavailable; the next one opens a new connection. Calls are not concerned.
class [[nodiscard]] RemoteOperation {
 public:
  // What was moved from has no operation, and its result is FailedPrecondition.
  RemoteOperation(RemoteOperation&& other) noexcept
      : call_(std::move(other.call_)),
        is_taken_(other.is_taken_),
        failed_(std::exchange(other.failed_, absl::OkStatus())) {}
  RemoteOperation& operator=(RemoteOperation&&) = delete;
  // If its result was not taken, it cancels the operation, and waits for its end if a NIC may touch the
  // caller's memory until then: memory of AllocateBuffer() or of a RegisteredMemory. In a handler or a
  // callback that would be a wait for itself, which is a CHECK, also if the operation has ended by then.
  ~RemoteOperation() {
    if (call_) [[unlikely]]
      End();
  }

  // OK: complete. For a READ the bytes are there. For a WRITE over TCP, InfiniBand or RoCE they are in
  // the owner's memory, where its processor sees them. Over iWARP they may be on their way yet, also when a
  // later call has been answered, which crosses another connection: they are there when a Read() through the
  // same RemoteMemory, begun after this, has ended with OK. A WRITE that the owner counts
  // (GrantOptions::counter) is there, and counted, over each of them.
  // DeadlineExceeded, Cancelled: see above. A WRITE or an atomic may have happened then.
  // OutOfRange: beyond the ticket. PermissionDenied: the ticket is good, and not for this: no operation of
  // this kind is possible with it. FailedPrecondition: the ticket is void, and a new one is needed: the
  // memory was revoked, or the ticket is of an earlier connection of the channel, an earlier run of the
  // server, another client, or forged. (FailedPrecondition also: the memory here is of a RegisteredMemory
  // that is being released, or that its device cannot use any more, see the guide.) Unavailable: the
  // connection was lost, or is not there, or the server refuses its lane, and the text says why; a later
  // operation says if the ticket is void. The text of both says whether a WRITE may have happened, and
  // whether it may have been counted.
  // ResourceExhausted: the pool has no memory, the server has no room, or this client uses 128 tickets; a
  // later operation asks again.
  // Unimplemented: an atomic, and a device has none. InvalidArgument: no ticket of a server, too many ranges,
  // no bytes, another sum of lengths than the local memory has, an atomic at no multiple of 8, or local
  // memory that is null, or that the processor does not see and that is in no RegisteredMemory as a whole.
  //
  // Blocks until the result is there. FailedPrecondition: in a handler or callback; the operation is
  // cancelled. (There it is a CHECK for memory that a NIC may touch, whether it has ended or not: see the
  // destructor.)
  absl::Status Wait();

  // `callback` runs once, where a callback of a call would (PendingCall::Then()). This object may be
  // destroyed then: the operation goes on, and the memory stays in use until the callback runs. It runs here,
  // before Then() returns, for what has no poller: an operation that was never begun, because its
  // RemoteMemory reaches nothing or it has too many ranges; and in a child after fork().
  void Then(absl::AnyInvocable<void(const absl::Status&)> callback);

  // absl::Status status = co_await remote.Read(...); resumes where a callback would run. A coroutine that is
  // destroyed meanwhile drops the operation as the destructor does.
  class Awaiter;
  Awaiter operator co_await();

  // Makes the result Cancelled, unless it is there already. After Then(), too. From any thread.
  void Cancel();

  // For RemoteMemory.
  explicit RemoteOperation(internal::RemoteCallHandle call) : call_(std::move(call)) {}
  explicit RemoteOperation(absl::Status failed) : failed_(std::move(failed)) {}

 private:
  void End();
  void EndInChild();
  void Take();
  // Without a `call_`.
  absl::Status WhyNone() const;

  // Empty: it was never begun, and `failed_` says why; OK: it was moved from. Cancel() of another thread
  // reads it beside Wait().
  internal::RemoteCallHandle call_;
  bool is_taken_ = false;  // The result: `call_` is for Cancel() only.
  absl::Status failed_;
};

// What a coroutine suspends on.
class RemoteOperation::Awaiter {
 public:
  explicit Awaiter(RemoteOperation operation) : operation_(std::move(operation)) {
    if (!operation_.call_) operation_.failed_ = operation_.WhyNone();
  }
  bool await_ready() const { return !operation_.call_; }
  // False: it has failed, and the coroutine goes on at once.
  bool await_suspend(std::coroutine_handle<> waiting);
  absl::Status await_resume() { return operation_.failed_; }

 private:
  RemoteOperation operation_;
};

inline RemoteOperation::Awaiter RemoteOperation::operator co_await() { return Awaiter(std::move(*this)); }

// Memory of a server, which this client reaches by itself: no handler runs there, and over RDMA not even a
// thread. A handler of the server has granted it, and sent the ticket.
//   hawser::RemoteMemory remote(channel, (*reply)->getTable());
//   absl::StatusOr<hawser::Buffer> buffer = channel->AllocateBuffer(4096);
//   absl::Status status = remote.Read(0, {buffer->data(), 4096}).Wait();
//
// The operations of a channel cross a connection of their own, a lane, which the first one opens. Memory that
// Channel::AllocateBuffer() gave, or that Channel::Register() has registered (rpc/registered_memory.h), is
// read into, and written from, without a copy. Other memory is copied through such a buffer. A caller's
// memory belongs to the operation until its result is there. Operations have no order among themselves, nor
// with calls: one that must see another is begun after the result of that. A READ of more than 8 aligned
// bytes may see parts of different writes; over iWARP so may one of 8.
// Thread:   any.
// Lifetime: keeps the channel. A ticket is good for the connection that its call came over: when the channel
//           has connected anew, operations fail with FailedPrecondition, and a new ticket is needed. The
//           object may be destroyed before the results of its operations are there.
class RemoteMemory {
 public:
  // Ranges of one operation.
  static constexpr size_t kRangesMax = 65536;

  // Fails with each operation: a channel that is null, that leads back to a client, or that has several
  // connections (ChannelOptions::connections), since a ticket is for one of them.
  RemoteMemory(std::shared_ptr<Channel> channel, memory::Ticket::Reader ticket);
  // What was moved from reaches nothing: operations end with FailedPrecondition.
  RemoteMemory(RemoteMemory&& other) noexcept;
  RemoteMemory& operator=(RemoteMemory&& other) noexcept;

  // Bytes that the ticket gives. 0: nothing can be reached.
  uint64_t size_bytes() const;

  // READs `into.size()` bytes at `offset`.
  RemoteOperation Read(uint64_t offset, absl::Span<uint8_t> into, const RemoteOptions& options = {});
  // READs these ranges, one behind the other, in one operation: up to 128 are one post.
  // `into.size()` is the sum of their lengths.
  RemoteOperation Read(absl::Span<const RemoteRange> ranges, absl::Span<uint8_t> into,
                       const RemoteOptions& options = {});
  RemoteOperation Read(std::initializer_list<RemoteRange> ranges, absl::Span<uint8_t> into,
                       const RemoteOptions& options = {}) {
    return Read(absl::Span<const RemoteRange>(ranges.begin(), ranges.size()), into, options);
  }
  RemoteOperation Read(const RemoteStride& stride, absl::Span<uint8_t> into,
                       const RemoteOptions& options = {});
  // WRITEs these bytes at `offset`.
  RemoteOperation Write(uint64_t offset, absl::Span<const uint8_t> from, const RemoteOptions& options = {});

  // If the 8 bytes at `offset`, a multiple of 8, are `expected`, they become `desired`. `before` gets what
  // they were, in this host's byte order. It is atomic with the atomics of other clients of the server's
  // device, and need not be with those of the server's processor. WRITEs are atomic with none. Unimplemented:
  // a device has no atomics.
  RemoteOperation CompareAndSwap(uint64_t offset, uint64_t expected, uint64_t desired, uint64_t& before,
                                 const RemoteOptions& options = {});
  // Likewise adds to them, modulo 2^64.
  RemoteOperation FetchAdd(uint64_t offset, uint64_t addend, uint64_t& before,
                           const RemoteOptions& options = {});

  RemoteCapabilities capabilities() const;
  // What operations without RemoteOptions::timeout get: ChannelOptions::default_timeout.
  absl::Duration default_timeout() const;

 private:
  friend class RemoteRing;

  struct What;
  RemoteOperation Begin(const What& what, absl::Span<const RemoteRange> ranges, absl::Span<uint8_t> local,
                        const RemoteOptions& options);
  // A random number of the channel's environment. After fork() a child gets others than its parent.
  uint64_t Random() const;

  std::shared_ptr<Channel> channel_;
  absl::Status why_not_;                        // Why nothing can be reached; OK: it was moved from.
  std::shared_ptr<internal::RemoteLane> lane_;  // Null: nothing can be reached, and the next is null, too.
  std::shared_ptr<internal::RemoteTicket> ticket_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_REMOTE_MEMORY_H_
