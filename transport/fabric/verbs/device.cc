#include "hawser/transport/fabric/verbs/device.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/transport/fabric/verbs/device_list.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {
namespace {

// The process in which librdmacm has opened devices; null: none yet. The library keeps devices open, used or
// not, and returns them again, but the kernel serves them only to that process.
std::atomic<const ForkMark*> opened_in{nullptr};

void NoteOpening() {
  static const ForkMark* const here = new ForkMark;
  opened_in.store(here, std::memory_order_relaxed);
}

// Keeps the pages that the device writes to with the parent after fork(). Does nothing on kernels that do so
// themselves (5.12). Must be called before any memory is registered.
void PrepareForFork(const VerbsLibrary& verbs) {
  static const int prepared = verbs.ibv_fork_init();
  (void)prepared;  // EINVAL: the program itself has registered memory before.
}

bool HasActivePort(const VerbsLibrary& verbs, ibv_context* context, uint32_t ports) {
  for (uint32_t port = 1; port <= ports; ++port) {
    ibv_port_attr attr = {};
    // The exported function fills only the head of the structure. The inline function, which fills the rest,
    // is not in the table.
    if (verbs.ibv_query_port(context, static_cast<uint8_t>(port),
                             reinterpret_cast<_compat_ibv_port_attr*>(&attr)) == 0 &&
        attr.state == IBV_PORT_ACTIVE) {
      return true;
    }
  }
  return false;
}

bool MakesQueuePairs(const VerbsLibrary& verbs, ibv_context& context) {
  ibv_pd* const pd = verbs.ibv_alloc_pd(&context);
  if (pd == nullptr) return false;
  const QueuePairTrialCalls calls = {.create_cq = verbs.ibv_create_cq,
                                     .destroy_cq = verbs.ibv_destroy_cq,
                                     .create_qp = verbs.ibv_create_qp,
                                     .destroy_qp = verbs.ibv_destroy_qp};
  const bool makes = TryQueuePair(context, *pd, calls, /*sges=*/1, /*inline_bytes=*/0).ok();
  verbs.ibv_dealloc_pd(pd);
  return makes;
}

// A software device has no such file: -1.
int ReadNumaNode(const ibv_device& device) {
  std::ifstream file(absl::StrCat(device.ibdev_path, "/device/numa_node"));
  int node = -1;
  return file >> node ? std::max(node, -1) : -1;
}

WindowTrialCalls TrialCalls(const VerbsLibrary& verbs) {
  return {.reg_mr = verbs.ibv_reg_mr,
          .dereg_mr = verbs.ibv_dereg_mr,
          .create_cq = verbs.ibv_create_cq,
          .destroy_cq = verbs.ibv_destroy_cq,
          .create_qp = verbs.ibv_create_qp,
          .modify_qp = verbs.ibv_modify_qp,
          .destroy_qp = verbs.ibv_destroy_qp};
}

// Frees all devices in `list` except `kept`. Otherwise `list` would keep them open, and they could not be
// removed.
void FreeAllBut(const VerbsLibrary& verbs, ibv_context** list, int count, ibv_context* kept) {
  if (count == 1) return;
  // rdma_free_devices() releases every device up to a null pointer, and frees the array with free().
  auto** const others = static_cast<ibv_context**>(calloc(static_cast<size_t>(count), sizeof(ibv_context*)));
  if (others == nullptr) return;
  std::remove_copy(list, list + count, others, kept);
  verbs.rdma_free_devices(others);
  list[0] = kept;
  list[1] = nullptr;
}

struct OpenDevices {
  absl::Mutex mutex;
  std::map<std::pair<const VerbsLibrary*, std::string>, std::weak_ptr<VerbsDevice>> by_name
      ABSL_GUARDED_BY(mutex);
};

OpenDevices& Devices() {
  static OpenDevices* const devices = new OpenDevices;
  return *devices;
}

}  // namespace

VerbsDevice::VerbsDevice(const VerbsLibrary& verbs, const Found& found)
    : verbs_(verbs),
      name_(found.device->name),
      iwarp_(found.device->transport_type == IBV_TRANSPORT_IWARP),
      numa_node_(ReadNumaNode(*found.device)),
      attr_(found.attr),
      control_thread_(verbs.executor == nullptr ? std::make_unique<VerbsControlThread>() : nullptr),
      connect_threads_(verbs.executor == nullptr ? std::make_unique<VerbsConnectThreads>() : nullptr),
      executor_(verbs.executor == nullptr ? *control_thread_ : *verbs.executor),
      list_(found.list),
      device_(found.device),
      windows_(!IsRxe(attr_, iwarp_)) {}

