#ifndef HAWSER_RPC_SERVER_POLLER_REPORTER_H_
#define HAWSER_RPC_SERVER_POLLER_REPORTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/rpc/serving/server_report.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

class Session;
struct InServingPoller;

// Makes the reports of one poller for snapshots: goes through its sessions, some in each turn, so that calls
// do not wait for all of them.
// Thread:   the poller for Add(), Stop() and the work; any but pollers for Gather().
// Lifetime: owned by its ServingPoller. Stop() comes before the end.
// Locks:    its mutex is the last one: it calls nothing that takes another.
class PollerReporter {
 public:
  // `poller` outlives this.
  explicit PollerReporter(transport::Poller& poller)
      : poller_(poller), timer_([this] { LookAtSessions(); }) {}
  PollerReporter(const PollerReporter&) = delete;
  PollerReporter& operator=(const PollerReporter&) = delete;

  // The reports have `session` until it is destroyed.
  void Add(Session& session);
  // A report that is being made does not go on.
  void Stop();

  // Blocks for the reports of all of these. Null: of a poller that does not answer soon.
  static PollerReports Gather(const std::vector<PollerReporter*>& reporters);

 private:
  struct Gathering;

  // The next report. A poller that is held gets one to make, however often it is asked.
  std::shared_ptr<Gathering> Ask();
  // Goes on with the report that is being made.
  void LookAtSessions();

  transport::Poller& poller_;
  // These three are used on the poller.
  IntrusiveList<Session, InServingPoller> sessions_;
  std::shared_ptr<Gathering> running_;
  transport::Timer timer_;
  absl::Mutex mutex_;
  std::shared_ptr<Gathering> last_ ABSL_GUARDED_BY(mutex_);
  uint64_t gatherings_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_POLLER_REPORTER_H_
