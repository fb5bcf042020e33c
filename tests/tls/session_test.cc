// Sessions whose peers keep to the rules: who they are, what passes, and how they end.
#include "hawser/tls/session.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"

namespace hawser::tls {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Bytes of which no part repeats.
std::string Noise(size_t bytes, unsigned seed = 1) {
  std::mt19937 dice(seed);
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>(dice());
  return text;
}

class SessionTest : public ::testing::Test {
 protected:
  CertificateAuthority authority_;
  TlsCredentials client_ = authority_.Issue({.dns = {"client.example.org"}});
  TlsCredentials server_ = authority_.Issue();
};

TEST_F(SessionTest, BothSidesFinishAHandshake) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up()) << line.client.status() << line.server.status();
  EXPECT_FALSE(line.client.session().resumed());
  EXPECT_FALSE(line.server.session().resumed());
  EXPECT_EQ(line.client.session().cipher(), line.server.session().cipher());
  EXPECT_THAT(line.client.session().cipher(), ::testing::StartsWith("TLS_"));
  EXPECT_THAT(line.client.status(), IsOk());
  EXPECT_THAT(line.server.status(), IsOk());
}

TEST_F(SessionTest, EachSideSeesTheNamesOfTheOther) {
  client_ = authority_.Issue({.dns = {"b.example.org", "*.A.example.org"},
                              .uris = {"spiffe://example.org/kv", "https://example.org/"},
                              .ips = {"10.1.2.3", "2001:db8::1"},
                              .common_name = "a common name is no name"});
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const PeerIdentity& client = *line.server.session().peer_identity();
  EXPECT_TRUE(client.is_authenticated);
  EXPECT_THAT(client.dns_names, ElementsAre("b.example.org", "*.A.example.org"));
  EXPECT_THAT(client.uris, ElementsAre("spiffe://example.org/kv", "https://example.org/"));
  EXPECT_THAT(client.ip_addresses, ElementsAre("10.1.2.3", "2001:db8::1"));
  const PeerIdentity& server = *line.client.session().peer_identity();
  EXPECT_TRUE(server.is_authenticated);
  EXPECT_THAT(server.dns_names, ElementsAre("localhost"));
  EXPECT_THAT(server.uris, IsEmpty());
  EXPECT_THAT(server.ip_addresses, ElementsAre("127.0.0.1", "::1"));
}

TEST_F(SessionTest, AClientWithoutAnyNameIsAuthenticated) {
  Line line(authority_.Issue({.common_name = "nameless"}), server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  EXPECT_EQ(line.server.session().peer_identity()->ToString(), "authenticated without a name");
}

TEST_F(SessionTest, EveryKindOfKeySpeaksWithEveryOther) {
  for (const KeyType client : {KeyType::kP256, KeyType::kRsa2048, KeyType::kEd25519}) {
    for (const KeyType server : {KeyType::kP256, KeyType::kRsa2048, KeyType::kEd25519}) {
      Line line(authority_.Issue({}, {.key_type = client}),
                authority_.Issue(LoopbackNames(), {.key_type = server}));
      line.Handshake();
      EXPECT_TRUE(line.is_up()) << line.client.status() << line.server.status();
    }
  }
}

TEST_F(SessionTest, AuthoritiesHaveEveryKindOfKey) {
  for (const KeyType type : {KeyType::kP256, KeyType::kRsa2048, KeyType::kEd25519}) {
    const CertificateAuthority authority("authority", {.key_type = type});
    Line line(authority.Issue(), authority.Issue());
    line.Handshake();
    EXPECT_TRUE(line.is_up()) << line.client.status() << line.server.status();
  }
}

TEST_F(SessionTest, IntermediateAuthoritiesLeadToTheRoot) {
  const CertificateAuthority clients = authority_.Intermediate("clients").Intermediate("clients of one kind");
  const CertificateAuthority servers = authority_.Intermediate("servers");
  Line line(clients.Issue(), servers.Issue());
  line.Handshake();
  EXPECT_TRUE(line.is_up()) << line.client.status() << line.server.status();
}

TEST_F(SessionTest, OneFileHoldsManyAuthorities) {
  const CertificateAuthority other("other authority");
  const std::string both = authority_.NewPath("both.pem");
  ReplaceFile(both, other.pem() + authority_.pem());
  Line line(other.Issue({}, {.authorities = both}), authority_.Issue(LoopbackNames(), {.authorities = both}));
  line.Handshake();
  EXPECT_TRUE(line.is_up()) << line.client.status() << line.server.status();
}

TEST_F(SessionTest, BytesOfEverySizePassBothWays) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  for (const size_t bytes : {1, 2, 100, 16383, 16384, 16385, 65536, 100'000, 1 << 20}) {
    SCOPED_TRACE(bytes);
    const std::string text = Noise(bytes);
    EXPECT_EQ(Transfer(line.client, line.server, text), text);
    EXPECT_EQ(Transfer(line.server, line.client, text), text);
  }
}

TEST_F(SessionTest, SmallReadsAndSmallWritesPassTheSame) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string text = Noise(50'000);
  EXPECT_EQ(Transfer(line.client, line.server, text, 1 << 20, 7), text);
  EXPECT_EQ(Transfer(line.client, line.server, text, 7, 1 << 20), text);
  EXPECT_EQ(Transfer(line.server, line.client, text, 1000, 1), text);
}

TEST_F(SessionTest, SegmentsAreGatheredAndScattered) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  std::mt19937 dice(1);
  const std::string text = Noise(2 << 20);
  std::string arrived;
  size_t sent = 0;
  const auto sizes = [&] {
    std::vector<size_t> some(1 + dice() % 40);
    for (size_t& size : some) size = dice() % 4 == 0 ? dice() % 40'000 : dice() % 60;  // Some are empty.
    return some;
  };
  for (int round = 0; round < 100'000 && arrived.size() < text.size(); ++round) {
    std::vector<iovec> segments;
    size_t end = sent;
    for (const size_t size : sizes()) {
      const size_t bytes = std::min(size, text.size() - end);
      segments.push_back({const_cast<char*>(text.data()) + end, bytes});
      end += bytes;
    }
    if (end > sent) {
      const ssize_t n = line.client.session().Write(segments.data(), segments.size());
      if (n < 0) {
        ASSERT_EQ(errno, EAGAIN);
      } else {
        ASSERT_GE(n, 1);
        ASSERT_LE(static_cast<size_t>(n), end - sent);
        sent += static_cast<size_t>(n);
      }
    }
    std::vector<size_t> into = sizes();
    into.push_back(1);  // A read of nothing says nothing.
    arrived += line.server.ReadInto(into);
    line.client.Flush();
  }
  EXPECT_EQ(sent, text.size());
  EXPECT_TRUE(arrived == text);
}

