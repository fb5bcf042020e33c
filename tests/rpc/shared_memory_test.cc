// Memory of a server that its clients reach by themselves.

#include "hawser/rpc/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/detached.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/lane/lane_server.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kBytes = 1 << 20;

class MemoryProbeImpl final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader request,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    GrantOptions options;
    options.offset = request.getOffset();
    if (request.getLength() > 0) options.length = request.getLength();
    options.access = static_cast<Access>(request.getAccess());
    return context.Grant(*memory, options, reply.initTicket());
  }

  SharedMemory* memory = nullptr;
};

// A server that shares memory, and what a client keeps of a ticket.
class SharedMemoryTest : public ::testing::Test {
 protected:
  using Ticket = memory::Ticket;

  void SetUp() override { StartServer(); }

  void StartServer(const std::string& uri = TestUri(), ServerOptions options = {}) {
    server_ = std::make_unique<Server>(std::move(options));
    ASSERT_THAT(server_->AddService(&probe_), IsOk());
    ASSERT_THAT(server_->AddService(&act_), IsOk());
    const absl::StatusOr<std::string> listening = server_->Listen(uri);
    ASSERT_THAT(listening.status(), IsOk());
    uri_ = *listening;
    absl::StatusOr<SharedMemory> memory = server_->Share(kBytes);
    ASSERT_THAT(memory.status(), IsOk());
    Use(*std::move(memory));
    for (size_t i = 0; i < kBytes; ++i) memory_->data()[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }

  void Use(SharedMemory memory) {
    memory_ = std::move(memory);
    probe_.memory = &*memory_;
  }

  std::shared_ptr<Channel> Connect(ChannelOptions options = {}) {
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri_, std::move(options));
    EXPECT_THAT(channel.status(), IsOk());
    return *channel;
  }

  absl::StatusOr<Reply<memory_probe::MemoryProbe::GrantResults>> Ask(const std::shared_ptr<Channel>& channel,
                                                                     uint64_t offset, uint64_t length,
                                                                     Access access) {
    auto call = memory_probe::MemoryProbeStub(channel).Grant();
    call.request().setOffset(offset);
    call.request().setLength(length);
    call.request().setAccess(static_cast<uint8_t>(access));
    return call.Send().Wait();
  }

  RemoteMemory Reach(const std::shared_ptr<Channel>& channel, uint64_t offset = 0, uint64_t length = 0,
                     Access access = Access::kReadWrite) {
    const auto reply = Ask(channel, offset, length, access);
    EXPECT_THAT(reply.status(), IsOk());
    return RemoteMemory(channel, (*reply)->getTicket());
  }

  std::string Expected(size_t offset, size_t length) const {
    return std::string(reinterpret_cast<const char*>(memory_->data()) + offset, length);
  }

  MemoryProbeImpl probe_;
  ProbeServiceImpl act_;
  std::unique_ptr<Server> server_;
  std::string uri_;
  std::optional<SharedMemory> memory_;
};

absl::Span<uint8_t> SpanOf(std::string& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}
absl::Span<const uint8_t> SpanOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

TEST_F(SharedMemoryTest, AClientReadsIntoMemoryOfThePoolAndOfItsOwn) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 4096, 65536);
  EXPECT_EQ(remote.size_bytes(), 65536u);
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(8192);
  ASSERT_THAT(buffer.status(), IsOk());
  EXPECT_THAT(remote.Read(16, {buffer->data(), 8192}).Wait(), IsOk());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer->data()), 8192), Expected(4096 + 16, 8192));
  std::string own(1000, '\0');
  EXPECT_THAT(remote.Read(64000, SpanOf(own)).Wait(), IsOk());
  EXPECT_EQ(own, Expected(4096 + 64000, 1000));
}

TEST_F(SharedMemoryTest, AWriteIsInTheOwnersMemoryWhenItsResultIsThere) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 100, 1000);
  const std::string text(500, 'w');
  EXPECT_THAT(remote.Write(10, SpanOf(text)).Wait(), IsOk());
  EXPECT_EQ(Expected(110, 500), text);
}