VerbsDevice::~VerbsDevice() {
  if (in_forked_child()) {
    static_cast<void>(control_thread_.release());  // Its thread does not exist here.
    static_cast<void>(connect_threads_.release());
    return;
  }
  connect_threads_.reset();
  control_thread_.reset();
  absl::MutexLock lock(&opening_);
  Close();
}

void VerbsDevice::RunCommand(const void* alone, absl::AnyInvocable<void()> command) {
  if (alone != nullptr && connect_threads_ != nullptr && connect_threads_->Run(alone, command)) return;
  executor_.Run(std::move(command));
}

absl::StatusOr<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(const VerbsLibrary& verbs, std::string name) {
  // Before the lock, which another thread of the parent may have held.
  if (const ForkMark* const opened = opened_in.load(std::memory_order_relaxed);
      opened != nullptr && opened->in_child()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "open RDMA device ", name.empty() ? "(any)" : name,
        ": this process is a child after fork(), and its parent has used RDMA: the devices stay open in "
        "librdmacm, and cannot be used across fork(). Use tcp://, fork before the first rdma://, or "
        "exec() the child"));
  }
  OpenDevices& devices = Devices();
  absl::MutexLock lock(&devices.mutex);
  PrepareForFork(verbs);
  const auto known = [&](const std::string& by) {
    devices.mutex.AssertHeld();
    const auto it = devices.by_name.find({&verbs, by});
    return it != devices.by_name.end() ? it->second.lock() : nullptr;
  };
  std::shared_ptr<VerbsDevice> device = known(name);
  if (device == nullptr || device->gone()) {
    absl::StatusOr<Found> found = Find(verbs, name);
    if (!found.ok()) return found.status();
    const std::string found_name = found->device->name;
    device = known(found_name);
    if (device != nullptr) {
      verbs.rdma_free_devices(found->list);  // It has a list. If it is gone, its next user reopens it.
    } else {
      device.reset(new VerbsDevice(verbs, *found));
      absl::Status status = device->Prepare(absl::StrCat("open RDMA device ", found_name));
      if (!status.ok()) return status;
      device->TryWindowsIfNeeded();
      devices.by_name[{&verbs, found_name}] = device;
    }
    devices.by_name[{&verbs, name}] = device;
  }
  return device;
}

absl::StatusOr<VerbsDevice::Found> VerbsDevice::Find(const VerbsLibrary& verbs, const std::string& name) {
  const std::string what = absl::StrCat("open RDMA device ", name.empty() ? "(any)" : name);
  // Lists the devices that librdmacm has: no other device can connect.
  int count = 0;
  ibv_context** const list = ListDevices(verbs, &count);
  if (list == nullptr || count == 0) {
    const int error = errno != 0 ? errno : ENODEV;
    if (list != nullptr) verbs.rdma_free_devices(list);
    if (error == EAGAIN) {
      return VerbsError(what, "rdma_get_devices()", error,
                        "it runs on a thread of its own, which could not be started: see `ulimit -u`");
    }
    if (error != ENODEV) {
      return VerbsError(what, "rdma_get_devices()", error,
                        "is /dev/infiniband/rdma_cm there, and may this user open it?");
    }
    return WhyNotListed(what, "", verbs.root);
  }
  NoteOpening();
  std::vector<std::string> names, unusable;
  Found found;
  ibv_context* kept = nullptr;
  bool kept_connects = false;
  absl::Status failed;
  for (int i = 0; i < count; ++i) {
    if (!HasReliableTransport(*list[i]->device)) {
      unusable.push_back(list[i]->device->name);
      continue;
    }
    names.push_back(list[i]->device->name);
    if (kept_connects || (!name.empty() && names.back() != name)) continue;
    ibv_device_attr attr = {};
    if (const int error = verbs.ibv_query_device(list[i], &attr); error != 0) {
      failed = VerbsError(absl::StrCat("open RDMA device ", names.back()), "ibv_query_device()", error,
                          "is it still there? See `rdma link` and dmesg");
      continue;
    }
    if (absl::Status suits = CheckAttributes(attr); !suits.ok()) {
      failed =
          absl::Status(suits.code(), absl::StrCat("open RDMA device ", names.back(), ": ", suits.message()));
      continue;
    }
    if (name.empty() && !HasActivePort(verbs, list[i], attr.phys_port_cnt)) continue;
    // A device that makes no queue pairs is taken if there is no other: they may fail for a reason that
    // passes.
    kept_connects = !name.empty() || MakesQueuePairs(verbs, *list[i]);
    if (kept != nullptr && !kept_connects) continue;
    kept = list[i];
    found.attr = attr;
  }
  if (kept == nullptr) {
    verbs.rdma_free_devices(list);
    if (!failed.ok()) return failed;
    const bool is_unusable = std::find(unusable.begin(), unusable.end(), name) != unusable.end();
    if (is_unusable || (name.empty() && names.empty())) {
      const std::string why = absl::StrCat(what, ": ", name.empty() ? absl::StrJoin(unusable, ", ") : name,
                                           " ", kNoReliableTransport, ": ",
                                           name.empty() ? "use tcp://" : "use another device, or tcp://");
      return name.empty() ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
    }
    if (!name.empty() && KernelHas(name, verbs.root)) return WhyNotListed(what, name, verbs.root);
    return name.empty()
               ? absl::UnavailableError(absl::StrCat(what, ": no port is active of ",
                                                     absl::StrJoin(names, ", "),
                                                     ": is the cable in, the interface up (`rdma link`)?"))
               : absl::NotFoundError(absl::StrCat(what, ": there is no such device, but ",
                                                  absl::StrJoin(names, ", "),
                                                  " (RuntimeOptions::rdma_device, HAWSER_RDMA_DEVICE)"));
  }
  FreeAllBut(verbs, list, count, kept);
  found.list = list;
  found.device = kept->device;
  return found;
}

