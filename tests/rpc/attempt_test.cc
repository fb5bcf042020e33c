// The addresses of a name are tried side by side: RFC 8305.

#include "hawser/rpc/client/attempt.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/base/unique_fd.h"
#include "hawser/rpc/client/resolver.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser::internal {
namespace {

using ::testing::HasSubstr;

SocketAddress Address(absl::string_view host, uint16_t port) {
  SocketAddress address = *transport::ParseNumericHost(host);
  address.set_port(port);
  return address;
}

// A port that accepts connections and never answers.
class SilentPeer {
 public:
  explicit SilentPeer(absl::string_view host = "127.0.0.1") {
    const SocketAddress any_port = Address(host, 0);
    listener_ = UniqueFd(socket(any_port.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener_.get(), any_port.get(), any_port.length_bytes()), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    sockaddr_storage name = {};
    socklen_t length_bytes = sizeof(name);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &length_bytes), 0);
    address_ = SocketAddress(reinterpret_cast<sockaddr*>(&name), length_bytes);
  }

  const SocketAddress& address() const { return address_; }

  // The number of connections made so far.
  size_t tries() {
    while (true) {
      UniqueFd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!peer.is_open()) return peers_.size();
      peers_.push_back(std::move(peer));
    }
  }
  // A kernel that is busy makes a connection over loopback a little after connect(2) has returned.
  bool WaitForTries(size_t count) {
    return Eventually([&] { return tries() >= count; }) && tries() == count;
  }
  // The number of those that the other side has not closed.
  size_t open() {
    tries();
    size_t count = 0;
    char bytes[256];
    for (UniqueFd& peer : peers_) {
      ssize_t n;
      while ((n = recv(peer.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
      }
      if (n < 0 && errno == EAGAIN) ++count;
    }
    return count;
  }

 private:
  UniqueFd listener_;
  SocketAddress address_;
  std::vector<UniqueFd> peers_;
};

// A port that refuses connections.
SocketAddress ClosedPort(absl::string_view host) { return SilentPeer(host).address(); }

class AttemptTest : public testing::Test, Attempt::Owner, Link::Observer {
 protected:
  ~AttemptTest() override {
    poller_.Run([&] {
      attempt_->Abandon();
      attempt_.reset();
      if (link_ == nullptr) return;
      links_.push_back(std::move(link_));
      links_.back()->Close(absl::CancelledError("the test ends"));
    });
    EXPECT_TRUE(Eventually([&] { return Turn(), links_.empty(); }));
  }

  // Tries `addresses`, to which "kv1" resolves. Returns when they are known and the first one is being tried.
  void Start(const std::vector<SocketAddress>& addresses) {
    addresses_ = addresses;
    Attempt::Owner& owner = *this;
    attempt_ =
        std::make_shared<Attempt>(runtime_, poller_, uri_, options_, security_, nullptr, owner, *resolver_);
    poller_.Run([&] { attempt_->Start(); });
    resolver_.reset();  // The destructor waits until its thread has left the poller.
    EXPECT_TRUE(Eventually([&] { return Turn(), poller_.connection_count() + buried_ > 0 || ended(); }));
  }
  void Turn() { poller_.PollOnce(); }
  // Lets time pass, and runs what is due.
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    for (int turn = 0; turn < 10; ++turn) Turn();
  }
  void UntilEnded() {
    EXPECT_TRUE(Eventually([&] { return Turn(), ended(); }));
  }
  bool ended() const { return link_ != nullptr || failed_ > 0; }

  // Attempt::Owner
  void OnAttemptConnected(std::unique_ptr<Link> link) override {
    link->set_observer(*this);
    EXPECT_EQ(link_, nullptr);
    link_ = std::move(link);
  }
  void OnAttemptFailed(const absl::Status& why) override {
    ++failed_;
    why_ = why;
  }
  void Retire(std::unique_ptr<Link> link) override {
    ++buried_;
    link->set_observer(*this);
    links_.push_back(std::move(link));
  }

  // Link::Observer
  void OnLinkReady(Link&) override { ADD_FAILURE() << "a link that was given up is ready"; }
  void OnLinkLost(Link&, const absl::Status&) override {}
  void OnLinkEnded(Link& link) override {
    links_.remove_if([&](const auto& each) { return each.get() == &link; });
  }

  transport::TestClock clock_;
  const std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::CreateOn(fabric::CreateTcpFabric(), {}, /*start_threads=*/false, clock_);
  transport::Poller& poller_ = runtime_->poller(0);
  const transport::Uri uri_ = {"tcp", "kv1", 7470};
  ChannelOptions options_;
  const transport::Security security_ = {};
  std::vector<SocketAddress> addresses_;
  std::optional<Resolver> resolver_{[this](const transport::Uri&) { return addresses_; }};
  std::shared_ptr<Attempt> attempt_;
  std::unique_ptr<Link> link_;  // The established link.
  std::list<std::unique_ptr<Link>> links_;
  size_t buried_ = 0;
  int failed_ = 0;
  absl::Status why_;
};

