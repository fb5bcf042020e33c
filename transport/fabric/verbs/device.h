#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/fork.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/control_thread.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/suitability.h"
#include "hawser/transport/fabric/verbs/window_stock.h"
#include "hawser/transport/fabric/verbs/windows.h"

namespace hawser::fabric {

// What qp_context and cq_context point to. An event may be read just after its object was destroyed, so
// VerbsDevice checks whether it knows the pointer before it uses it.
class AsyncEventHandler {
 public:
  virtual ~AsyncEventHandler() = default;

  // Called on any thread, under a lock of the device. Must only take a note.
  virtual void OnAsyncEvent(ibv_event_type event) = 0;
};

// Memory that is registered with a device as long as that is open.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void Deregister() = 0;
  virtual absl::Status RegisterAgain() = 0;
};

// One opened device with its protection domain. Every fabric of a process on that device shares them, so that
// memory is translated once and the device's asynchronous events are read in one place.
//
// It opens an ibv_context of its own (ibv_open_device()), and does not use that of librdmacm, which the whole
// process shares: ibv_get_async_event() takes the next event of a context for any library, so another RDMA
// library would lose events to Hawser, and Hawser to it. So Hawser moves its queue pairs through their states
// itself, with the attributes of the connection manager (rdma_init_qp_attr()). librdmacm's ids are bound to
// its own contexts, which only serve to tell devices apart.
// Thread:   any.
//
// A device that has failed or was removed is closed as soon as its users have closed their objects; until
// then the kernel blocks the program that removes it. The next user opens it again, by its name, and its
// memory is registered again. So to the layers above it looks like a link that was down for a while.
class VerbsDevice {
 public:
  // The device `name` (see VerbsFabricOptions::device). The same object as before, while that lives.
  // NotFound: there is none, or none of that name; lists those that there are. PermissionDenied: it cannot be
  // opened. InvalidArgument: it has no reliable connections. Unavailable: no port is active.
  // FailedPrecondition: this is a child after fork(), and an ancestor has opened one, even if it is closed
  // now; or CheckAttributes() refuses the device. Without a name, a device that is refused is passed over.
  static absl::StatusOr<std::shared_ptr<VerbsDevice>> Open(const VerbsLibrary& verbs, std::string name);
  ~VerbsDevice();

  const VerbsLibrary& verbs() const { return verbs_; }
  // Of users only, see Attach().
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const ibv_device_attr& attr() const { return attr_; }
  const std::string& name() const { return name_; }
  bool iwarp() const { return iwarp_; }
  int numa_node() const { return numa_node_; }  // As Fabric::numa_node().
  // Grants can be memory windows of type 2B, which is the default (see VerbsFabricOptions). Found by a trial
  // when the device was first opened. One that could not be made is made when the device is opened again.
  bool has_windows() const { return HasWindows(attr_, iwarp_, windows_trial()); }
  bool uses_windows() const { return UsesWindows(attr_, iwarp_, windows_trial()); }
  // As that of VerbsFabricOptions::warn, for a fabric that grants by windows. The first call returns it, if
  // there is one.
  std::string TakeWarning();

  uint32_t read_depth_max() const { return ReadDepthMax(attr_); }
  size_t sge_max() const { return SgeMax(attr_); }
  // As Fabric::atomics(). None over iWARP: the standard has none (RFC 5040), nor have siw and cxgb4.
  // Elsewhere what the device says, which is none where it would answer in another byte order than the host's
  // (mlx5).
  Atomics atomics() const {
    if (iwarp_ || attr_.atomic_cap == IBV_ATOMIC_NONE) return Atomics::kNone;
    return attr_.atomic_cap == IBV_ATOMIC_GLOB ? Atomics::kWithProcessor : Atomics::kNic;
  }

  // FailedPrecondition: this is a child after fork(). The kernel objects belong to the parent: the child must
  // neither create nor destroy any.
  absl::Status CheckProcess(absl::string_view what) const;
  bool in_forked_child() const { return fork_mark_.in_child(); }

  // IBV_EVENT_DEVICE_FATAL, or RDMA_CM_EVENT_DEVICE_REMOVAL: outstanding work requests may never complete.
  bool gone() const { return gone_.load(std::memory_order_acquire); }
  void MarkGone();