// Opens `device_`, which was just found.
absl::Status VerbsDevice::Prepare(absl::string_view what) {
  errno = 0;
  context_ = verbs_.ibv_open_device(device_);
  if (context_ == nullptr) {
    return VerbsError(what, "ibv_open_device()", errno,
                      errno == EMFILE ? "raise the limit of open files"
                                      : "may this user open /dev/infiniband/uverbs*? A container needs two "
                                        "handles of the device (rdma cgroup, hca_handle)");
  }
  errno = 0;
  pd_ = verbs_.ibv_alloc_pd(context_);
  if (pd_ == nullptr) return VerbsError(what, "ibv_alloc_pd()", errno);
  fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
  return absl::OkStatus();
}

absl::Status VerbsDevice::windows_trial() const {
  absl::MutexLock lock(&mutex_);
  return windows_trial_.value_or(absl::OkStatus());
}

// Fabrics keep their kind of grants, so what a trial has found stays. While there is no user.
void VerbsDevice::TryWindowsIfNeeded() {
  {
    absl::MutexLock lock(&mutex_);
    if (windows_trial_.has_value() && !absl::IsUnavailable(*windows_trial_)) return;
  }
  const absl::Status trial =
      AdvertisesWindows(attr_, iwarp_) ? TryWindows(*context_, *pd_, TrialCalls(verbs_)) : absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  windows_trial_ = trial;
}

std::string VerbsDevice::TakeWarning() {
  absl::MutexLock lock(&mutex_);
  if (windows_trial_->ok() || std::exchange(warned_, true)) return "";
  return absl::StrCat(
      "RDMA device ", name_, ": ", windows_trial_->message(),
      "; they are used, since the kernel says that it has them. If large messages fail, choose "
      "RuntimeOptions::rdma_grants = kRegistered");
}

// --- Removal and return

absl::Status VerbsDevice::Attach(AsyncEventHandler* user) {
  absl::MutexLock lock(&opening_);
  if (gone()) {
    {
      absl::MutexLock users_lock(&mutex_);
      if (!users_.empty()) {
        return absl::UnavailableError(absl::StrCat("RDMA device ", name_,
                                                   " has failed or was removed, and its last connections are "
                                                   "still being closed"));
      }
    }
    if (absl::Status status = OpenAgain(); !status.ok()) {
      Close();
      return absl::UnavailableError(absl::StrCat("RDMA device ", name_,
                                                 " has failed or was removed, and is "
                                                 "not back: ",
                                                 status.message()));
    }
    known_present_.store(false, std::memory_order_relaxed);
    gone_.store(false, std::memory_order_release);
  }
  absl::MutexLock users_lock(&mutex_);
  users_.push_back(user);
  if (gone()) user->OnAsyncEvent(IBV_EVENT_DEVICE_FATAL);  // MarkGone() ran before `user` was added.
  return absl::OkStatus();
}

void VerbsDevice::Detach(AsyncEventHandler* user) {
  absl::MutexLock lock(&opening_);
  {
    absl::MutexLock users_lock(&mutex_);
    users_.erase(std::remove(users_.begin(), users_.end(), user), users_.end());
    if (!users_.empty()) return;
  }
  if (gone()) Close();
}

