// Handshakes that must fail, and what each side says of it.
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"
#include "hawser/tls/session.h"

namespace hawser::tls {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::Not;

class RefusalTest : public ::testing::Test {
 protected:
  // The two sides do not come together, the errors of both say why and neither has anything of a key.
  void ExpectRefused(const TlsCredentials& client, const TlsCredentials& server,
                     const Matcher<std::string>& client_says, const Matcher<std::string>& server_says,
                     absl::string_view host = "localhost") {
    Line line(client, server, host);
    line.Handshake();
    for (End* end : {&line.client, &line.server}) {
      EXPECT_TRUE(end->is_failed());
      EXPECT_THAT(end->status(), HasCode(absl::StatusCode::kUnauthenticated));
      EXPECT_EQ(ViolationOf(end->status()), Violation::kTls) << end->status();
      ExpectNoKeyIn(end->status().message(), client);
      ExpectNoKeyIn(end->status().message(), server);
    }
    EXPECT_THAT(std::string(line.client.status().message()), client_says);
    EXPECT_THAT(std::string(line.server.status().message()), server_says);
  }

  bool Accepts(const CertificateNames& names, absl::string_view host, const std::string& server_name = "") {
    Line line(authority_.Issue({}, {.server_name = server_name}), authority_.Issue(names), host);
    line.Handshake();
    if (!line.is_up()) {
      EXPECT_THAT(std::string(line.client.status().message()),
                  HasSubstr(absl::StrCat("is not for \"", server_name.empty() ? host : server_name)));
    }
    return line.is_up();
  }