TEST_F(SharedMemoryTest, ManyRangesAndAStrideAreOneOperation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(24, '\0');
  EXPECT_THAT(remote.Read({{0, 8}, {1000, 12}, {500, 4}}, SpanOf(bytes)).Wait(), IsOk());
  EXPECT_EQ(bytes, Expected(0, 8) + Expected(1000, 12) + Expected(500, 4));
  std::string column(16 * 100, '\0');
  const RemoteStride stride{.offset = 32, .length = 16, .stride = 4096, .count = 100};
  EXPECT_THAT(remote.Read(stride, SpanOf(column)).Wait(), IsOk());
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(column.substr(16 * i, 16), Expected(32 + 4096 * i, 16)) << i;
}

TEST_F(SharedMemoryTest, AllOfALargeMemoryIsReadAtOnce) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string all(kBytes, '\0');
  for (int i = 0; i < 8; ++i) ASSERT_THAT(remote.Read(0, SpanOf(all)).Wait(), IsOk());
  EXPECT_TRUE(all == Expected(0, kBytes));
}

TEST_F(SharedMemoryTest, BeyondTheTicketByOneByteOrWithAnOffsetThatWrapsIsOutOfRange) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel, 0, 4096);
  std::string bytes(4096, '\0');
  EXPECT_THAT(remote.Read(1, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  std::string one(1, '\0');
  EXPECT_THAT(remote.Read(4096, SpanOf(one)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  std::string two(2, '\0');
  EXPECT_THAT(remote.Read(UINT64_MAX, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(remote.Write(UINT64_MAX - 1, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  const RemoteStride wraps{.offset = 0, .length = 1, .stride = UINT64_MAX, .count = 2};
  EXPECT_THAT(remote.Read(wraps, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(remote.Read({{0, 1}}, SpanOf(two)).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  // Neither the lane nor the calls have ended.
  EXPECT_THAT(remote.Read(4095, SpanOf(one)).Wait(), IsOk());
  EXPECT_THAT(Ask(channel, 0, 1, Access::kRead).status(), IsOk());
}

TEST_F(SharedMemoryTest, MemoryHereThatIsNullIsRefused) {
  RemoteMemory remote = Reach(Connect());
  const absl::Span<uint8_t> null(static_cast<uint8_t*>(nullptr), 8);
  const RemoteStride stride{.offset = 0, .length = 4, .stride = 64, .count = 2};
  EXPECT_THAT(remote.Read(0, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.Read({{0, 4}, {64, 4}}, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.Read(stride, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.Write(0, null).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  std::string bytes(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, RangesThatOverlapAreBoundedTogether) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  const RemoteStride same{.offset = 0, .length = kBytes, .stride = 0, .count = RemoteMemory::kRangesMax};
  ASSERT_GT(same.length * same.count, remote.capabilities().operation_bytes_max);
  std::string bytes(8, '\0');
  const absl::Status status = remote.Read(same, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("one operation at most 2147483648"));
}

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

TEST_F(SharedMemoryTest, AnOperationWithoutTimeIsNotSent) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  const std::string before = Expected(0, 8), text(8, 'w');
  std::string bytes(8, '\0');
  constexpr absl::Duration kStep = absl::Nanoseconds(1);
  for (const absl::Duration timeout : {absl::ZeroDuration(), -kStep, -absl::Seconds(5),
                                       -absl::Hours(24 * 365 * 1000), -absl::InfiniteDuration()}) {
    EXPECT_THAT(remote.Write(0, SpanOf(text), {.timeout = timeout}).Wait(),
                HasCode(absl::StatusCode::kDeadlineExceeded))
        << timeout;
    EXPECT_THAT(remote.Read(0, SpanOf(bytes), {.timeout = timeout}).Wait(),
                HasCode(absl::StatusCode::kDeadlineExceeded))
        << timeout;
    EXPECT_FALSE(remote.capabilities().is_known) << "it has opened the lane";
  }
  EXPECT_THAT(remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()}).Wait(), IsOk());
  EXPECT_EQ(bytes, before);
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

TEST_F(SharedMemoryTest, NoClientReachesMemoryAfterItsRevocation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  RemoteMemory unshown = Reach(channel, 0, 4096);
  EXPECT_THAT(memory_->Revoke(), IsOk());
  const absl::Status status = remote.Read(0, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("revoked"));
  EXPECT_THAT(Ask(channel, 0, 8, Access::kRead).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(unshown.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
  // Other memory goes on.
  absl::StatusOr<SharedMemory> other = server_->Share(4096);
  ASSERT_THAT(other.status(), IsOk());
  Use(*std::move(other));
  EXPECT_THAT(Reach(channel).Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, MemoryOfTheProgramIsItsOwnAgainAfterRevokeWithOperationsInFlight) {
  std::string own(kBytes, 'a');
  absl::StatusOr<SharedMemory> shared = server_->Share(SpanOf(own));
  ASSERT_THAT(shared.status(), IsOk());
  Use(*std::move(shared));
  std::atomic<int> writing{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([this, &writing] {
      const auto channel = Connect();
      RemoteMemory remote = Reach(channel);
      const std::string text(65536, 'b');
      for (int written = 0;; ++written) {
        if (written == 5) ++writing;
        const absl::Status status = remote.Write(0, SpanOf(text)).Wait();
        if (!status.ok()) {
          EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition)) << status;
          return;
        }
      }
    });
  }
  EXPECT_TRUE(Eventually([&] { return writing == 2; }));
  memory_.reset();  // Revokes, and waits.
  std::fill(own.begin(), own.end(), 'c');
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(own.find_first_not_of('c'), std::string::npos);
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

TEST_F(SharedMemoryTest, WhatWasMovedFromIsEmpty) {
  SharedMemory moved = *std::exchange(memory_, std::nullopt);
  SharedMemory other = std::move(moved);
  EXPECT_EQ(moved.data(), nullptr);
  EXPECT_EQ(moved.size_bytes(), 0u);
  EXPECT_THAT(moved.Revoke(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(other.size_bytes(), kBytes);
}

TEST_F(SharedMemoryTest, WhatTheClientHasMovedFromSaysSo) {
  RemoteMemory remote = Reach(Connect());
  std::string bytes(8, '\0');
  RemoteOperation operation = remote.Read(0, SpanOf(bytes));
  RemoteOperation moved = std::move(operation);
  const auto is_moved_from = [](const absl::Status& status, absl::string_view what) {
    EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(status.message(), absl::StrCat("the ", what, " was moved from"));
  };
  is_moved_from(operation.Wait(), "RemoteOperation");
  Box<absl::Status> results;
  operation.Then([&](const absl::Status& status) { results.Put(status); });
  is_moved_from(results.Take(), "RemoteOperation");
  [&]() -> Detached { results.Put(co_await operation); }();
  is_moved_from(results.Take(), "RemoteOperation");
  EXPECT_THAT(moved.Wait(), IsOk());

  RemoteMemory other = std::move(remote);
  is_moved_from(remote.Read(0, SpanOf(bytes)).Wait(), "RemoteMemory");
  EXPECT_EQ(remote.size_bytes(), 0u);
  EXPECT_FALSE(remote.capabilities().is_known);
  EXPECT_EQ(remote.default_timeout(), absl::InfiniteDuration());
  remote = std::move(other);
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  is_moved_from(other.Read(0, SpanOf(bytes)).Wait(), "RemoteMemory");
}

TEST_F(SharedMemoryTest, AnExceptionOfACallbackHarmsNoOtherOperation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  Box<bool> thrown;
  remote.Read(0, SpanOf(bytes)).Then([&](const absl::Status&) {
    thrown.Put(true);
    throw std::runtime_error("the test's");
  });
  EXPECT_TRUE(thrown.Take());
  Box<absl::Status> next;
  remote.Read(8, SpanOf(bytes)).Then([&](const absl::Status& status) { next.Put(status); });
  EXPECT_THAT(next.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(8, 8));
}

TEST_F(SharedMemoryTest, AChildAfterForkLeavesTheMemoryToItsParent) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  const auto channel = Connect();
  auto remote = std::make_unique<RemoteMemory>(Reach(channel));
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  std::vector<std::unique_ptr<RemoteOperation>> reads;
  for (size_t i = 0; i < 4; ++i) {
    reads.push_back(
        std::make_unique<RemoteOperation>(remote->Read(1000 * i, {buffer->data() + 1000 * i, 1000})));
  }
  EXPECT_TRUE(InChild([&] {
    const auto says_why = [](const absl::Status& status) {
      return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), "fork()");
    };
    absl::Status called;
    reads[1]->Then([&](const absl::Status& status) { called = status; });
    reads[2]->Cancel();
    const bool ended = says_why(reads[0]->Wait()) && says_why(called) && says_why(memory_->Revoke());
    reads.clear();
    remote.reset();
    memory_.reset();
    return ended;
  }));
  for (const auto& read : reads) EXPECT_THAT(read->Wait(), IsOk()) << "the parent was harmed";
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer->data()), 4000), Expected(0, 4000));
}

TEST_F(SharedMemoryTest, AWriteThatIsWaitedForInAHandlerMayHaveHappenedAndSaysSo) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes = Expected(0, 8);  // Not registered: then it would be a CHECK.
  act_.on_act = [&](ServerContext&, uint64_t number) {
    return (number == 0 ? remote.Read(0, SpanOf(bytes)) : remote.Write(0, SpanOf(std::as_const(bytes))))
        .Wait();
  };
  constexpr char kMayBe[] = "it may have been written, in whole or in part";
  const absl::Status read = SendAct(channel, 0).Wait().status(),
                     written = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(read, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(read.message()), Not(HasSubstr(kMayBe)));
  EXPECT_THAT(written, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(written.message()), HasSubstr(kMayBe));
}

TEST_F(SharedMemoryTest, RevokeInAHandlerIsRefused) {
  act_.on_act = [&](ServerContext&, uint64_t) { return memory_->Revoke(); };
  const auto channel = Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Ask(channel, 0, 8, Access::kRead).status(), IsOk()) << "it was not revoked";
}

TEST_F(SharedMemoryTest, AfterTheServerHasEndedOperationsFailAndTheMemoryStays) {
  auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  server_.reset();
  const absl::Status status = remote.Read(0, SpanOf(bytes)).Wait();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(memory_->data()[1], 7);
  EXPECT_THAT(memory_->Revoke(), IsOk());
}

TEST_F(SharedMemoryTest, AfterCloseOperationsAreCancelled) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  channel->Close();
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(SharedMemoryTest, AResultGoesToACallbackToo) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  Box<absl::Status> results;
  remote.Read(0, SpanOf(bytes)).Then([&](const absl::Status& status) { results.Put(status); });
  EXPECT_THAT(results.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(0, 8));
  remote.Read(kBytes, SpanOf(bytes)).Then([&](const absl::Status& status) { results.Put(status); });
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kOutOfRange));
}

// The server's poller is held by a handler, so that over TCP nothing is answered.
class HeldServerTest : public SharedMemoryTest {
 protected:
  void SetUp() override {
    if (TestScheme() != "tcp") GTEST_SKIP() << "a NIC answers while a handler holds the poller";
    StartServer(TestUri(), {.pollers = 1});
    act_.on_act = [this](ServerContext&, uint64_t) {
      holds_ = true;
      Eventually([this] { return handler_ends_.load(); });
      holds_ = false;
      return absl::OkStatus();
    };
  }
  void TearDown() override { handler_ends_ = true; }

  void Hold(const std::shared_ptr<Channel>& channel) {
    SendAct(channel, 1).Forget();
    ASSERT_TRUE(Eventually([this] { return holds_.load(); }));
  }

  std::atomic<bool> holds_{false}, handler_ends_{false};
};

TEST_F(HeldServerTest, AtItsDeadlineAnOperationEndsAndNothingChangesAfterwards) {
  const auto channel = Connect({.default_timeout = absl::InfiniteDuration()});
  RemoteMemory remote = Reach(channel);
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  ASSERT_THAT(remote.Read(0, {buffer->data(), 4096}).Wait(), IsOk());
  Hold(channel);
  memset(buffer->data(), 'x', 4096);
  const absl::Status status = remote.Read(0, {buffer->data(), 4096}, {.timeout = kExpires}).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no completion came before the deadline; nothing has come from it for "));
  memset(buffer->data(), 'y', 4096);
  handler_ends_ = true;
  // The lane is opened anew; calls and the ticket go on.
  std::string bytes(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(buffer->data()), 4096), std::string(4096, 'y'));
}

TEST_F(HeldServerTest, ACancelledOperationEndsTheOthersOfItsLaneAndNoCall) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0'), others(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  RemoteOperation cancelled = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  RemoteOperation other = remote.Write(0, SpanOf(others), {.timeout = absl::InfiniteDuration()});
  // Both are posted once a turn has ended that began after them.
  for (int i = 0; i < 2; ++i) internal::RunAndWait(channel->sender()->poller(), [] {});
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(), HasCode(absl::StatusCode::kCancelled));
  const absl::Status status = other.Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("may have been written"));
  handler_ends_ = true;
  EXPECT_THAT(Ask(channel, 0, 8, Access::kRead).status(), IsOk());
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk()) << "the session has not gone on";
}

