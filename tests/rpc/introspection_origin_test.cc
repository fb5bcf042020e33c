// Which clients a server tells what it is doing, by where they come from.

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/introspection.rpc.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kElsewhere[] = "10.11.12.13";

// From now on this process, which has one thread, has a network of its own, whose lo has kElsewhere beside
// 127.0.0.1. False: the system refuses.
bool EnterNetwork() {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK;
  bool done = ioctl(control, SIOCSIFFLAGS, &request) == 0;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kElsewhere, &address.sin_addr);
  std::strcpy(request.ifr_name, "lo:1");
  std::memcpy(&request.ifr_addr, &address, sizeof(address));
  done = done && ioctl(control, SIOCSIFADDR, &request) == 0;
  close(control);
  return done;
}

// ThreadSanitizer has a thread of its own, so its build may have no such network.
class IntrospectionOriginTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { has_network_ = EnterNetwork(); }
  void SetUp() override {
    if (!has_network_) GTEST_SKIP() << "no network namespaces here";
  }

  // What a client at `host` gets of a server there.
  static absl::Status Ask(Introspection who, const std::string& host) {
    ServerOptions options;
    options.introspection = who;
    TestServer server(std::move(options), absl::StrCat("tcp://", host, ":0"));
    ChannelOptions of_client;
    of_client.connection.local_address = host;
    return introspection::IntrospectionStub(server.Connect(std::move(of_client)))
        .Snapshot()
        .Send()
        .Wait()
        .status();
  }

 private:
  static inline bool has_network_ = false;
};

TEST_F(IntrospectionOriginTest, ThisMachineIsLoopback) {
  EXPECT_THAT(Ask(Introspection::kThisMachine, "127.0.0.1"), IsOk());
  const absl::Status status = Ask(Introspection::kThisMachine, kElsewhere);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(kElsewhere), HasSubstr("ServerOptions::introspection to kEveryone")));
}

TEST_F(IntrospectionOriginTest, EveryoneMayBeAnywhere) {
  EXPECT_THAT(Ask(Introspection::kEveryone, "127.0.0.1"), IsOk());
  EXPECT_THAT(Ask(Introspection::kEveryone, kElsewhere), IsOk());
}

TEST_F(IntrospectionOriginTest, NeverIsNowhere) {
  EXPECT_THAT(Ask(Introspection::kNever, "127.0.0.1"), HasCode(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace hawser
