#include "hawser/rpc/server/serving_poller.h"

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/wire/background.h"

namespace hawser::internal {
namespace {

// New connections that may wait for one poller, which a handler may hold. Each takes a file descriptor. A
// host with more of them than its share would have those of all others refused.
constexpr uint32_t kWaitingMax = 256;
constexpr uint32_t kWaitingOfHostMax = 192;

}  // namespace

void ServingPoller::End() {
  // When the poller runs this, the end of its last session has returned.
  RunAndWait(poller_, [this] {
    reporter_.Stop();
    poller_.AddAsyncInterest(-1);
  });
}

ServingPoller::Queue ServingPoller::StartWaiting(const PeerHost& host) {
  absl::MutexLock lock(&mutex_);
  if (waiting_ >= kWaitingMax) return Queue::kIsFull;
  const auto found = waiting_of_host_.find(host);
  const uint32_t of_host = found == waiting_of_host_.end() ? 0 : found->second;
  if (of_host >= kWaitingOfHostMax) return Queue::kIsFullOfHost;
  ++waiting_;
  waiting_of_host_[host] = of_host + 1;
  return Queue::kHasRoom;
}

void ServingPoller::StopWaiting(const PeerHost& host) {
  absl::MutexLock lock(&mutex_);
  HAWSER_SUBTRACT(waiting_, 1);
  const auto found = waiting_of_host_.find(host);
  HAWSER_CHECK(found != waiting_of_host_.end(), "no connection of this host waits, but ", waiting_,
               " others");
  if (--found->second == 0) waiting_of_host_.erase(found);
}

absl::Status ServingPoller::FullError(bool of_host) {
  return absl::ResourceExhaustedError(
      of_host ? absl::StrCat("each poller of the server has ", kWaitingOfHostMax,
                             " new connections of this host that it does not come to; do handlers hold it?")
              : absl::StrCat("each poller of the server has ", kWaitingMax,
                             " new connections that it does not come to; do handlers hold it?"));
}

}  // namespace hawser::internal
