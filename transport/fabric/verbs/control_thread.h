#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_CONTROL_THREAD_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_CONTROL_THREAD_H_

#include <cstddef>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace hawser::fabric {

// Carries out the control commands of one device: those that create, change or destroy its queue pairs,
// allocate and free memory windows, deregister grants, and answer, connect and destroy rdma_cm_ids. A NIC
// takes 20 to 200 us for each, and some wait for the kernel. A poller that carried them out itself would
// complete no calls meanwhile: for seconds, when a host with a thousand connections dies.
//
// What the poller still does itself: it makes ids, has them resolved, rejects what it does not accept, has
// ids of listeners and of its own; allocates a window when the stock is empty; registers a grant on a device
// without windows, and deregisters grants when this thread is far behind; registers and deregisters the sinks
// of READs over iWARP; and destroys an ibv_qp whose queue pair is destroyed while work requests are
// outstanding.
class VerbsExecutor {
 public:
  virtual ~VerbsExecutor() = default;

  // Calls `command` once, after those that were given before. It may be called before this returns.
  // Thread: any.
  virtual void Run(absl::AnyInvocable<void()> command) = 0;
};

// A thread for the commands of one device. It starts with the first command.
// Thread:   any; commands run on the thread of this object, one at a time.
// Lifetime: the destructor waits until every command has run. It must not run on the thread itself. A child
//           after fork() has no such thread, and must not use or destroy this.
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

// Threads for queue pairs that connect over iWARP: one for each, as long as it has commands. There
// rdma_connect() (siw: siw_connect() in siw_cm.c) or rdma_destroy_id() of an id that is connecting (all:
// iw_destroy_cm_id() in iwcm.c) waits for the peer, for two minutes if no host has that address. On the
// thread of the device that would hold every other queue pair.
// Thread:   any.
// Lifetime: the destructor waits until every command has run. It must not run in a command. A child after
//           fork() must not use or destroy this.
class VerbsConnectThreads final {
 public:
  VerbsConnectThreads() = default;
  ~VerbsConnectThreads();

  // Calls `command` once, after the earlier ones with this key. False: the system has no thread left, and
  // `command` is as it was; none with this key is there.
  bool Run(const void* key, absl::AnyInvocable<void()>& command);

 private:
  void Serve(const void* key);

  absl::Mutex mutex_;
  // A key is here as long as it has a thread.
  absl::flat_hash_map<const void*, std::deque<absl::AnyInvocable<void()>>> commands_ ABSL_GUARDED_BY(mutex_);
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_CONTROL_THREAD_H_
