#ifndef HAWSER_TOOLS_HAWSER_PERF_REMOTE_H_
#define HAWSER_TOOLS_HAWSER_PERF_REMOTE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hawser/base/mutex.h"
#include "hawser/measure/extent.h"
#include "hawser/measure/in_flight.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/tools/hawser/perf_meter.h"

namespace hawser::tool {

// Reaches memory that the server of one channel shares (perf.capnp), as a test of one-sided operations says.
// Thread:   one; no other calls of the channel's poller meanwhile.
class PerfRemote {
 public:
  // Unimplemented: the server is older, and shares nothing; or a device has no atomics. InvalidArgument: it
  // shares less than the test needs. ResourceExhausted: there is no memory here, or there.
  static absl::StatusOr<std::unique_ptr<PerfRemote>> Create(std::shared_ptr<Channel> channel,
                                                            const PerfTest& test);

  // DataLoss: the memory has other bytes than it should. Or the error of an operation.
  absl::StatusOr<PerfFigure> Run(const measure::Extent& extent);

 private:
  PerfRemote(const PerfTest& test, RemoteMemory remote, Buffer local, uint32_t places);

  absl::Status RunOneAtATime(const measure::Extent& extent, PerfFigure& figure);
  absl::Status RunInFlight(const measure::Extent& extent, PerfFigure& figure);
  RemoteOperation Begin(uint32_t place);
  // After an operation with success.
  absl::Status Check(uint32_t place);
  // That WRITEs have arrived.
  absl::Status CheckWritten();
  absl::Span<uint8_t> At(uint32_t place) { return {local_.data() + place * stride_, test_.bytes}; }
  uint32_t TakePlace();
  void ReturnPlace(uint32_t place);

  const PerfTest test_;
  RemoteMemory remote_;
  Buffer local_;  // A place for each operation in flight.
  const size_t stride_;
  uint64_t counted_ = 0;  // Fetch-and-adds one at a time: what the last one has left.

  measure::InFlight* loop_ = nullptr;
  Mutex mutex_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_REMOTE_H_
