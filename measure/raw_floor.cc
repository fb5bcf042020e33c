#include "hawser/measure/raw_floor.h"

#include <algorithm>
#include <cstddef>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace hawser::measure {
namespace {

// What StreamFrom() has asked for, and not got: enough that the other side never waits for it, and no more
// than half a second has to be waited for at the end.
constexpr uint64_t kAheadBytes = 64 << 20;
constexpr int64_t kAheadMin = 4, kAheadMax = 4096;

absl::Status Closed() { return absl::UnavailableError("the server closed the raw socket"); }

}  // namespace

absl::Status BeginPingPong(RawSocket& socket, uint64_t bytes, bool spin) {
  return socket.Send(&bytes, sizeof(bytes), spin) ? absl::OkStatus() : Closed();
}

absl::Status PingPong(RawSocket& socket, absl::Span<uint8_t> memory, bool spin) {
  return socket.Send(memory.data(), memory.size(), spin) && socket.Receive(memory.data(), memory.size(), spin)
             ? absl::OkStatus()
             : Closed();
}

absl::Status PutOne(RawSocket& socket, absl::Span<const uint8_t> memory, bool spin) {
  const uint64_t size = memory.size();
  uint8_t answer;
  return socket.Send(&size, sizeof(size), spin) && socket.Send(memory.data(), size, spin) &&
                 socket.Receive(&answer, 1, spin)
             ? absl::OkStatus()
             : Closed();
}

absl::Status GetOne(RawSocket& socket, absl::Span<uint8_t> memory, bool spin) {
  const uint64_t size = memory.size();
  return socket.Send(&size, sizeof(size), spin) && socket.Receive(memory.data(), size, spin)
             ? absl::OkStatus()
             : Closed();
}

absl::StatusOr<Ran> Batches(RawSocket& socket, uint64_t bytes, int batch, const Extent& extent, bool spin) {
  std::vector<uint8_t> buffer(bytes * static_cast<uint64_t>(batch));
  Ran ran;
  const absl::Time start = absl::Now();
  while (ran.exchanges < extent.exchanges && ran.time < extent.time) {
    const absl::Status status = PingPong(socket, absl::MakeSpan(buffer), spin);
    if (!status.ok()) return status;
    ran.exchanges += batch;
    ran.time = absl::Now() - start;
  }
  return ran;
}

absl::StatusOr<Ran> StreamInto(RawSocket& socket, absl::Span<const uint8_t> memory, const Extent& extent) {
  const uint64_t size = memory.size();
  uint8_t answers[4096];
  int64_t answered = 0;
  Ran ran;
  const absl::Time start = absl::Now();
  while (ran.exchanges < extent.exchanges && (ran.exchanges == 0 || absl::Now() - start < extent.time)) {
    if (!socket.Send(&size, sizeof(size), false) || !socket.Send(memory.data(), size, false)) return Closed();
    ++ran.exchanges;
    // The stream never stops for an answer, but takes those that are there: the other side could not send
    // more of them some time.
    if (ran.exchanges % 64 == 0) {
      answered += static_cast<int64_t>(socket.ReceiveReady(answers, sizeof(answers)));
    }
  }
  while (answered < ran.exchanges) {
    const auto most = static_cast<size_t>(std::min<int64_t>(sizeof(answers), ran.exchanges - answered));
    const size_t n = socket.ReceiveSome(answers, most, false);
    if (n == 0) return Closed();
    answered += static_cast<int64_t>(n);
  }
  ran.time = absl::Now() - start;
  return ran;
}

absl::StatusOr<Ran> StreamFrom(RawSocket& socket, absl::Span<uint8_t> memory, const Extent& extent) {
  const uint64_t size = memory.size();
  const int64_t ahead_max =
      std::clamp(static_cast<int64_t>(kAheadBytes / std::max<uint64_t>(size, 1)), kAheadMin, kAheadMax);
  const std::vector<uint64_t> wishes(static_cast<size_t>(ahead_max), size);
  int64_t asked = 0;
  Ran ran;
  const absl::Time start = absl::Now();
  bool more = true;
  while (more || ran.exchanges < asked) {
    const int64_t ahead = asked - ran.exchanges;
    if (more && ahead <= ahead_max / 2) {  // Half of them with one call.
      const int64_t ask = std::min(ahead_max - ahead, extent.exchanges - asked);
      if (!socket.Send(wishes.data(), static_cast<size_t>(ask) * sizeof(uint64_t), false)) return Closed();
      asked += ask;
      more = asked < extent.exchanges;
    }
    if (!socket.Receive(memory.data(), size, false)) return Closed();
    ++ran.exchanges;
    if (more && absl::Now() - start >= extent.time) more = false;
  }
  ran.time = absl::Now() - start;
  return ran;
}

}  // namespace hawser::measure
