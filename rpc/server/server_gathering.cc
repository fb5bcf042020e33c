// How a ServerCore asks its pollers what is on them, for a snapshot: see server_report.h.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "hawser/rpc/server/server_core.h"

namespace hawser::internal {
namespace {

// How long a snapshot waits for pollers: a turn takes half a millisecond, unless a handler holds one.
constexpr absl::Duration kPatience = absl::Milliseconds(20);
// And for those that have begun their reports by then: they are busy, or have many sessions.
constexpr absl::Duration kPatienceOnceBegun = absl::Seconds(1);

// Sessions that a poller looks at in one turn: some 0.1 ms.
constexpr size_t kSessionsOfTurn = 128;

}  // namespace

std::vector<ServerCore::NamedPoller> ServerCore::AllServing() const {
  std::vector<NamedPoller> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& [scheme_and_device, pollers] : pollers_) {
    const auto& [scheme, device] = scheme_and_device;
    const std::string prefix = absl::StrCat(scheme, device.empty() ? "" : " ", device, " ");
    for (const auto& serving : pollers->serving) {
      const size_t number = static_cast<size_t>(&serving - pollers->serving.data());
      all.push_back({absl::StrCat(prefix, number), std::string(pollers->runtime->scheme()), serving.get()});
    }
  }
  return all;
}

// One report in the making. Its poller fills it in, some sessions in each turn, so that calls do not wait for
// all of them. Others read the report only after `done`. ServingPoller refers to it, so that End() can stop
// it.
struct ServerCore::Gathering {
  explicit Gathering(uint64_t its_number) : number(its_number) {}

  PollerReport report;
  const uint64_t number;                  // Sessions that were looked at have it.
  std::atomic<int64_t> begun_unix_ns{0};  // 0: it has not.
  absl::Notification done;
};

void ServerCore::Gather(ServingPoller& serving) {
  const std::shared_ptr<Gathering>& gathering = serving.running;
  // Those that were looked at are behind those that were not, and new ones are behind all.
  for (size_t looks = 0; looks < kSessionsOfTurn; ++looks) {
    Session* const session = serving.sessions.front();
    if (session == nullptr || session->last_gathering == gathering->number) {
      transport::Poller& poller = serving.poller;
      gathering->report.read_bytes_in_flight = poller.read_budget().taken_bytes();
      gathering->report.reads_waiting = poller.read_budget().waiting();
      gathering->report.memory_waiters = poller.memory_queue().waiting();
      gathering->done.Notify();
      serving.running.reset();
      return;
    }
    session->AddTo(gathering->report);
    session->last_gathering = gathering->number;
    serving.sessions.MoveToBack(session);
  }
  serving.poller.timers().Set(serving.gather_timer, serving.poller.now_ns());
}

PollerReports ServerCore::GatherReports(const std::vector<NamedPoller>& pollers) {
  std::vector<std::shared_ptr<Gathering>> gatherings;
  for (const NamedPoller& named : pollers) {
    ServingPoller& serving = *named.serving;
    transport::Poller& poller = serving.poller;
    {
      absl::MutexLock lock(&mutex_);
      std::shared_ptr<Gathering>& last = serving.gathering;
      const bool runs = last != nullptr && !last->done.HasBeenNotified();
      if (!runs) last = std::make_shared<Gathering>(++serving.gatherings);
      gatherings.push_back(last);
      // A poller that is held gets one of these, however often it is asked.
      if (runs) continue;
    }
    poller.Run([&serving, gathering = gatherings.back()] {
      gathering->begun_unix_ns.store(absl::ToUnixNanos(absl::Now()), std::memory_order_relaxed);
      serving.running = gathering;
      Gather(serving);
    });
  }
  PollerReports reports;
  const absl::Time give_up = absl::Now() + kPatience;
  for (const std::shared_ptr<Gathering>& gathering : gatherings) {
    bool done = gathering->done.WaitForNotificationWithDeadline(give_up);
    // It is busy, or has many sessions. Or it has been held since: that is waited for once, not by each
    // snapshot.
    if (const int64_t begun_unix_ns = gathering->begun_unix_ns.load(std::memory_order_relaxed);
        !done && begun_unix_ns != 0) {
      done = gathering->done.WaitForNotificationWithDeadline(absl::FromUnixNanos(begun_unix_ns) +
                                                             kPatienceOnceBegun);
    }
    reports.push_back(done ? std::shared_ptr<const PollerReport>(gathering, &gathering->report) : nullptr);
  }
  return reports;
}

}  // namespace hawser::internal
