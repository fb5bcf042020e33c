// Which connections belong to one client, and when a client that has sent nothing makes room.

#include "hawser/rpc/server/session.h"

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/raw_message.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/handshake.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser::internal {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<transport::Runtime> NewRuntime() {
  return *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false);
}

class NoOwner final : public Session::Owner {
 public:
  void OnSessionFirstMessage(Session&) override {}
  void OnSessionLost(Session&) override {}
  void OnSessionEnded(Session&) override {}
  void OnFurtherEnded(const Admission::Place&) override {}
};

SocketAddress Address(absl::string_view host, uint16_t port) {
  SocketAddress address = *transport::ParseNumericHost(host);
  address.set_port(port);
  return address;
}

// Two fabrics of one kind must not share a session, just like TCP and RDMA.
TEST(SessionTest, ItsReverseConnectionComesOverItsFabricFromItsHost) {
  const auto runtime = NewRuntime(), other = NewRuntime();
  const ServerOptions options;
  ServingCounters counters{0};
  NoOwner owner;
  Session::Owner& as_owner = owner;
  const auto identity = transport::OrNotAuthenticated(nullptr);
  const Session session(runtime, runtime->poller(0), Address("10.0.0.1", 4000), identity, {}, options,
                        std::make_shared<Serving>(), counters, as_owner);
  EXPECT_THAT(session.CheckFurther("a reverse connection", *runtime, Address("10.0.0.1", 4001), *identity),
              IsOk());
  const absl::Status fabric =
      session.CheckFurther("a reverse connection", *other, Address("10.0.0.1", 4001), *identity);
  EXPECT_THAT(fabric, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(fabric.message()), HasSubstr("the same fabric and device"));
  const absl::Status host =
      session.CheckFurther("a reverse connection", *runtime, Address("10.0.0.2", 4000), *identity);
  EXPECT_THAT(host, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(host.message()), HasSubstr("the same host"));
}

TEST(SessionTest, ItsReverseConnectionHasTheSameIdentity) {
  const auto runtime = NewRuntime();
  const ServerOptions options;
  ServingCounters counters{0};
  NoOwner owner;
  Session::Owner& as_owner = owner;
  const auto kv1 = std::make_shared<const PeerIdentity>(
      PeerIdentity{.is_authenticated = true, .dns_names = {"kv1.example.org"}});
  const Session session(runtime, runtime->poller(0), Address("10.0.0.1", 4000), kv1, {}, options,
                        std::make_shared<Serving>(), counters, as_owner);
  EXPECT_THAT(
      session.CheckFurther("a reverse connection", *runtime, Address("10.0.0.1", 4001), PeerIdentity(*kv1)),
      IsOk());
  for (const PeerIdentity& other :
       {PeerIdentity(), PeerIdentity{.is_authenticated = true},
        PeerIdentity{.is_authenticated = true, .dns_names = {"kv2.example.org"}},
        PeerIdentity{.is_authenticated = true, .dns_names = {"kv1.example.org", "kv2.example.org"}}}) {
    const absl::Status refused =
        session.CheckFurther("a reverse connection", *runtime, Address("10.0.0.1", 4001), other);
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied));
    const bool looks_like_others = other.is_authenticated && !other.has_names();
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(looks_like_others ? "a certificate with a name"
                                            : "the names of its session's: " + other.ToString()));
  }
}

// A session whose client, on a bare socket, has greeted and sent nothing since. The test drives the poller,
// and its clock.
class NewcomerTest : public ::testing::Test, transport::Acceptor::Handler, Session::Owner {
 protected:
  bool has_second_connection() const { return !waiting_.empty(); }
  void SetUp() override {
    if (TestScheme() != "tcp") GTEST_SKIP() << "its client writes TCP";
    OnPoller([this] { acceptor_ = *transport::Acceptor::Listen(poller(), TestAddress(), *this); });
    Greet(client_, {});
    ASSERT_TRUE(Until([this] { return session_ != nullptr; }));
  }
  ~NewcomerTest() override {
    OnPoller([this] {
      acceptor_ = nullptr;
      if (session_ != nullptr) session_->Close(absl::UnavailableError("the test ends"));
    });
    DriveToTheEnd(runtime_);
  }