  CertificateAuthority authority_;
  TlsCredentials client_ = authority_.Issue({.dns = {"client.example.org"}});
  TlsCredentials server_ = authority_.Issue();
};

TEST_F(RefusalTest, AServerThatHasExpired) {
  ExpectRefused(client_, authority_.Issue(LoopbackNames(), {.not_after = -absl::Minutes(1)}),
                AllOf(HasSubstr("expired"), HasSubstr("DNS:localhost"), HasSubstr("by our clock")),
                AllOf(HasSubstr("peer has refused"), HasSubstr("our certificate has expired")));
}

TEST_F(RefusalTest, AClientThatHasExpired) {
  ExpectRefused(authority_.Issue({.dns = {"client"}}, {.not_after = -absl::Minutes(1)}), server_,
                AllOf(HasSubstr("peer has refused"), HasSubstr("our certificate has expired")),
                AllOf(HasSubstr("expired"), HasSubstr("DNS:client")));
}

TEST_F(RefusalTest, CertificatesThatAreNotYetValid) {
  const CertificateOptions tomorrow = {.not_before = absl::Hours(24), .not_after = absl::Hours(48)};
  ExpectRefused(client_, authority_.Issue(LoopbackNames(), tomorrow),
                AllOf(HasSubstr("not valid before"), HasSubstr("by our clock")), HasSubstr("refused"));
  ExpectRefused(authority_.Issue({}, tomorrow), server_, HasSubstr("refused"), HasSubstr("not valid before"));
}

TEST_F(RefusalTest, AnAuthorityThatHasExpired) {
  const CertificateAuthority old("old authority", {.not_after = -absl::Minutes(1)});
  ExpectRefused(old.Issue(), old.Issue(), HasSubstr("expired"), HasSubstr("refused"));
  const CertificateAuthority below = authority_.Intermediate("below", {.not_after = -absl::Minutes(1)});
  ExpectRefused(client_, below.Issue(), AllOf(HasSubstr("expired"), HasSubstr("CN=below")),
                HasSubstr("refused"));
  ExpectRefused(below.Issue(), server_, HasSubstr("refused"),
                AllOf(HasSubstr("expired"), HasSubstr("CN=below")));
}

TEST_F(RefusalTest, SelfSignedCertificates) {
  const CertificateOptions self = {.is_self_signed = true, .authorities = authority_.authorities_path()};
  CertificateNames names = LoopbackNames();
  names.common_name = "myself";
  ExpectRefused(client_, authority_.Issue(names, self),
                AllOf(HasSubstr("self-signed"), HasSubstr("CN=myself")),
                HasSubstr("none of its authorities"));
  ExpectRefused(authority_.Issue(names, self), server_, HasSubstr("none of its authorities"),
                HasSubstr("self-signed"));
}

TEST_F(RefusalTest, AnotherAuthority) {
  const CertificateAuthority other("other authority");
  const CertificateOptions ours = {.authorities = authority_.authorities_path()};
  ExpectRefused(
      client_, other.Issue(LoopbackNames(), ours),
      AllOf(HasSubstr("none of TlsCredentials::authorities has issued it"), HasSubstr("CN=other authority")),
      HasSubstr("none of its authorities has issued our certificate"));
  ExpectRefused(other.Issue({}, ours), server_,
                HasSubstr("none of its authorities has issued our certificate"),
                HasSubstr("none of TlsCredentials::authorities has issued it"));
}

TEST_F(RefusalTest, AnotherAuthorityOfTheSameName) {
  const CertificateAuthority other;
  const CertificateOptions ours = {.authorities = authority_.authorities_path()};
  ExpectRefused(client_, other.Issue(LoopbackNames(), ours), HasSubstr("authorities"), HasSubstr("refused"));
  ExpectRefused(other.Issue({}, ours), server_, HasSubstr("refused"), HasSubstr("authorities"));
}

TEST_F(RefusalTest, AMissingIntermediateAuthority) {
  const CertificateAuthority below = authority_.Intermediate("below");
  const CertificateOptions alone = {.has_intermediates = false};
  ExpectRefused(client_, below.Issue(LoopbackNames(), alone), HasSubstr("intermediate"),
                HasSubstr("refused"));
  ExpectRefused(below.Issue({}, alone), server_, HasSubstr("refused"), HasSubstr("intermediate"));
}

TEST_F(RefusalTest, ACertificateForAnotherUse) {
  ExpectRefused(authority_.Issue({}, {.extended_key_usage = "serverAuth"}), server_,
                AllOf(HasSubstr("refused"), HasSubstr("extendedKeyUsage")),
                HasSubstr("extendedKeyUsage does not allow it for a client"));
  ExpectRefused(client_, authority_.Issue(LoopbackNames(), {.extended_key_usage = "clientAuth"}),
                HasSubstr("extendedKeyUsage does not allow it for a server"),
                AllOf(HasSubstr("refused"), HasSubstr("extendedKeyUsage")));
}

TEST_F(RefusalTest, ACertificateForBothUsesIsAccepted) {
  Line line(authority_.Issue({}, {.extended_key_usage = "serverAuth,clientAuth"}),
            authority_.Issue(LoopbackNames(), {.extended_key_usage = "serverAuth,clientAuth"}));
  line.Handshake();
  EXPECT_TRUE(line.is_up()) << line.client.status() << line.server.status();
}

TEST_F(RefusalTest, AnotherName) {
  ExpectRefused(client_, server_,
                AllOf(HasSubstr("is not for \"kv.example.org\""), HasSubstr("DNS:localhost")),
                HasSubstr("refused"), "kv.example.org");
}

TEST_F(RefusalTest, TheCommonNameIsNoName) {
  EXPECT_FALSE(Accepts({.common_name = "kv.example.org"}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"other.example.org"}, .common_name = "kv.example.org"}, "kv.example.org"));
  EXPECT_FALSE(
      Accepts({.uris = {"spiffe://example.org/kv"}, .common_name = "kv.example.org"}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.common_name = "10.0.0.1"}, "10.0.0.1"));
}

TEST_F(RefusalTest, ADnsNameIsComparedWithoutCase) {
  EXPECT_TRUE(Accepts({.dns = {"kv.example.org"}}, "kv.example.org"));
  EXPECT_TRUE(Accepts({.dns = {"KV.example.ORG"}}, "kv.EXAMPLE.org"));
  EXPECT_TRUE(Accepts({.dns = {"a", "b", "kv.example.org"}}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"kv.example.org"}}, "kv.example.orga"));
  EXPECT_FALSE(Accepts({.dns = {"kv.example.org"}}, "v.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"kv.example.org"}}, "www.kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {".example.org"}}, "kv.example.org"));
}

TEST_F(RefusalTest, ATrailingDotOfTheHostMeansNothing) {
  EXPECT_TRUE(Accepts({.dns = {"kv.example.org"}}, "kv.example.org."));
}

