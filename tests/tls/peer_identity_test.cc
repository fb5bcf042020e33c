#include "hawser/tls/peer_identity.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"
#include "hawser/tls/context.h"

namespace hawser::tls {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr size_t kTextBytesMax = 512;

void ExpectShortAndPrintable(const std::string& text) {
  EXPECT_FALSE(text.empty());
  EXPECT_LE(text.size(), kTextBytesMax);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; })) << text;
}

TEST(PeerIdentityTest, TextNamesEveryKind) {
  EXPECT_EQ(PeerIdentity().ToString(), "not authenticated");
  EXPECT_EQ(PeerIdentity{.is_authenticated = true}.ToString(), "authenticated without a name");
  const PeerIdentity identity = {.is_authenticated = true,
                                 .dns_names = {"kv1.example.org", "*.example.org"},
                                 .uris = {"spiffe://example.org/kv"},
                                 .ip_addresses = {"10.0.0.1"}};
  EXPECT_EQ(identity.ToString(),
            "DNS:kv1.example.org, DNS:*.example.org, URI:spiffe://example.org/kv, IP:10.0.0.1");
}

TEST(PeerIdentityTest, NamesAreFoundAsTheyAreInTheCertificate) {
  const PeerIdentity identity = {.is_authenticated = true,
                                 .dns_names = {"KV1.example.org", "*.example.org"},
                                 .uris = {"spiffe://example.org/kv"}};
  EXPECT_TRUE(identity.HasDnsName("kv1.EXAMPLE.org"));
  EXPECT_TRUE(identity.HasDnsName("*.example.org"));
  EXPECT_FALSE(identity.HasDnsName("kv2.example.org"));
  EXPECT_FALSE(identity.HasDnsName(""));
  EXPECT_FALSE(identity.HasDnsName("spiffe://example.org/kv"));
  EXPECT_TRUE(identity.HasUri("spiffe://example.org/kv"));
  EXPECT_FALSE(identity.HasUri("spiffe://example.org/KV"));
  EXPECT_FALSE(identity.HasUri("spiffe://example.org/kv/"));
  EXPECT_FALSE(PeerIdentity().HasDnsName(""));
}

TEST(PeerIdentityTest, EqualMeansTheSameNames) {
  const PeerIdentity a = {.is_authenticated = true, .dns_names = {"a"}};
  PeerIdentity b = a;
  EXPECT_TRUE(a == b);
  b.uris = {"u"};
  EXPECT_FALSE(a == b);
  b = a;
  b.is_authenticated = false;
  EXPECT_FALSE(a == b);
}

