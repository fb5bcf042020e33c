#include "hawser/services/perf/raw_port.h"

#include <utility>

#include "absl/status/statusor.h"
#include "hawser/base/thread.h"

namespace hawser::internal {

absl::Status RawPort::Start(std::function<void()> on_end) {
  absl::StatusOr<std::thread> thread = StartThread("hawser-raw-port", [this, on_end = std::move(on_end)] {
    Run();
    ended_.store(true, std::memory_order_release);
    on_end();
  });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

void RawPort::Join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace hawser::internal
