// A client that has been connected before need not show, nor see, certificates again, as long as they would
// still be believed.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"
#include "hawser/tls/context.h"

namespace hawser::tls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResumptionTest : public ::testing::Test {
 protected:
  struct Outcome {
    bool is_up = false;
    bool is_resumed = false;
    std::string client_says, server_says;
  };
  // Whole, with what follows the handshake.
  static Outcome Meet(const std::shared_ptr<Context>& client, const std::shared_ptr<Context>& server,
                      absl::string_view host = "localhost", absl::string_view peer = "127.0.0.1:1") {
    Line line(client, server, host, peer);
    line.Handshake();
    Outcome outcome = {.is_up = line.is_up(),
                       .client_says = std::string(line.client.status().message()),
                       .server_says = std::string(line.server.status().message())};
    if (line.is_up()) {
      outcome.is_resumed = line.client.session().resumed();
      EXPECT_EQ(outcome.is_resumed, line.server.session().resumed());
      EXPECT_EQ(Transfer(line.client, line.server, "there"), "there");
      EXPECT_EQ(Transfer(line.server, line.client, "and back"), "and back");
    }
    return outcome;
  }

  static void WaitUntil(absl::Time time) {
    while (absl::Now() < time) absl::SleepFor(absl::Milliseconds(10));
  }

  // A context looks at its files once a second, and once more reads those that were new when it first did,
  // which ends resumption. These are old, so a slow test sees nothing of that.
  static TlsCredentials Old(TlsCredentials files) {
    for (const std::string& path : {files.certificate, files.key, files.authorities}) MakeOld(path);
    return files;
  }

  CertificateAuthority authority_;
  TlsCredentials client_files_ =
      Old(authority_.Issue({.dns = {"client.example.org"}, .uris = {"spiffe://example.org/c"}}));
  TlsCredentials server_files_ = Old(authority_.Issue());
  std::shared_ptr<Context> client_ = NewContext(client_files_);
  std::shared_ptr<Context> server_ = NewContext(server_files_);
};

TEST_F(ResumptionTest, TheSecondSessionOfAClientIsResumed) {
  EXPECT_FALSE(Meet(client_, server_).is_resumed);
  // Again and again, since each session brings new tickets.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Meet(client_, server_).is_resumed);
}

TEST_F(ResumptionTest, AContextCountsItsHandshakes) {
  for (int i = 0; i < 3; ++i) Meet(client_, server_);
  CertificateAuthority another;
  EXPECT_FALSE(Meet(NewContext(another.Issue()), server_).is_up);
  for (const Context::Handshakes& counts :
       {server_->handshakes(Side::kServer), client_->handshakes(Side::kClient)}) {
    EXPECT_EQ(counts.full, 1u);
    EXPECT_EQ(counts.resumed, 2u);
  }
  EXPECT_EQ(server_->handshakes(Side::kServer).failed, 1u);
  EXPECT_EQ(client_->handshakes(Side::kClient).failed, 0u);
  EXPECT_EQ(server_->handshakes(Side::kClient).full, 0u);
}

TEST_F(ResumptionTest, AResumedSessionHasTheSameIdentities) {
  Meet(client_, server_);
  for (int i = 0; i < 3; ++i) {
    Line line(client_, server_);
    line.Handshake();
    ASSERT_TRUE(line.is_up());
    ASSERT_TRUE(line.server.session().resumed());
    EXPECT_THAT(line.server.session().peer_identity()->dns_names, ElementsAre("client.example.org"));
    EXPECT_THAT(line.server.session().peer_identity()->uris, ElementsAre("spiffe://example.org/c"));
    EXPECT_THAT(line.client.session().peer_identity()->dns_names, ElementsAre("localhost"));
  }
}

// A ticket that is shown twice tells those who watch that it is the same client (RFC 8446, C.4).
TEST_F(ResumptionTest, ATicketIsShownOnce) {
  Meet(client_, server_);
  std::vector<std::unique_ptr<Line>> lines;
  for (int i = 0; i < 10; ++i) {
    lines.push_back(std::make_unique<Line>(client_, server_));
    lines.back()->client.Step();  // Which takes a ticket, if there is one.
  }
  int resumed = 0;
  for (const std::unique_ptr<Line>& line : lines) {
    line->Handshake();
    EXPECT_TRUE(line->is_up());
    resumed += line->client.session().resumed() ? 1 : 0;
  }
  EXPECT_GE(resumed, 1);
  EXPECT_LE(resumed, 4);
}

TEST_F(ResumptionTest, ASessionThatDoesNotBeginTakesNoTicket) {
  Meet(client_, server_);
  for (int i = 0; i < 10; ++i) Line never_begins(client_, server_);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
}

TEST_F(ResumptionTest, TicketsAreForOnePeerAndOneName) {
  const CertificateAuthority both;
  server_ = NewContext(Old(authority_.Issue({.dns = {"localhost", "kv.example.org"}})));
  Meet(client_, server_);
  EXPECT_FALSE(Meet(client_, server_, "kv.example.org").is_resumed);
  EXPECT_FALSE(Meet(client_, server_, "localhost", "127.0.0.1:7").is_resumed);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
}

TEST_F(ResumptionTest, AClientWithOtherFilesIsNotResumed) {
  Meet(client_, server_);
  EXPECT_FALSE(Meet(NewContext(authority_.Issue()), server_).is_resumed);
}

TEST_F(ResumptionTest, AServerThatWasStartedAgainShowsItsCertificate) {
  Meet(client_, server_);
  server_.reset();
  server_ = NewContext(server_files_);
  const Outcome outcome = Meet(client_, server_);
  EXPECT_TRUE(outcome.is_up);
  EXPECT_FALSE(outcome.is_resumed);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
}

