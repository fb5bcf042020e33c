#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_WINDOWS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_WINDOWS_H_

#include <infiniband/verbs.h>

// Decides which devices confine a grant to one connection. Without memory windows of type 2B, a grant is a
// registration that lasts as long as the call: exact in its range, but any queue pair of the protection
// domain may use it. All connections of a process share one domain, because the pool is registered in it:
// with a domain for each connection the pool's slabs, gigabytes, would have to be registered for each.
namespace hawser::fabric {

// Not on iWARP: none of its drivers has them (irdma and cxgb4 have type 1), and completions out of order, see
// VerbsQueuePair::DeliverInOrder(), would be those of BIND_MW and LOCAL_INV, too.
inline bool HasWindows(const ibv_device_attr& attr, bool iwarp) {
  return !iwarp && (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
}

// The kernel's software RoCE, by whatever name: its RXE_VENDOR_ID.
inline bool IsRxe(const ibv_device_attr& attr, bool iwarp) { return attr.vendor_id == 0xffffff && !iwarp; }

// Whether the kernel, in software, is the device: rxe, or siw by its SIW_VENDOR_ID. Its rings are the kernel's
// memory, so they pin none of a process (see rings.h).
inline bool IsSoftware(const ibv_device_attr& attr, bool iwarp) {
  return IsRxe(attr, iwarp) || (attr.vendor_id == 0x626d74 && iwarp);
}

// The default of VerbsFabricOptions::memory_windows, which explains why rxe has none.
inline bool UsesWindows(const ibv_device_attr& attr, bool iwarp) {
  return HasWindows(attr, iwarp) && !IsRxe(attr, iwarp);
}

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_WINDOWS_H_
