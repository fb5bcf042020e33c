#include "hawser/tools/doctor/verbs_loader.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/suitability.h"
#include "hawser/transport/fabric/verbs/windows.h"

// A macro of the header, which calls it with checks of its own; here the function itself is looked up.
#undef ibv_query_port

namespace hawser::doctor {
namespace {

// What is used of libibverbs.
struct Verbs {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // Fills in the older, shorter ibv_port_attr, whose members are the first ones of today's.
  decltype(&::ibv_query_port) query_port = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  fabric::WindowTrialCalls trial;
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// enum ibv_mtu: 1 is 256, 5 is 4096.
int MtuBytes(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

// As Hawser looks at a device before it takes it, and at what a queue pair can.
void TrySuitability(const Verbs& verbs, ibv_context& context, const ibv_device_attr& attributes,
                    VerbsDevice* device) {
  if (!fabric::HasReliableTransport(*context.device)) {
    device->suits = absl::InvalidArgumentError(absl::StrCat("it ", fabric::kNoReliableTransport));
    return;
  }
  device->suits = fabric::CheckAttributes(attributes);
  if (!device->suits.ok()) return;
  VerbsLimits& limits = device->limits.emplace();
  limits.send_sges = fabric::SgeMax(attributes);
  limits.max_sge = attributes.max_sge;
  limits.read_depth = fabric::ReadDepthMax(attributes);
  limits.max_cqe = attributes.max_cqe;
  ibv_pd* const pd = verbs.alloc_pd(&context);
  if (pd == nullptr) {
    device->makes_queue_pairs = absl::UnavailableError("ibv_alloc_pd() failed");
    return;
  }
  const fabric::QueuePairTrialCalls calls = {.create_cq = verbs.trial.create_cq,
                                             .destroy_cq = verbs.trial.destroy_cq,
                                             .create_qp = verbs.trial.create_qp,
                                             .destroy_qp = verbs.trial.destroy_qp};
  device->makes_queue_pairs =
      fabric::TryQueuePair(context, *pd, calls, /*sges=*/1, /*inline_bytes=*/0).status();
  const absl::StatusOr<uint32_t> inline_bytes =
      fabric::TryQueuePair(context, *pd, calls, limits.send_sges, fabric::VerbsFabricOptions().inline_bytes);
  if (inline_bytes.ok()) limits.inline_bytes = *inline_bytes;
  verbs.dealloc_pd(pd);
}

// As Hawser tries the windows of a device that it opens.
absl::Status Try(const Verbs& verbs, ibv_context& context) {
  ibv_pd* const pd = verbs.alloc_pd(&context);
  if (pd == nullptr) return absl::UnavailableError("ibv_alloc_pd() failed");
  absl::Status trial = fabric::TryWindows(context, *pd, verbs.trial);
  verbs.dealloc_pd(pd);
  return trial;
}

absl::Status QueryPorts(const Verbs& verbs, ibv_context* context, VerbsDevice* device) {
  ibv_device_attr attributes = {};
  if (const int error = verbs.query_device(context, &attributes); error != 0) {
    return absl::ErrnoToStatus(error, "ibv_query_device()");
  }
  const bool iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
  const absl::Status trial =
      fabric::AdvertisesWindows(attributes, iwarp) ? Try(verbs, *context) : absl::OkStatus();
  device->uses_windows = fabric::UsesWindows(attributes, iwarp, trial);
  if (absl::IsUnimplemented(trial)) {
    device->windows_refused = std::string(trial.message());
  } else if (!trial.ok()) {
    device->windows_untried = std::string(trial.message());
  }
  device->iwarp = iwarp;
  device->pins_rings = !fabric::IsSoftware(attributes, iwarp);
  TrySuitability(verbs, *context, attributes, device);
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    const int error = verbs.query_port(context, static_cast<uint8_t>(number),
                                       reinterpret_cast<_compat_ibv_port_attr*>(&port));
    if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("ibv_query_port(", number, ")"));
    device->active_mtu_of_ports[number] = MtuBytes(port.active_mtu);
  }
  return absl::OkStatus();
}

VerbsDevice Look(const Verbs& verbs, ibv_device* listed) {
  VerbsDevice device;
  device.name = verbs.get_device_name(listed);
  errno = 0;
  ibv_context* const context = verbs.open_device(listed);
  if (context == nullptr) {
    device.opened = absl::ErrnoToStatus(errno != 0 ? errno : EIO, "ibv_open_device()");
    return device;
  }
  device.opened = QueryPorts(verbs, context, &device);
  verbs.close_device(context);
  return device;
}

}  // namespace

absl::Status VerbsLoader::Load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(dlerror());
  loaded_[library] = handle;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<VerbsDevice>> VerbsLoader::OpenDevices() {
  const auto at = loaded_.find("libibverbs.so.1");
  if (at == loaded_.end()) return absl::FailedPreconditionError("libibverbs.so.1 is not loaded");
  void* const library = at->second;
  Verbs verbs;
  if (!Find(library, "ibv_get_device_list", &verbs.get_device_list) ||
      !Find(library, "ibv_free_device_list", &verbs.free_device_list) ||
      !Find(library, "ibv_get_device_name", &verbs.get_device_name) ||
      !Find(library, "ibv_open_device", &verbs.open_device) ||
      !Find(library, "ibv_close_device", &verbs.close_device) ||
      !Find(library, "ibv_query_device", &verbs.query_device) ||
      !Find(library, "ibv_query_port", &verbs.query_port) ||
      !Find(library, "ibv_alloc_pd", &verbs.alloc_pd) ||
      !Find(library, "ibv_dealloc_pd", &verbs.dealloc_pd) ||
      !Find(library, "ibv_reg_mr", &verbs.trial.reg_mr) ||
      !Find(library, "ibv_dereg_mr", &verbs.trial.dereg_mr) ||
      !Find(library, "ibv_create_cq", &verbs.trial.create_cq) ||
      !Find(library, "ibv_destroy_cq", &verbs.trial.destroy_cq) ||
      !Find(library, "ibv_create_qp", &verbs.trial.create_qp) ||
      !Find(library, "ibv_modify_qp", &verbs.trial.modify_qp) ||
      !Find(library, "ibv_destroy_qp", &verbs.trial.destroy_qp)) {
    return absl::NotFoundError(absl::StrCat("libibverbs.so.1 lacks a function: ", dlerror()));
  }
  int count = 0;
  ibv_device** const list = verbs.get_device_list(&count);
  if (list == nullptr) return absl::ErrnoToStatus(errno, "ibv_get_device_list()");
  std::vector<VerbsDevice> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Look(verbs, list[i]));
  verbs.free_device_list(list);
  return devices;
}

absl::StatusOr<std::vector<std::string>> VerbsLoader::ListDevices() {
  const auto at = loaded_.find("librdmacm.so.1");
  if (at == loaded_.end()) return absl::FailedPreconditionError("librdmacm.so.1 is not loaded");
  decltype(&::rdma_get_devices) get_devices = nullptr;
  decltype(&::rdma_free_devices) free_devices = nullptr;
  if (!Find(at->second, "rdma_get_devices", &get_devices) ||
      !Find(at->second, "rdma_free_devices", &free_devices)) {
    return absl::NotFoundError(absl::StrCat("librdmacm.so.1 lacks a function: ", dlerror()));
  }
  int count = 0;
  errno = 0;
  ibv_context** const list = get_devices(&count);
  if (list == nullptr || count == 0) {
    const int error = errno != 0 ? errno : ENODEV;
    if (list != nullptr) free_devices(list);
    return absl::ErrnoToStatus(error, "rdma_get_devices()");
  }
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(list[i]->device->name);
  free_devices(list);
  return names;
}

}  // namespace hawser::doctor