TEST_F(RefusalTest, AWildcardIsTheWholeLeftmostLabel) {
  EXPECT_TRUE(Accepts({.dns = {"*.example.org"}}, "kv.example.org"));
  EXPECT_TRUE(Accepts({.dns = {"*.EXAMPLE.org"}}, "KV.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"*.example.org"}}, "a.kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"*.example.org"}}, "example.org"));
  EXPECT_FALSE(Accepts({.dns = {"k*.example.org"}}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"*v.example.org"}}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"kv.*.org"}}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"*"}}, "localhost"));
  EXPECT_FALSE(Accepts({.dns = {"*.*"}}, "example.org"));
  EXPECT_FALSE(Accepts({.dns = {"**.example.org"}}, "kv.example.org"));
}

TEST_F(RefusalTest, AnAddressMatchesOnlyAddresses) {
  EXPECT_TRUE(Accepts({.ips = {"10.0.0.1"}}, "10.0.0.1"));
  EXPECT_TRUE(Accepts({.ips = {"2001:db8::1"}}, "2001:db8:0:0::1"));
  EXPECT_FALSE(Accepts({.ips = {"10.0.0.1"}}, "10.0.0.2"));
  EXPECT_FALSE(Accepts({.dns = {"10.0.0.1"}}, "10.0.0.1"));
  EXPECT_FALSE(Accepts({.dns = {"*.0.0.1"}}, "10.0.0.1"));
  EXPECT_FALSE(Accepts({.uris = {"10.0.0.1"}}, "10.0.0.1"));
  EXPECT_FALSE(Accepts({.dns = {"2001:db8::1"}}, "2001:db8::1"));
  EXPECT_FALSE(Accepts({.ips = {"10.0.0.1"}}, "::ffff:10.0.0.2"));
  // The bytes of the address as a name are none.
  EXPECT_FALSE(Accepts({.ips = {"107.118.46.97"}}, "kv.a"));
}

TEST_F(RefusalTest, TheScopeOfAnAddressIsNotCompared) {
  EXPECT_TRUE(Accepts({.ips = {"fe80::1"}}, "fe80::1%eth0"));
  ExpectRefused(client_, authority_.Issue({.ips = {"fe80::1"}}), HasSubstr("is not for \"fe80::2\""),
                HasSubstr("refused"), "fe80::2%eth0");
}

TEST_F(RefusalTest, ServerNameReplacesTheHost) {
  EXPECT_TRUE(Accepts({.dns = {"kv.example.org"}}, "10.0.0.1", "kv.example.org"));
  EXPECT_FALSE(Accepts({.dns = {"localhost"}}, "localhost", "kv.example.org"));
  EXPECT_TRUE(Accepts({.ips = {"10.0.0.1"}}, "localhost", "10.0.0.1"));
  EXPECT_FALSE(Accepts({.dns = {"localhost"}}, "localhost", "10.0.0.1"));
}

TEST_F(RefusalTest, AUriIsComparedAsItIs) {
  const CertificateNames kv = {.dns = {"localhost"},
                               .uris = {"spiffe://example.org/a", "spiffe://example.org/kv"}};
  EXPECT_TRUE(Accepts(kv, "localhost", "spiffe://example.org/kv"));
  EXPECT_TRUE(Accepts(kv, "10.0.0.1", "spiffe://example.org/a"));
  EXPECT_FALSE(Accepts(kv, "localhost", "spiffe://example.org/k"));
  EXPECT_FALSE(Accepts(kv, "localhost", "spiffe://example.org/kv/"));
  EXPECT_FALSE(Accepts(kv, "localhost", "spiffe://EXAMPLE.org/kv"));
  EXPECT_FALSE(Accepts({.dns = {"spiffe://example.org/kv"}}, "localhost", "spiffe://example.org/kv"));
  EXPECT_FALSE(Accepts({.dns = {"*.example.org"}, .uris = {"spiffe://*.example.org/kv"}}, "localhost",
                       "spiffe://a.example.org/kv"));
}

TEST_F(RefusalTest, AUriAloneIsNoDnsName) {
  EXPECT_FALSE(Accepts({.uris = {"kv.example.org"}}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.uris = {"https://kv.example.org"}}, "kv.example.org"));
}

TEST_F(RefusalTest, AHostThatNoCertificateCanHaveIsRefusedAtOnce) {
  const std::shared_ptr<Context> context = NewContext(client_);
  SocketPair sockets;
  for (const std::string& host : {std::string(), std::string("."), std::string("a\0b", 3),
                                  std::string(300, 'x'), std::string(".example.org")}) {
    EXPECT_THAT(context->NewSession(Side::kClient, sockets.client.fd(), host, "p").status(),
                HasCode(absl::StatusCode::kInvalidArgument))
        << host;
  }
}