TEST_F(SessionTest, TinySocketBuffersPassEverything) {
  SocketPair sockets;
  SetSendBuffer(sockets.client.fd(), 1);
  SetSendBuffer(sockets.server.fd(), 1);
  Line line(NewContext(client_), NewContext(server_), std::move(sockets));
  line.Handshake();
  ASSERT_TRUE(line.is_up()) << line.client.status() << line.server.status();
  const std::string text = Noise(300'000);
  EXPECT_TRUE(Transfer(line.client, line.server, text) == text);
  EXPECT_TRUE(Transfer(line.server, line.client, text) == text);
}

TEST_F(SessionTest, AFullSocketKeepsOneRecordAtMost) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string text = Noise(4 << 20);
  size_t sent = 0;
  size_t n;
  while ((n = line.client.Write(absl::string_view(text).substr(sent))) > 0) sent += n;
  EXPECT_FALSE(line.client.is_failed()) << line.client.status();
  ASSERT_LT(sent, text.size());
  EXPECT_TRUE(line.client.session().has_unsent());
  const size_t unsent = line.client.session().unsent_bytes();
  EXPECT_GT(unsent, 0u);
  EXPECT_LE(unsent, 17u * 1024) << "more than a record";
  // Nothing more is taken, however often it is offered.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(line.client.Write("x"), 0u);
  line.client.Flush();
  EXPECT_TRUE(line.client.session().has_unsent());

  std::string arrived;
  for (int i = 0; i < 1000 && (line.client.session().has_unsent() || arrived.size() < sent); ++i) {
    arrived += line.server.Read();
    line.client.Flush();
  }
  EXPECT_FALSE(line.client.session().has_unsent());
  EXPECT_EQ(line.client.session().unsent_bytes(), 0u);
  EXPECT_EQ(arrived.size(), sent);
  EXPECT_TRUE(arrived == text.substr(0, sent));
}