// The server has not answered for its ticket, so that nothing of it was posted.
TEST_F(HeldServerTest, AnOperationOfWhichNothingWasPostedGoesOnOverTheNextLane) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel), other = Reach(channel, 64, 64);
  std::string bytes(8, '\0'), others(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  RemoteOperation cancelled = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  RemoteOperation waits = other.Read(0, SpanOf(others), {.timeout = absl::InfiniteDuration()});
  for (int i = 0; i < 2; ++i) internal::RunAndWait(channel->sender()->poller(), [] {});
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(), HasCode(absl::StatusCode::kCancelled));
  handler_ends_ = true;
  EXPECT_THAT(waits.Wait(), IsOk());
  EXPECT_EQ(others, Expected(64, 8));
}

TEST_F(HeldServerTest, AnOperationThatIsDroppedLeavesItsMemoryAlone) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  {
    RemoteOperation dropped = remote.Read(0, {buffer->data(), 4096}, {.timeout = absl::InfiniteDuration()});
    RemoteOperation copied = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  }
  memset(buffer->data(), 'z', 4096);
  bytes = "untouchd";
  handler_ends_ = true;
  std::string later(8, '\0');
  EXPECT_THAT(remote.Read(0, SpanOf(later)).Wait(), IsOk());
  EXPECT_EQ(bytes, "untouchd");
  EXPECT_EQ(buffer->data()[0], 'z');
}

