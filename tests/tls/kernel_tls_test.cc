// TLS by the kernel: needs one that has it, as the guest's (tests/softroce).
#include "hawser/tls/kernel_tls.h"

#include <sys/ioctl.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/session_pair.h"

namespace hawser::tls {
namespace {

using ::testing::HasSubstr;

constexpr KernelUse kNever = KernelUse::kNever;
constexpr KernelUse kAlways = KernelUse::kAlways;

void ExpectInKernel(const Party& party) {
  EXPECT_TRUE(party.session->sends_in_kernel());
  EXPECT_TRUE(party.session->receives_in_kernel());
}

// Whose client, server, or both are in the kernel, by cipher.
struct Roads {
  KernelUse client, server;
  const char* cipher;
};
class KernelTlsRoadsTest : public ::testing::TestWithParam<Roads> {};

TEST_P(KernelTlsRoadsTest, BytesPassBothWays) {
  const Roads& roads = GetParam();
  SessionPair pair(roads.client, roads.server, roads.cipher);
  EXPECT_EQ(pair.client.session->cipher(), roads.cipher);
  pair.MoveBoth();
  if (roads.client == kAlways) ExpectInKernel(pair.client);
  if (roads.server == kAlways) ExpectInKernel(pair.server);
  for (const size_t bytes : {1, 100, 16384, 16385, 1'000'000}) {
    pair.Send(pair.client, pair.server, Text(bytes));
    pair.Send(pair.server, pair.client, Text(bytes));
  }
  pair.client.session->End();
  pair.Until([&] { return pair.server.ended; });
  pair.Send(pair.server, pair.client, "A half-closed connection still carries this.");
  pair.server.session->End();
  pair.Until([&] { return pair.client.ended; });
}

std::vector<Roads> AllRoads() {
  std::vector<Roads> all;
  for (const char* cipher :
       {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}) {
    all.push_back({kAlways, kAlways, cipher});
    all.push_back({kAlways, kNever, cipher});
    all.push_back({kNever, kAlways, cipher});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, KernelTlsRoadsTest, ::testing::ValuesIn(AllRoads()));

TEST(KernelTlsTest, KeysThatLastAreLeftToTheKernel) {
  SessionPair pair(KernelUse::kWhereKeysLast, KernelUse::kWhereKeysLast, "TLS_CHACHA20_POLY1305_SHA256");
  pair.MoveBoth();
  ExpectInKernel(pair.client);
  ExpectInKernel(pair.server);
}

// The client has read a part of a record, so it receives in user space and sends in the kernel.
void MoveWithBytesAhead(SessionPair& pair) {
  pair.HoldBack(&pair.client);
  ASSERT_EQ(pair.server.Say("one record"), 10);
  pair.Until([&] {
    char one;
    const iovec segment = {&one, 1};
    return pair.client.session->Read(&segment, 1) == 1;
  });
  pair.client.session->MoveToKernel();
}

TEST(KernelTlsTest, ADirectionWithBytesReadAheadStaysInUserSpace) {
  SessionPair pair(kAlways, kNever);
  MoveWithBytesAhead(pair);
  EXPECT_TRUE(pair.client.session->sends_in_kernel());
  EXPECT_FALSE(pair.client.session->receives_in_kernel());
  pair.HoldBack(nullptr);
  pair.Until([&] { return pair.client.heard == "ne record"; });
  pair.Send(pair.server, pair.client, Text(100'000));
  pair.Send(pair.client, pair.server, Text(100'000));
  // OpenSSL reads on with the peer's new key.
  pair.server.session->set_key_records_max(1);
  pair.Send(pair.server, pair.client, Text(100'000));
  pair.client.session->End();
  pair.Until([&] { return pair.server.ended; });
}

TEST(KernelTlsTest, ADirectionWithUnsentBytesStaysInUserSpace) {
  SessionPair pair(kAlways, kNever);
  const std::string text = Text(16384);
  size_t records = 0;
  for (; !pair.client.session->has_unsent(); ++records) ASSERT_EQ(pair.client.Say(text), 16384);
  pair.client.session->MoveToKernel();
  EXPECT_FALSE(pair.client.session->sends_in_kernel());
  EXPECT_TRUE(pair.client.session->receives_in_kernel());
  pair.Until([&] {
    pair.client.session->Flush();
    return pair.server.heard.size() == records * 16384;
  });
  pair.Send(pair.client, pair.server, Text(100'000));
  pair.Send(pair.server, pair.client, Text(100'000));
  pair.client.session->End();
  pair.Until([&] { return pair.server.ended; });
}

TEST(KernelTlsTest, ARecordThatWasChangedEndsTheConnectionOnBothSides) {
  // The version, the length, the data and the tag. The type in front is the same for all records, so Linux
  // 6.1 does not look at it; the one that counts is within (RFC 8446, 5.2).
  for (const int at : {1, 3, 5, -1}) {
    SCOPED_TRACE(at);
    SessionPair pair(kAlways, at == 5 ? kNever : kAlways);
    pair.MoveBoth();
    pair.Spoil(pair.client, at);
    ASSERT_EQ(pair.server.Say("to the client"), 13);
    pair.Until([&] { return !pair.client.session->error().ok() && !pair.server.session->error().ok(); });
    const absl::Status& found = pair.client.session->error();
    EXPECT_THAT(found, HasCode(absl::StatusCode::kDataLoss));
    EXPECT_EQ(ViolationOf(found), Violation::kTls);
    EXPECT_THAT(found.message(), HasSubstr("changed on its way"));
    EXPECT_EQ(pair.client.heard, "");
    // The client says so to the server.
    EXPECT_THAT(pair.server.session->error().message(), HasSubstr("the peer has refused: alert 20"));
    EXPECT_EQ(ViolationOf(pair.server.session->error()), Violation::kTls);
  }
}

TEST(KernelTlsTest, AnAlertOfAPeerInUserSpaceIsUnderstood) {
  SessionPair pair(kAlways, kNever);
  pair.MoveBoth();
  pair.Spoil(pair.server);
  ASSERT_EQ(pair.client.Say("to the server"), 13);
  pair.Until([&] { return !pair.client.session->error().ok(); });
  EXPECT_THAT(pair.client.session->error().message(), HasSubstr("the peer has refused: alert 20"));
  EXPECT_THAT(pair.client.session->error(), HasCode(absl::StatusCode::kUnauthenticated));
}

TEST(KernelTlsTest, ANewKeyOfThePeerEndsTheConnection) {
  SessionPair pair(kAlways, kNever);
  pair.MoveBoth();
  pair.server.session->set_key_records_max(0);
  ASSERT_EQ(pair.server.Say("under a new key"), 15);
  pair.Until([&] { return !pair.client.session->error().ok(); });
  EXPECT_THAT(pair.client.session->error(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(pair.client.session->error().message(), HasSubstr("the peer changes its keys"));
}

// OpenSSL would read on, but cannot answer with the new key of this side.
TEST(KernelTlsTest, ARequestForANewKeyEndsTheConnection) {
  SessionPair pair(kAlways, kNever);
  MoveWithBytesAhead(pair);
  ASSERT_TRUE(pair.client.session->sends_in_kernel() && !pair.client.session->receives_in_kernel());
  pair.HoldBack(nullptr);
  ASSERT_EQ(SSL_key_update(pair.server.session->ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
  ASSERT_EQ(pair.server.Say("under a new key"), 15);
  pair.Until([&] { return !pair.client.session->error().ok(); });
  EXPECT_THAT(pair.client.session->error(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(pair.client.session->error().message(), HasSubstr("the peer changes its keys"));
}

TEST(KernelTlsTest, ANewKeyBeforeTheMoveKeepsItsDirectionInUserSpace) {
  SessionPair pair(kAlways, kNever);
  pair.server.session->set_key_records_max(0);
  pair.Send(pair.server, pair.client, "under a new key");
  pair.MoveBoth();
  EXPECT_TRUE(pair.client.session->sends_in_kernel());
  EXPECT_FALSE(pair.client.session->receives_in_kernel());
  pair.Send(pair.server, pair.client, "under the next");
  pair.Send(pair.client, pair.server, "under the first");
}

TEST(KernelTlsTest, AWornKeyEndsTheConnection) {
  SessionPair pair(kAlways, kAlways, "TLS_AES_128_GCM_SHA256");
  pair.MoveBoth();
  pair.client.session->set_key_records_max(100);
  for (int i = 0; i < 200 && pair.client.session->error().ok(); ++i) {
    if (pair.client.Say("x") < 0) {
      EXPECT_EQ(errno, EPROTO);
    }
    pair.Step();
  }
  EXPECT_THAT(pair.client.session->error(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(pair.client.session->error().message(), HasSubstr("after 100 records"));
}

// What comes behind a record of another type must not wait for an event that was there already.
TEST(KernelTlsTest, DrainedIsNeverSaidWhileARecordWaits) {
  SessionPair pair(kAlways, kAlways);
  pair.MoveBoth();
  pair.HoldBack(&pair.client);
  ASSERT_EQ(pair.server.Say("data"), 4);
  pair.server.session->End();
  // Until both records have come: 4 bytes and 2, with 22 more each.
  pair.Until([&] {
    int bytes = 0;
    return ioctl(pair.client.socket.get(), FIONREAD, &bytes) == 0 && bytes == 4 + 2 + 2 * 22;
  });
  char buffer[100];
  const iovec segment = {buffer, sizeof(buffer)};
  ASSERT_EQ(pair.client.session->Read(&segment, 1), 4);
  EXPECT_FALSE(pair.client.session->drained());
  EXPECT_EQ(pair.client.session->Read(&segment, 1), 0);
}

TEST(KernelTlsTest, TicketsThatOpenSslHasNotReadAreIgnored) {
  SessionPair pair(kAlways, kNever, "", ConnectedTcp, /*greets=*/false);
  pair.client.session->MoveToKernel();
  ExpectInKernel(pair.client);
  // Two of them come first.
  pair.Send(pair.server, pair.client, Text(100'000));
  pair.Send(pair.client, pair.server, Text(100'000));
}

TEST(KernelTlsTest, NothingToReadIsDrained) {
  SessionPair pair(kAlways, kAlways);
  pair.MoveBoth();
  char buffer[100];
  const iovec segment = {buffer, sizeof(buffer)};
  EXPECT_EQ(pair.client.session->Read(&segment, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(pair.client.session->drained());
}

}  // namespace
}  // namespace hawser::tls