  void Greet(const UniqueFd& from, transport::Handshake handshake) {
    const SocketAddress server = TestAddress(acceptor_->address().port());
    ASSERT_EQ(connect(from.get(), server.get(), server.length_bytes()), 0);
    handshake.slots = 1;
    handshake.receive_buffer_bytes = 4096;
    handshake.message_bytes_max = 1 << 20;
    const std::string hello = transport::Encode(handshake);
    std::string greeting("\x89HAWSER\n\x01\0\x01", 11);
    greeting.push_back(static_cast<char>(hello.size()));
    Send(greeting + std::string("\x10\0\0\0", 4) + hello, from);
  }
  void Send(const std::string& bytes) { Send(bytes, client_); }
  void Send(const std::string& bytes, const UniqueFd& from) {
    EXPECT_EQ(send(from.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void SendRequest() {
    const std::string message = transport::RawRequest(0, 1, 8).Encode();
    const fabric::FrameHeader header = {.kind = fabric::FrameKind::kSend,
                                        .length_bytes = static_cast<uint32_t>(message.size())};
    Send(std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + message);
  }

  transport::Poller& poller() { return runtime_->poller(0); }
  bool Until(const std::function<bool()>& condition) {
    return Eventually([&] {
      poller().PollOnce();
      return condition();
    });
  }
  void OnPoller(const std::function<void()>& code) {
    bool is_done = false;
    poller().Run([&] {
      code();
      is_done = true;
    });
    EXPECT_TRUE(Until([&] { return is_done; }));
  }
  // Another client needs its place.
  void CloseIfNothingReceived() {
    OnPoller([this] { session_->CloseIfNothingReceived(); });
  }
  void Pass(absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += absl::Milliseconds(1)) {
      clock_.Advance(absl::Milliseconds(1));
      for (int turn = 0; turn < 5; ++turn) poller().PollOnce();
    }
  }

  transport::TestClock clock_;
  const std::shared_ptr<transport::SpyFabric> fabric_ =
      std::make_shared<transport::SpyFabric>(NewTestFabric());
  std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::CreateOn(fabric_, {}, /*start_threads=*/false, clock_);
  bool is_heard_ = false, is_closed_ = false;
  absl::Status reverse_;  // What the session answered to the second connection.

 private:
  void OnPeer(transport::PeerRequest request) override {
    if (session_ != nullptr) return waiting_.push_back(std::move(request));
    Session::Owner& owner = *this;
    session_ = std::make_unique<Session>(runtime_, poller(), request.peer_address(), request.peer_identity(),
                                         Admission::Place(), options_, std::make_shared<Serving>(), counters_,
                                         owner);
    EXPECT_THAT(session_->Accept(std::move(request)), IsOk());
  }
  void OnSessionFirstMessage(Session&) override { is_heard_ = true; }
  void OnSessionLost(Session& session) override {
    is_closed_ = true;
    for (transport::PeerRequest& request : waiting_) reverse_ = session.AcceptReverse(std::move(request), {});
  }
  void OnSessionEnded(Session&) override { session_ = nullptr; }
  void OnFurtherEnded(const Admission::Place&) override {}

  const ServerOptions options_ = {};
  ServingCounters counters_{0};
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::unique_ptr<Session> session_;
  std::vector<transport::PeerRequest> waiting_;
  const UniqueFd client_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

TEST_F(NewcomerTest, ANewcomerThatHasSentNothingMakesRoomAtOnce) {
  CloseIfNothingReceived();
  EXPECT_TRUE(Until([this] { return is_closed_; }));
  EXPECT_FALSE(is_heard_);
}

TEST_F(NewcomerTest, ANewcomerWhoseFirstMessageIsOnItsWayStays) {
  fabric_->SayUnpolled(true);
  CloseIfNothingReceived();
  Pass(absl::Milliseconds(500));
  EXPECT_FALSE(is_closed_ || is_heard_);
  SendRequest();
  EXPECT_TRUE(Until([this] { return is_heard_; }));
  Pass(absl::Seconds(2));
  ASSERT_FALSE(is_closed_) << "it is no newcomer any more";
  fabric_->SayUnpolled(false);
  CloseIfNothingReceived();
  Pass(absl::Milliseconds(20));
  EXPECT_FALSE(is_closed_);
}

TEST_F(NewcomerTest, ANewcomerWhoseBytesWereNoMessageMakesRoom) {
  fabric_->SayUnpolled(true);
  CloseIfNothingReceived();
  Pass(absl::Milliseconds(50));
  EXPECT_FALSE(is_closed_);
  fabric_->SayUnpolled(false);
  Pass(absl::Milliseconds(20));
  EXPECT_TRUE(is_closed_);
}

// A client that sends a byte from time to time always has some on the way.
TEST_F(NewcomerTest, ANewcomerWithoutAMessageIsSparedForASecond) {
  fabric_->SayUnpolled(true);
  CloseIfNothingReceived();
  Pass(absl::Milliseconds(900));
  EXPECT_FALSE(is_closed_ || is_heard_);
  Pass(absl::Milliseconds(200));
  EXPECT_TRUE(is_closed_);
}

// The session ends while its reverse connection is being accepted: nothing would end that one.
TEST_F(NewcomerTest, ASessionThatHasEndedTakesNoReverseConnection) {
  const UniqueFd second{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Greet(second, {.role = transport::Role::kReverse, .session = {1}});
  ASSERT_TRUE(Until([this] { return has_second_connection(); }));
  CloseIfNothingReceived();
  ASSERT_TRUE(Until([this] { return is_closed_; }));
  EXPECT_THAT(reverse_, HasCode(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace hawser::internal
