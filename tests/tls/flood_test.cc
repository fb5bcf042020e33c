// A peer that is believed and misbehaves after the handshake: what it makes this side hold is bounded.
#include <errno.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"

namespace hawser::tls {
namespace {

using ::testing::HasSubstr;

// Sanitizers have an allocator of their own, of which this tells nothing: it is 0 then.
size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}
// More than it was at `before`; 0 if it is less.
size_t GrowthSince(size_t before) {
  const size_t now = HeapBytes();
  return now > before ? now - before : 0;
}

constexpr size_t kModest = 512 * 1024;

class FloodTest : public ::testing::Test {
 protected:
  // A raw client, and a session of a server.
  void Meet() {
    SocketPair sockets;
    raw_ = std::make_unique<RawPeer>(Side::kClient, std::move(sockets.client),
                                     RawOptions{.credentials = &client_});
    end_ = std::make_unique<End>(NewContext(server_), Side::kServer, std::move(sockets.server));
    ASSERT_TRUE(Handshake(*raw_, *end_));
  }
  void MeetServer() {
    SocketPair sockets;
    raw_ = std::make_unique<RawPeer>(Side::kServer, std::move(sockets.server),
                                     RawOptions{.credentials = &server_});
    end_ = std::make_unique<End>(NewContext(client_), Side::kClient, std::move(sockets.client));
    ASSERT_TRUE(Handshake(*raw_, *end_));
  }
  // Asks for new keys, `count` times, as far as they fit. Returns how often.
  int AskForNewKeys(int count, int type = SSL_KEY_UPDATE_REQUESTED) {
    for (int i = 0; i < count; ++i) {
      if (SSL_key_update(raw_->ssl(), type) != 1) return i;
      if (raw_->Step() != 1) return i;
    }
    return count;
  }

  CertificateAuthority authority_;
  TlsCredentials client_ = authority_.Issue();
  TlsCredentials server_ = authority_.Issue();
  std::unique_ptr<RawPeer> raw_;
  std::unique_ptr<End> end_;
};

TEST_F(FloodTest, NewKeysChangeNothingForThePeersProgram) {
  Meet();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(AskForNewKeys(1), 1);
    ASSERT_EQ(SSL_write(raw_->ssl(), "hello", 5), 5);
    EXPECT_EQ(end_->Read(), "hello");
    EXPECT_EQ(end_->Write("answer"), 6u);
    EXPECT_EQ(raw_->Read(), "answer");
  }
  EXPECT_FALSE(end_->is_failed()) << end_->status();
}

