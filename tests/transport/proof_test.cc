// Who connects over RDMA, with credentials: the bytes, and the table of a server.

#include "hawser/transport/wire/proof.h"

#include <netinet/in.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/uri.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kRejectionTextMax = 140;

Proof ProofNumber(uint8_t number) {
  Proof proof;
  proof.number.fill(number);
  proof.key.fill(static_cast<uint8_t>(number + 100));
  return proof;
}

SessionToken Session() {
  SessionToken session;
  session.fill(0x5e);
  return session;
}

SocketAddress Host(const std::string& host, uint16_t port = 1) {
  SocketAddress address = *ParseNumericHost(host);
  address.set_port(port);
  return address;
}

// Where connects arrive.
const SocketAddress kHere = Host("10.0.0.9", 7470);

Handshake Hello(Role role = Role::kReverse) {
  Handshake hello;
  hello.role = role;
  hello.features = kFeatureCredits;
  hello.slots = 32;
  hello.receive_buffer_bytes = 4096;
  hello.message_bytes_max = 1 << 20;
  hello.session = Session();
  return hello;
}

// Where TLS was dialed.
const SocketAddress kTls = Host("10.0.0.9", 7471);

Proof Bound(Proof proof, const SocketAddress& connection = kHere, const SocketAddress& tls = kTls) {
  proof.bound_to = Dialed{connection, tls};
  return proof;
}

// A server, and one client that is about to connect.
class ProofTest : public ::testing::Test {
 protected:
  ProofTest() { Add(table_, proof_); }

  static void Add(ProofTable& table, const Proof& proof, Role role = Role::kReverse,
                  std::optional<SocketAddress> bound_to = std::nullopt) {
    auto identity = std::make_shared<PeerIdentity>();
    identity->is_authenticated = true;
    identity->dns_names = {"client.example.org"};
    EXPECT_THAT(table.Add(proof.number, {.key = proof.key,
                                         .identity = std::move(identity),
                                         .role = role,
                                         .session = Session(),
                                         .peer = Host("10.0.0.1"),
                                         .bound_to = bound_to}),
                IsOk());
  }

  absl::StatusOr<Proven> Use(absl::string_view connect, const std::string& from = "10.0.0.1") {
    const absl::StatusOr<Handshake> hello = DecodeConnect(connect);
    if (!hello.ok()) return hello.status();
    return table_.Use(*hello, connect, Host(from, 2), kHere);
  }
  // What the server says to what no client of ours sends.
  std::string Attack(absl::string_view connect) {
    const absl::Status status = Use(connect).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
    EXPECT_EQ(ViolationOf(status), Violation::kTls) << status;
    EXPECT_LE(status.message().size(), kRejectionTextMax) << status;
    return std::string(status.message());
  }

  ProofTable table_{4, 2};
  const Proof proof_ = ProofNumber(1);
  const std::string connect_ = EncodeConnect(Hello(), proof_);
};

TEST_F(ProofTest, AProvenConnectHasTheIdentityAndTheSessionOfItsProof) {
  const absl::StatusOr<Proven> proven = Use(connect_);
  ASSERT_THAT(proven, IsOk());
  EXPECT_TRUE(proven->identity->HasDnsName("client.example.org"));
  EXPECT_EQ(proven->hello.session, Session());
  EXPECT_EQ(proven->hello.role, Role::kReverse);
  EXPECT_EQ(proven->hello.slots, 32);
  EXPECT_EQ(proven->key, proof_.key);
}

TEST_F(ProofTest, ItFitsWhatAConnectionManagerCarriesEvenPaddedWithZeros) {
  EXPECT_EQ(connect_.size(), fabric::kConnectPrivateDataMax);
  std::string padded = connect_;
  padded.resize(fabric::kAcceptPrivateDataMax);
  EXPECT_THAT(Use(padded), IsOk());
}

TEST_F(ProofTest, TheNetworkSeesNeitherSessionNorKey) {
  const absl::StatusOr<Proven> proven = Use(connect_);
  ASSERT_THAT(proven, IsOk());
  const std::string accept = EncodeAccept(Hello(), proof_.key, proven->connect);
  const std::string session(reinterpret_cast<const char*>(Session().data()), Session().size());
  const std::string key(reinterpret_cast<const char*>(proof_.key.data()), proof_.key.size());
  for (const std::string& bytes : {connect_, accept}) {
    EXPECT_EQ(bytes.find(session), std::string::npos);
    EXPECT_EQ(bytes.find(key.substr(0, 8)), std::string::npos);
  }
}

TEST_F(ProofTest, AProofIsForOneConnection) {
  EXPECT_THAT(Use(connect_), IsOk());
  EXPECT_THAT(Attack(connect_), HasSubstr("used before"));
}

TEST_F(ProofTest, AWrongOneUsesItUp) {
  std::string wrong = connect_;
  wrong.back() ^= 1;
  EXPECT_THAT(Attack(wrong), HasSubstr("wrong"));
  EXPECT_THAT(Attack(connect_), HasSubstr("used before"));
}

