#include "hawser/transport/uri.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Good {
  const char* text;
  const char* scheme;
  const char* host;
  uint16_t port;
};

TEST(UriTest, SchemeHostAndPortAreFound) {
  for (const Good& good :
       {Good{"tcp://kv1:7470", "tcp", "kv1", 7470}, Good{"rdma://10.0.0.1:0", "rdma", "10.0.0.1", 0},
        Good{"tcp://[::1]:65535", "tcp", "::1", 65535},
        Good{"tcp://[fe80::1%eth0]:1", "tcp", "fe80::1%eth0", 1},
        Good{"tcp://a.b-c.example:80", "tcp", "a.b-c.example", 80}}) {
    absl::StatusOr<Uri> uri = ParseUri(good.text);
    ASSERT_THAT(uri, IsOk());
    EXPECT_EQ(uri->scheme, good.scheme);
    EXPECT_EQ(uri->host, good.host);
    EXPECT_EQ(uri->port, good.port);
    EXPECT_EQ(uri->ToString(), good.text);
  }
}

struct Bad {
  const char* text;
  const char* why;
};

TEST(UriTest, WhatIsWrongIsSaidWithTheTextAndAnExample) {
  for (const Bad& bad :
       {Bad{"", "no scheme"},
        Bad{"kv1:7470", "no scheme"},
        Bad{"://kv1:7470", "no scheme"},
        Bad{"tcp://", "no port"},
        Bad{"tcp://kv1", "no port"},
        Bad{"tcp://:7470", "no host; to listen on every address of this machine, say [::]"},
        Bad{"tcp://*:7470", "\"*\" is no host; to listen on every address of this machine, say [::]"},
        Bad{"tcp://kv1:", "\"\" is no port"},
        Bad{"tcp://kv1:http", "\"http\" is no port"},
        Bad{"tcp://kv1:65536", "\"65536\" is no port"},
        Bad{"tcp://kv1:99999999999", "is no port"},
        Bad{"tcp://kv1:-1", "\"-1\" is no port"},
        Bad{"tcp://kv1: 1", "is no port"},
        Bad{"tcp://kv1:+1", "is no port"},
        Bad{"tcp://kv1:7470/", "\"7470/\" is no port"},
        Bad{"tcp://::1:7470", "an IPv6 address needs [ ]"},
        Bad{"tcp://[::1:7470", "not closed"},
        Bad{"tcp://[::1]", "no port"},
        Bad{"tcp://[::1]7470", "no port"},
        Bad{"tcp://[kv1]:7470", "no IPv6 address"},
        Bad{"tcp://[]:7470", "no IPv6 address"}}) {
    const absl::Status status = ParseUri(bad.text).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << bad.text;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr(bad.why), HasSubstr('"' + std::string(bad.text) + '"'), HasSubstr("tcp://kv1:7470")));
  }
}

TEST(UriTest, WhatTheResolverWouldTakeForAnotherNameIsRefused) {
  EXPECT_THAT(ParseUri(absl::string_view("tcp://kv1\0.evil:7470", 21)).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseNumericHost(absl::string_view("10.0.0.1\0", 9)).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(UriTest, NumericAddressesAreResolvedToThemselves) {
  absl::StatusOr<std::vector<SocketAddress>> addresses = Resolve({"tcp", "127.0.0.1", 7470});
  ASSERT_THAT(addresses, IsOk());
  ASSERT_EQ(addresses->size(), 1u);
  EXPECT_EQ((*addresses)[0].ToString(), "127.0.0.1:7470");
  addresses = Resolve({"tcp", "::1", 1});
  ASSERT_THAT(addresses, IsOk());
  EXPECT_EQ((*addresses)[0].ToString(), "[::1]:1");
}

TEST(UriTest, ANameThatIsUnknownIsNamed) {
  const absl::Status status = Resolve({"tcp", "no-such-host.invalid", 1}).status();
  EXPECT_THAT(status.code(), ::testing::AnyOf(absl::StatusCode::kNotFound, absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no-such-host.invalid"));
}

TEST(UriTest, ANumericHostIsTakenAsItIs) {
  EXPECT_EQ(ParseNumericHost("10.0.0.1").value().ToString(), "10.0.0.1:0");
  EXPECT_EQ(ParseNumericHost("fd00::1").value().ToString(), "[fd00::1]:0");
}

TEST(UriTest, ANameIsNoNumericHost) {
  for (absl::string_view host : {"", "localhost", "10.0.0.1:7470", "[::1]"}) {
    EXPECT_THAT(ParseNumericHost(host).status(), HasCode(absl::StatusCode::kInvalidArgument)) << host;
  }
}

}  // namespace
}  // namespace hawser::transport
