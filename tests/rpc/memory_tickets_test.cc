// Tickets for memory of a server: for which part and access, of which client, how many, and when they are
// void.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/lane/lane_server.h"
#include "tests/rpc/memory_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

TEST_F(SharedMemoryTest, AGrantBeyondTheMemoryIsRefused) {
  const auto channel = Connect();
  EXPECT_THAT(Ask(channel, 1, kBytes, Access::kRead).status(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(Ask(channel, UINT64_MAX, 2, Access::kRead).status(), HasCode(absl::StatusCode::kOutOfRange));
  absl::Status refused = Ask(channel, UINT64_MAX, 0, Access::kRead).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("a grant at offset 18446744073709551615 is beyond the"));
  refused = Ask(channel, kBytes, 0, Access::kRead).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("a grant of no bytes, at offset"));
}

TEST_F(SharedMemoryTest, AGrantForAnAccessThatThereIsNotIsRefused) {
  const auto channel = Connect();
  for (const int access : {0, 8, 9, 255}) {
    const absl::Status refused = Ask(channel, 0, 64, static_cast<Access>(access)).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << access;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("a grant for access ", access, ", which there is not")));
  }
}

TEST_F(SharedMemoryTest, AGrantIsForAtMostTwoGiB) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "a device would pin 2 GiB";
  constexpr uint64_t kMost = uint64_t{1} << 31;
  absl::StatusOr<SharedMemory> memory = server_->Share(kMost + 8);  // Takes no page that is not written.
  ASSERT_THAT(memory.status(), IsOk());
  Use(*std::move(memory));
  const auto channel = Connect();
  // All of it, since no length is given; and one byte too many.
  for (const uint64_t length : {uint64_t{0}, kMost + 1}) {
    const absl::Status refused = Ask(channel, 0, length, Access::kRead).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("bytes: 1 to 2147483648 are possible; grant it in parts"));
  }
  RemoteMemory remote = Reach(channel, 8, kMost, Access::kRead);
  EXPECT_EQ(remote.size_bytes(), kMost);
  memory_->data()[kMost + 7] = 'z';
  std::string last(1, '\0');
  EXPECT_THAT(remote.Read(kMost - 1, SpanOf(last)).Wait(), IsOk());
  EXPECT_EQ(last, "z");
}

TEST_F(SharedMemoryTest, AWriteWhereOnlyReadsAreGrantedIsDeniedAlone) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 0, 4096, Access::kRead);
  const std::string text(8, 'w');
  const std::string before = Expected(0, 8);
  EXPECT_THAT(remote.Write(0, SpanOf(text)).Wait(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(Expected(0, 8), before);
  std::string bytes(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, ATicketOfAnotherClientIsVoid) {
  const auto channel = Connect(), other = Connect();
  const auto reply = Ask(channel, 0, 4096, Access::kRead);
  ASSERT_THAT(reply.status(), IsOk());
  RemoteMemory stolen(other, (*reply)->getTicket());
  std::string bytes(8, '\0');
  const absl::Status status = stolen.Read(0, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("was not given to this client"));
  EXPECT_EQ(bytes, std::string(8, '\0'));
  EXPECT_THAT(Reach(other).Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, AForgedTicketIsVoid) {
  const auto channel = Connect();
  const auto reply = Ask(channel, 0, 4096, Access::kRead);
  ASSERT_THAT(reply.status(), IsOk());
  const auto forge = [&](const std::function<void(Ticket::Builder)>& change) {
    capnp::MallocMessageBuilder message;
    message.setRoot((*reply)->getTicket());
    const auto ticket = message.getRoot<Ticket>();
    change(ticket);
    RemoteMemory remote(channel, ticket.asReader());
    std::string bytes(8, '\0');
    return remote.Read(0, SpanOf(bytes)).Wait();
  };
  EXPECT_THAT(forge([](Ticket::Builder) {}), IsOk());
  using Builder = Ticket::Builder;
  const auto is_void = HasCode(absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setKeyLow(ticket.getKeyLow() + 1); }), is_void);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setKeyHigh(ticket.getKeyHigh() ^ 1); }), is_void);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setLength(8192); }), is_void);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setOffset(8); }), is_void);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setRegion(2); }), is_void);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setAccess(3); }), is_void);
  EXPECT_THAT(forge([](Builder ticket) { ticket.setAccess(8); }),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(forge([](Builder ticket) { ticket.setLength(0); }),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(forge([](Builder ticket) { ticket.setLength((uint64_t{1} << 31) + 1); }),
              HasCode(absl::StatusCode::kInvalidArgument));
  const absl::Status other_run = forge([](Builder ticket) { ticket.setOwner(ticket.getOwner() + 1); });
  EXPECT_THAT(other_run, is_void);
  EXPECT_THAT(std::string(other_run.message()), HasSubstr("an earlier run of this one"));
}

TEST_F(SharedMemoryTest, ATicketOfAnEarlierRunIsStale) {
  auto channel = Connect();
  const auto reply = Ask(channel, 0, 4096, Access::kRead);
  ASSERT_THAT(reply.status(), IsOk());
  server_.reset();
  memory_.reset();
  StartServer(uri_);
  const auto later = Connect();
  RemoteMemory remote(later, (*reply)->getTicket());
  std::string bytes(8, '\0');
  const absl::Status status = remote.Read(0, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("earlier run"));
}

TEST_F(SharedMemoryTest, TheSamePartHasOneTicket) {
  const auto channel = Connect();
  const auto first = Ask(channel, 0, 64, Access::kRead), second = Ask(channel, 0, 64, Access::kRead),
             other = Ask(channel, 0, 65, Access::kRead);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  EXPECT_EQ((*first)->getTicket().getKeyLow(), (*second)->getTicket().getKeyLow());
  EXPECT_NE((*first)->getTicket().getKeyLow(), (*other)->getTicket().getKeyLow());
}

TEST_F(SharedMemoryTest, TicketsOfOneClientAreBounded) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "4,096 calls take a minute over siw, and meet no device";
  const auto channel = Connect();
  absl::Status status;
  uint64_t granted = 0;
  for (; granted < 10000; ++granted) {
    status = Ask(channel, granted, 1, Access::kRead).status();
    if (!status.ok()) break;
  }
  EXPECT_EQ(granted, 4096u);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  // Another client of this host has its own.
  EXPECT_THAT(Ask(Connect(), 0, 1, Access::kRead).status(), IsOk());
}