TEST_F(ProofTest, WithoutAProofItIsRefused) {
  Handshake hello = Hello(Role::kForward);
  hello.session = {};
  EXPECT_THAT(Attack(Encode(hello)), HasSubstr("ChannelOptions::credentials"));
}

TEST_F(ProofTest, AProofIsGoneWithItsTlsSession) {
  table_.Remove(proof_.number);
  const absl::Status status = Use(connect_).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("connect again"));
  EXPECT_LE(status.message().size(), kRejectionTextMax);
  EXPECT_FALSE(ViolationOf(status).has_value());  // It may just be late.
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(ProofTest, AProofOfAnotherSessionIsRefused) {
  const Proof other = ProofNumber(2);
  Add(table_, other);
  EXPECT_THAT(Attack(EncodeConnect(Hello(), Proof{proof_.number, other.key})), HasSubstr("wrong"));
  EXPECT_THAT(Use(EncodeConnect(Hello(), other)), IsOk());
}

TEST_F(ProofTest, AProofIsForOneRole) {
  EXPECT_THAT(Attack(EncodeConnect(Hello(Role::kForward), proof_)), HasSubstr("role"));
}

TEST_F(ProofTest, AProofIsForTheHostThatGotIt) {
  const absl::Status status = Use(connect_, "10.0.0.2").status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(status.message()), HasSubstr("local_address"));
  EXPECT_LE(status.message().size(), kRejectionTextMax);
}

TEST_F(ProofTest, OneThatWasCutShortIsRefused) {
  for (size_t length = 0; length < connect_.size(); ++length) {
    ProofTable table(4, 4);
    Add(table, proof_);
    for (const bool padded : {false, true}) {
      std::string cut = connect_.substr(0, length);
      if (padded) cut.resize(connect_.size());
      const absl::StatusOr<Handshake> hello = DecodeConnect(cut);
      if (hello.ok()) {
        EXPECT_THAT(table.Use(*hello, cut, Host("10.0.0.1"), kHere), Not(IsOk())) << length;
      }
    }
    // A length that hides the code, or a part of it.
    std::string shorter = connect_;
    shorter[4] = static_cast<char>(length);
    const absl::StatusOr<Handshake> hello = DecodeConnect(shorter);
    if (hello.ok()) {
      EXPECT_THAT(table.Use(*hello, shorter, Host("10.0.0.1"), kHere), Not(IsOk())) << length;
    }
  }
}

TEST_F(ProofTest, EachBitOfAConnectIsProved) {
  for (size_t bit = 0; bit < 8 * connect_.size(); ++bit) {
    ProofTable table(4, 4);
    Add(table, proof_);
    std::string changed = connect_;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const absl::StatusOr<Handshake> hello = DecodeConnect(changed);
    if (hello.ok()) {
      EXPECT_THAT(table.Use(*hello, changed, Host("10.0.0.1"), kHere), Not(IsOk())) << bit;
    }
  }
}