TEST_F(AttemptTest, NextAddressIsTriedAfterAQuarterOfASecond) {
  SilentPeer first, second, third;
  Start({first.address(), second.address(), third.address()});
  EXPECT_TRUE(first.WaitForTries(1));
  Pass(absl::Milliseconds(249));
  EXPECT_EQ(second.tries(), 0u);
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(second.WaitForTries(1));
  Pass(absl::Milliseconds(249));
  EXPECT_EQ(third.tries(), 0u);
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(third.WaitForTries(1));
  EXPECT_TRUE(Eventually([&] { return first.open() + second.open() + third.open() == 3; }));
}

TEST_F(AttemptTest, AddressThatFailsIsFollowedByTheNextAtOnce) {
  TestServer server({}, "tcp://127.0.0.1:0");
  const absl::StatusOr<transport::Uri> up = transport::ParseUri(server.uri);
  Start({ClosedPort("127.0.0.1"), ClosedPort("127.0.0.1"), Address("127.0.0.1", up->port)});
  UntilEnded();
  EXPECT_NE(link_, nullptr) << why_;
}

TEST_F(AttemptTest, FirstConnectionThatIsUpWinsAndTheOthersAreClosed) {
  SilentPeer silent;
  TestServer server({}, "tcp://127.0.0.1:0");
  const absl::StatusOr<transport::Uri> up = transport::ParseUri(server.uri);
  Start({silent.address(), Address("127.0.0.1", up->port), silent.address()});
  EXPECT_FALSE(ended());
  Pass(absl::Milliseconds(250));
  UntilEnded();
  EXPECT_NE(link_, nullptr) << why_;
  EXPECT_TRUE(Eventually([&] { return Turn(), silent.open() == 0; }));
  Pass(absl::Seconds(1));
  EXPECT_EQ(silent.tries(), 1u);
  EXPECT_EQ(failed_, 0);
}

TEST_F(AttemptTest, FamiliesTakeTurns) {
  const std::vector<SocketAddress> v6 = {ClosedPort("::1"), ClosedPort("::1"), ClosedPort("::1")};
  const SocketAddress v4 = ClosedPort("127.0.0.1");
  Start({v6[0], v6[1], v6[2], v4});
  UntilEnded();
  const std::string text(why_.message());
  std::vector<size_t> places;
  for (const SocketAddress& address : {v6[0], v4, v6[1], v6[2]}) {
    places.push_back(text.find(address.ToString()));
    EXPECT_NE(places.back(), std::string::npos);
  }
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << text;
}

TEST_F(AttemptTest, AFewAddressesAreTriedAtOnceAndAllWithinTheTimeout) {
  std::vector<SilentPeer> silent(10);
  std::vector<SocketAddress> addresses;
  for (SilentPeer& each : silent) addresses.push_back(each.address());
  options_.connect_timeout = absl::Seconds(5);
  Start(addresses);
  for (int step = 0; step < 499; ++step) {
    Pass(absl::Milliseconds(10));
    size_t open = 0;
    for (SilentPeer& each : silent) open += each.open();
    ASSERT_LE(open, 4u);
    ASSERT_FALSE(ended());
  }
  for (SilentPeer& each : silent) EXPECT_TRUE(each.WaitForTries(1));
  Pass(absl::Milliseconds(10));
  UntilEnded();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_THAT(std::string(why_.message()), HasSubstr(addresses[i].ToString()));
  }
  EXPECT_THAT(std::string(why_.message()), HasSubstr("and 6 addresses more"));
}

TEST_F(AttemptTest, AShortTimeoutIsSharedByTheAddresses) {
  SilentPeer first, second;
  options_.connect_timeout = absl::Milliseconds(100);
  Start({first.address(), second.address()});
  Pass(absl::Milliseconds(50));
  EXPECT_TRUE(second.WaitForTries(1));
  EXPECT_TRUE(Eventually([&] { return first.open() == 1; }));
  Pass(absl::Milliseconds(50));
  UntilEnded();
  EXPECT_EQ(failed_, 1);
}

TEST_F(AttemptTest, GivenUpItClosesAllThatItTries) {
  SilentPeer first, second;
  Start({first.address(), second.address()});
  Pass(absl::Milliseconds(250));
  EXPECT_TRUE(Eventually([&] { return first.open() + second.open() == 2; }));
  poller_.Run([&] { attempt_->Abandon(); });
  EXPECT_TRUE(Eventually([&] { return Turn(), first.open() + second.open() == 0; }));
  EXPECT_FALSE(ended());
}

}  // namespace
}  // namespace hawser::internal
