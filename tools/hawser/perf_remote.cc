#include "hawser/tools/hawser/perf_remote.h"

#include <string.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tools/hawser/perf_text.h"

namespace hawser::tool {
namespace {

using Operation = PerfTest::Operation;

// What the two sides fill memory with.
constexpr uint8_t kByteHere = 'p', kByteThere = 'g';
// What all operations in flight have here.
constexpr uint64_t kLocalBytesMax = 256 << 20;

Access AccessFor(Operation operation) {
  switch (operation) {
    case Operation::kWrite:
      return Access::kReadWrite;  // READ once, to see what was written.
    case Operation::kFetchAdd:
      return Access::kAtomic;
    default:
      return Access::kRead;
  }
}

absl::Status Explained(const absl::Status& status, const std::string& peer) {
  if (!absl::IsUnimplemented(status)) return status;
  return absl::UnimplementedError(absl::StrCat(
      peer, " is of an older version: it lets clients measure calls only, and shares no memory with them"));
}

}  // namespace

PerfRemote::PerfRemote(const PerfTest& test, RemoteMemory remote, Buffer local, uint32_t places)
    : test_(test),
      remote_(std::move(remote)),
      local_(std::move(local)),
      stride_(local_.size_bytes() / places) {
  for (uint32_t place = places; place-- > 0;) free_.push_back(place);
}

absl::StatusOr<std::unique_ptr<PerfRemote>> PerfRemote::Create(std::shared_ptr<Channel> channel,
                                                               const PerfTest& test) {
  const auto places = static_cast<uint32_t>(test.in_flight);
  // Each at a multiple of 8, for atomics.
  const uint64_t stride = (test.bytes + 7) / 8 * 8;
  if (stride > kLocalBytesMax / places) {
    return absl::InvalidArgumentError(absl::StrCat(places, " operations of ", BytesText(test.bytes),
                                                   " in flight: choose fewer (--in-flight)"));
  }
  auto call = perf::PerfStub(channel).Share();
  call.request().setAccess(static_cast<uint8_t>(AccessFor(test.operation)));
  const auto shared = call.Send().Wait();
  if (!shared.ok()) return Explained(shared.status(), channel->peer_address());
  std::optional<RemoteMemory> remote;
  const absl::Status read = shared->Read([&](auto results) { remote.emplace(channel, results.getMemory()); });
  if (!read.ok()) return read;
  if (test.bytes > remote->size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("the server shares ", BytesText(remote->size_bytes()),
                                                   " for this: choose a smaller --size"));
  }
  absl::StatusOr<Buffer> local = channel->AllocateBuffer(places * stride);
  if (!local.ok()) return local.status();
  memset(local->data(), kByteHere, local->size_bytes());
  return std::unique_ptr<PerfRemote>(new PerfRemote(test, *std::move(remote), *std::move(local), places));
}

absl::StatusOr<PerfFigure> PerfRemote::Run(const measure::Extent& extent) {
  PerfFigure figure;
  absl::Status status =
      test_.kind == PerfTest::Kind::kLatency ? RunOneAtATime(extent, figure) : RunInFlight(extent, figure);
  if (status.ok() && test_.operation == Operation::kWrite) status = CheckWritten();
  if (!status.ok()) return status;
  figure.by_nic = remote_.capabilities().by_nic;
  return figure;
}

absl::Status PerfRemote::RunOneAtATime(const measure::Extent& extent, PerfFigure& figure) {
  const auto exchange = [this] {
    absl::Status status = Begin(0).Wait();
    return status.ok() ? Check(0) : status;
  };
  return TimeOneAtATime(extent, exchange, figure);
}

absl::Status PerfRemote::RunInFlight(const measure::Extent& extent, PerfFigure& figure) {
  measure::InFlight in_flight([this] {
    const uint32_t place = TakePlace();
    // The callback fits two pointers, so it is not allocated.
    Begin(place).Then([this, place](const absl::Status& result) {
      const absl::Status status = result.ok() ? Check(place) : result;
      ReturnPlace(place);
      loop_->OnEnd(status);
    });
  });
  loop_ = &in_flight;
  const absl::StatusOr<measure::Ran> ran = in_flight.Run(extent, test_.in_flight);
  if (ran.ok()) figure.ran = *ran;
  return ran.status();
}

RemoteOperation PerfRemote::Begin(uint32_t place) {
  const absl::Span<uint8_t> local = At(place);
  switch (test_.operation) {
    case Operation::kWrite:
      return remote_.Write(0, local);
    case Operation::kFetchAdd:
      return remote_.FetchAdd(0, 1, *reinterpret_cast<uint64_t*>(local.data()));
    default:
      local.front() = local.back() = kByteHere;
      return remote_.Read(0, local);
  }
}

// Looks at the first and at the last byte, which detects a transfer that never happened. To read all of them
// would take time that is measured.
absl::Status PerfRemote::Check(uint32_t place) {
  const absl::Span<const uint8_t> local = At(place);
  if (test_.operation == Operation::kRead) {
    if (local.front() == kByteThere && local.back() == kByteThere) return absl::OkStatus();
    return absl::DataLossError("the memory of the server has other bytes than it should");
  }
  if (test_.operation != Operation::kFetchAdd || test_.in_flight != 1) return absl::OkStatus();
  uint64_t before;
  memcpy(&before, local.data(), sizeof(before));
  // Other clients may add, too.
  if (before < counted_) {
    return absl::DataLossError(
        "what this side has added is lost, or another client has changed it: all clients share this memory");
  }
  counted_ = before + 1;
  return absl::OkStatus();
}

absl::Status PerfRemote::CheckWritten() {
  const absl::Span<uint8_t> local = At(0);
  local.front() = local.back() = kByteThere;
  absl::Status status = remote_.Read(0, local).Wait();
  if (!status.ok()) return status;
  if (local.front() == kByteHere && local.back() == kByteHere) return absl::OkStatus();
  return absl::DataLossError(
      "the memory of the server has other bytes than this side has written, or another client has written "
      "there since: all clients share it");
}

uint32_t PerfRemote::TakePlace() {
  const MutexLock lock(mutex_);
  const uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

void PerfRemote::ReturnPlace(uint32_t place) {
  const MutexLock lock(mutex_);
  free_.push_back(place);
}

}  // namespace hawser::tool