TEST_F(ProofTest, TheAnswerIsOfTheServerThatHasTheKey) {
  const absl::StatusOr<Proven> proven = Use(connect_);
  ASSERT_THAT(proven, IsOk());
  const std::string accept = EncodeAccept(Hello(), proven->key, proven->connect);
  const auto decode = [&](absl::string_view bytes) {
    return DecodeAccept(bytes, Role::kReverse, proof_.key, connect_);
  };
  std::string padded = accept;
  padded.resize(fabric::kAcceptPrivateDataMax);
  const absl::StatusOr<Handshake> answer = decode(padded);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->session, Session());
  for (size_t bit = 0; bit < 8 * accept.size(); ++bit) {
    std::string changed = accept;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_THAT(decode(changed), Not(IsOk())) << bit;
  }
  for (size_t length = 0; length < accept.size(); ++length) {
    EXPECT_THAT(decode(accept.substr(0, length)), Not(IsOk())) << length;
    std::string zeros = accept.substr(0, length);
    zeros.resize(fabric::kAcceptPrivateDataMax);
    EXPECT_THAT(decode(zeros), Not(IsOk())) << length;
  }
  // Without a code, with the key of another session, and to another connect.
  EXPECT_THAT(decode(Encode(Hello())).status(), HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(decode(EncodeAccept(Hello(), ProofNumber(2).key, connect_)).status(),
              HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(decode(EncodeAccept(Hello(), proof_.key, "another")).status(),
              HasCode(absl::StatusCode::kUnauthenticated));
  // What the client itself has sent is no answer.
  EXPECT_THAT(decode(connect_), Not(IsOk()));
}

// ---- Bound to where the client has dialed

class BoundProofTest : public ProofTest {
 protected:
  // What the server says, where TLS was dialed at `tls` and the connect arrives at `here`.
  absl::Status Use(const Proof& proof, const SocketAddress& here = kHere, const SocketAddress& tls = kTls) {
    ProofTable table(4, 4);
    Add(table, proof_, Role::kReverse, tls);
    return UseIn(table, proof, here);
  }
  absl::Status UseIn(ProofTable& table, const Proof& proof, const SocketAddress& here = kHere) {
    const std::string connect = EncodeConnect(Hello(), proof);
    return table.Use(*DecodeConnect(connect), connect, Host("10.0.0.1", 2), here).status();
  }
  static void ExpectRefused(const absl::Status& status) {
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
    EXPECT_EQ(ViolationOf(status), Violation::kTls) << status;
    EXPECT_LE(status.message().size(), kRejectionTextMax) << status;
  }
};

// rpc/PROTOCOL.md, "Over RDMA with credentials". The code was computed by another implementation of HMAC.
TEST_F(BoundProofTest, ItsCodeIsMadeOfBothAddressesAndPorts) {
  const std::string code("\xf2\x10\x56\x48\x1c\x91\x68\x62\xdf\x6a\x1d\x0b", 12);
  const std::string connect = EncodeConnect(Hello(), Bound(proof_));
  EXPECT_EQ(connect.size(), 56u);
  EXPECT_EQ(connect.substr(44), code);
  EXPECT_NE(connect.substr(44), connect_.substr(44));
  EXPECT_EQ(connect.substr(0, 44), connect_.substr(0, 44));
}

TEST_F(BoundProofTest, ItIsGoodOnlyWhereItWasDialed) {
  EXPECT_THAT(Use(Bound(proof_)), IsOk());
  for (const SocketAddress& other :
       {Host("10.0.0.9", 7469), Host("10.0.0.8", 7470), Host("127.0.0.1", 7470), Host("fd00::9", 7470),
        Host("::ffff:10.0.0.8", 7470), SocketAddress(), kTls}) {
    ExpectRefused(Use(Bound(proof_, other)));
    ExpectRefused(Use(Bound(proof_), other));
  }
  for (const SocketAddress& other :
       {Host("10.0.0.9", 7472), Host("10.0.0.8", 7471), SocketAddress(), kHere}) {
    ExpectRefused(Use(Bound(proof_, kHere, other)));
    ExpectRefused(Use(Bound(proof_), kHere, other));
  }
  ExpectRefused(Use(Bound(proof_, kTls, kHere)));
}

TEST_F(BoundProofTest, AMappedAddressIsTheIpv4One) {
  EXPECT_THAT(Use(Bound(proof_, Host("::ffff:10.0.0.9", 7470))), IsOk());
}

TEST_F(BoundProofTest, TheScopeOfALinkLocalAddressIsOfOneHost) {
  const auto on_link = [](uint32_t scope, uint16_t port) {
    sockaddr_in6 in = *reinterpret_cast<const sockaddr_in6*>(Host("fe80::1", port).get());
    in.sin6_scope_id = scope;
    return SocketAddress(reinterpret_cast<const sockaddr*>(&in), sizeof(in));
  };
  EXPECT_THAT(Use(Bound(proof_, on_link(1, 5), on_link(1, 6)), on_link(2, 5), on_link(2, 6)), IsOk());
}

TEST_F(BoundProofTest, WhetherItIsBoundWasAgreedOverTls) {
  ExpectRefused(Use(proof_));  // Both sides bind, and the code is of one that does not.
  ProofTable older(4, 4);
  Add(older, proof_);
  ExpectRefused(UseIn(older, Bound(proof_)));
}

TEST_F(ProofTest, OneHostTakesNoPlaceOfAnother) {
  const auto add = [&](uint8_t number, const std::string& host) {
    return table_.Add(ProofNumber(number).number, {.peer = Host(host)}).code();
  };
  EXPECT_EQ(add(2, "10.0.0.1"), absl::StatusCode::kOk);
  EXPECT_EQ(add(3, "10.0.0.1"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(add(4, "10.0.0.2"), absl::StatusCode::kOk);
  EXPECT_EQ(add(4, "10.0.0.3"), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(add(5, "10.0.0.3"), absl::StatusCode::kOk);
  EXPECT_EQ(add(6, "10.0.0.4"), absl::StatusCode::kResourceExhausted);
  // A used proof has its place until its TLS session ends.
  EXPECT_THAT(Use(connect_), IsOk());
  EXPECT_EQ(add(6, "10.0.0.4"), absl::StatusCode::kResourceExhausted);
  table_.Remove(proof_.number);
  table_.Remove(proof_.number);
  EXPECT_EQ(add(6, "10.0.0.1"), absl::StatusCode::kOk);
}

TEST_F(ProofTest, TheDefaultHasRoomForSome) {
  EXPECT_THAT(ProofTable::Create()->Add(proof_.number, {.peer = Host("10.0.0.1")}), IsOk());
}

}  // namespace
}  // namespace hawser::transport
