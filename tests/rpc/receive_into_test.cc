// Call::ReceiveInto(): a large value of the reply lands in memory that the caller names.

#include <string.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/registered_memory.h"
#include "hawser/rpc/runtime.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/detached.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/hidden_memory.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using EchoReply = Reply<probe::Probe::EchoResults>;

constexpr size_t kBytes = 3 << 20;
constexpr uint8_t kUntouched = 0x5a;

std::string ValueOf(size_t size, uint32_t seed = 1) {
  std::string value(size, '\0');
  for (size_t i = 0; i < size; ++i) value[i] = static_cast<char>(i * 7 + i / 256 + seed);
  return value;
}
std::string Text(absl::Span<const uint8_t> bytes) { return std::string(bytes.begin(), bytes.end()); }

// Answers with a value of its own.
class ValueService final : public probe::ProbeService {
 public:
  absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader,
                    probe::Probe::EchoResults::Builder reply) override {
    if (on_echo) on_echo(context);
    if (!error.ok()) return error;
    if (!attaches) {
      reply.setData({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
      return absl::OkStatus();
    }
    absl::StatusOr<Buffer> buffer = context.AllocateBuffer(value.size());
    if (!buffer.ok()) return buffer.status();
    memcpy(buffer->data(), value.data(), value.size());
    reply.adoptData(context.Attach(*std::move(buffer)));
    return absl::OkStatus();
  }
  absl::Status Act(ServerContext&, probe::Probe::ActParams::Reader,
                   probe::Probe::ActResults::Builder) override {
    return absl::OkStatus();
  }
  absl::Status ActAgain(ServerContext&, probe::Probe::ActAgainParams::Reader,
                        probe::Probe::ActAgainResults::Builder) override {
    return absl::OkStatus();
  }
  absl::Status Depth(ServerContext&, probe::Nest::Reader, probe::Probe::DepthResults::Builder) override {
    return absl::OkStatus();
  }

  // Set while no call is under way.
  std::string value;
  bool attaches = true;
  absl::Status error;
  std::function<void(ServerContext&)> on_echo;
};

enum class Over { kTestFabric, kDevice, kIwarpDevice };

// A device in memory, of which there is one at a time.
class Device {
 public:
  explicit Device(bool iwarp) : verbs_({.iwarp = iwarp}) {}
  // What runs on it may end on other threads.
  ~Device() {
    EXPECT_TRUE(Eventually([this] { return fabrics_ == 0; }));
  }

  std::shared_ptr<transport::Runtime> NewRuntime() {
    std::shared_ptr<fabric::Fabric> made =
        *fabric::NewVerbsFabric({.device = "fake0", .library = &verbs_.library()});
    ++fabrics_;
    fabric::Fabric* const raw = made.get();
    const std::shared_ptr<fabric::Fabric> counted(raw, [this, made = std::move(made)](auto*) mutable {
      made.reset();
      --fabrics_;
    });
    transport::RuntimeOptions options;
    options.pollers = 1;
    return *transport::Runtime::CreateOn(counted, options, true);
  }

 private:
  fabric::ExecutingVerbs verbs_;
  std::atomic<int> fabrics_{0};
};

class ReceiveIntoTest : public ::testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    ServerOptions server_options;
    ChannelOptions options;
    if (GetParam() == Over::kTestFabric) {
      server_options.pollers = 1;
      options.runtime = *Runtime::Create(TestScheme(), {});
    } else {
      device_.emplace(GetParam() == Over::kIwarpDevice);
      server_options.runtime = device_->NewRuntime();
      options.runtime = device_->NewRuntime();
    }
    runtime_ = options.runtime;
    server_ = std::make_unique<Server>(std::move(server_options));
    ASSERT_THAT(server_->AddService(&service_), IsOk());
    const absl::StatusOr<std::string> listening =
        server_->Listen(GetParam() == Over::kTestFabric ? TestUri() : "rdma://127.0.0.1:0");
    ASSERT_THAT(listening.status(), IsOk());
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(*listening, std::move(options));
    ASSERT_THAT(channel.status(), IsOk());
    channel_ = *std::move(channel);
    memset(own_.data(), kUntouched, kBytes);
    absl::StatusOr<RegisteredMemory> registered =
        channel_->Register({.address = data(), .length_bytes = kBytes});
    ASSERT_THAT(registered.status(), IsOk());
    memory_.emplace(*std::move(registered));
  }

  uint8_t* data() { return reinterpret_cast<uint8_t*>(own_.data()); }
  absl::Span<uint8_t> bytes() { return {data(), kBytes}; }

  PendingCall<probe::Probe::EchoResults> Send(absl::Span<uint8_t> into,
                                              const CallOptions& options = CallOptions::kNone) {
    auto call = probe::ProbeStub(channel_).Echo(options);
    call.ReceiveInto(into);
    return call.Send();
  }

  std::optional<Device> device_;  // Outlives what is made on it.
  std::vector<uint64_t> own_ = std::vector<uint64_t>(kBytes / 8);
  ValueService service_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Runtime> runtime_;  // Of the client.
  std::shared_ptr<Channel> channel_;
  std::optional<RegisteredMemory> memory_;
};

