#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_CONTROL_THREAD_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_CONTROL_THREAD_H_

#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace hawser::fabric {

// Carries out the control commands of one device: those that create, change or destroy its queue pairs, allocate and free
// memory windows, deregister grants, and answer, connect and destroy rdma_cm_ids. (The poller itself makes ids, has them
// resolved, rejects what it does not accept, and registers a grant on a device without windows.) A NIC takes 20 to 200 us for each, and some wait for the kernel. A poller that
// carried them out itself would complete no calls meanwhile: for seconds, when a host with a thousand connections dies.
class VerbsExecutor {
 public:
  virtual ~VerbsExecutor() = default;

  // Calls `command` once, after those that were given before. It may be called before this returns.
  // Thread: any.
  virtual void Run(absl::AnyInvocable<void()> command) = 0;
};

// A thread for the commands of one device. It starts with the first command.
// Thread:   any; commands run on the thread of this object, one at a time.
// Lifetime: the destructor waits until every command has run. It must not run on the thread itself. A child after fork()
//           has no such thread, and must not use or destroy this.
// Failure:  if the system has no thread left, Run() calls the command itself, and the next Run() tries again.
class VerbsControlThread final : public VerbsExecutor {
 public:
  VerbsControlThread() = default;
  ~VerbsControlThread() override;

  void Run(absl::AnyInvocable<void()> command) override;

 private:
  void Serve();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<absl::AnyInvocable<void()>> commands_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // Not joinable: not started yet.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_CONTROL_THREAD_H_
