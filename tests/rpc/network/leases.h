#ifndef HAWSER_TESTS_RPC_NETWORK_LEASES_H_
#define HAWSER_TESTS_RPC_NETWORK_LEASES_H_

#include <cstdint>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/message.h"
#include "tests/rpc/probe.h"

namespace hawser {

// The buffers of `runtime` that a connection, a message or the application has: what is kept for the next
// calls is given back first.
inline uint64_t Leases(transport::Runtime& runtime) {
  for (size_t i = 0; i < runtime.poller_count(); ++i) {
    transport::Poller& poller = runtime.poller(i);
    absl::Notification trimmed;
    poller.Run([&] {
      poller.messages().Trim();
      trimmed.Notify();
    });
    trimmed.WaitForNotification();
  }
  return runtime.buffers().stats().leases;
}

// Nothing is in flight any more: every buffer returns to the pool.
inline void ExpectAllHome(transport::Runtime& runtime) {
  EXPECT_TRUE(Eventually([&] { return Leases(runtime) == 0; }))
      << Leases(runtime) << " buffers, " << runtime.buffers().stats().leased_bytes << " bytes";
}

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_NETWORK_LEASES_H_
