#include "hawser/tests/strangers/crowd.h"

#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/time/clock.h"

namespace hawser::strangers {
namespace {

constexpr int kTickMs = 5;
constexpr int64_t kCountEveryNs = 50 * kMs;

in_addr SourceOf(From from, size_t index) {
  constexpr uint32_t kLoopbackNet = 127u << 24;
  uint32_t address = kLoopbackNet | 1;
  if (from == From::kOne) address = kLoopbackNet | 2;
  if (from == From::kEach) address = kLoopbackNet | (1 << 16 | static_cast<uint32_t>(index + 1));
  return {htonl(address)};
}

}  // namespace

Crowd::Crowd(const CrowdOptions& options) : nice_(options.nice), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  size_t total = 0;
  for (const CrowdOptions::Group& group : options.groups) total += static_cast<size_t>(group.count);
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  const int64_t arrival_ns = absl::ToInt64Nanoseconds(options.arrival);
  for (const CrowdOptions::Group& group : options.groups) {
    for (int i = 0; i < group.count; ++i) {
      const size_t index = strangers_.size();
      strangers_.push_back(group.kind->make());
      strangers_.back()->Start(
          options.target, SourceOf(options.from, index),
          now_ns + arrival_ns * static_cast<int64_t>(index) / static_cast<int64_t>(total));
    }
  }
  Count();
  thread_ = std::thread([this] { Run(); });
}

Crowd::~Crowd() {
  stopping_ = true;
  thread_.join();
  strangers_.clear();
  close(epoll_);
}

bool Crowd::WaitUntilAtWork(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(
      absl::Condition(
          +[](CrowdCounts* counts) { return counts->at_work + counts->turned_away == counts->strangers; },
          &counts_),
      patience);
}

CrowdCounts Crowd::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void Crowd::Run() {
  // Until here this thread has the priority of the one that started it.
  setpriority(PRIO_PROCESS, 0, std::max(nice_, getpriority(PRIO_PROCESS, 0)));
  std::array<epoll_event, 256> events;
  int64_t next_count_ns = 0;
  while (!stopping_) {
    const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kTickMs);
    const int64_t now_ns = absl::GetCurrentTimeNanos();
    for (const auto& stranger : strangers_) {
      stranger->OnTime(now_ns);
      Watch(*stranger);
    }
    for (int i = 0; i < n; ++i) {
      auto* const stranger = static_cast<Stranger*>(events[static_cast<size_t>(i)].data.ptr);
      stranger->line().OnEvents(events[static_cast<size_t>(i)].events);
      Watch(*stranger);
    }
    if (now_ns < next_count_ns) continue;
    next_count_ns = now_ns + kCountEveryNs;
    Count();
  }
}

// The kernel removes a closed socket from epoll.
void Crowd::Watch(Stranger& stranger) {
  Line& line = stranger.line();
  if (!line.open()) {
    line.watched_fd = -1;
    return;
  }
  const uint32_t wanted = line.wanted_events();
  const bool is_new = line.watched_fd != line.fd();
  if (!is_new && line.watched_events == wanted) return;
  epoll_event event = {};
  event.events = wanted;
  event.data.ptr = &stranger;
  epoll_ctl(epoll_, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, line.fd(), &event);
  line.watched_fd = line.fd();
  line.watched_events = wanted;
}

void Crowd::Count() {
  CrowdCounts counts;
  counts.strangers = strangers_.size();
  for (const auto& stranger : strangers_) {
    const StrangerCounts& each = stranger->counts();
    counts.at_work += each.at_work;
    counts.turned_away += !each.at_work && each.rejected > 0;
    counts.dials += each.dials;
    counts.accepted += each.accepted;
    counts.rejected += each.rejected;
  }
  absl::MutexLock lock(&mutex_);
  counts_ = counts;
}

}  // namespace hawser::strangers
