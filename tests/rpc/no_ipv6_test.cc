// Addresses on a machine without IPv6: "[::]" means all IPv4 addresses.

#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <string>

#include "hawser/rpc/server.h"
#include "hawser/tests/testing/forbid.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::MatchesRegex;

// This test is a program of its own, because under ThreadSanitizer a child of a process with threads may not
// start any.
class NoIpv6Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(Forbid(SYS_socket, EAFNOSUPPORT, AF_INET6));
    ASSERT_EQ(socket(AF_INET6, SOCK_STREAM, 0), -1);
  }
};

TEST_F(NoIpv6Test, AllAddressesAreThoseOfIpv4) {
  TestServer server({}, "tcp://[::]:0");
  EXPECT_THAT(server.uri, MatchesRegex("tcp://0\\.0\\.0\\.0:[0-9]+"));
  const std::string port = server.uri.substr(server.uri.rfind(':') + 1);
  const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect("tcp://127.0.0.1:" + port);
  ASSERT_THAT(channel.status(), IsOk());
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), IsOk());
}

TEST_F(NoIpv6Test, AnAddressOfIpv6IsRefused) {
  TestServer server({}, "tcp://0.0.0.0:0");
  EXPECT_THAT(server.server.Listen("tcp://[::1]:0").status(), HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hawser
