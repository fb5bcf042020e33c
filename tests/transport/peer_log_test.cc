#include "hawser/transport/log/peer_log.h"

#include <netinet/in.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

SocketAddress Peer(uint32_t host, uint16_t port = 1) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000000 + host);
  address.sin_port = htons(port);
  return SocketAddress(reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

class PeerLogTest : public ::testing::Test {
 protected:
  bool writable_ = true;
  std::vector<std::string> lines_;
  int64_t now_ns_ = 0;
  PeerLog log_{{.process = {5, kSecond}, .subject = {2, 10 * kSecond}},
               [this] { return now_ns_; },
               [this](LogSeverity, absl::string_view line) {
                 if (writable_) lines_.emplace_back(line);
                 return writable_;
               }};
};

TEST_F(PeerLogTest, OneAddressIsLimitedWhateverItsPort) {
  for (uint16_t port = 1; port <= 100; ++port) log_.Line(LogSeverity::kInfo, Peer(1, port), "x");
  EXPECT_EQ(lines_.size(), 2u);
  // One host in a thousand shares the limit of another one.
  int lost = 98;
  for (; lines_.size() == 2 && lost < 106; ++lost) log_.Line(LogSeverity::kInfo, Peer(lost), "another");
  EXPECT_EQ(lines_.back(),
            absl::StrCat("another (", lost - 1, " lines about peers before this were not written)"));
  now_ns_ = 10 * kSecond;
  log_.Line(LogSeverity::kInfo, Peer(1), "later");
  EXPECT_EQ(lines_.back(), "later");
}

TEST_F(PeerLogTest, LinesOfDebugHaveALimitOfTheirOwn) {
  log_.Debug("not wanted");
  EXPECT_THAT(lines_, testing::IsEmpty());
  SetLogLevel(LogSeverity::kDebug);
  for (int i = 0; i < 2000; ++i) log_.Debug("talk");
  EXPECT_EQ(lines_.size(), 1000u);
  log_.Line(LogSeverity::kWarning, Peer(1), "more important");
  EXPECT_THAT(lines_.back(), HasSubstr("more important (1000 lines"));
  now_ns_ += kSecond;
  for (int i = 0; i < 2000; ++i) log_.Debug("talk");
  EXPECT_EQ(lines_.size(), 2001u);
  SetLogLevel(LogSeverity::kInfo);
}

TEST_F(PeerLogTest, ALineBelowTheLevelTakesNothingFromTheLimits) {
  SetLogLevel(LogSeverity::kError);
  for (int i = 0; i < 100; ++i) log_.Line(LogSeverity::kWarning, Peer(1), "x");
  EXPECT_THAT(lines_, testing::IsEmpty());
  SetLogLevel(LogSeverity::kInfo);
  log_.Line(LogSeverity::kWarning, Peer(1), "x");
  EXPECT_THAT(lines_, ElementsAre("x"));
}

TEST_F(PeerLogTest, ManyAddressesTogetherAreLimited) {
  for (uint32_t host = 1; host <= 200; ++host) log_.Line(LogSeverity::kInfo, Peer(host), "x");
  EXPECT_EQ(lines_.size(), 5u);
  now_ns_ = 3 * kSecond;
  for (uint32_t host = 1000; host <= 1200; ++host) log_.Line(LogSeverity::kInfo, Peer(host), "x");
  EXPECT_EQ(lines_.size(), 8u);  // One line for each second.
}

TEST_F(PeerLogTest, WhatItsReaderDoesNotTakeIsCounted) {
  writable_ = false;
  log_.Line(LogSeverity::kInfo, Peer(1), "x");
  log_.Line(LogSeverity::kInfo, Peer(2), "x");
  writable_ = true;
  log_.Line(LogSeverity::kInfo, Peer(3), "at last");
  EXPECT_THAT(lines_, ElementsAre("at last (2 lines about peers before this were not written)"));
}

TEST_F(PeerLogTest, OneSubjectIsLimitedWhateverThePeer) {
  for (int i = 0; i < 100; ++i) log_.Line(LogSeverity::kError, "kv.capnp:KeyValue.get", "x");
  EXPECT_EQ(lines_.size(), 2u);
  // One subject in a thousand shares the limit of another one.
  for (int i = 0; i < 8; ++i) log_.Line(LogSeverity::kError, absl::StrCat("kv.capnp:KeyValue.put", i), "x");
  EXPECT_GT(lines_.size(), 2u);
}

TEST_F(PeerLogTest, LinesAboutPeersLeaveOtherSubjectsTheirOwn) {
  const PeerLog::Limits of_hosts_alone = {.process = {1 << 20, 1}, .subject = {1, kSecond}};
  for (const PeerLog::Limits& limits : {PeerLog::Limits(), of_hosts_alone}) {
    PeerLog log(
        limits, [this] { return now_ns_; },
        [this](LogSeverity, absl::string_view line) {
          lines_.emplace_back(line);
          return true;
        });
    for (uint32_t host = 1; host <= 50'000; ++host) log.Line(LogSeverity::kInfo, Peer(host), "x");
    EXPECT_LT(lines_.size(), 10'000u);
    log.Line(LogSeverity::kError, "kv.capnp:KeyValue.get", "told");
    EXPECT_THAT(lines_.back(), HasSubstr("told"));
  }
}

TEST_F(PeerLogTest, AThreadThatWritesHoldsUpNoOther) {
  absl::Notification writing, go_on;
  std::atomic<int> written = 0;
  PeerLog log(
      {}, [this] { return now_ns_; },
      [&](LogSeverity, absl::string_view line) {
        if (line == "slow") {
          writing.Notify();
          go_on.WaitForNotification();
        }
        ++written;
        return true;
      });
  std::thread slow([&] { log.Line(LogSeverity::kInfo, Peer(1), "slow"); });
  writing.WaitForNotification();
  log.Line(LogSeverity::kInfo, Peer(2), "quick");
  EXPECT_EQ(written, 1);
  go_on.Notify();
  slow.join();
  EXPECT_EQ(written, 2);
}

}  // namespace
}  // namespace hawser::transport