TEST(PeerIdentityTest, TextOfManyNamesIsShort) {
  PeerIdentity identity = {.is_authenticated = true};
  for (int i = 0; i < 10'000; ++i) identity.dns_names.push_back(absl::StrCat("host", i, ".example.org"));
  ExpectShortAndPrintable(identity.ToString());
  EXPECT_THAT(identity.ToString(), HasSubstr("DNS:host0.example.org"));
}

TEST(PeerIdentityTest, TextOfANameOfAnySizeIsShort) {
  for (size_t bytes = 1; bytes < 1200; ++bytes) {
    for (const char c : {'x', '\n', '\xff'}) {
      PeerIdentity identity = {.is_authenticated = true,
                               .dns_names = {std::string(bytes, c)},
                               .uris = {std::string(bytes, c), "u"},
                               .ip_addresses = {"10.0.0.1"}};
      ExpectShortAndPrintable(identity.ToString());
    }
  }
}

// The identity that a server sees of a client with these names.
class IdentityOfCertificateTest : public ::testing::Test {
 protected:
  // The client is no session: that would not use a certificate that no peer accepts.
  PeerIdentity Meet(const CertificateNames& names) {
    SocketPair sockets;
    const TlsCredentials credentials = authority_.Issue(names);
    RawPeer client(Side::kClient, std::move(sockets.client), {.credentials = &credentials});
    End server(NewContext(authority_.Issue()), Side::kServer, std::move(sockets.server));
    const bool is_up = Handshake(client, server);
    server_status_ = server.status();
    return is_up ? *server.session().peer_identity() : PeerIdentity();
  }

  CertificateAuthority authority_;
  absl::Status server_status_;
};

TEST_F(IdentityOfCertificateTest, ANameWithAZeroByteIsNoName) {
  const PeerIdentity identity = Meet({.dns = {std::string("good.example.org\0.evil.org", 26), "b"},
                                      .uris = {std::string("spiffe://good\0evil", 18)}});
  EXPECT_TRUE(identity.is_authenticated) << server_status_;
  EXPECT_THAT(identity.dns_names, ElementsAre("b"));
  EXPECT_THAT(identity.uris, IsEmpty());
}

TEST_F(IdentityOfCertificateTest, ANameThatIsNotPrintableAsciiIsNoName) {
  const PeerIdentity identity =
      Meet({.dns = {"b\xc3\xbc"
                    "cher.example.org",
                    "line\nline", "\x1b[31m", "a b", "", "c.example.org\r", "\x7f", "d"},
            .uris = {"spiffe://a\tb", "spiffe://\xff", "spiffe://c"}});
  EXPECT_TRUE(identity.is_authenticated) << server_status_;
  EXPECT_THAT(identity.dns_names, ElementsAre("d"));
  EXPECT_THAT(identity.uris, ElementsAre("spiffe://c"));
  ExpectShortAndPrintable(identity.ToString());
}

// What a connection keeps of its peer is bounded.
TEST_F(IdentityOfCertificateTest, SixtyFourNamesAreAccepted) {
  CertificateNames names;
  for (int i = 0; i < 62; ++i) names.dns.push_back(absl::StrCat("host", i, ".example.org"));
  names.uris = {"spiffe://example.org/kv"};
  names.ips = {"10.0.0.1"};
  EXPECT_EQ(Meet(names).dns_names.size(), 62u) << server_status_;
  names.dns.push_back("one.more.example.org");
  EXPECT_FALSE(Meet(names).is_authenticated);
  EXPECT_THAT(server_status_, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(server_status_.message()), HasSubstr("it has 65 names"));
}

TEST_F(IdentityOfCertificateTest, FourKiBOfNamesAreAccepted) {
  EXPECT_TRUE(Meet({.dns = {std::string(4000, 'x')}, .uris = {std::string(96, 'x')}}).is_authenticated)
      << server_status_;
  EXPECT_FALSE(Meet({.dns = {std::string(4000, 'x')}, .uris = {std::string(97, 'x')}}).is_authenticated);
  EXPECT_THAT(std::string(server_status_.message()), HasSubstr("2 names of 4097 bytes in all"));
}

// Each side would refuse the other for it.
TEST_F(IdentityOfCertificateTest, ACertificateWithTooManyNamesCannotBeUsed) {
  CertificateNames names;
  for (int i = 0; i < 65; ++i) names.dns.push_back(absl::StrCat("host", i));
  const absl::Status status = Context::Create(authority_.Issue(names), nullptr).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it has 65 names"));
}

// A certificate as large as this is refused, or its names are all there: nothing in between.
TEST_F(IdentityOfCertificateTest, TenThousandNames) {
  CertificateNames names;
  for (int i = 0; i < 10'000; ++i) names.dns.push_back(absl::StrCat("host", i, ".example.org"));
  const PeerIdentity identity = Meet(names);
  if (identity.is_authenticated) {
    EXPECT_EQ(identity.dns_names.size(), 10'000u);
    ExpectShortAndPrintable(identity.ToString());
  } else {
    EXPECT_THAT(server_status_, Not(IsOk()));
    EXPECT_LE(server_status_.message().size(), 2000u);
  }
}

TEST_F(IdentityOfCertificateTest, ANameOfSeventyThousandBytes) {
  const PeerIdentity identity = Meet({.dns = {std::string(70'000, 'x')}});
  if (identity.is_authenticated) {
    ExpectShortAndPrintable(identity.ToString());
  } else {
    EXPECT_THAT(server_status_, Not(IsOk()));
    EXPECT_LE(server_status_.message().size(), 2000u);
  }
}

// A server that is refused for its name: the client's error tells the names, and stays short and printable.
TEST_F(IdentityOfCertificateTest, AnErrorWithSuchNamesIsShortAndPrintable) {
  for (const std::string& name : {std::string("other\0localhost", 15), std::string(2000, 'x'),
                                  std::string(300, '\n'), std::string("\xff\x1b[31m")}) {
    Line line(authority_.Issue(),
              authority_.Issue({.dns = {name}, .uris = {name}, .common_name = "\u202e\x1b[31m\n"}));
    line.Handshake();
    ASSERT_TRUE(line.client.is_failed());
    const std::string text(line.client.status().message());
    EXPECT_LE(text.size(), 2500u) << text;
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; })) << text;
  }
}

}  // namespace
}  // namespace hawser::tls