TEST_P(ReceiveIntoTest, AnAttachedValueIsAtTheBeginningOfTheMemory) {
  // The last one is not a multiple of 8, and its segment is.
  for (const size_t size : {size_t{8} << 10, size_t{1} << 20, kBytes, kBytes - 5}) {
    service_.value = ValueOf(size);
    const absl::StatusOr<EchoReply> reply = Send(bytes()).Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ((*reply)->getData().begin(), data());
    EXPECT_EQ(reply->landed().data(), data());
    EXPECT_EQ(reply->landed().size(), (size + 7) / 8 * 8);
    const absl::StatusOr<absl::Span<uint8_t>> value = reply->Land((*reply)->getData());
    ASSERT_THAT(value.status(), IsOk());
    EXPECT_EQ(value->data(), data());
    EXPECT_TRUE(Text(*value) == service_.value) << size;
    EXPECT_LE(reply->memory_bytes(), size_t{64} << 10) << "it takes memory of the pool";
  }
}

TEST_P(ReceiveIntoTest, AValueThatTheServerBuildsLandsBehindWhatLeadsToIt) {
  service_.attaches = false;
  service_.value = ValueOf(1 << 20);
  const absl::StatusOr<EchoReply> reply = Send(bytes()).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  const absl::StatusOr<absl::Span<uint8_t>> value = reply->Land((*reply)->getData());
  ASSERT_THAT(value.status(), IsOk());
  EXPECT_EQ(value->data(), (*reply)->getData().begin());
  EXPECT_GT(value->data(), data());
  EXPECT_LE(value->end(), reply->landed().end());
  EXPECT_TRUE(Text(*value) == service_.value);
}

TEST_P(ReceiveIntoTest, ASmallValueComesInTheMessageAndIsCopiedOnDemand) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{2000}}) {
    service_.value = ValueOf(size);
    memset(data(), kUntouched, kBytes);
    const absl::StatusOr<EchoReply> reply = Send(bytes()).Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_TRUE(reply->landed().empty());
    EXPECT_EQ(data()[0], kUntouched);
    const absl::StatusOr<absl::Span<uint8_t>> value = reply->Land((*reply)->getData());
    ASSERT_THAT(value.status(), IsOk());
    EXPECT_EQ(value->data(), data());
    EXPECT_EQ(Text(*value), service_.value);
  }
}

