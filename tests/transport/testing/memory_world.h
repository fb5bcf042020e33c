#ifndef HAWSER_TESTS_TRANSPORT_TESTING_MEMORY_WORLD_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_MEMORY_WORLD_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/options.h"

// For tests of what peers hold of a pool.
namespace hawser::transport {

inline RuntimeOptions PoolOf(size_t limit_bytes, int pollers = 1) {
  RuntimeOptions options;
  options.pollers = pollers;
  options.pool.limit_bytes = limit_bytes;
  return options;
}

// Disables keepalive, which these tests do not cover.
inline ConnectionOptions From(const std::string& address = "") {
  ConnectionOptions options;
  options.slots = 8;
  options.keepalive_interval = absl::InfiniteDuration();
  options.local_address = address;
  return options;
}

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_MEMORY_WORLD_H_
