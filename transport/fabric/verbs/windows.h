#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_WINDOWS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_WINDOWS_H_

#include <infiniband/verbs.h>

#include "absl/status/status.h"

// Decides which devices confine a grant to one connection. Without memory windows of type 2B, a grant is a
// registration that lasts as long as the call: exact in its range, but any queue pair of the protection
// domain may use it. All connections of a process share one domain, because the pool is registered in it:
// with a domain for each connection the pool's slabs, gigabytes, would have to be registered for each.
namespace hawser::fabric {

// The kernel says that the device has memory windows of type 2B. That alone is not enough: see TryWindows().
//
// Not on iWARP: none of its drivers has them (irdma and cxgb4 have type 1), and completions out of order, see
// VerbsQueuePair::DeliverInOrder(), would be those of BIND_MW and LOCAL_INV, too.
inline bool AdvertisesWindows(const ibv_device_attr& attr, bool iwarp) {
  return !iwarp && (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
}

// The kernel's software RoCE, by whatever name: its RXE_VENDOR_ID.
inline bool IsRxe(const ibv_device_attr& attr, bool iwarp) { return attr.vendor_id == 0xffffff && !iwarp; }

// Whether the provider may free an ibv_qp without the lock under which it polls its ibv_cq: some for iWARP do
// (erdma_destroy_qp(), c4iw_destroy_qp()), and qedr over RoCE, too (qelr_destroy_qp(); vendor QLogic).
inline bool FreesQueuePairsWithoutLock(const ibv_device_attr& attr, bool iwarp) {
  return iwarp || attr.vendor_id == 0x1077;
}

// Whether the kernel, in software, is the device: rxe, or siw by its SIW_VENDOR_ID. Its rings are the
// kernel's memory, so they pin none of a process (see rings.h).
inline bool IsSoftware(const ibv_device_attr& attr, bool iwarp) {
  return IsRxe(attr, iwarp) || (attr.vendor_id == 0x626d74 && iwarp);
}

// Whether a peer's SEND_WITH_INV invalidates a window of this device, and the completion of its receive says
// so. For a device that HasWindows(). The flag is the kernel's. Every provider that has windows (mlx5, mlx4,
// ionic) posts the request and reports the completion.
//
// Not rxe: its completions have the kernel's value of IBV_WC_WITH_INV, which means something else to a
// program, so no program learns of it; and to invalidate a window that is invalid already, as the program
// would then, follows a null pointer in the kernel (rxe_do_invalidate_mw()).
inline bool InvalidatesForPeers(const ibv_device_attr& attr, bool iwarp) {
  return !iwarp && !IsRxe(attr, iwarp) && (attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
}

// The functions of libibverbs that a trial calls. The others go through ibv_context::ops.
struct WindowTrialCalls {
  decltype(&::ibv_reg_mr) reg_mr = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
};

// Allocates a memory window of type 2 and posts one BIND_MW and one LOCAL_INV to a queue pair of its own. For
// a device that AdvertisesWindows(): that flag is the kernel's, and windows are a matter of the provider in
// user space, too. (bnxt_re: the kernel sets the flag, the provider has neither alloc_mw nor BIND_MW. mana:
// the provider has alloc_mw, but refuses BIND_MW.)
//
// The queue pair is in IBV_QPS_ERR. There every provider that knows the two work requests takes them (ionic
// and rxe refuse only the states before RTS, mlx5, mlx4 and irdma refuse none), and flushes them. So this
// needs no address, no GID and no active port, which a queue pair in RTS would. (mana refuses all that is
// posted outside of RTS, so its answer stays no if it learns BIND_MW.) It proves that the kernel, the
// provider and the device allocate windows, and that the provider posts both work requests. It does not prove
// that the device executes them: if one fails, its connection ends with an error that names it.
//
// `pd` is a protection domain of `context`. Leaves nothing behind. Takes some ten system calls.
// Thread:  any, as long as no other thread handles the asynchronous events of `context`.
// Failure: Unimplemented: the provider has no windows, and the text names the call and its errno. Any other
//          code: the trial could not be made, so the flag is all that is known.
absl::Status TryWindows(ibv_context& context, ibv_pd& pd, const WindowTrialCalls& calls);

// What the flag and `trial`, the result of TryWindows(), make of the device.
inline bool HasWindows(const ibv_device_attr& attr, bool iwarp, const absl::Status& trial) {
  return AdvertisesWindows(attr, iwarp) && !absl::IsUnimplemented(trial);
}

// Whether windows are the default of VerbsFabricOptions::grants, which explains why rxe has none.
inline bool UsesWindows(const ibv_device_attr& attr, bool iwarp, const absl::Status& trial) {
  return HasWindows(attr, iwarp, trial) && !IsRxe(attr, iwarp);
}

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_WINDOWS_H_
