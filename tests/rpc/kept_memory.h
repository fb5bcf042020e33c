#ifndef HAWSER_TESTS_RPC_KEPT_MEMORY_H_
#define HAWSER_TESTS_RPC_KEPT_MEMORY_H_

#include <malloc.h>
#include <stdio.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

// What tests of kept memory measure, and whom they call.
namespace hawser {

// The sanitizer's own memory counts, too, and it has a heap of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsResident = false;
#elif defined(__has_feature)  // clang's way to say so.
constexpr bool kCountsResident = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kCountsResident = true;
#endif

inline uint64_t ResidentBytes() {
  FILE* const statm = fopen("/proc/self/statm", "re");
  unsigned long all = 0, resident = 0;
  EXPECT_EQ(fscanf(statm, "%lu %lu", &all, &resident), 2);
  fclose(statm);
  return resident * 4096;
}

// That the program has of malloc(), with what that takes beside.
inline uint64_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// A server with one service, and a channel to it; null if something failed.
struct Served {
  explicit Served(Service& service) {
    EXPECT_THAT(server.AddService(&service), IsOk());
    const absl::StatusOr<std::string> uri = server.Listen(TestUri());
    EXPECT_THAT(uri.status(), IsOk());
    if (!uri.ok()) return;
    absl::StatusOr<std::shared_ptr<Channel>> connected = Channel::Connect(*uri);
    EXPECT_THAT(connected.status(), IsOk());
    if (connected.ok()) channel = *std::move(connected);
  }

  Server server;
  std::shared_ptr<Channel> channel;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_KEPT_MEMORY_H_