TEST_P(ReceiveIntoTest, WhatDoesNotFitIsReceivedAsAlways) {
  service_.value = ValueOf(1 << 20);
  const absl::StatusOr<EchoReply> reply = Send(bytes().first((1 << 20) - 8)).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_TRUE(reply->landed().empty());
  const capnp::Data::Reader data_read = (*reply)->getData();
  EXPECT_TRUE(Text({data_read.begin(), data_read.size()}) == service_.value);
  const absl::Status late = reply->Land(data_read).status();
  EXPECT_THAT(late, HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(std::string(late.message()), HasSubstr("1048576 bytes, the memory of ReceiveInto() 1048568"));
  EXPECT_TRUE(std::all_of(bytes().begin(), bytes().end(), [](uint8_t byte) { return byte == kUntouched; }));
}

TEST_P(ReceiveIntoTest, WithoutItNothingLands) {
  service_.value = ValueOf(1 << 20);
  const absl::StatusOr<EchoReply> reply = probe::ProbeStub(channel_).Echo().Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_TRUE(reply->landed().empty());
  EXPECT_THAT(reply->Land((*reply)->getData()).status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_P(ReceiveIntoTest, CallsOneAfterTheOtherMayUseTheSameMemory) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    service_.value = ValueOf(seed % 4 == 3 ? 100 : 100'000 + seed, seed);
    const absl::StatusOr<EchoReply> reply = Send(bytes()).Wait();
    ASSERT_THAT(reply.status(), IsOk());
    const absl::StatusOr<absl::Span<uint8_t>> value = reply->Land((*reply)->getData());
    ASSERT_THAT(value.status(), IsOk());
    EXPECT_TRUE(Text(*value) == service_.value) << seed;
  }
}

TEST_P(ReceiveIntoTest, CallsAtOnceLandEachInItsPartOfTheMemory) {
  constexpr size_t kPart = 64 << 10;
  service_.value = ValueOf(kPart);
  std::vector<PendingCall<probe::Probe::EchoResults>> calls;
  for (size_t i = 0; i < kBytes / kPart; ++i) calls.push_back(Send(bytes().subspan(i * kPart, kPart)));
  for (size_t i = 0; i < calls.size(); ++i) {
    const absl::StatusOr<EchoReply> reply = calls[i].Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ((*reply)->getData().begin(), data() + i * kPart);
    EXPECT_TRUE(Text(bytes().subspan(i * kPart, kPart)) == service_.value) << i;
  }
}

TEST_P(ReceiveIntoTest, ABufferOfTheChannelServesToo) {
  service_.value = ValueOf(1 << 20);
  const absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(1 << 20);
  ASSERT_THAT(buffer.status(), IsOk());
  const absl::StatusOr<EchoReply> reply = Send({buffer->data(), buffer->size_bytes()}).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getData().begin(), buffer->data());
  EXPECT_TRUE(Text({buffer->data(), buffer->size_bytes()}) == service_.value);
}

Detached Await(PendingCall<probe::Probe::EchoResults> call, Box<absl::StatusOr<EchoReply>>& replies) {
  replies.Put(co_await call);
}

TEST_P(ReceiveIntoTest, ACallbackOrACoroutineTakesTheReplyAsWell) {
  service_.value = ValueOf(1 << 20);
  Box<absl::StatusOr<EchoReply>> replies;
  Send(bytes()).Then([&](absl::StatusOr<EchoReply> reply) { replies.Put(std::move(reply)); });
  {
    const absl::StatusOr<EchoReply> reply = replies.Take();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ((*reply)->getData().begin(), data());
  }
  Await(Send(bytes()), replies);
  const absl::StatusOr<EchoReply> reply = replies.Take();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getData().begin(), data());
  EXPECT_TRUE(Text(bytes().first(1 << 20)) == service_.value);
}

