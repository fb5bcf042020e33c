#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_ORDER_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_ORDER_H_

// A device orders threads: a thread that has polled the completion of a SEND's receive sees everything that
// was done before the SEND was posted. ThreadSanitizer sees neither the device nor rdma-core, which is not
// compiled with it, so these functions annotate it. As for sockets there is one order for all devices, so it
// does not find a race between two threads that post and poll in between. They do nothing in other builds.

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace hawser::fabric {

#if defined(__SANITIZE_THREAD__)
inline char verbs_order;
inline void BeforePost() { __tsan_release(&verbs_order); }
inline void AfterPoll() { __tsan_acquire(&verbs_order); }
#else
inline void BeforePost() {}
inline void AfterPoll() {}
#endif

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_ORDER_H_
