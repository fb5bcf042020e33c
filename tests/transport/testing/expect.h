#ifndef HAWSER_TESTS_TRANSPORT_TESTING_EXPECT_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_EXPECT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

// Expectations about a Status, for the tests of connections.
#define EXPECT_CODE(status, expected) EXPECT_EQ((status).code(), absl::StatusCode::expected) << (status)

namespace hawser::transport {

inline constexpr size_t kMiB = 1 << 20;

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_EXPECT_H_