TEST_F(RefusalTest, AZeroByteDoesNotEndAName) {
  EXPECT_FALSE(Accepts({.dns = {std::string("kv.example.org\0.evil.org", 24)}}, "kv.example.org"));
  EXPECT_FALSE(Accepts({.uris = {std::string("spiffe://a\0b", 12)}}, "localhost", "spiffe://a"));
}

TEST_F(RefusalTest, ACertificateThatNoPeerAcceptsIsRefusedAtOnce) {
  for (const size_t bytes : {size_t{33} << 10, size_t{1} << 20}) {
    const TlsCredentials large = authority_.Issue(LoopbackNames(), {.padding_bytes = bytes});
    EXPECT_THAT(Context::Create(large, nullptr).status(), HasCode(absl::StatusCode::kInvalidArgument))
        << bytes;
  }
}

TEST_F(RefusalTest, ATinySocketCarriesTheReasonToo) {
  for (const bool client_expired : {false, true}) {
    SocketPair sockets;
    SetSendBuffer(sockets.client.fd(), 1);
    SetSendBuffer(sockets.server.fd(), 1);
    const CertificateOptions old = {.not_after = -absl::Minutes(1)};
    Line line(NewContext(client_expired ? authority_.Issue({}, old) : client_),
              NewContext(client_expired ? server_ : authority_.Issue(LoopbackNames(), old)),
              std::move(sockets));
    line.Handshake();
    EXPECT_THAT(std::string(line.client.status().message()), HasSubstr("expired"));
    EXPECT_THAT(std::string(line.server.status().message()), HasSubstr("expired"));
  }
}

TEST_F(RefusalTest, AClientThatWritesFirstHearsWhyItIsRefused) {
  Line line(authority_.Issue({}, {.not_after = -absl::Minutes(1)}), server_);
  for (int i = 0; i < 5; ++i) {
    line.client.Step();
    line.server.Step();
  }
  ASSERT_TRUE(line.client.is_done());
  ASSERT_TRUE(line.server.is_failed());
  line.server.Close();
  for (int i = 0; i < 3; ++i) line.client.Write("hello");
  EXPECT_THAT(std::string(line.client.status().message()), HasSubstr("expired")) << line.client.status();
}

// What a raw peer does that no session does.
class RawRefusalTest : public RefusalTest {
 protected:
  // `hears`: the peer hears of it, before the connection is closed.
  void ExpectServerRefuses(const RawOptions& options, const Matcher<std::string>& says, bool hears = true) {
    SocketPair sockets;
    RawPeer raw(Side::kClient, std::move(sockets.client), options);
    End server(NewContext(server_), Side::kServer, std::move(sockets.server));
    EXPECT_FALSE(Handshake(raw, server));
    EXPECT_TRUE(server.is_failed());
    EXPECT_TRUE(raw.has_failed() || !hears);
    EXPECT_THAT(std::string(server.status().message()), says);
    EXPECT_THAT(server.status(), HasCode(absl::StatusCode::kUnauthenticated));
  }
  void ExpectClientRefuses(const RawOptions& options, const Matcher<std::string>& says, bool hears = true) {
    SocketPair sockets;
    RawPeer raw(Side::kServer, std::move(sockets.server), options);
    End client(NewContext(client_), Side::kClient, std::move(sockets.client));
    EXPECT_FALSE(Handshake(raw, client));
    EXPECT_TRUE(client.is_failed());
    EXPECT_TRUE(raw.has_failed() || !hears);
    EXPECT_THAT(std::string(client.status().message()), says);
    EXPECT_THAT(client.status(), HasCode(absl::StatusCode::kUnauthenticated));
  }
};

TEST_F(RawRefusalTest, AnHonestRawPeerIsAccepted) {
  SocketPair sockets;
  RawPeer raw(Side::kClient, std::move(sockets.client), {.credentials = &client_});
  End server(NewContext(server_), Side::kServer, std::move(sockets.server));
  EXPECT_TRUE(Handshake(raw, server)) << raw.error() << server.status();
  SocketPair others;
  RawPeer raw_server(Side::kServer, std::move(others.server), {.credentials = &server_});
  End client(NewContext(client_), Side::kClient, std::move(others.client));
  EXPECT_TRUE(Handshake(raw_server, client)) << raw_server.error() << client.status();
}

TEST_F(RawRefusalTest, AClientWithoutACertificate) {
  ExpectServerRefuses({}, HasSubstr("has sent no certificate"));
}

