// Which connections belong to one client.

#include "hawser/rpc/internal/session.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<transport::Runtime> NewRuntime() {
  return *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/false);
}

class NoOwner final : public Session::Owner {
 public:
  void OnSessionHeard(Session&) override {}
  void OnSessionClosed(Session&) override {}
  void OnSessionGone(Session&) override {}
  void OnReverseGone(const Admission::Place&) override {}
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
  EXPECT_TRUE(session.CheckReverse(*runtime, Address("10.0.0.1", 4001), *identity).ok());
  const absl::Status fabric = session.CheckReverse(*other, Address("10.0.0.1", 4001), *identity);
  EXPECT_EQ(fabric.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(fabric.message()), HasSubstr("the same fabric and device"));
  const absl::Status host = session.CheckReverse(*runtime, Address("10.0.0.2", 4000), *identity);
  EXPECT_EQ(host.code(), absl::StatusCode::kPermissionDenied);
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
  EXPECT_TRUE(session.CheckReverse(*runtime, Address("10.0.0.1", 4001), PeerIdentity(*kv1)).ok());
  for (const PeerIdentity& other :
       {PeerIdentity(), PeerIdentity{.is_authenticated = true},
        PeerIdentity{.is_authenticated = true, .dns_names = {"kv2.example.org"}},
        PeerIdentity{.is_authenticated = true, .dns_names = {"kv1.example.org", "kv2.example.org"}}}) {
    const absl::Status refused = session.CheckReverse(*runtime, Address("10.0.0.1", 4001), other);
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    const bool looks_like_others = other.is_authenticated && !other.has_names();
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(looks_like_others ? "a certificate with a name"
                                            : "the names of its session's: " + other.ToString()));
  }
}

}  // namespace
}  // namespace hawser::internal
