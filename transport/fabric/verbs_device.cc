#include "hawser/transport/fabric/verbs_device.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/transport/fabric/verbs_errors.h"

namespace hawser::fabric {
namespace {

// Counts forks, in the children: cheaper than getpid(2), which is asked at every post.
std::atomic<uint64_t> fork_generation{0};

uint64_t ForkGeneration() { return fork_generation.load(std::memory_order_relaxed); }

// So that pages which the device writes to stay the parent's. Does nothing on kernels that see to it
// themselves (5.12), and must come before anything is registered.
void PrepareForFork(const VerbsLibrary& verbs) {
  static const int prepared = [&] {
    pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
    return verbs.ibv_fork_init();
  }();
  (void)prepared;  // EINVAL: the program registered memory before us, by itself.
}

bool HasActivePort(const VerbsLibrary& verbs, ibv_context* context, uint32_t ports) {
  for (uint32_t port = 1; port <= ports; ++port) {
    ibv_port_attr attr = {};
    // The exported function fills the head of the structure; the rest is for the inline one, which is not in
    // the table.
    if (verbs.ibv_query_port(context, static_cast<uint8_t>(port),
                             reinterpret_cast<_compat_ibv_port_attr*>(&attr)) == 0 &&
        attr.state == IBV_PORT_ACTIVE) {
      return true;
    }
  }
  return false;
}

// -1 as well where the device is none of hardware, which has no such file.
int ReadNumaNode(const ibv_device& device) {
  std::ifstream file(absl::StrCat(device.ibdev_path, "/device/numa_node"));
  int node = -1;
  return file >> node ? std::max(node, -1) : -1;
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

VerbsDevice::VerbsDevice(const VerbsLibrary& verbs, ibv_context** list, ibv_context* context)
    : verbs_(verbs),
      list_(list),
      context_(context),
      name_(context->device->name),
      iwarp_(context->device->transport_type == IBV_TRANSPORT_IWARP),
      numa_node_(ReadNumaNode(*context->device)),
      fork_generation_(ForkGeneration()) {}

VerbsDevice::~VerbsDevice() {
  if (in_forked_child()) return;
  if (pd_ != nullptr) verbs_.ibv_dealloc_pd(pd_);
  verbs_.rdma_free_devices(list_);
}

absl::StatusOr<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(const VerbsLibrary& verbs, std::string name) {
  OpenDevices& devices = Devices();
  absl::MutexLock lock(&devices.mutex);
  PrepareForFork(verbs);
  if (auto it = devices.by_name.find({&verbs, name}); it != devices.by_name.end()) {
    if (std::shared_ptr<VerbsDevice> open = it->second.lock(); open != nullptr && !open->gone()) {
      if (absl::Status status = open->CheckProcess("open an RDMA device"); !status.ok()) return status;
      return open;
    }
  }
  const std::string what = absl::StrCat("open RDMA device ", name.empty() ? "(any)" : name);
  // Those of librdmacm, not ibv_open_device(): a queue pair must be made on the context that its rdma_cm_id
  // has.
  int count = 0;
  errno = 0;
  ibv_context** const list = verbs.rdma_get_devices(&count);
  if (list == nullptr || count == 0) {
    const int error = errno != 0 ? errno : ENODEV;
    if (list != nullptr) verbs.rdma_free_devices(list);
    if (error != ENODEV) {
      return VerbsError(what, "rdma_get_devices()", error,
                        "is /dev/infiniband/rdma_cm there, and may this user open it?");
    }
    return absl::NotFoundError(
        absl::StrCat(what,
                     ": rdma_get_devices(): this machine has no RDMA device (`rdma link` shows them; modules "
                     "ib_uverbs and rdma_ucm must be loaded); use tcp://"));
  }
  std::vector<std::string> names;
  ibv_context* chosen = nullptr;
  ibv_device_attr attr = {};
  for (int i = 0; i < count; ++i) {
    names.push_back(list[i]->device->name);
    if (chosen != nullptr || (!name.empty() && names.back() != name)) continue;
    if (verbs.ibv_query_device(list[i], &attr) != 0) continue;
    if (name.empty() && !HasActivePort(verbs, list[i], attr.phys_port_cnt)) continue;
    chosen = list[i];
  }
  if (chosen == nullptr) {
    verbs.rdma_free_devices(list);
    return name.empty()
               ? absl::UnavailableError(absl::StrCat(what, ": no port is active of ",
                                                     absl::StrJoin(names, ", "),
                                                     ": is the cable in, the interface up (`rdma link`)?"))
               : absl::NotFoundError(absl::StrCat(what, ": there is no such device, but ",
                                                  absl::StrJoin(names, ", "),
                                                  " (VerbsFabricOptions::device, HAWSER_RDMA_DEVICE)"));
  }
  std::shared_ptr<VerbsDevice> device(new VerbsDevice(verbs, list, chosen));
  device->attr_ = attr;
  device->pd_ = verbs.ibv_alloc_pd(chosen);
  if (device->pd_ == nullptr) return VerbsError(what, "ibv_alloc_pd()", errno);
  fcntl(chosen->async_fd, F_SETFL, fcntl(chosen->async_fd, F_GETFL) | O_NONBLOCK);
  devices.by_name[{&verbs, name}] = device;
  devices.by_name[{&verbs, device->name_}] = device;
  return device;
}

uint32_t VerbsDevice::read_depth_max() const {
  // rdma_conn_param has a byte for each.
  return static_cast<uint32_t>(std::clamp(std::min(attr_.max_qp_rd_atom, attr_.max_qp_init_rd_atom), 0, 254));
}

bool VerbsDevice::in_forked_child() const { return ForkGeneration() != fork_generation_; }

absl::Status VerbsDevice::CheckProcess(absl::string_view what) const {
  if (!in_forked_child()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, ": this process is a child after fork(), and RDMA device ", name_,
      " was opened by its parent: verbs cannot be used across fork(). Make the fabric in the child, before "
      "the parent makes one, or exec() the child"));
}

void VerbsDevice::MarkGone() {
  gone_.store(true, std::memory_order_release);
  absl::MutexLock lock(&mutex_);
  for (AsyncEventHandler* handler : handlers_) handler->OnAsyncEvent(IBV_EVENT_DEVICE_FATAL);
}

void VerbsDevice::HandleAsyncEvents() {
  ibv_async_event event;
  while (verbs_.ibv_get_async_event(context_, &event) == 0) {
    switch (event.event_type) {
      case IBV_EVENT_DEVICE_FATAL:
        MarkGone();
        break;
      case IBV_EVENT_CQ_ERR:
        static_cast<AsyncEventHandler*>(event.element.cq->cq_context)->OnAsyncEvent(event.event_type);
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
        static_cast<AsyncEventHandler*>(event.element.qp->qp_context)->OnAsyncEvent(event.event_type);
        break;
      default:
        break;  // Of ports and paths: what they lead to is told by completions and the connection manager.
    }
    verbs_.ibv_ack_async_event(&event);
  }
}

void VerbsDevice::AddDeviceHandler(AsyncEventHandler* handler) {
  absl::MutexLock lock(&mutex_);
  handlers_.push_back(handler);
}

void VerbsDevice::RemoveDeviceHandler(AsyncEventHandler* handler) {
  absl::MutexLock lock(&mutex_);
  handlers_.erase(std::remove(handlers_.begin(), handlers_.end(), handler), handlers_.end());
}

absl::StatusOr<ibv_mw*> VerbsDevice::AllocateWindow() {
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  if (window == nullptr) {
    return VerbsError("grant memory to a peer", "ibv_alloc_mw()", errno,
                      absl::StrCat("the device has ", attr_.max_mw, " memory windows"));
  }
  return window;
}

}  // namespace hawser::fabric
