// A child after fork() owns nothing of its parent's connections.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

// Runs `body` in a child; true if it returned true.
bool InChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class ForkTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  }
};

TEST_F(ForkTest, ACallOfTheChildFailsAndSaysWhy) {
  TestServer server;
  auto channel = server.Connect();
  EXPECT_TRUE(SendAct(channel, 1).Wait().ok());
  EXPECT_TRUE(InChild([&] {
    const absl::Status waited = SendAct(channel, 1).Wait().status();
    absl::Status called;
    SendAct(channel, 1).Then([&](auto reply) { called = reply.status(); });
    return absl::IsFailedPrecondition(waited) && absl::StrContains(waited.message(), "fork()") &&
           absl::IsFailedPrecondition(called) && !WasSent(waited);
  }));
  EXPECT_TRUE(SendAct(channel, 1).Wait().ok()) << "the parent was harmed";
}

TEST_F(ForkTest, AChildMayLetGoOfChannelAndServer) {
  auto server = std::make_unique<TestServer>();
  auto channel = server->Connect();
  EXPECT_TRUE(InChild([&] {
    channel->Close();
    channel.reset();
    server.reset();
    return true;
  }));
  EXPECT_TRUE(SendAct(channel, 1).Wait().ok()) << "the parent was harmed";
}

// librdmacm keeps the devices open that its process has used, and the kernel serves them to that process
// only.
TEST_F(ForkTest, AChildMayMakeItsOwnOverTcpAndIsToldThatItCannotOverRdma) {
  TestServer server;
  auto channel = server.Connect();
  EXPECT_TRUE(InChild([&] {
    absl::StatusOr<std::shared_ptr<Channel>> own = Channel::Connect(server.uri);
    if (TestScheme() == "tcp") return own.ok() && SendAct(*own, 1).Wait().ok();
    std::cerr << "in the child: " << own.status() << std::endl;
    return absl::IsFailedPrecondition(own.status()) && absl::StrContains(own.status().message(), "fork()");
  }));
  EXPECT_TRUE(SendAct(channel, 1).Wait().ok()) << "the parent was harmed";
}

// In a process of its own (death_test_style), in which nothing has used the device before. Then the fabric
// is gone, and librdmacm's devices are still the parent's.
TEST_F(ForkTest, AChildOfAParentThatHasClosedEverythingIsToldAsWell) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto closes_and_forks = [] {
    { TestServer server; }
    const bool as_it_should = InChild([] {
      Server own;
      const absl::Status listening = own.Listen(TestUri()).status();
      std::cerr << "in the child: " << listening << std::endl;
      if (TestScheme() == "tcp") return listening.ok();
      return absl::IsFailedPrecondition(listening) &&
             absl::StrContains(listening.message(), "its parent has used");
    });
    const bool unharmed = !TestServer().uri.empty();
    _exit(as_it_should && unharmed ? 0 : 1);
  };
  EXPECT_EXIT(closes_and_forks(), testing::ExitedWithCode(0), "in the child: ");
}

}  // namespace
}  // namespace hawser