TEST_F(HeldServerTest, AnOperationWithACallbackCanBeCancelled) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  Hold(channel);
  Box<absl::Status> results;
  RemoteOperation read = remote.Read(0, SpanOf(bytes), {.timeout = absl::InfiniteDuration()});
  read.Then([&](const absl::Status& status) { results.Put(status); });
  read.Cancel();
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(SharedMemoryTest, CancelRacesWithCompletionAndTheResultIsOneOfBoth) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(64, '\0');
  for (int i = 0; i < 200; ++i) {
    RemoteOperation read = remote.Read(0, SpanOf(bytes));
    std::thread canceller([&read] { read.Cancel(); });
    const absl::Status status = read.Wait();
    canceller.join();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  EXPECT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
}

TEST_F(SharedMemoryTest, AnOperationThatIsKeptAfterItsCallbackHoldsNoMemoryOfThePool) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(kBytes, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes).subspan(0, 8)).Wait(), IsOk());
  const transport::BufferPool& pool = channel->sender()->runtime()->buffers();
  Box<size_t> leased;
  RemoteOperation kept = remote.Read(0, SpanOf(bytes));
  kept.Then([&](const absl::Status& status) {
    EXPECT_THAT(status, IsOk());
    leased.Put(pool.stats().leased_bytes);
  });
  const size_t in_callback = leased.Take();
  EXPECT_TRUE(Eventually([&] { return pool.stats().leased_bytes + kBytes / 2 < in_callback; }));
  EXPECT_TRUE(bytes == Expected(0, kBytes));
  kept.Cancel();
}