TEST_F(SessionTest, FullSocketsBothWaysPassEverything) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string there = Noise(1 << 20, 1);
  const std::string back = Noise(1 << 20, 2);
  size_t sent_there = 0, sent_back = 0;
  std::string arrived_there, arrived_back;
  for (int i = 0; i < 10'000 && (arrived_there.size() < there.size() || arrived_back.size() < back.size());
       ++i) {
    line.client.Flush();
    line.server.Flush();
    while (sent_there < there.size()) {
      const size_t n = line.client.Write(absl::string_view(there).substr(sent_there));
      if (n == 0) break;
      sent_there += n;
    }
    while (sent_back < back.size()) {
      const size_t n = line.server.Write(absl::string_view(back).substr(sent_back));
      if (n == 0) break;
      sent_back += n;
    }
    arrived_there += line.server.Read(40'000);
    arrived_back += line.client.Read(40'000);
  }
  EXPECT_TRUE(arrived_there == there);
  EXPECT_TRUE(arrived_back == back);
}

TEST_F(SessionTest, LoopbackTcpPassesEverything) {
  Line line(NewContext(client_), NewContext(server_), LoopbackTcp());
  for (int i = 0; i < 1000 && !(line.client.is_done() && line.server.is_done()); ++i) {
    line.client.Step();
    line.server.Step();
    pollfd wait[] = {{line.client.fd(), POLLIN, 0}, {line.server.fd(), POLLIN, 0}};
    poll(wait, 2, 1);
  }
  ASSERT_TRUE(line.client.is_done() && line.server.is_done()) << line.client.status() << line.server.status();
  const std::string text = Noise(1 << 20);
  std::string arrived;
  size_t sent = 0;
  for (int i = 0; i < 100'000 && arrived.size() < text.size(); ++i) {
    line.client.Flush();
    if (sent < text.size()) sent += line.client.Write(absl::string_view(text).substr(sent));
    const std::string piece = line.server.Read();
    arrived += piece;
    pollfd wait = {line.server.fd(), POLLIN, 0};
    if (piece.empty()) poll(&wait, 1, 1);
  }
  EXPECT_TRUE(arrived == text);
}

TEST_F(SessionTest, DrainedIsFalseWhileBytesWait) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  // Many records, which one read takes from the socket and of which the caller takes a byte each time.
  for (int i = 0; i < 10; ++i) ASSERT_EQ(line.client.Write("0123456789"), 10u);
  char byte;
  const iovec segment = {&byte, 1};
  for (int i = 0; i < 99; ++i) {
    ASSERT_EQ(line.server.session().Read(&segment, 1), 1);
    ASSERT_FALSE(line.server.session().drained()) << i;
  }
  ASSERT_EQ(line.server.session().Read(&segment, 1), 1);
  // It may say so now or after a read of nothing, but then it does.
  if (!line.server.session().drained()) {
    EXPECT_EQ(line.server.session().Read(&segment, 1), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  EXPECT_TRUE(line.server.session().drained());
}

TEST_F(SessionTest, DrainedIsFalseWhileTheSocketHasMore) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string text = Noise(150'000);
  size_t sent = 0;
  size_t n;
  while (sent < text.size() && (n = line.client.Write(absl::string_view(text).substr(sent))) > 0) sent += n;
  ASSERT_GT(sent, 100'000u);
  std::string buffer(1 << 20, ' ');
  const iovec segment = {buffer.data(), buffer.size()};
  size_t received = 0;
  do {
    const ssize_t more = line.server.session().Read(&segment, 1);
    if (more < 0) break;
    received += static_cast<size_t>(more);
  } while (!line.server.session().drained());
  EXPECT_GE(received + 17 * 1024, sent);  // All but the record that did not fit into the socket.
  pollfd wait = {line.server.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 0), 0) << "drained, though the socket has more";
}

TEST_F(SessionTest, AReadOfAnEmptySocketIsToBeTriedAgain) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  char byte;
  const iovec segment = {&byte, 1};
  EXPECT_EQ(line.server.session().Read(&segment, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(line.server.session().drained());
  EXPECT_THAT(line.server.status(), IsOk());
}

TEST_F(SessionTest, EndIsReadAsTheEndBehindAllBytes) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string text = Noise(30'000);
  ASSERT_EQ(line.client.Write(text), text.size());
  line.client.Flush();
  line.client.session().End();
  EXPECT_TRUE(line.server.Read() == text);
  line.server.Read();
  EXPECT_TRUE(line.server.has_ended());
  EXPECT_FALSE(line.server.is_failed());
}

TEST_F(SessionTest, AnEndOfTheSocketAloneIsReadAsTheEnd) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  ASSERT_EQ(line.client.Write("the last"), 8u);
  line.client.Close();
  EXPECT_EQ(line.server.Read(), "the last");
  line.server.Read();
  EXPECT_TRUE(line.server.has_ended() || line.server.is_failed());
}

TEST_F(SessionTest, AfterTheEndOfThePeerThisSideStillWrites) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  line.client.session().End();
  line.server.Read();
  EXPECT_TRUE(line.server.has_ended());
  EXPECT_EQ(line.server.Write("farewell"), 8u);
  EXPECT_EQ(line.client.Read(), "farewell");
}

TEST_F(SessionTest, EndTwiceAndEndOfAHalfDoneHandshakeDoNothing) {
  Line line(client_, server_);
  line.client.Step();
  line.client.session().End();
  line.server.Step();
  line.server.session().End();
  Line other(client_, server_);
  other.Handshake();
  ASSERT_TRUE(other.is_up());
  other.client.session().End();
  other.client.session().End();
  other.server.Read();
  EXPECT_TRUE(other.server.has_ended());
}

// Nothing ignores SIGPIPE here, so a signal would end the test.
TEST_F(SessionTest, AWriteToAClosedSocketFailsWithoutASignal) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  line.server.Close();
  const iovec segment = {const_cast<char*>("x"), 1};
  ssize_t n = 1;
  for (int i = 0; i < 3 && n > 0; ++i) n = line.client.session().Write(&segment, 1);
  EXPECT_EQ(n, -1);
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << errno;
  EXPECT_THAT(line.client.status(), IsOk());  // Reading finds the end.
  EXPECT_EQ(line.client.Read(), "");
  EXPECT_TRUE(line.client.has_ended() || line.client.is_failed());
}