TEST_F(RawRefusalTest, APeerOfTls12) {
  ExpectServerRefuses({.credentials = &client_, .version_max = TLS1_2_VERSION}, HasSubstr("TLS 1.3"));
  ExpectClientRefuses({.credentials = &server_, .version_max = TLS1_2_VERSION}, HasSubstr("TLS 1.3"));
}

TEST_F(RawRefusalTest, ACertificateOfOneMegabyte) {
  const TlsCredentials large = authority_.Issue(LoopbackNames(), {.padding_bytes = 1 << 20});
  ExpectServerRefuses({.credentials = &large}, HasSubstr("too long"), false);
  ExpectClientRefuses({.credentials = &large}, HasSubstr("too long"), false);
}

TEST_F(RawRefusalTest, ALongChainOfCertificates) {
  CertificateAuthority last = authority_.Intermediate("1");
  for (int i = 2; i <= 100; ++i) last = last.Intermediate(absl::StrCat(i));
  const TlsCredentials deep = last.Issue();
  ExpectServerRefuses({.credentials = &deep}, HasSubstr("too long"));
  ExpectClientRefuses({.credentials = &deep}, HasSubstr("too long"));
}

TEST_F(RawRefusalTest, APeerWithoutAlpn) {
  ExpectServerRefuses({.credentials = &client_, .alpn = ""}, HasSubstr("ALPN \"hawser/1\""), false);
  ExpectClientRefuses({.credentials = &server_, .alpn = ""}, HasSubstr("ALPN \"hawser/1\""), false);
}

TEST_F(RawRefusalTest, APeerWithAnotherAlpn) {
  ExpectServerRefuses({.credentials = &client_, .alpn = "h2"}, HasSubstr("ALPN \"hawser/1\""));
  ExpectServerRefuses({.credentials = &client_, .alpn = "hawser/11"}, HasSubstr("ALPN \"hawser/1\""));
  ExpectServerRefuses({.credentials = &client_, .alpn = "hawser/"}, HasSubstr("ALPN \"hawser/1\""));
  // It answers with one that was not asked for.
  ExpectClientRefuses({.credentials = &server_, .alpn = "h2"}, Not(HasSubstr("no reason given")));
}

// One operation in a large finite field takes 0.1 s, before the peer has shown who it is.
TEST_F(RawRefusalTest, APeerThatWantsGroupsThatCostMuch) {
  for (const char* groups : {"ffdhe8192", "ffdhe2048", "P-521"}) {
    ExpectServerRefuses({.credentials = &client_, .groups = groups}, HasSubstr("no cipher, group"));
    ExpectClientRefuses({.credentials = &server_, .groups = groups}, HasSubstr("it has no cipher"), true);
  }
}

TEST_F(RawRefusalTest, PlainTextInsteadOfTls) {
  for (const absl::string_view text : {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                       "\x7f"
                                       "ELF",
                                       "SSH-2.0-OpenSSH_9.2\r\n"}) {
    SocketPair sockets;
    End server(NewContext(server_), Side::kServer, std::move(sockets.server));
    sockets.client.Send(text);
    server.Step();
    if (text.size() < 5) {
      sockets.client.Close();
      server.Step();
    }
    EXPECT_TRUE(server.is_failed());
    EXPECT_THAT(std::string(server.status().message()),
                AnyOf(HasSubstr("does not speak TLS; it sent \"GET / HTTP/1.1"),
                      HasSubstr("does not speak TLS; it sent \"SSH-2.0"),
                      HasSubstr("does not speak TLS; it sent \"\\x7f")));
  }
}

TEST_F(RawRefusalTest, AServerOfPlainText) {
  SocketPair sockets;
  End client(NewContext(client_), Side::kClient, std::move(sockets.client));
  client.Step();
  sockets.server.Send("220 mail.example.org ESMTP\r\n");
  client.Step();
  EXPECT_TRUE(client.is_failed());
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("does not speak TLS; it sent \"220 mail"));
}

TEST_F(RawRefusalTest, AGreetingOfHawserWithoutTls) {
  SocketPair sockets;
  End server(NewContext(server_), Side::kServer, std::move(sockets.server));
  sockets.client.Send(absl::StrCat("\x89HAWSER\n", std::string(24, '\0')));
  server.Step();
  EXPECT_TRUE(server.is_failed());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("without TLS"));
}

}  // namespace
}  // namespace hawser::tls