TEST_F(ResumptionTest, ChangedFilesOfTheClientEndResumption) {
  Meet(client_, server_);
  authority_.Issue({.dns = {"renewed"}},
                   {.certificate_path = client_files_.certificate, .key_path = client_files_.key});
  WaitUntil(absl::Now() + Context::kLookInterval);
  EXPECT_FALSE(Meet(client_, server_).is_resumed);
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  EXPECT_THAT(line.server.session().peer_identity()->dns_names, ElementsAre("renewed"));
}

// A ticket follows the handshake, and may be read much later.
TEST_F(ResumptionTest, ATicketOfASessionThatBeganBeforeTheFilesChangedIsNotKept) {
  Line line(client_, server_);
  for (int step = 0; step < 100 && !line.is_up(); ++step) line.client.Step(), line.server.Step();
  ASSERT_TRUE(line.is_up());
  authority_.Issue({.dns = {"renewed"}},
                   {.certificate_path = client_files_.certificate, .key_path = client_files_.key});
  WaitUntil(absl::Now() + Context::kLookInterval);
  Line renewed(client_, server_);  // Reads the new files, and no ticket of its own.
  EXPECT_EQ(Transfer(line.server, line.client, "behind the ticket"), "behind the ticket");
  EXPECT_FALSE(Meet(client_, server_).is_resumed);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
}

TEST_F(ResumptionTest, AuthoritiesThatNoLongerAcceptAClientEndResumption) {
  const std::string authorities = authority_.NewPath("authorities.pem");
  ReplaceFile(authorities, authority_.pem());
  server_ = NewContext(Old(authority_.Issue(LoopbackNames(), {.authorities = authorities})));
  Meet(client_, server_);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
  const CertificateAuthority other("other authority");
  ReplaceFile(authorities, other.pem());
  WaitUntil(absl::Now() + Context::kLookInterval);
  const Outcome outcome = Meet(client_, server_);
  EXPECT_FALSE(outcome.is_up);
  EXPECT_THAT(outcome.server_says, HasSubstr("authorities"));
}

TEST_F(ResumptionTest, AuthoritiesThatNoLongerAcceptAServerEndResumption) {
  const std::string authorities = authority_.NewPath("authorities.pem");
  ReplaceFile(authorities, authority_.pem());
  client_ = NewContext(Old(authority_.Issue({}, {.authorities = authorities})));
  Meet(client_, server_);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
  const CertificateAuthority other("other authority");
  ReplaceFile(authorities, other.pem());
  WaitUntil(absl::Now() + Context::kLookInterval);
  const Outcome outcome = Meet(client_, server_);
  EXPECT_FALSE(outcome.is_up);
  EXPECT_THAT(outcome.client_says, HasSubstr("authorities"));
}

// Files that are touched within their first moments are read again once; what does not change after that is
// not.
TEST_F(ResumptionTest, FilesThatDoNotChangeLeaveTheTickets) {
  WaitUntil(absl::Now() + Context::kLookInterval);
  Meet(client_, server_);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
  WaitUntil(absl::Now() + Context::kLookInterval);
  EXPECT_TRUE(Meet(client_, server_).is_resumed);
}

// With certificates that are about to expire: a session of before that time is not resumed after it. Each
// test waits for a real certificate, since OpenSSL has no other clock.
class ExpiryTest : public ResumptionTest {
 protected:
  // `issue` makes certificates that live for kLife.
  void ExpectResumptionUntilTheEnd(const std::function<void()>& issue) {
    absl::Time end;
    Outcome first, second;
    // Again if a busy machine took longer than they live.
    for (int i = 0; i < 10; ++i) {
      issue();
      // They were issued up to a second ago, and are valid up to a second less.
      end = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now() + kLife));
      first = Meet(client_, server_);
      second = Meet(client_, server_);
      if (absl::Now() < end - absl::Seconds(1)) break;
    }
    EXPECT_TRUE(first.is_up);
    EXPECT_TRUE(second.is_resumed);
    WaitUntil(end + absl::Milliseconds(50));  // time(2), which OpenSSL asks, is up to a tick late.
    last_ = Meet(client_, server_);
    EXPECT_FALSE(last_.is_up);
    EXPECT_FALSE(last_.is_resumed);
  }

  static constexpr absl::Duration kLife = absl::Seconds(3);
  Outcome last_;
};

TEST_F(ExpiryTest, OfTheClientsCertificate) {
  ExpectResumptionUntilTheEnd([&] { client_ = NewContext(Old(authority_.Issue({}, {.not_after = kLife}))); });
  EXPECT_THAT(last_.server_says, HasSubstr("expired"));
}

TEST_F(ExpiryTest, OfTheServersCertificate) {
  ExpectResumptionUntilTheEnd(
      [&] { server_ = NewContext(Old(authority_.Issue(LoopbackNames(), {.not_after = kLife}))); });
  EXPECT_THAT(last_.client_says, HasSubstr("expired"));
}

TEST_F(ExpiryTest, OfTheClientsAuthority) {
  std::vector<CertificateAuthority> below;
  ExpectResumptionUntilTheEnd([&] {
    below.push_back(authority_.Intermediate("below", {.not_after = kLife}));
    client_ = NewContext(Old(below.back().Issue()));
  });
  EXPECT_THAT(last_.server_says, HasSubstr("expired"));
}

TEST_F(ExpiryTest, OfTheServersAuthority) {
  std::vector<CertificateAuthority> below;
  ExpectResumptionUntilTheEnd([&] {
    below.push_back(authority_.Intermediate("below", {.not_after = kLife}));
    server_ = NewContext(Old(below.back().Issue()));
  });
  EXPECT_THAT(last_.client_says, HasSubstr("expired"));
}

}  // namespace
}  // namespace hawser::tls