absl::Status VerbsDevice::OpenAgain() {
  Close();  // If there was no user when it was removed, the old one is still open.
  absl::StatusOr<Found> found = Find(verbs_, name_);
  if (!found.ok()) return found.status();
  list_ = found->list;
  device_ = found->device;
  if (absl::Status status = Prepare("open it again"); !status.ok()) return status;
  TryWindowsIfNeeded();
  for (DeviceMemory* memory : memories_) {
    if (absl::Status status = memory->RegisterAgain(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void VerbsDevice::Close() {
  if (list_ == nullptr) return;
  for (DeviceMemory* memory : memories_) memory->Deregister();
  windows_.Clear();
  if (pd_ != nullptr) verbs_.ibv_dealloc_pd(std::exchange(pd_, nullptr));
  if (context_ != nullptr) verbs_.ibv_close_device(std::exchange(context_, nullptr));
  verbs_.rdma_free_devices(std::exchange(list_, nullptr));
  if (gone()) CloseUnused();
}

void VerbsDevice::CloseUnused() {
  int count = 0;
  if (ibv_context** const list = ListDevices(verbs_, &count); list != nullptr) verbs_.rdma_free_devices(list);
}

void VerbsDevice::AddQueuePair(AsyncEventHandler* queue_pair) {
  absl::MutexLock lock(&mutex_);
  queue_pairs_.insert(queue_pair);
}

void VerbsDevice::RemoveQueuePair(AsyncEventHandler* queue_pair) {
  absl::MutexLock lock(&mutex_);
  queue_pairs_.erase(queue_pair);
}

void VerbsDevice::AddMemory(DeviceMemory* memory) {
  absl::MutexLock lock(&opening_);
  memories_.push_back(memory);
}

void VerbsDevice::RemoveMemory(DeviceMemory* memory) {
  if (in_forked_child()) return;  // A thread that does not exist in the child may hold the lock.
  absl::MutexLock lock(&opening_);
  memories_.erase(std::remove(memories_.begin(), memories_.end(), memory), memories_.end());
}

absl::Status VerbsDevice::CheckProcess(absl::string_view what) const {
  if (!in_forked_child()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, ": this process is a child after fork(), and RDMA device ", name_,
      " was opened by its parent: verbs cannot be used across fork(). Make the fabric in the child, before "
      "the parent makes one, or exec() the child"));
}

void VerbsDevice::MarkGone() {
  absl::MutexLock lock(&mutex_);
  gone_.store(true, std::memory_order_release);
  for (AsyncEventHandler* user : users_) user->OnAsyncEvent(IBV_EVENT_DEVICE_FATAL);
}

// The ibv_qp or ibv_cq of an event exists until the event is acknowledged, because ibv_destroy_qp() and
// ibv_destroy_cq() wait for that. So they must not be called with the lock that this function takes.
void VerbsDevice::HandleAsyncEvents() {
  ibv_async_event event;
  while (verbs_.ibv_get_async_event(context_, &event) == 0) {
    switch (event.event_type) {
      case IBV_EVENT_DEVICE_FATAL:
        MarkGone();
        break;
      case IBV_EVENT_CQ_ERR: {
        auto* const handler = static_cast<AsyncEventHandler*>(event.element.cq->cq_context);
        absl::MutexLock lock(&mutex_);
        if (std::find(users_.begin(), users_.end(), handler) != users_.end()) {
          handler->OnAsyncEvent(event.event_type);
        }
        break;
      }
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST: {
        auto* const handler = static_cast<AsyncEventHandler*>(event.element.qp->qp_context);
        absl::MutexLock lock(&mutex_);
        if (queue_pairs_.contains(handler)) handler->OnAsyncEvent(event.event_type);
        break;
      }
      default:
        // Ignores events of ports and paths (IBV_EVENT_GID_CHANGE, LID_CHANGE, PORT_ERR, ...). The fabric
        // caches no state of ports or paths. The connection manager resolves each new connection anew, and a
        // connection whose path is gone ends when its retries are used up.
        break;
    }
    verbs_.ibv_ack_async_event(&event);
  }
}

absl::StatusOr<ibv_mw*> VerbsDevice::TakeWindow() {
  ibv_mw* window = windows_.Take();
  if (window != nullptr) return window;
  errno = 0;
  window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  if (window != nullptr) {
    windows_.OnDeviceHasMore();
  } else {
    const int error = errno;
    const absl::Status trial = windows_trial();
    return VerbsError("grant memory to a peer", "ibv_alloc_mw()", error,
                      absl::StrCat("the device has ", attr_.max_mw, " memory windows", trial.ok() ? "" : "; ",
                                   trial.message()));
  }
  return window;
}

}  // namespace hawser::fabric
