// How connections come about, or do not.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/contract_suites.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

HAWSER_SUITE(ConnectContractTest);

TEST_P(ConnectContractTest, BothSidesAreEstablishedAndKnowEachOther) {
  auto [a, b] = world_.Connect();
  EXPECT_THAT(a.news().told, ElementsAre("established"));
  EXPECT_THAT(b.news().told, ElementsAre("established"));
  EXPECT_NE(a.qp().qp_num(), b.qp().qp_num());
  EXPECT_EQ(a.qp().peer_address().ToString(), world_.listener().address().ToString());
  EXPECT_EQ(b.qp().local_address().ToString(), world_.listener().address().ToString());
  EXPECT_EQ(a.qp().local_address().ToString(), b.qp().peer_address().ToString());
}

TEST_P(ConnectContractTest, ConnectComesFromTheAddressThatItWasGiven) {
  SocketAddress local = world_.listener().address();  // Of this host, so a peer can come from it, too.
  local.set_port(0);
  Endpoint& a = world_.NewEndpoint(0, {.local_address = local});
  Endpoint& b = world_.NewEndpoint(1);
  world_.Connect(a, b);
  SocketAddress seen = b.qp().peer_address();
  EXPECT_NE(seen.port(), 0);
  EXPECT_EQ(a.qp().local_address().ToString(), seen.ToString());
  seen.set_port(0);
  EXPECT_EQ(seen.ToString(), local.ToString());
}

// One that no host has: 192.0.2.1 and 2001:db8::1 are for documentation (RFC 5737, 3849).
SocketAddress NobodysAddress(int family) {
  if (family == AF_INET) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr);
    return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
}

TEST_P(ConnectContractTest, ConnectFromAnAddressThatThisHostHasNotFails) {
  const SocketAddress local = NobodysAddress(world_.listener().address().family());
  Endpoint& a = world_.NewEndpoint(0, {.local_address = local});
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_THAT(a.news().told, ElementsAre("failed"));
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(a.news().why.message()),
              AllOf(HasSubstr(local.ToString()), HasSubstr("no interface of this machine")));
}

