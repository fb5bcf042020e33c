// Addresses on a machine without IPv6: "[::]" means all those of IPv4.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>

#include "hawser/rpc/server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::MatchesRegex;

// As of a kernel without IPv6, for this thread and those that it starts, for good. A process that has used the library
// cannot be forked for this: under ThreadSanitizer a child of several threads may not start any.
bool ForbidIpv6() {
  sock_filter no_ipv6[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(no_ipv6), .filter = no_ipv6};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class NoIpv6Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(ForbidIpv6());
    ASSERT_EQ(socket(AF_INET6, SOCK_STREAM, 0), -1);
  }
};

TEST_F(NoIpv6Test, AllAddressesAreThoseOfIpv4) {
  TestServer server({}, "tcp://[::]:0");
  EXPECT_THAT(server.uri, MatchesRegex("tcp://0\\.0\\.0\\.0:[0-9]+"));
  const std::string port = server.uri.substr(server.uri.rfind(':') + 1);
  const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect("tcp://127.0.0.1:" + port);
  ASSERT_THAT(channel.status(), HasCode(absl::StatusCode::kOk));
  EXPECT_THAT(SendAct(*channel, 1).Wait().status(), HasCode(absl::StatusCode::kOk));
}

TEST_F(NoIpv6Test, AnAddressOfIpv6IsRefused) {
  TestServer server({}, "tcp://0.0.0.0:0");
  EXPECT_THAT(server.server.Listen("tcp://[::1]:0").status(), HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hawser
