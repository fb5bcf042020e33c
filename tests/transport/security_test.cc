// Where a connection asks for TLS and the network has none, it is refused: it never goes on in plain text.

#include "hawser/transport/security.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/tests/transport/testing/plain_fabric.h"
#include "hawser/tls/context.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NoPeers final : public Acceptor::Handler {
 public:
  void OnPeer(PeerRequest) override { ADD_FAILURE() << "a peer has come"; }
};

TEST(SecurityTest, AFabricThatCarriesNoTlsIsNotUsedWithoutIt) {
  const CertificateAuthority authority;
  const std::shared_ptr<tls::Context> context = *tls::Context::Create(authority.Issue(), nullptr);
  const auto runtime = *Runtime::CreateOn(std::make_shared<PlainFabric>(NewTestFabric()), {},
                                          /*start_threads=*/false);
  EXPECT_FALSE(runtime->carries_tls());
  Poller& poller = runtime->poller(0);
  poller.Run([&] {
    NoPeers handler;
    const absl::Status listening = Acceptor::Listen(poller, TestAddress(), handler, context).status();
    EXPECT_THAT(listening, HasCode(absl::StatusCode::kUnimplemented));
    EXPECT_THAT(std::string(listening.message()), AllOf(HasSubstr("credentials"), HasSubstr("use tcp://")));
    RecordingObserver observer;
    const absl::Status dialing = Connection::Dial(poller, TestAddress(1), {}, Handshake(), absl::Seconds(5),
                                                  observer, nullptr, {context, "localhost"})
                                     .status();
    EXPECT_THAT(dialing, HasCode(absl::StatusCode::kUnimplemented));
    EXPECT_THAT(std::string(dialing.message()), AllOf(HasSubstr("credentials"), HasSubstr("use tcp://")));
  });
  EXPECT_EQ(poller.connection_count(), 0u);
}

TEST(SecurityTest, OnlyTcpEncryptsWhatCrosses) {
  EXPECT_THAT(CheckSchemeIsSecure("tcp", /*require_encryption=*/true), IsOk());
  EXPECT_THAT(CheckSchemeIsSecure("rdma", /*require_encryption=*/false), IsOk());
  EXPECT_THAT(CheckSchemeIsSecure("rdma", /*require_encryption=*/true),
              HasCode(absl::StatusCode::kInvalidArgument));
  for (const char* scheme : {"auto", "http", ""}) {
    EXPECT_THAT(CheckSchemeIsSecure(scheme, /*require_encryption=*/false),
                HasCode(absl::StatusCode::kInvalidArgument))
        << scheme;
  }
}

TEST(SecurityTest, AnIdentityIsNeverNull) {
  EXPECT_EQ(*OrNotAuthenticated(nullptr), PeerIdentity());
  const auto identity = std::make_shared<const PeerIdentity>(PeerIdentity{.is_authenticated = true});
  EXPECT_EQ(OrNotAuthenticated(identity), identity);
}

}  // namespace
}  // namespace hawser::transport
