// A child made by fork() has all sockets and epoll sets of the fabric over TCP, too: the parent ends its
// connections nevertheless, and the child ends none.

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tcp_stage.h"

namespace hawser::fabric {
namespace {

using TcpForkTest = TcpFabricTest;

TEST_F(TcpForkTest, DisconnectIsSeenThoughAChildHasTheSocket) {
  auto [a, b] = world_.Connect();
  const IdleChild child;
  a.qp().Disconnect();
  HAWSER_UNTIL(world_, b.news().ended());
}

TEST_F(TcpForkTest, RejectionEndsTheConnectionThoughAChildHasTheSocket) {
  Stranger stranger(world_);
  stranger.Say(EncodeGreeting(GreetingKind::kConnect, 16, ""));
  HAWSER_UNTIL(world_, !world_.requests().requests.empty());
  const IdleChild child;
  world_.requests().requests[0]->Reject("no");
  stranger.HearUntilClosed();
}

// Left in the epoll set, its end would make each epoll_wait(2) return at once, for as long as the child
// lives.
TEST_F(TcpForkTest, HalfOpenPeerThatGoesLeavesNothingToWakeFor) {
  Stranger stranger(world_);
  world_.PollSome(10);
  const IdleChild child;
  shutdown(stranger.fd(), SHUT_WR);
  stranger.HearUntilClosed();
  CompletionQueue& queue = world_.completion_queue(1);
  int early = 0;
  for (int i = 0; i < 10; ++i) {
    const int64_t until_ns = MonotonicNs() + absl::ToInt64Nanoseconds(absl::Milliseconds(2));
    queue.WaitUntil(until_ns);
    if (MonotonicNs() < until_ns) ++early;
    world_.PollOnce();
  }
  EXPECT_LT(early, 5);  // One or two for what was under way.
}

TEST_F(TcpForkTest, ListenerThatIsGoneRefusesThoughAChildHasTheSocket) {
  const SocketAddress address = world_.listener().address();
  const IdleChild child;
  world_.CloseListener();
  const UniqueFd late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(connect(late.get(), address.get(), address.length_bytes()), 0);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(TcpForkTest, ChildThatDestroysItsCopiesHarmsNothing) {
  auto [a, b] = world_.Connect();
  Stranger stranger(world_);
  world_.PollSome(10);
  Stranger greeted(world_);
  greeted.Say(EncodeGreeting(GreetingKind::kConnect, 16, ""));
  HAWSER_UNTIL(world_, !world_.requests().requests.empty());
  for (uint64_t i = 0; i < 2; ++i) ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
  const uint8_t copied[7] = {1};
  ASSERT_TRUE(a.qp().PostInline(copied));
  EXPECT_TRUE(InChild([&, &requester = a, &responder = b] {
    requester.qp().RingDoorbell();
    EXPECT_FALSE(requester.qp().PostInline(copied));
    EXPECT_THAT(requester.Send(1, requester.At(0, 10)), ::testing::Not(IsOk()));
    requester.qp().Disconnect();
    requester.Destroy();
    responder.Destroy();
    world_.requests().requests.clear();
    world_.CloseListener();
    world_.PollOnce();
    return !testing::Test::HasFailure();
  }));
  ASSERT_THAT(a.Send(2, a.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 2 && a.sends.size() == 1);
  EXPECT_THAT(b.receives[1], CompletionIs(1, CompletionStatus::kSuccess));
  EXPECT_EQ(b.receives[0].byte_len, 7u);
  EXPECT_EQ(b.receives[1].byte_len, 10u);
  stranger.Say(EncodeGreeting(GreetingKind::kConnect, 16, ""));
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 2);
  EXPECT_FALSE(greeted.closed());
}

// The child that returns from the handler is still inside Poll(), with the sockets of its parent at hand.
TEST_F(TcpForkTest, AChildOfAHandlerIsOfferedAndReadsNothingMore) {
  auto [a, b] = world_.Connect();
  auto [c, d] = world_.Connect();
  int offers = 0;
  pid_t child = -1;
  int status = -1;
  const auto take = [&](absl::string_view) {
    if (++offers > 1) return true;
    child = fork();
    if (child == 0) alarm(30);
    if (child > 0) waitpid(child, &status, 0);
    return true;
  };
  b.news().take_send = take;
  d.news().take_send = take;
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_THAT(b.Receive(i, b.At(i * 100, 100)), IsOk());
    ASSERT_THAT(d.Receive(i, d.At(i * 100, 100)), IsOk());
  }
  world_.PollSome();
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_THAT(a.Send(i, a.At(0, 5)), IsOk());
    ASSERT_THAT(c.Send(i, c.At(0, 5)), IsOk());
  }
  HAWSER_UNTIL(world_, child >= 0);
  if (child == 0) {
    world_.PollSome();
    _exit(offers == 1 && b.receives.empty() && d.receives.empty() ? 0 : 1);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  HAWSER_UNTIL(world_, offers == 4 && a.sends.size() == 2 && c.sends.size() == 2);
  EXPECT_FALSE(b.news().ended() || d.news().ended());
}

}  // namespace
}  // namespace hawser::fabric