TEST_F(SessionTest, WhatCameBeforeTheEndIsReadAfterAFailedWrite) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const iovec farewell = {const_cast<char*>("farewell"), 8};
  ASSERT_EQ(line.server.session().Write(&farewell, 1), 8);
  shutdown(line.client.fd(), SHUT_WR);
  EXPECT_EQ(line.client.session().Write(&farewell, 1), -1);
  EXPECT_EQ(errno, EPIPE);
  char read[16];
  const iovec into = {read, sizeof(read)};
  ASSERT_EQ(line.client.session().Read(&into, 1), 8);
  EXPECT_EQ(std::string(read, 8), "farewell");
}

// OpenSSL insists on the record that did not go out, and takes another one for a fault.
TEST_F(SessionTest, AfterAFailedWriteAShorterOneFailsLikewise) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const iovec farewell = {const_cast<char*>("farewell"), 8};
  ASSERT_EQ(line.server.session().Write(&farewell, 1), 8);
  shutdown(line.client.fd(), SHUT_WR);
  std::string big(5000, 'x');
  for (const size_t length : {size_t{5000}, size_t{100}}) {
    const iovec segment = {big.data(), length};
    EXPECT_EQ(line.client.session().Write(&segment, 1), -1);
    EXPECT_EQ(errno, EPIPE);
  }
  EXPECT_THAT(line.client.status(), IsOk());
  const iovec into = {big.data(), big.size()};
  EXPECT_EQ(line.client.session().Read(&into, 1), 8);
}

TEST_F(SessionTest, AHandshakeWithAClosedSocketFailsWithoutASignal) {
  Line line(client_, server_);
  line.server.Close();
  EXPECT_EQ(line.client.Step(), Session::Progress::kFailed);
  EXPECT_THAT(line.client.status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(SessionTest, TheFirstErrorStays) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string record = std::string("\x17\x03\x03\x00\x20", 5) + Noise(32);
  ASSERT_EQ(send(line.server.fd(), record.data(), record.size(), 0), static_cast<ssize_t>(record.size()));
  char byte;
  const iovec segment = {&byte, 1};
  EXPECT_EQ(line.client.session().Read(&segment, 1), -1);
  const absl::Status first = line.client.status();
  EXPECT_THAT(first, Not(IsOk()));
  line.client.session().Read(&segment, 1);
  line.client.session().Write(&segment, 1);
  line.client.session().Flush();
  line.client.session().End();
  EXPECT_EQ(line.client.status(), first);
}

TEST_F(SessionTest, AForgedRecordEndsTheSession) {
  Line line(client_, server_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  const std::string record = std::string("\x17\x03\x03\x00\x20", 5) + Noise(32);
  ASSERT_EQ(send(line.client.fd(), record.data(), record.size(), 0), static_cast<ssize_t>(record.size()));
  EXPECT_EQ(line.server.Read(), "");
  EXPECT_TRUE(line.server.is_failed());
  EXPECT_THAT(line.server.status(), HasCode(absl::StatusCode::kDataLoss));
  line.client.Read();
  EXPECT_TRUE(line.client.is_failed());
}

TEST_F(SessionTest, ASessionOutlivesItsContext) {
  std::shared_ptr<Context> client = NewContext(client_);
  std::shared_ptr<Context> server = NewContext(server_);
  Line line(client, server);
  client.reset();
  server.reset();
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  EXPECT_EQ(Transfer(line.server, line.client, "after that"), "after that");
}

}  // namespace
}  // namespace hawser::tls