  // `bound`: what librdmacm has bound an id to, or null. It is this device.
  bool Is(const ibv_context* bound) const { return bound != nullptr && name_ == bound->device->name; }

  // The connection manager has bound an id to it: it is there. Not so, after it was opened again: perhaps it
  // is still being removed.
  void MarkPresent() { known_present_.store(true, std::memory_order_relaxed); }
  bool known_present() const { return known_present_.load(std::memory_order_relaxed); }

  // Reads the events of async_fd and notifies the handlers. Never blocks.
  void HandleAsyncEvents();
  int async_fd() const { return context_->async_fd; }

  // `user` may have objects of this device from now on, and is notified of IBV_EVENT_DEVICE_FATAL, on any
  // thread. Opens the device if it was gone. Unavailable: it still is, or others have not closed it yet.
  absl::Status Attach(AsyncEventHandler* user);
  // `user` has no objects of the device any more, and no rdma_cm_id.
  void Detach(AsyncEventHandler* user);

  // `queue_pair` is the qp_context of an ibv_qp of this device, and is notified of its events. After
  // Remove...() it is not, even if another thread has just read one.
  void AddQueuePair(AsyncEventHandler* queue_pair);
  void RemoveQueuePair(AsyncEventHandler* queue_pair);

  // librdmacm closes an unused device only when it looks at the list and finds it missing. This makes it
  // look.
  void CloseUnused();

  // Held while the device is opened or closed; shared while memory is registered or deregistered.
  absl::Mutex& opening() ABSL_LOCK_RETURNED(opening_) { return opening_; }
  void AddMemory(DeviceMemory* memory);
  void RemoveMemory(DeviceMemory* memory);

  // 0, 1, 2, ...: one for each completion queue.
  uint32_t TakeNumber() { return next_number_.fetch_add(1, std::memory_order_relaxed); }

  // For VerbsCompletionQueue::RunCommand(), which see: whatever `command` uses outlives it.
  void RunCommand(const void* alone, absl::AnyInvocable<void()> command);

  // Empty on rxe. There a window must not be older than the ibv_qp that it is bound to: when a process is
  // killed, the kernel destroys its newest objects first, and rxe waits 50 s for the release of a window that
  // is bound.
  VerbsWindowStock& windows() { return windows_; }
  // A memory window of type 2: from the stock. If that is empty, this allocates one, which is a command to
  // the device.
  absl::StatusOr<ibv_mw*> TakeWindow();

 private:
  struct Found {
    ibv_context** list = nullptr;
    ibv_device* device = nullptr;
    ibv_device_attr attr = {};
  };

  VerbsDevice(const VerbsLibrary& verbs, const Found& found);
  static absl::StatusOr<Found> Find(const VerbsLibrary& verbs, const std::string& name);
  absl::Status Prepare(absl::string_view what);
  absl::Status windows_trial() const;
  void TryWindowsIfNeeded();
  absl::Status OpenAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(opening_);
  void Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(opening_);

  const VerbsLibrary& verbs_;
  const std::string name_;
  const bool iwarp_;
  const int numa_node_;
  const ibv_device_attr attr_;  // From the first opening.
  const ForkMark fork_mark_;
  std::unique_ptr<VerbsControlThread> control_thread_;    // Null: a test's executor takes its place.
  std::unique_ptr<VerbsConnectThreads> connect_threads_;  // Likewise.
  VerbsExecutor& executor_;
  // These change only while there is no user.
  ibv_context** list_;  // Held: librdmacm counts it as a use of its devices. Null: not open.
  ibv_device* device_;  // Of that one.
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  VerbsWindowStock windows_;
  std::atomic<bool> gone_ = false;
  std::atomic<bool> known_present_ = true;
  std::atomic<uint32_t> next_number_ = 0;

  absl::Mutex opening_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::vector<DeviceMemory*> memories_ ABSL_GUARDED_BY(opening_);

  mutable absl::Mutex mutex_;
  // That of TryWindows(). Empty: there was none yet. OK also where there is nothing to try.
  std::optional<absl::Status> windows_trial_ ABSL_GUARDED_BY(mutex_);
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<AsyncEventHandler*> users_ ABSL_GUARDED_BY(mutex_);  // Completion queues, so cq_contexts too.
  absl::flat_hash_set<AsyncEventHandler*> queue_pairs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_H_
