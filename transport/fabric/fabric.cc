#include "hawser/transport/fabric/fabric.h"

#include <time.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace hawser::fabric {
namespace {

constexpr absl::string_view kPeersEndUrl = "type.hawser/peers-end";

}  // namespace

void SetPeersEnd(absl::Status& status) { status.SetPayload(kPeersEndUrl, absl::Cord()); }

bool IsPeersEnd(const absl::Status& status) { return status.GetPayload(kPeersEndUrl).has_value(); }

int64_t MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

void CompletionQueue::Wait(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return WaitUntil(kNoEnd);
  const int64_t now_ns = MonotonicNs();
  // What does not fit becomes the longest there is, which no sum may pass.
  const int64_t timeout_ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(timeout));
  WaitUntil(timeout_ns < kNoEnd - now_ns ? now_ns + timeout_ns : kNoEnd);
}

absl::string_view Describe(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "IBV_WC_SUCCESS";
    case CompletionStatus::kLocalError:
      return "IBV_WC_LOC_*_ERR (our own work request was wrong: memory that is not registered, or a receive "
             "shorter than the message)";
    case CompletionStatus::kRemoteAccessError:
      return "IBV_WC_REM_ACCESS_ERR (the peer refused the address or rkey of a READ, WRITE or atomic)";
    case CompletionStatus::kRemoteInvalidRequest:
      return "IBV_WC_REM_INV_REQ_ERR (the peer refused the request: a message longer than its posted "
             "receive, "
             "more outstanding READs than agreed, or an atomic on 8 bytes that are not aligned)";
    case CompletionStatus::kRemoteOperationError:
      return "IBV_WC_REM_OP_ERR (the peer could not carry out the request)";
    case CompletionStatus::kRnrRetryExceeded:
      return "IBV_WC_RNR_RETRY_EXC_ERR (the peer posted no receive for the message, and the retries are used "
             "up)";
    case CompletionStatus::kTransportRetryExceeded:
      return "IBV_WC_RETRY_EXC_ERR (the peer does not answer: it died, or the network is cut)";
    case CompletionStatus::kFlushed:
      return "IBV_WC_WR_FLUSH_ERR (an earlier error, or Disconnect(), ended the queue pair)";
  }
  return "unknown completion status";
}

absl::Status CheckRange(const MemoryRange& range) {
  const auto address = reinterpret_cast<uintptr_t>(range.address);
  if (address == 0 || range.length_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("register memory: ", range.length_bytes, " bytes at ",
                                                   address == 0 ? "no address" : "an address",
                                                   ": there is no memory"));
  }
  if (range.length_bytes - 1 > UINTPTR_MAX - address) {
    return absl::InvalidArgumentError(absl::StrCat("register memory: ", range.length_bytes,
                                                   " bytes reach beyond the end of the address space"));
  }
  if (range.kind > MemoryRange::Kind::kOnDemand) {
    return absl::InvalidArgumentError(
        absl::StrCat("register memory: there is no kind ", static_cast<int>(range.kind)));
  }
  if (range.kind != MemoryRange::Kind::kDmabuf) return absl::OkStatus();
  if (range.dmabuf_fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("register memory: ", range.dmabuf_fd, " is no file descriptor of a dma-buf"));
  }
  if (range.length_bytes > UINT64_MAX - range.dmabuf_offset) {
    return absl::InvalidArgumentError(absl::StrCat("register memory: ", range.length_bytes,
                                                   " bytes at offset ", range.dmabuf_offset,
                                                   " of a dma-buf: no dma-buf is so large"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> Fabric::RegisterRange(const MemoryRange& range) {
  if (absl::Status status = CheckRange(range); !status.ok()) return status;
  if (range.kind == MemoryRange::Kind::kDmabuf) {
    return absl::UnimplementedError(
        absl::StrCat("register memory of a dma-buf: over ", scheme(),
                     ":// the processor copies every byte. If the dma-buf can be mapped, map it and "
                     "register the mapping as host memory; else use rdma://"));
  }
  if (!range.cpu_visible) {
    return absl::UnimplementedError(
        absl::StrCat("register memory that the processor does not see: over ", scheme(),
                     ":// the processor copies every byte. Use rdma://, or memory of the host"));
  }
  return Register(range.address, range.length_bytes);
}

absl::Status CheckGrant(const Sge& range, QueuePair::Access access, Atomics atomics) {
  constexpr QueuePair::Access kAll =
      QueuePair::Access::kReadRepeatedly | QueuePair::Access::kWrite | QueuePair::Access::kAtomic;
  constexpr uint8_t kRepeatBit = 8;
  const auto bits = static_cast<uint8_t>(access);
  if (bits == 0 || !Allows(kAll, access) ||
      ((bits & kRepeatBit) != 0 && !Allows(access, QueuePair::Access::kRead))) {
    return absl::InvalidArgumentError(
        absl::StrCat("Grant: access ", bits, ": READ, WRITE or atomics, or several of them, can be granted"));
  }
  if (!Allows(access, QueuePair::Access::kAtomic)) return absl::OkStatus();
  if (atomics == Atomics::kNone) {
    return absl::InvalidArgumentError(
        "Grant: atomics, which this fabric does not have: see Fabric::atomics()");
  }
  if (reinterpret_cast<uintptr_t>(range.address) % 8 != 0) {
    return absl::InvalidArgumentError(
        "Grant: atomics on a range that begins at no multiple of 8, so that none of its words is aligned");
  }
  return absl::OkStatus();
}

absl::Status CheckAtomic(const SendWorkRequest& request) {
  const size_t bytes = request.sges.empty() ? 0 : request.sges[0].length;
  if (request.sges.size() == 1 && bytes == sizeof(uint64_t) &&
      request.remote_address % sizeof(uint64_t) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("PostSend: an atomic with ", request.sges.size(), " sges, of ", bytes,
                   " bytes the first, on an address ", request.remote_address % sizeof(uint64_t),
                   " bytes behind a multiple of 8: it needs one of 8 bytes, on a "
                   "multiple of 8"));
}

absl::StatusOr<tls::Secret> ConnectRequest::ExportSecret(absl::string_view) {
  return absl::FailedPreconditionError("no secret can be exported: the peer connects without TLS");
}

absl::StatusOr<tls::Secret> QueuePair::ExportSecret(absl::string_view) {
  return absl::FailedPreconditionError("no secret can be exported: the connection has no TLS");
}

}  // namespace hawser::fabric