TEST_F(SharedMemoryTest, TheTicketsOfAClientThatIsGoneMakeRoomForItsHost) {
  for (int clients = 0; clients < 4; ++clients) {
    const auto channel = Connect();
    for (uint64_t i = 0; i < 4096; ++i) ASSERT_THAT(Ask(channel, i, 1, Access::kRead).status(), IsOk());
  }
  const auto channel = Connect();
  EXPECT_TRUE(Eventually([&] { return Ask(channel, 0, 1, Access::kRead).ok(); }));
}

// Of clients that do nothing any more, too.
TEST_F(SharedMemoryTest, TheTicketsOfRevokedMemoryMakeRoomForItsHost) {
  std::vector<std::shared_ptr<Channel>> idle;
  for (int clients = 0; clients < 4; ++clients) {
    idle.push_back(Connect());
    for (uint64_t i = 0; i < 4096; ++i) ASSERT_THAT(Ask(idle.back(), i, 1, Access::kRead).status(), IsOk());
  }
  RemoteMemory unshown = Reach(idle[0], 0, 1, Access::kRead);
  const auto channel = Connect();
  ASSERT_THAT(Ask(channel, 0, 1, Access::kRead).status(), HasCode(absl::StatusCode::kResourceExhausted));
  ASSERT_THAT(memory_->Revoke(), IsOk());
  absl::StatusOr<SharedMemory> other = server_->Share(4096);
  ASSERT_THAT(other.status(), IsOk());
  Use(*std::move(other));
  EXPECT_THAT(Ask(channel, 0, 1, Access::kRead).status(), IsOk());
  // A ticket that was void before it was shown says so, and only its operation fails.
  std::string byte(1, '\0');
  RemoteMemory good = Reach(idle[0], 0, 1, Access::kRead);
  const absl::Status status = unshown.Read(0, SpanOf(byte)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("revoked"));
  EXPECT_THAT(good.Read(0, SpanOf(byte)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, ATicketForWhichThereWasNoRoomIsGoodOnceThereIs) {
  const auto channel = Connect();
  std::vector<RemoteMemory> remotes;
  std::string bytes(8, '\0');
  for (uint64_t i = 0; i <= transport::LaneServer::kHandlesMax; ++i) remotes.push_back(Reach(channel, i, 8));
  for (size_t i = 0; i < transport::LaneServer::kHandlesMax; ++i) {
    ASSERT_THAT(remotes[i].Read(0, SpanOf(bytes)).Wait(), IsOk());
  }
  RemoteMemory last = std::move(remotes.back());
  EXPECT_THAT(last.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kResourceExhausted));
  remotes.clear();
  EXPECT_THAT(last.Read(0, SpanOf(bytes)).Wait(), IsOk());
  EXPECT_EQ(bytes, Expected(transport::LaneServer::kHandlesMax, 8));
}

}  // namespace
}  // namespace hawser