TEST_F(FloodTest, RequestsForNewKeysWhoseAnswersAreNotReadEndTheSession) {
  Meet();
  SetSendBuffer(end_->fd(), 1);
  const size_t before = HeapBytes();
  int asked = 0;
  for (int i = 0; i < 1000 && !end_->is_failed(); ++i) {
    asked += AskForNewKeys(100);
    EXPECT_EQ(end_->Read(), "");
    ASSERT_LT(GrowthSince(before), kModest);
  }
  EXPECT_TRUE(end_->is_failed());
  EXPECT_LT(asked, 10'000);
  EXPECT_THAT(end_->status(), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(std::string(end_->status().message()), HasSubstr("new keys"));
}

// As above, behind a program whose bytes fill the socket first.
TEST_F(FloodTest, RequestsForNewKeysBehindAFullSocketEndTheSession) {
  Meet();
  const std::string bulk(1 << 20, 'x');
  while (end_->Write(bulk) > 0) {
  }
  ASSERT_TRUE(end_->session().has_unsent());
  const size_t before = HeapBytes();
  for (int i = 0; i < 1000 && !end_->is_failed(); ++i) {
    AskForNewKeys(100);
    EXPECT_EQ(end_->Read(), "");
    ASSERT_LT(GrowthSince(before), kModest);
  }
  EXPECT_TRUE(end_->is_failed());
}

// The peer reads as much as it makes this side send, so that something is always kept, but never too much.
TEST_F(FloodTest, APeerThatReadsTheAnswersSlowlyCostsNoMemory) {
  Meet();
  SetSendBuffer(end_->fd(), 1);
  const std::string bulk(64 * 1024, 'x');
  size_t sent = 0;  // With what the socket and the session keep.
  size_t n = 0;
  while ((n = end_->Write(bulk)) > 0) sent += n;
  ASSERT_TRUE(end_->session().has_unsent());
  const size_t before = HeapBytes();
  std::string dropped(4096, ' ');
  size_t received = 0;
  int asked = 0;
  while (asked < 20'000) {
    if (sent - received < 30'000) {
      const int more = AskForNewKeys(50);
      ASSERT_EQ(more, 50);
      EXPECT_EQ(end_->Read(), "");
      constexpr size_t kAnswerBytes = 27;
      asked += more;
      sent += static_cast<size_t>(more) * kAnswerBytes;
    } else {
      const ssize_t got = recv(raw_->fd(), dropped.data(), dropped.size(), MSG_DONTWAIT);
      ASSERT_GT(got, 0);
      received += static_cast<size_t>(got);
      end_->Flush();
    }
    ASSERT_FALSE(end_->is_failed()) << end_->status();
    ASSERT_LT(GrowthSince(before), kModest) << asked;
  }
  EXPECT_TRUE(end_->session().has_unsent());
}

TEST_F(FloodTest, NewKeysWithoutEndArePassedOverInTurns) {
  Meet();
  // One read of the session looks at 20 of them at most: a request is short, and takes as long as much data.
  const int asked = AskForNewKeys(100'000, SSL_KEY_UPDATE_NOT_REQUESTED);
  ASSERT_GT(asked, 100);
  char byte;
  const iovec segment = {&byte, 1};
  int reads = 0;
  do {
    EXPECT_EQ(end_->session().Read(&segment, 1), -1);
    EXPECT_EQ(errno, EAGAIN);
  } while (!end_->session().drained() && ++reads < 100'000);
  EXPECT_LT(reads, 100'000);
  EXPECT_GE(reads, asked / 20);
  EXPECT_THAT(end_->status(), IsOk());
  raw_->Step();
  ASSERT_EQ(SSL_write(raw_->ssl(), "x", 1), 1);
  EXPECT_EQ(end_->Read(), "x");
}

TEST_F(FloodTest, EmptyRecordsWithoutEndEndTheSession) {
  Meet();
  const size_t before = HeapBytes();
  size_t n = 0;
  for (int i = 0; i < 100'000 && !end_->is_failed(); ++i) {
    SSL_write_ex(raw_->ssl(), "", 0, &n);
    EXPECT_EQ(end_->Read(), "");
  }
  EXPECT_LT(GrowthSince(before), kModest);
}

TEST_F(FloodTest, TicketsOfAServerWithoutEndCostNoMemory) {
  MeetServer();
  size_t after_some = 0;
  for (int i = 0; i < 1000 && !end_->is_failed(); ++i) {
    SSL_new_session_ticket(raw_->ssl());
    raw_->Step();
    EXPECT_EQ(end_->Read(), "");
    if (i == 100) after_some = HeapBytes();
  }
  EXPECT_LT(GrowthSince(after_some), kModest);
}

// They cost as much as long ones: a read takes as many as what it may cost, not as its bytes.
TEST_F(FloodTest, RecordsOfOneByteAreReadInTurns) {
  Meet();
  constexpr size_t kRecords = 2000;
  // What comes at once, so that each read finds all of it.
  SocketPair line;
  SSL_set_fd(raw_->ssl(), line.client.fd());
  std::string records;
  for (size_t i = 0; i < kRecords; ++i) {
    ASSERT_EQ(SSL_write(raw_->ssl(), "x", 1), 1);
    records += line.server.Receive();
  }
  ASSERT_EQ(raw_->socket().Send(records), records.size());
  char bytes[4096];
  const iovec segment = {bytes, sizeof(bytes)};
  size_t received = 0;
  while (received < kRecords) {
    const ssize_t n = end_->session().Read(&segment, 1);
    ASSERT_GT(n, 0);
    EXPECT_LE(n, 80) << "of " << sizeof(bytes) + 64 * 1024 << " bytes' worth";
    // The header of the first one may have been read by the call before.
    EXPECT_GE(end_->session().cost_bytes(), static_cast<size_t>(n - 1) * 1024);
    received += static_cast<size_t>(n);
    EXPECT_EQ(received == kRecords && end_->session().Read(&segment, 1) == -1, end_->session().drained());
  }
}

// A record that is announced in full length and comes byte by byte.
TEST_F(FloodTest, ARecordThatTricklesIsWaitedFor) {
  Meet();
  SocketPair line;
  SSL_set_fd(raw_->ssl(), line.client.fd());
  const std::string text(3000, 'x');
  ASSERT_EQ(SSL_write(raw_->ssl(), text.data(), 3000), 3000);
  const std::string record = line.server.Receive();
  ASSERT_GT(record.size(), text.size());
  std::string arrived;
  for (size_t i = 0; i < record.size(); ++i) {
    ASSERT_EQ(arrived, "");
    ASSERT_EQ(send(raw_->fd(), record.data() + i, 1, 0), 1);
    arrived += end_->Read();
  }
  EXPECT_TRUE(arrived == text);
}

// The library would allocate what the header of a handshake message announces.
TEST_F(FloodTest, AnAnnouncedHelloCostsNothingBeforeItComes) {
  const std::shared_ptr<Context> context = NewContext(server_);
  // The header of a record of 512 bytes, and in it that of a ClientHello of 131,396.
  const std::string headers("\x16\x03\x01\x02\x00\x01\x02\x01\x44", 9);
  std::vector<std::pair<std::unique_ptr<End>, Socket>> half_open;
  const auto open = [&](absl::string_view hello) {
    SocketPair sockets;
    half_open.emplace_back(std::make_unique<End>(context, Side::kServer, std::move(sockets.server)),
                           std::move(sockets.client));
    half_open.back().second.Send(hello);
    half_open.back().first->Step();
  };
  const auto cost = [&](absl::string_view hello) {
    constexpr size_t kCount = 50;
    const size_t before = HeapBytes();
    for (size_t i = 0; i < kCount; ++i) open(hello);
    return GrowthSince(before) / kCount;
  };
  cost(headers.substr(0, 5));  // With what the library allocates once.
  const size_t least = cost(headers.substr(0, 5));
  EXPECT_LE(cost(headers + std::string(508, '\0')), least + 20 * 1024);
}

}  // namespace
}  // namespace hawser::tls
