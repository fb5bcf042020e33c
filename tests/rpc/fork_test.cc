// A child after fork() does not own its parent's connections.

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class ForkTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  }
};

TEST_F(ForkTest, ACallOfTheChildFailsAndSaysWhy) {
  for (const int connections : {1, 2}) {
    TestServer server;
    auto channel = server.Connect({.connections = connections});
    EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
    EXPECT_TRUE(InChild([&] {
      const absl::Status waited = SendAct(channel, 1).Wait().status();
      absl::Status called;
      SendAct(channel, 1).Then([&](auto reply) { called = reply.status(); });
      return absl::IsFailedPrecondition(waited) && absl::StrContains(waited.message(), "fork()") &&
             absl::IsFailedPrecondition(called) && !WasSent(waited);
    }));
    EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk()) << "the parent was harmed";
  }
}

// The parent's contexts of TLS hold tickets that are used once, and perhaps a lock.
TEST_F(ForkTest, AChildWithCredentialsConnectsByItself) {
  const CertificateAuthority authority;
  const TlsCredentials credentials = authority.Issue();
  ServerOptions options;
  options.credentials = credentials;
  TestServer server(std::move(options), "tcp://127.0.0.1:0");  // A child has no RDMA.
  auto channel = server.Connect({.credentials = credentials});
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const auto context = tls::Context::Create(credentials, nullptr);
  ASSERT_THAT(context, IsOk());
  EXPECT_TRUE(InChild([&] {
    const auto own = tls::Context::Create(credentials, nullptr);
    if (!own.ok() || *own == *context) return false;
    if (channel->peer_identity().is_authenticated) return false;
    const auto again = server.Connect({.credentials = credentials});
    return SendAct(again, 1).Wait().ok() && again->peer_identity().is_authenticated;
  }));
  EXPECT_TRUE(channel->peer_identity().is_authenticated);
}

TEST_F(ForkTest, CallOfTheParentFailsInTheChildAndMayBeDestroyedThere) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  auto channel = server.Connect();
  auto waited_for = std::make_unique<PendingCall<probe::Probe::ActResults>>(SendAct(channel, 1));
  auto called_back = std::make_unique<PendingCall<probe::Probe::ActResults>>(SendAct(channel, 2));
  auto destroyed = std::make_unique<PendingCall<probe::Probe::ActResults>>(SendAct(channel, 3));
  DeferredCall at_server[] = {server.held.Take(), server.held.Take(), server.held.Take()};
  EXPECT_TRUE(InChild([&] {
    const absl::Status waited = waited_for->Wait().status();
    absl::Status called;
    called_back->Then([&](auto reply) { called = reply.status(); });
    waited_for.reset();
    called_back.reset();
    destroyed.reset();
    return absl::IsFailedPrecondition(waited) && absl::IsFailedPrecondition(called);
  }));
  for (DeferredCall& call : at_server) call.Finish(absl::OkStatus());
  EXPECT_THAT(waited_for->Wait(), IsOk()) << "the parent was harmed";
}

TEST_F(ForkTest, WhetherACallWasSentIsWhatTheParentKnew) {
  TestServer server;
  auto channel = server.Connect();
  absl::Notification held, go_on;
  probe::ProbeStub(channel).Echo().Send().Then([&](auto) {
    held.Notify();
    go_on.WaitForNotification();
  });
  held.WaitForNotification();
  auto posted = SendAct(channel, 1, {.timeout = kLong});  // The poller, which is held, is to send it.
  auto built = probe::ProbeStub(channel).Act();
  EXPECT_TRUE(InChild([&] {
    const absl::Status of_parent = posted.Wait().status(), of_child = built.Send().Wait().status();
    return WasSent(of_parent) && absl::StrContains(of_parent.message(), "it may have been sent") &&
           !WasSent(of_child) && absl::StrContains(of_child.message(), "it was not sent");
  }));
  go_on.Notify();
  EXPECT_THAT(posted.Wait(), IsOk()) << "the parent was harmed";
}

