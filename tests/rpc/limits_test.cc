// Messages and memory at their limits: the error is clear, and the connection survives.

#include <capnp/message.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<size_t> EchoBytes(const std::shared_ptr<Channel>& channel, size_t size_bytes,
                                 const CallOptions& options = {}) {
  auto call = probe::ProbeStub(channel).Echo(options);
  call.request().initData(static_cast<uint32_t>(size_bytes));
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getData().size();
}

TEST(LimitsTest, ARequestOverTheServersLimitIsRefusedUnsent) {
  TestServer server({.connection = {.message_bytes_max = 100'000}});
  const auto channel = server.Connect();
  const absl::Status status = EchoBytes(channel, 100'001).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("100000"));
  EXPECT_THAT(EchoBytes(channel, 99'000), IsOk());
}

TEST(LimitsTest, AReplyOverTheClientsLimitIsAnErrorInstead) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply<probe::Probe::EchoResults>().initData(200'000);
    return absl::OkStatus();
  };
  const auto channel = server.Connect({.connection = {.message_bytes_max = 100'000}});
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("100000"));
  EXPECT_THAT(EchoBytes(channel, 50'000), IsOk());
}

TEST(LimitsTest, AtTheLimitItWorksAndAWordBeyondItDoesNot) {
  TestServer server({.connection = {.message_bytes_max = 100'000}});
  const auto channel = server.Connect();
  // The pointers of the message take a few words beside the data.
  size_t largest = 0;
  for (size_t size = 99'904; size <= 100'000; size += 8) {
    const absl::StatusOr<size_t> echoed = EchoBytes(channel, size);
    if (echoed.ok()) {
      EXPECT_EQ(*echoed, size);
      EXPECT_EQ(largest, size == 99'904 ? 0 : size - 8);
      largest = size;
    } else {
      EXPECT_THAT(echoed.status(), HasCode(absl::StatusCode::kInvalidArgument));
    }
  }
  EXPECT_GT(largest, 99'904u);
  EXPECT_LT(largest, 100'000u);
}

TEST(LimitsTest, AClientWithoutMemoryFailsItsCallAndNothingElse) {
  TestServer server;
  auto runtime = transport::Runtime::Create(TestScheme(), {.pool = {.limit_bytes = 4 << 20}});
  ASSERT_THAT(runtime, IsOk());
  const auto channel = server.Connect({.runtime = *runtime});
  const absl::Status status = EchoBytes(channel, 8 << 20).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(channel->AllocateBuffer(8 << 20).status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(EchoBytes(channel, 1000), IsOk());
}

TEST(LimitsTest, AServerWithoutMemoryForARequestSaysSoByTheDeadline) {
  TestServer server({.pool = {.limit_bytes = 4 << 20}});
  const auto channel = server.Connect();
  constexpr absl::Duration kExpiresWithoutMemory = absl::Milliseconds(100);
  const absl::Status status = EchoBytes(channel, 8 << 20, {.timeout = kExpiresWithoutMemory}).status();
  EXPECT_THAT(status, testing::AnyOf(HasCode(absl::StatusCode::kResourceExhausted),
                                     HasCode(absl::StatusCode::kDeadlineExceeded)));
  EXPECT_THAT(EchoBytes(channel, 1000), IsOk());
}

TEST(LimitsTest, AServerWithoutMemoryForAReplySaysSo) {
  TestServer server({.pool = {.limit_bytes = 4 << 20}});
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply<probe::Probe::EchoResults>().initData(8 << 20);
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(EchoBytes(channel, 1000), IsOk());
}

// A handler acquires all memory. The receive ring reuses the buffers of the requests, and errors use the
// reserve.
TEST(LimitsTest, AServerWithNoMemoryAtAllStillSendsErrors) {
  TestServer server({.pool = {.limit_bytes = 4 << 20}});
  std::vector<Buffer> hoard;
  bool taken = false;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    for (size_t size : {256 << 10, 4 << 10, 1}) {
      if (taken) break;
      for (auto buffer = server.server.AllocateBuffer(size); buffer.ok();
           buffer = server.server.AllocateBuffer(size)) {
        hoard.push_back(*std::move(buffer));
      }
    }
    taken = true;
    return absl::ResourceExhaustedError("all is taken");
  };
  const auto channel = server.Connect();
  std::vector<decltype(SendAct(channel, 1))> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(SendAct(channel, 1));
  for (auto& call : calls) {
    EXPECT_THAT(call.Wait().status(), HasCode(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_EQ(server.server.stats().connections, 1u);
  hoard.clear();
  EXPECT_THAT(EchoBytes(channel, 1000), IsOk());
}

TEST(LimitsTest, AServerWithoutMemoryForAConnectionSaysSo) {
  TestServer server({.pool = {.limit_bytes = 4 << 20}});
  std::vector<Buffer> hoard;
  for (size_t size : {256 << 10, 4 << 10, 1}) {
    for (auto buffer = server.server.AllocateBuffer(size); buffer.ok();
         buffer = server.server.AllocateBuffer(size)) {
      hoard.push_back(*std::move(buffer));
    }
  }
  const absl::Status connecting = Channel::Connect(server.uri, TryingOnce()).status();
  EXPECT_THAT(connecting, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(connecting.message()), HasSubstr("BufferPoolOptions::limit_bytes"));
  // A call's error distinguishes this server from an absent one.
  const auto channel = Channel::Create(server.uri);
  ASSERT_THAT(channel, IsOk());
  const absl::Status calling = EchoBytes(*channel, 8).status();
  EXPECT_THAT(calling, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(WasSent(calling));
  EXPECT_THAT(std::string(calling.message()), HasSubstr("BufferPoolOptions::limit_bytes"));
}

// Only what the server refuses is tried again while there is time.
TEST(LimitsTest, AClientWithoutMemoryForAConnectionHearsSoAtOnce) {
  TestServer server;
  auto runtime = transport::Runtime::Create(TestScheme(), {.pool = {.limit_bytes = 4 << 20}});
  ASSERT_THAT(runtime, IsOk());
  std::vector<transport::Lease> hoard;
  for (size_t size : {size_t{256} << 10, size_t{4096}, size_t{512}}) {
    for (auto lease = (*runtime)->buffers().Acquire(size); lease.ok();
         lease = (*runtime)->buffers().Acquire(size)) {
      hoard.push_back(*std::move(lease));
    }
  }
  const absl::Time start = absl::Now();
  const absl::Status status =
      Channel::Connect(server.uri, {.connect_timeout = kLong, .runtime = *runtime}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_LT(absl::Now() - start, kLong / 2);
}

TEST(LimitsTest, AClientThatMakesRoomForOthersHearsWhy) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "verbs carry no farewell";
  ClockedRuntime clients;  // After a while an idle client returns its credits, and is no newcomer any more.
  TestServer server(
      {.pool = {.limit_bytes = 8 << 20},
       .connection = {.keepalive_interval = absl::InfiniteDuration()}});  // It asks them nothing.
  Box<std::string> losses;
  std::vector<std::shared_ptr<Channel>> idle;
  // The server's receives may have 6 MiB, and newcomers make room above 5.25 MiB; each has 152 KiB.
  for (int i = 0; i < 38; ++i) {
    // A client that reconnected at once would take the place of the next one.
    idle.push_back(server.Connect({.backoff_min = kLong,
                                   .backoff_max = kLong,
                                   .on_state_change =
                                       [&](ChannelState state, const absl::Status& why) {
                                         if (state == ChannelState::kConnecting && !why.ok()) {
                                           losses.Put(std::string(why.message()));
                                         }
                                       },
                                   .runtime = clients.get()}));
  }
  EXPECT_THAT(losses.Take(), HasSubstr("a client that had sent nothing yet makes room for newer ones"));
  for (const auto& channel : idle) channel->Close();
  losses.Close();
}

TEST(LimitsTest, AServerWithoutAnyMemoryStillSendsErrorsAndClosesNoConnection) {
  auto runtime = transport::Runtime::Create(TestScheme(), {.pollers = 1, .pool = {.limit_bytes = 8 << 20}});
  ASSERT_THAT(runtime, IsOk());
  TestServer server({.runtime = *runtime});
  std::atomic<bool> exhausted{false};
  std::vector<transport::Lease> hoard;
  transport::OutgoingMessagePtr kept[256];
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    // Acquires all memory of the pool, and the memory that is kept for replies.
    for (auto& message : kept) message = (*runtime)->poller(0).messages().NewOutgoing();
    for (size_t size : {size_t{256} << 10, size_t{4096}, size_t{512}}) {
      while (true) {
        absl::StatusOr<transport::Lease> lease = (*runtime)->buffers().Acquire(size);
        if (!lease.ok()) break;
        hoard.push_back(*std::move(lease));
      }
    }
    exhausted = true;
    return absl::FailedPreconditionError(std::string(3000, 'x'));
  };
  const auto channel = server.Connect();
  const auto neighbour = server.Connect();
  ASSERT_THAT(EchoBytes(channel, 8), IsOk());
  ASSERT_THAT(EchoBytes(neighbour, 8), IsOk());
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  ASSERT_TRUE(exhausted);
  server.probe.on_act = [](ServerContext&, uint64_t) { return absl::NotFoundError("none"); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(SendAct(neighbour, 1).Wait().status(), HasCode(absl::StatusCode::kNotFound)) << i;
  }
  EXPECT_EQ(channel->state(), ChannelState::kReady);
  EXPECT_EQ(neighbour->state(), ChannelState::kReady);
}

// Here and in the next test a hostile or broken server sends a message that its method does not return.
TEST(LimitsTest, AReplyThatIsNestedTooDeepNamesTheLimit) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    probe::Nest::Builder nest = context.reply<probe::Nest>();
    for (int i = 0; i < 200; ++i) nest = nest.initInner();
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  auto call = Call<probe::Probe::ActParams, probe::Nest>(channel, probe::ProbeStub::kAct, {});
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  const absl::Status status = reply->Read([](probe::Nest::Reader nest) {
    while (nest.hasInner()) nest = nest.getInner();
  });
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ReadLimits::nesting_max"));
}

TEST(LimitsTest, AMalformedReplyIsDataLoss) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply<probe::Probe::EchoResults>().initData(8);
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  auto call = Call<probe::Probe::ActParams, probe::Nest>(channel, probe::ProbeStub::kAct, {});
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  const absl::Status status = reply->Read([](probe::Nest::Reader nest) { nest.getInner(); });
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(std::string(status.message()), HasSubstr("malformed message"));
}

// Cap'n Proto counts a field each time that it is read.
TEST(LimitsTest, ALargeFieldMayBeLookedAtAgainAndAgain) {
  constexpr uint32_t kBytes = 20 << 20;
  TestServer server;
  size_t seen = 0;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    auto request = context.request<probe::Probe::EchoParams>();
    for (int i = 0; i < 12; ++i) seen += request.getData().size();
    context.reply<probe::Probe::EchoResults>().initData(kBytes);
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  auto call = Call<probe::Probe::EchoParams, probe::Probe::EchoResults>(channel, probe::ProbeStub::kAct, {});
  call.request().initData(kBytes);
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(seen, 12u * kBytes);
  const absl::Status status = reply->Read([&](probe::Probe::EchoResults::Reader results) {
    for (int i = 0; i < 12; ++i) seen += results.getData().size();
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(seen, 24u * kBytes);
}

TEST(LimitsTest, AFieldThatIsLookedAtTooOftenNamesTheLimit) {
  TestServer server;
  const auto channel = server.Connect({.read = {.traversal_factor = 0}});
  auto call = probe::ProbeStub(channel).Echo();
  call.request().initData(1 << 20);
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  const absl::Status status = reply->Read([](probe::Probe::EchoResults::Reader results) {
    for (int i = 0; i < 12; ++i) results.getData();
  });
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("ReadLimits::traversal_factor"), HasSubstr("ach look at a field"),
                             testing::Not(HasSubstr("malformed"))));
}

// ---- The limits of Cap'n Proto.

constexpr size_t kDataBytesMax = (size_t{1} << 29) - 1;

// Bytes that nothing reads.
capnp::Data::Reader DataOf(size_t size_bytes) {
  return {reinterpret_cast<const uint8_t*>("12345678"), size_bytes};
}

TEST(LimitsTest, AnAttachedValueTooLargeForCapnProtoIsInvalid) {
  TestServer server;
  const auto channel = server.Connect();
  auto call = probe::ProbeStub(channel).Echo();
  call.request().adoptData(call.Attach(DataOf(kDataBytesMax + 1), nullptr));
  EXPECT_FALSE(call.request().hasData());
  const absl::Status status = call.Send().Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("536870912 bytes"), HasSubstr("536870911"),
                             testing::Not(HasSubstr("registered memory"))));
  EXPECT_THAT(EchoBytes(channel, 1000), IsOk());
}

TEST(LimitsTest, AReplyWithAnAttachedValueTooLargeIsInvalid) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply<probe::Probe::EchoResults>().adoptData(context.Attach(DataOf(kDataBytesMax + 1), nullptr));
    return absl::OkStatus();
  };
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("act"), HasSubstr("536870911"), HasSubstr("the reply")));
}

TEST(LimitsTest, TheLargestDataFitsADefaultMessage) {
  // Plain memory that the test never touches.
  capnp::MallocMessageBuilder message;
  message.initRoot<probe::Probe::EchoParams>().initData(kDataBytesMax);
  size_t body_bytes = 0;
  for (const auto& segment : message.getSegmentsForOutput()) body_bytes += segment.asBytes().size();
  const uint64_t limit = transport::ConnectionOptions().message_bytes_max;
  EXPECT_LE(body_bytes + 4096, limit) << "with a page of fields beside it";
  EXPECT_LE(transport::BufferPool::CapacityOf(limit), limit + limit / 4) << "of what it is READ into";
}

// ---- A side keeps its own limit, too.

TEST(LimitsTest, ARequestOverTheClientsOwnLimitIsRefusedUnsent) {
  TestServer server;
  const auto channel = server.Connect({.connection = {.message_bytes_max = 100'000}});
  const absl::Status status = EchoBytes(channel, 100'001).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(WasSent(status));
  EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("100000"), HasSubstr("this side")));
  EXPECT_THAT(EchoBytes(channel, 99'000), IsOk());
}

TEST(LimitsTest, AReplyOverTheServersOwnLimitIsAnErrorInstead) {
  TestServer server({.connection = {.message_bytes_max = 1 << 20}});
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply<probe::Probe::EchoResults>().initData(4 << 20);
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("1048576"), HasSubstr("ConnectionOptions::message_bytes_max"),
                             HasSubstr("the side that answers")));
  EXPECT_THAT(EchoBytes(channel, 1000), IsOk());
}

}  // namespace
}  // namespace hawser