TEST_P(ReceiveIntoTest, AnErrorDoesNotLand) {
  service_.error = absl::NotFoundError(std::string(100'000, 'e'));
  EXPECT_THAT(Send(bytes()).Wait().status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(data()[0], kUntouched);
}

TEST_P(ReceiveIntoTest, MemoryThatCannotBeReadIntoIsRefusedWithTheReason) {
  service_.value = ValueOf(8192);
  const auto refused = [&](absl::Span<uint8_t> into) {
    absl::Status status = Send(into).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_FALSE(WasSent(status));
    return std::string(status.message());
  };
  EXPECT_THAT(refused({}), HasSubstr("was given 0 bytes"));
  EXPECT_THAT(refused(bytes().first(7)), HasSubstr("was given 7 bytes"));
  EXPECT_THAT(refused(bytes().subspan(4, 8192)), HasSubstr("does not begin at a multiple of 8"));
  std::vector<uint64_t> other(1024);
  const absl::Span<uint8_t> not_registered(reinterpret_cast<uint8_t*>(other.data()), 8192);
  EXPECT_THAT(refused(not_registered), HasSubstr("not registered as a whole with the device"));
  // It is registered, but with another device: that of another runtime.
  const auto elsewhere = *Runtime::Create(TestScheme(), {});
  absl::StatusOr<RegisteredMemory> theirs =
      RegisteredMemory::Register(elsewhere, {.address = not_registered.data(), .length_bytes = 8192});
  ASSERT_THAT(theirs.status(), IsOk());
  EXPECT_THAT(refused(not_registered), HasSubstr("not registered as a whole with the device"));
  EXPECT_THAT(memory_->Release(), IsOk());
  EXPECT_THAT(refused(bytes()), HasSubstr("not registered as a whole with the device"));
}

TEST_P(ReceiveIntoTest, TheSecondOneTakesThePlaceOfTheFirst) {
  service_.value = ValueOf(8192);
  auto call = probe::ProbeStub(channel_).Echo();
  call.ReceiveInto(bytes().first(8192));
  call.ReceiveInto(bytes().subspan(8192));
  const absl::StatusOr<EchoReply> reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getData().begin(), data() + 8192);
  EXPECT_EQ(data()[0], kUntouched);
}

// While it is, the call may be sent again over another connection.
TEST_P(ReceiveIntoTest, ItsMemoryStaysRegisteredUntilTheCallHasEnded) {
  DeferredCall deferred;
  Box<bool> came;
  service_.on_echo = [&](ServerContext& context) {
    deferred = context.Defer();
    came.Put(true);
  };
  const auto release_on_poller = [&] {
    Box<absl::Status> released;
    runtime_->poller(0).Run([&] { released.Put(memory_->Release()); });
    return released.Take();
  };
  {
    const auto pending = Send(bytes());
    came.Take();
    EXPECT_THAT(release_on_poller(), HasCode(absl::StatusCode::kFailedPrecondition));
  }
  // It was destroyed, and that has waited for its end.
  EXPECT_THAT(release_on_poller(), IsOk());
  deferred.Finish();
}

INSTANTIATE_TEST_SUITE_P(Over, ReceiveIntoTest,
                         ::testing::ValuesIn(TestScheme() == "tcp"
                                                 ? std::vector<Over>{Over::kTestFabric, Over::kDevice,
                                                                     Over::kIwarpDevice}
                                                 : std::vector<Over>{Over::kTestFabric}),
                         [](const auto& over) {
                           return over.param == Over::kDevice       ? "Device"
                                  : over.param == Over::kTestFabric ? "TestFabric"
                                                                    : "Iwarp";
                         });

// ---- Memory that the processor does not see. Each access of it by this process is a SIGSEGV.

class HiddenReceiveIntoTest : public ReceiveIntoTest {};

TEST_P(HiddenReceiveIntoTest, AnAttachedValueLandsThere) {
  const HiddenMemory hidden(kBytes);
  const absl::StatusOr<RegisteredMemory> registered = channel_->Register(hidden.range());
  ASSERT_THAT(registered.status(), IsOk());
  service_.value = ValueOf(1 << 20);
  const absl::StatusOr<EchoReply> reply = Send(registered->bytes()).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(reply->landed().data(), hidden.data());
  EXPECT_EQ(reply->landed().size(), service_.value.size());
  EXPECT_TRUE(hidden.Contents(0, service_.value.size()) == service_.value);
  EXPECT_THAT(reply->Read([](probe::Probe::EchoResults::Reader results) { (void)results.getData(); }),
              HasCode(absl::StatusCode::kDataLoss));
}

TEST_P(HiddenReceiveIntoTest, WhatDoesNotLandIsNotCopiedThere) {
  const HiddenMemory hidden(kBytes);
  const absl::StatusOr<RegisteredMemory> registered = channel_->Register(hidden.range());
  ASSERT_THAT(registered.status(), IsOk());
  for (const size_t size : {size_t{100}, size_t{1} << 20}) {
    service_.value = ValueOf(size);
    const absl::StatusOr<EchoReply> reply = Send(registered->bytes().first(8192)).Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_TRUE(reply->landed().empty());
    const capnp::Data::Reader value = (*reply)->getData();
    EXPECT_TRUE(Text({value.begin(), value.size()}) == service_.value);
    const absl::Status copied = reply->Land(value).status();
    EXPECT_THAT(copied, HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(std::string(copied.message()), HasSubstr("cpu_visible"));
  }
}

INSTANTIATE_TEST_SUITE_P(Over, HiddenReceiveIntoTest,
                         ::testing::ValuesIn(TestScheme() == "tcp" ? std::vector<Over>{Over::kDevice}
                                                                   : std::vector<Over>{}));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HiddenReceiveIntoTest);

// ---- Its end, while READs are outstanding that the server does not answer.

class HeldReadsTest : public ::testing::Test {
 protected:
  HeldReadsTest() {
    EXPECT_THAT(server_.AddService(&service_), IsOk());
    const absl::StatusOr<std::string> listening = server_.Listen(TestUri());
    EXPECT_THAT(listening.status(), IsOk());
    channel_ = *Channel::Create(*listening, {.runtime = runtime_});
    EXPECT_TRUE(Until([&] { return channel_->state() == ChannelState::kReady; }));
    memory_.emplace(*channel_->Register({.address = data(), .length_bytes = kBytes}));
    service_.value = ValueOf(kBytes);
  }
  ~HeldReadsTest() override {
    // Also after an assertion has failed: the memory waits for its call.
    fabric_->counts(0).hold_reads = false;
    fabric_->KeepBackFlushes(false);
    EXPECT_TRUE(!call_.has_value() || Until([&] { return status_.has_value(); }));
    call_.reset();
    memory_.reset();
    channel_.reset();
    EXPECT_TRUE(Until([&] { return runtime_.use_count() == 1; }));
  }

  uint8_t* data() { return reinterpret_cast<uint8_t*>(own_.data()); }
  bool Until(const std::function<bool()>& condition) {
    return Eventually([&] {
      if (condition()) return true;
      runtime_->poller(0).PollOnce();
      return false;
    });
  }
  void Turns() {
    for (int i = 0; i < 100; ++i) runtime_->poller(0).PollOnce();
  }

  // A call whose response is being READ, with its status once it has ended.
  void Begin(absl::Duration timeout) {
    fabric_->counts(0).hold_reads = true;
    auto call = probe::ProbeStub(channel_).Echo({.timeout = timeout});
    call.ReceiveInto({data(), kBytes});
    call_.emplace(call.Send());
    call_->Then([this](const absl::StatusOr<EchoReply>& reply) {
      status_ = reply.status();
      outstanding_at_end_ = outstanding();
      at_end_.assign(data(), data() + kBytes);
      // The memory is free since before this.
      EXPECT_THAT(memory_->Release(), IsOk());
    });
    ASSERT_TRUE(Until([&] { return fabric_->counts(0).reads_held > 0; }));
    Turns();
    ASSERT_FALSE(status_.has_value());
  }
  // READs that were posted, and whose completion the connection has not seen.
  int64_t outstanding() { return fabric_->counts(0).reads_outstanding + fabric_->counts(0).reads_held; }
  void ExpectMemoryIsFree() {
    EXPECT_EQ(outstanding_at_end_, 0);
    Turns();
    EXPECT_EQ(memcmp(at_end_.data(), data(), kBytes), 0) << "written to after the end of the call";
  }

  transport::TestClock clock_;
  std::shared_ptr<transport::SpyFabric> fabric_ = std::make_shared<transport::SpyFabric>(NewTestFabric());
  std::shared_ptr<transport::Runtime> runtime_ =
      *transport::Runtime::CreateOn(fabric_, {}, /*start_threads=*/false, clock_);
  std::vector<uint64_t> own_ = std::vector<uint64_t>(kBytes / 8);
  ValueService service_;
  Server server_;
  std::shared_ptr<Channel> channel_;
  std::optional<RegisteredMemory> memory_;
  std::optional<PendingCall<probe::Probe::EchoResults>> call_;
  std::optional<absl::Status> status_;
  int64_t outstanding_at_end_ = -1;
  std::vector<uint8_t> at_end_;
};

TEST_F(HeldReadsTest, TheDeadlineEndsTheCallWhenTheMemoryIsFree) {
  ASSERT_NO_FATAL_FAILURE(Begin(absl::Seconds(2)));
  clock_.Advance(absl::Seconds(3));
  Turns();
  EXPECT_FALSE(status_.has_value());
  fabric_->counts(0).hold_reads = false;
  ASSERT_TRUE(Until([&] { return status_.has_value(); }));
  EXPECT_THAT(*status_, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(WasSent(*status_));
  ExpectMemoryIsFree();
}

TEST_F(HeldReadsTest, ACancelEndsTheCallWhenTheMemoryIsFree) {
  ASSERT_NO_FATAL_FAILURE(Begin(kLong));
  call_->Cancel();
  Turns();
  EXPECT_FALSE(status_.has_value());
  fabric_->counts(0).hold_reads = false;
  ASSERT_TRUE(Until([&] { return status_.has_value(); }));
  EXPECT_THAT(*status_, HasCode(absl::StatusCode::kCancelled));
  ExpectMemoryIsFree();
}

TEST_F(HeldReadsTest, ChannelCloseEndsTheCallWhenTheMemoryIsFree) {
  ASSERT_NO_FATAL_FAILURE(Begin(kLong));
  fabric_->KeepBackFlushes(true);
  channel_->Close();
  Turns();
  EXPECT_FALSE(status_.has_value());
  fabric_->counts(0).hold_reads = false;
  fabric_->KeepBackFlushes(false);
  ASSERT_TRUE(Until([&] { return status_.has_value(); }));
  EXPECT_THAT(*status_, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(std::string(status_->message()), HasSubstr("the channel was closed"));
  ExpectMemoryIsFree();
}

TEST_F(HeldReadsTest, ADestroyedChannelKeepsTheCall) {
  ASSERT_NO_FATAL_FAILURE(Begin(kLong));
  channel_.reset();
  Turns();
  EXPECT_FALSE(status_.has_value());
  fabric_->counts(0).hold_reads = false;
  ASSERT_TRUE(Until([&] { return status_.has_value(); }));
  EXPECT_THAT(*status_, IsOk());
  EXPECT_TRUE(std::string(at_end_.begin(), at_end_.end()) == service_.value);
  ExpectMemoryIsFree();
}

// ---- A thread that waits.

// Another call that waits gives up a little after its deadline, see BusyClientTest.
TEST(ReceiveIntoWaitTest, WaitReturnsWhenThePollerIsFreeHoweverLateThatIs) {
  ValueService service;
  Server server;
  ASSERT_THAT(server.AddService(&service), IsOk());
  const absl::StatusOr<std::string> listening = server.Listen(TestUri());
  ASSERT_THAT(listening.status(), IsOk());
  const std::shared_ptr<Runtime> runtime = *Runtime::Create(TestScheme(), {.pollers = 1});
  const std::shared_ptr<Channel> channel = *Channel::Connect(*listening, {.runtime = runtime});
  const absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(4096);
  ASSERT_THAT(buffer.status(), IsOk());
  std::atomic<bool> is_free{false};
  absl::Notification holds, sent;
  probe::ProbeStub(channel).Act().Send().Then([&](const auto&) {
    holds.Notify();
    sent.WaitForNotification();  // The deadline counts from Send().
    // Beyond the deadline of the call and what Wait() adds to it.
    const absl::Time until = absl::Now() + 10 * kExpires;
    Eventually([&] { return absl::Now() > until; });
    is_free = true;
  });
  holds.WaitForNotification();
  auto call = probe::ProbeStub(channel).Echo({.timeout = kExpires});
  call.ReceiveInto({buffer->data(), buffer->size_bytes()});
  auto pending = call.Send();
  sent.Notify();
  EXPECT_THAT(pending.Wait().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(is_free) << "the memory may be in use yet";
}

}  // namespace
}  // namespace hawser