// So the lane has room for the ticket of another operation.
TEST_F(SharedMemoryTest, AnOperationThatIsKeptAfterItsCallbackHoldsNoTicket) {
  const auto channel = Connect();
  std::vector<RemoteMemory> remotes;
  std::string bytes(8, '\0');
  for (uint64_t i = 0; i <= transport::LaneServer::kHandlesMax; ++i) remotes.push_back(Reach(channel, i, 8));
  std::vector<RemoteOperation> kept;
  Box<absl::Status> results;
  for (size_t i = 0; i < transport::LaneServer::kHandlesMax; ++i) {
    kept.push_back(remotes[i].Read(0, SpanOf(bytes)));
    kept.back().Then([&](const absl::Status& status) { results.Put(status); });
    ASSERT_THAT(results.Take(), IsOk());
  }
  RemoteMemory last = std::move(remotes.back());
  EXPECT_THAT(last.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kResourceExhausted));
  remotes.clear();
  EXPECT_TRUE(Eventually([&] { return last.Read(0, SpanOf(bytes)).Wait().ok(); }));
}

Detached ReadIn(RemoteMemory& remote, uint64_t offset, absl::Span<uint8_t> into, Box<absl::Status>& results) {
  const absl::Status status = co_await remote.Read(offset, into);
  results.Put(status);
}

