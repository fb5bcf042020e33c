#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_LIST_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_LIST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/verbs/library.h"

namespace hawser::fabric {

// As rdma_get_devices(), with its errno, but always called on one thread, the same for the whole process.
//
// It compares the devices of now with those of before as two sorted lists of pointers; but librdmacm 44 sorts
// them by the low halves only. Of structures that were allocated on different threads, and so lie far apart,
// the two orders may differ. Then, when a device comes or goes, one that stayed is taken for another, and
// opened a second time, or is never listed again.
// Thread:   any.
ibv_context** ListDevices(const VerbsLibrary& verbs, int* count);

// Why the device `name` is not listed; "": why none is. librdmacm reports only ENODEV, whatever the cause,
// and some versions list none if there is one that they cannot open. `root`: VerbsLibrary::root. NotFound:
// the kernel has none, or something between it and libibverbs is missing. PermissionDenied, or another code
// from open(2): a device's file cannot be opened.
absl::Status WhyNotListed(absl::string_view what, const std::string& name, absl::string_view root);

// Listed or not.
bool KernelHas(absl::string_view name, absl::string_view root);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_DEVICE_LIST_H_