TEST_P(ConnectContractTest, ConnectFromAnAddressOfTheOtherFamilyIsRefused) {
  const int family = world_.listener().address().family();
  Endpoint& a =
      world_.NewEndpoint(0, {.local_address = NobodysAddress(family == AF_INET ? AF_INET6 : AF_INET)});
  EXPECT_THAT(a.qp().Connect(world_.listener().address(), ""), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(ConnectContractTest, TheReadDepthIsTheMinimumOfBoth) {
  Endpoint& a = world_.NewEndpoint(0, {.read_depth = 5});
  Endpoint& b = world_.NewEndpoint(1, {.read_depth = 3});
  world_.Connect(a, b);
  EXPECT_EQ(a.qp().read_depth(), shortcomings().dialer_is_not_told_depths ? 5u : 3u);
  EXPECT_EQ(b.qp().read_depth(), 3u);
}

TEST_P(ConnectContractTest, PrivateDataOfEverySizeCrosses) {
  for (size_t size : {size_t{0}, size_t{1}, kConnectPrivateDataMax}) {
    for (size_t accept_size : {size_t{0}, size_t{1}, kAcceptPrivateDataMax}) {
      const std::string asked(size, 'c'), accepted(accept_size, 'a');
      Endpoint& a = world_.NewEndpoint(0);
      Endpoint& b = world_.NewEndpoint(1);
      ASSERT_THAT(a.qp().Connect(world_.listener().address(), asked), IsOk());
      HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
      EXPECT_THAT(std::string(world_.requests().requests[0]->private_data()), StartsWith(asked));
      ASSERT_THAT(b.qp().Accept(*world_.requests().requests[0], accepted), IsOk());
      world_.requests().requests.clear();
      HAWSER_UNTIL(world_, a.news().established() && b.news().established());
      EXPECT_THAT(a.news().accept_data, StartsWith(accepted));
      EXPECT_EQ(b.news().accept_data, "");
    }
  }
}

TEST_P(ConnectContractTest, PrivateDataThatIsTooLongIsRefused) {
  Endpoint& a = world_.NewEndpoint(0);
  const std::string too_long(kConnectPrivateDataMax + 1, 'c');
  EXPECT_THAT(a.qp().Connect(world_.listener().address(), too_long),
              HasCode(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  Endpoint& b = world_.NewEndpoint(1);
  EXPECT_THAT(b.qp().Accept(*world_.requests().requests[0], std::string(kAcceptPrivateDataMax + 1, 'a')),
              HasCode(absl::StatusCode::kInvalidArgument));
  // Rejected, so that nothing waits for its answer when the queue pair is destroyed: siw does for 10 s.
  world_.requests().requests.clear();
  HAWSER_UNTIL(world_, a.news().ended());
}

TEST_P(ConnectContractTest, RejectingGivesTheReasonToTheRequester) {
  for (size_t size : {size_t{0}, size_t{1}, kRejectPrivateDataMax}) {
    const std::string reason(size, 'r');
    Endpoint& a = world_.NewEndpoint(0);
    ASSERT_THAT(a.Receive(1, a.At(0, 10)), IsOk());
    ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
    HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
    world_.requests().requests[0]->Reject(reason);
    world_.requests().requests.clear();
    HAWSER_UNTIL(world_, a.news().ended());
    EXPECT_THAT(a.news().told, ElementsAre("failed"));
    EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kPermissionDenied));
    EXPECT_THAT(a.news().reject_data, StartsWith(reason));
    world_.ExpectEverythingComesBack(a);
    EXPECT_THAT(a.receives, ElementsAre(CompletionIs(1, kFlushed)));
  }
}

TEST_P(ConnectContractTest, ARequestThatIsDroppedIsRejected) {
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  world_.requests().requests.clear();
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_P(ConnectContractTest, ConnectingWhereNobodyListensFails) {
  const SocketAddress nobody = world_.listener().address();
  world_.CloseListener();
  Endpoint& a = world_.NewEndpoint(0);
  ASSERT_THAT(a.Receive(1, a.At(0, 10)), IsOk());
  ASSERT_THAT(a.qp().Connect(nobody, ""), IsOk());
  HAWSER_UNTIL(world_, a.news().ended());
  EXPECT_THAT(a.news().told, ElementsAre("failed"));
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(a.news().why.message()), HasSubstr(nobody.ToString()));
  world_.ExpectEverythingComesBack(a);
}

TEST_P(ConnectContractTest, ReceivesPostedBeforeConnectingAreUsed) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  ASSERT_THAT(b.Receive(1, b.At(0, 10)), IsOk());
  world_.Connect(a, b);
  ASSERT_THAT(a.Send(1, a.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, b.receives.size() == 1);
  EXPECT_THAT(b.receives[0], CompletionIs(1, kSuccess));
}

TEST_P(ConnectContractTest, ARequestCanBeAcceptedOnAnotherCompletionQueue) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(0);  // The listener is on 1.
  world_.Connect(a, b);
  ASSERT_THAT(b.Receive(1, b.At(0, 10)), IsOk());
  ASSERT_THAT(a.Send(1, a.At(0, 10)), IsOk());
  HAWSER_UNTIL(world_, a.sends.size() == 1 && b.receives.size() == 1);
}

// Which address and port a peer has dialed decides what its proof is good for (transport/wire/proof.h).
TEST_P(ConnectContractTest, ARequestSaysWhereItWasDialed) {
  Endpoint& a = world_.NewEndpoint(0);
  const SocketAddress dialed = world_.listener().address();
  ASSERT_THAT(a.qp().Connect(dialed, ""), IsOk());
  HAWSER_UNTIL(world_, !world_.requests().requests.empty());
  EXPECT_EQ(world_.requests().requests.back()->local_address().ToString(), dialed.ToString());
  world_.requests().requests.clear();
  HAWSER_UNTIL(world_, a.news().ended());
}

// What a fabric of another kind hands out.
class ForeignRequest final : public ConnectRequest {
 public:
  absl::string_view private_data() const override { return ""; }
  SocketAddress peer_address() const override { return {}; }
  SocketAddress local_address() const override { return {}; }
  void Reject(absl::string_view) override { rejected = true; }
  bool rejected = false;
};

class ForeignCompletionQueue final : public CompletionQueue {
 public:
  size_t Poll(absl::Span<Completion>) override { return 0; }
  void WaitUntil(int64_t) override {}
  void Wake() override {}
};

TEST_P(ConnectContractTest, AcceptRefusesARequestOfAnotherFabric) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  ForeignRequest foreign;
  EXPECT_THAT(b.qp().Accept(foreign, ""), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(foreign.rejected);
  world_.Connect(a, b);
}

TEST_P(ConnectContractTest, ACompletionQueueOfAnotherFabricIsRefused) {
  ForeignCompletionQueue foreign;
  NewsRecorder news;
  RequestRecorder requests;
  SocketAddress address = world_.listener().address();
  address.set_port(0);
  EXPECT_THAT(world_.fabric().CreateQueuePair(foreign, {}, news).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(world_.fabric().Listen(foreign, address, requests).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_P(ConnectContractTest, APendingRequestOutlivesItsListener) {
  Endpoint& a = world_.NewEndpoint(0);
  Endpoint& b = world_.NewEndpoint(1);
  ASSERT_THAT(a.qp().Connect(world_.listener().address(), ""), IsOk());
  HAWSER_UNTIL(world_, world_.requests().requests.size() == 1);
  world_.CloseListener();
  ASSERT_THAT(b.qp().Accept(*world_.requests().requests[0], ""), IsOk());
  HAWSER_UNTIL(world_, a.news().established() && b.news().established());
}

TEST_P(ConnectContractTest, AnAddressInUseCannotBeListenedOn) {
  RequestRecorder requests;
  EXPECT_NE(world_.listener().address().port(), 0);
  EXPECT_THAT(
      world_.fabric().Listen(world_.completion_queue(), world_.listener().address(), requests).status(),
      HasCode(absl::StatusCode::kAlreadyExists));
}

}  // namespace
}  // namespace hawser::fabric