TEST_F(ForkTest, AChildMayDestroyChannelAndServer) {
  auto server = std::make_unique<TestServer>();
  auto channel = server->Connect();
  EXPECT_TRUE(InChild([&] {
    channel->Close();
    channel.reset();
    server.reset();
    return true;
  }));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk()) << "the parent was harmed";
}

TEST_F(ForkTest, EachCallOfTheParentsServerFailsInTheChild) {
  TestServer server;
  auto channel = server.Connect();
  EXPECT_TRUE(InChild([&] {
    ProbeServiceImpl another;
    const absl::Status shut_down = server.server.Shutdown(absl::InfinitePast());
    return absl::IsFailedPrecondition(shut_down) && absl::StrContains(shut_down.message(), "fork()") &&
           absl::IsFailedPrecondition(server.server.Wait()) &&
           absl::IsFailedPrecondition(server.server.Listen(TestUri()).status()) &&
           absl::IsFailedPrecondition(server.server.AddService(&another)) &&
           absl::IsFailedPrecondition(server.server.AllocateBuffer(8).status()) &&
           absl::IsFailedPrecondition(Channel::Create(server.uri, {.server = &server.server}).status()) &&
           server.server.addresses().empty() && server.server.stats().connections == 0;
  }));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk()) << "the parent was harmed";
  EXPECT_TRUE(server.Connect() != nullptr);
}

TEST_F(ForkTest, AChildMadeInAHandlerMayMakeItsOwnChannel) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "a child of a process that has used RDMA cannot";
  TestServer server;
  TestServer other;
  bool made = false;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    made = InChild([&] {
      const auto channel = Channel::Connect(other.uri);
      return channel.ok() && SendAct(*channel, 1).Wait().ok();
    });
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
  EXPECT_TRUE(made);
}

// The threads of the runtime exist only in the parent, and the child cannot destroy what they wait for.
TEST_F(ForkTest, ChildMayDropARuntimeAndItsServer) {
  std::shared_ptr<transport::Runtime> runtime = transport::Runtime::Create(TestScheme()).value();
  auto server = std::make_unique<Server>(ServerOptions{.runtime = runtime});
  ASSERT_THAT(server->Listen(TestUri()), IsOk());
  std::shared_ptr<Channel> channel = Channel::Create(server->addresses()[0], {.runtime = runtime}).value();
  EXPECT_TRUE(InChild([&] {
    channel.reset();
    server.reset();
    runtime.reset();
    return true;
  }));
  channel->Close();
}

// The parent forks while a thread holds the poller, so in the child it is held forever.
TEST_F(ForkTest, ChildMayDestroyARuntimeWhosePollerIsHeld) {
  std::shared_ptr<transport::Runtime> runtime = transport::Runtime::Create(TestScheme()).value();
  Box<bool> destroyed;
  runtime->poller(0).Run([&] {
    destroyed.Put(InChild([&] {
      runtime.reset();
      return true;
    }));
  });
  EXPECT_TRUE(destroyed.Take());
}

// The child has the connection's socket, too. The first ping is too late to notify the server within the
// test.
TEST_F(ForkTest, CloseIsSeenByTheServerThoughAChildLives) {
  TestServer server({.connection = {.keepalive_interval = 10 * kLong}});
  auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const IdleChild child;
  channel->Close();
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
}

// librdmacm keeps the devices open that its process has used, and the kernel serves them only to that
// process.
TEST_F(ForkTest, AChildMayMakeItsOwnOverTcpAndIsToldThatItCannotOverRdma) {
  TestServer server;
  auto channel = server.Connect();
  EXPECT_TRUE(InChild([&] {
    absl::StatusOr<std::shared_ptr<Channel>> own = Channel::Connect(server.uri);
    if (TestScheme() == "tcp") return own.ok() && SendAct(*own, 1).Wait().ok();
    std::cerr << "in the child: " << own.status() << std::endl;
    return absl::IsFailedPrecondition(own.status()) && absl::StrContains(own.status().message(), "fork()");
  }));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk()) << "the parent was harmed";
}

// Runs in a process of its own (death_test_style), which has not used the device before. It destroys the
// fabric, but librdmacm's devices still belong to the parent.
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
