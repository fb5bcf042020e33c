#ifndef HAWSER_RPC_BUFFER_H_
#define HAWSER_RPC_BUFFER_H_

// A payload in registered memory, which a call sends from there, without a copy:
//
//   absl::StatusOr<hawser::Buffer> buffer = channel->AllocateBuffer(size_bytes);
//   if (!buffer.ok()) return buffer.status();
//   fill(buffer->data(), buffer->size_bytes());  // From the disk, say.
//   auto call = pages.Write();
//   call.request().setNumber(7);
//   call.request().adoptPage(call.Attach(*std::move(buffer)));
//   return call.Send().Wait().status();

#include <capnp/blob.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "hawser/transport/memory/buffer_pool.h"

namespace hawser {

// Registered memory for one payload, from AllocateBuffer() of a Channel, a Server or a ServerContext.
// Call::Attach() and ServerContext::Attach() send it without a copy. Move-only. It is not zeroed, and may
// hold what another peer has sent. Fill all of it, or attach only what you filled, up to the end of a word:
// Attach() looks at the rest of the last word.
class Buffer {
 public:
  Buffer() = default;
  Buffer(transport::Lease lease, size_t size_bytes) : lease_(std::move(lease)), size_bytes_(size_bytes) {
    // Messages consist of whole words: the rest of the last one crosses, too.
    if (const size_t rest = size_bytes % kWordBytes; lease_ && rest != 0) {
      memset(lease_.data() + size_bytes, 0, kWordBytes - rest);
    }
  }

  // For AllocateBuffer(). ResourceExhausted: `pool` is at its limit.
  static absl::StatusOr<Buffer> Allocate(transport::BufferPool& pool, size_t size_bytes) {
    absl::StatusOr<transport::Lease> lease = pool.Acquire(std::max<size_t>(1, size_bytes));
    if (!lease.ok()) return lease.status();
    return Buffer(*std::move(lease), size_bytes);
  }

  // What was moved from is empty.
  Buffer(Buffer&& other) noexcept
      : lease_(std::move(other.lease_)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    lease_ = transport::Lease(std::move(other.lease_));  // `lease_ = std::move(...)` would swap.
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    return *this;
  }

  uint8_t* data() const { return lease_ ? lease_.data() : nullptr; }
  size_t size_bytes() const { return size_bytes_; }
  capnp::Data::Reader reader() const { return {data(), size_bytes_}; }

 private:
  static constexpr size_t kWordBytes = 8;

  transport::Lease lease_;
  size_t size_bytes_ = 0;
};

}  // namespace hawser

#endif  // HAWSER_RPC_BUFFER_H_
