#include "hawser/rpc/server/poller_reporter.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/rpc/server/session.h"

namespace hawser::internal {
namespace {

// How long a snapshot waits for pollers: a turn takes half a millisecond, unless a handler holds one.
constexpr absl::Duration kPatience = absl::Milliseconds(20);
// How long it waits for those that have begun their reports by then: they are busy, or have many sessions.
constexpr absl::Duration kPatienceOnceBegun = absl::Seconds(1);

// Sessions that a poller looks at in one turn: some 0.1 ms.
constexpr size_t kSessionsOfTurn = 128;

}  // namespace

// One report in the making. Others read the report only after `done`. PollerReporter refers to it, so that
// Stop() can stop it.
struct PollerReporter::Gathering {
  explicit Gathering(uint64_t its_number) : number(its_number) {}

  PollerReport report;
  const uint64_t number;                  // Sessions that were looked at have it.
  std::atomic<int64_t> begun_unix_ns{0};  // 0: it has not.
  absl::Notification done;
};

void PollerReporter::Add(Session& session) { sessions_.MoveToBack(&session); }

void PollerReporter::Stop() { poller_.timers().Cancel(timer_); }

void PollerReporter::LookAtSessions() {
  const std::shared_ptr<Gathering>& gathering = running_;
  // Those that were looked at are behind those that were not, and new ones are behind all.
  for (size_t looks = 0; looks < kSessionsOfTurn; ++looks) {
    Session* const session = sessions_.front();
    if (session == nullptr || session->last_gathering == gathering->number) {
      gathering->report.read_bytes_in_flight = poller_.read_budget().taken_bytes();
      gathering->report.reads_waiting = poller_.read_budget().waiting();
      gathering->report.memory_waiters = poller_.memory_queue().waiting();
      gathering->done.Notify();
      running_.reset();
      return;
    }
    session->AddTo(gathering->report);
    session->last_gathering = gathering->number;
    sessions_.MoveToBack(session);
  }
  poller_.timers().Set(timer_, poller_.now_ns());
}

std::shared_ptr<PollerReporter::Gathering> PollerReporter::Ask() {
  std::shared_ptr<Gathering> gathering;
  {
    absl::MutexLock lock(&mutex_);
    if (last_ != nullptr && !last_->done.HasBeenNotified()) return last_;
    gathering = last_ = std::make_shared<Gathering>(++gatherings_);
  }
  poller_.Run([this, gathering] {
    gathering->begun_unix_ns.store(absl::ToUnixNanos(absl::Now()), std::memory_order_relaxed);
    running_ = gathering;
    LookAtSessions();
  });
  return gathering;
}

PollerReports PollerReporter::Gather(const std::vector<PollerReporter*>& reporters) {
  std::vector<std::shared_ptr<Gathering>> gatherings;
  for (PollerReporter* const reporter : reporters) gatherings.push_back(reporter->Ask());
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