TEST_F(SharedMemoryTest, ACoroutineAwaitsAnOperation) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::string bytes(8, '\0');
  Box<absl::Status> results;
  ReadIn(remote, 0, SpanOf(bytes), results);
  EXPECT_THAT(results.Take(), IsOk());
  EXPECT_EQ(bytes, Expected(0, 8));
  ReadIn(remote, kBytes, SpanOf(bytes), results);
  EXPECT_THAT(results.Take(), HasCode(absl::StatusCode::kOutOfRange));
}

TEST_F(SharedMemoryTest, WhatCannotReachMemorySaysWhy) {
  const auto channel = Connect();
  const auto reply = Ask(channel, 0, 4096, Access::kRead);
  ASSERT_THAT(reply.status(), IsOk());
  std::string bytes(8, '\0');
  RemoteMemory none(nullptr, (*reply)->getTicket());
  EXPECT_THAT(none.Read(0, SpanOf(bytes)).Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
  RemoteMemory several(Connect({.connections = 2}), (*reply)->getTicket());
  const absl::Status status = several.Read(0, SpanOf(bytes)).Wait();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("several connections"));
  absl::StatusOr<SharedMemory> nothing = server_->Share(0);
  EXPECT_THAT(nothing.status(), HasCode(absl::StatusCode::kInvalidArgument));
  nothing = server_->Share(absl::Span<uint8_t>(static_cast<uint8_t*>(nullptr), 4096));
  EXPECT_THAT(nothing.status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(SharedMemoryTest, AtomicsOfClientsAddUp) {
  const auto probe = Connect();
  std::string bytes(8, '\0');
  RemoteMemory first = Reach(probe);
  ASSERT_THAT(first.Read(0, SpanOf(bytes)).Wait(), IsOk());
  if (first.capabilities().atomics == RemoteAtomics::kNone) GTEST_SKIP() << "there are none";
  memset(memory_->data(), 0, 8);
  constexpr Access kAll = Access::kRead | Access::kWrite | Access::kAtomic;
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([this] {
      RemoteMemory remote = Reach(Connect(), 0, 0, kAll);
      uint64_t before = 0;
      for (int n = 0; n < 100; ++n) EXPECT_THAT(remote.FetchAdd(0, 3, before).Wait(), IsOk());
    });
  }
  for (std::thread& client : clients) client.join();
  RemoteMemory remote = Reach(probe, 0, 0, kAll);
  uint64_t before = 0;
  EXPECT_THAT(remote.CompareAndSwap(0, 900, 1, before).Wait(), IsOk());
  EXPECT_EQ(before, 900u);
  EXPECT_THAT(remote.CompareAndSwap(0, 900, 2, before).Wait(), IsOk());
  EXPECT_EQ(before, 1u);
  EXPECT_THAT(remote.FetchAdd(12, 1, before).Wait(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(remote.FetchAdd(kBytes - 4, 1, before).Wait(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(first.FetchAdd(0, 1, before).Wait(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Ask(probe, 4, 64, kAll).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(SharedMemoryTest, CapabilitiesSayWhoCarriesThemOut) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  EXPECT_EQ(remote.capabilities().by_nic, TestScheme() == "rdma");
  EXPECT_FALSE(remote.capabilities().is_known);
  EXPECT_EQ(remote.capabilities().depth, 0u);
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  const RemoteCapabilities known = remote.capabilities();
  EXPECT_TRUE(known.is_known);
  EXPECT_EQ(known.by_nic, TestScheme() == "rdma");
  EXPECT_GT(known.read_depth, 0u);
  EXPECT_GE(known.depth, known.read_depth);
  EXPECT_EQ(known.ranges_max, RemoteMemory::kRangesMax);
  EXPECT_GE(known.operation_bytes_max, remote.size_bytes());
}

TEST_F(SharedMemoryTest, CapabilitiesSayWhatAtomicsAreAtomicWith) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  EXPECT_EQ(remote.capabilities().atomics, RemoteAtomics::kNone) << "not known yet";
  std::string bytes(8, '\0');
  ASSERT_THAT(remote.Read(0, SpanOf(bytes)).Wait(), IsOk());
  // Both ends are on one device.
  const fabric::Atomics expected = NewTestFabric()->atomics();
  EXPECT_EQ(remote.capabilities().atomics, expected == fabric::Atomics::kNone ? RemoteAtomics::kNone
                                           : expected == fabric::Atomics::kNic
                                               ? RemoteAtomics::kNic
                                               : RemoteAtomics::kWithProcessor);
}

}  // namespace
}  // namespace hawser
