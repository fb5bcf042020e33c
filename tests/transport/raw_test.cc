// Raw queue pairs: what the two ends do for each other, and what a wrong client can do to a server.

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/measure/verbs/raw_client.h"
#include "hawser/measure/verbs/raw_plan.h"
#include "hawser/measure/verbs/raw_server.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"
#include "tests/testing/test_fabric.h"

namespace hawser::transport {
namespace {

using Kind = RawPlan::Kind;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(60);
// A time that the test waits for, where nothing has to happen before it.
constexpr absl::Duration kExpires = absl::Milliseconds(100);
constexpr RawToken kToken = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
// What a fabric in software lets a peer READ of the same memory.
constexpr int64_t kReadsMax = 4;

std::shared_ptr<Runtime> NewRuntime() {
  return *Runtime::CreateOn(NewTestFabric(), {.pollers = 1}, /*start_threads=*/false);
}

// A server that serves on a thread of its own.
class Served {
 public:
  explicit Served(PollingMode polling = PollingMode::kAdaptive, absl::Duration accept_time = kLong,
                  PeerHost host = PeerHost(TestAddress()))
      : server_(*RawServer::Listen(NewRuntime(), {.address = TestAddress(),
                                                  .host = host,
                                                  .token = kToken,
                                                  .polling = polling,
                                                  .accept_time = accept_time})),
        thread_([this] {
          status_ = server_->Serve();
          ended_.Notify();
        }) {}
  ~Served() {
    server_->Stop();
    thread_.join();
  }

  SocketAddress address() const { return TestAddress(server_->port()); }
  absl::StatusOr<std::unique_ptr<RawClient>> Connect(const RawPlan& plan,
                                                     RawClient::Options options = {.token = kToken,
                                                                                   .patience = kLong}) const {
    return RawClient::Connect(NewRuntime(), address(), plan, options);
  }
  void Stop() { server_->Stop(); }
  absl::Status WaitForEnd() {
    ended_.WaitForNotification();
    return status_;
  }

 private:
  const std::unique_ptr<RawServer> server_;
  absl::Status status_;
  absl::Notification ended_;
  std::thread thread_;
};

// A client that does what no RawClient does.
class WrongClient final : private fabric::ConnectionHandler {
 public:
  static constexpr size_t kBytes = 4096;

  explicit WrongClient(const Served& served, absl::string_view private_data)
      : fabric_(NewTestFabric()), memory_(kBytes) {
    region_ = *fabric_->Register(memory_.data(), memory_.size());
    queue_ = *fabric_->CreateCompletionQueue(256);
    queue_pair_ = *fabric_->CreateQueuePair(*queue_, {}, *this);
    const fabric::ReceiveWorkRequest receive = {.wr_id = 0, .buffer = Range(kBytes)};
    EXPECT_THAT(queue_pair_->PostReceive({&receive, 1}), IsOk());
    EXPECT_THAT(queue_pair_->Connect(served.address(), private_data), IsOk());
    while (!established_ && !ended_) Turn();
  }
  ~WrongClient() override { queue_pair_->Disconnect(); }

  bool established() const { return established_; }
  const std::string& why() const { return why_; }
  fabric::QueuePair& queue_pair() { return *queue_pair_; }
  fabric::Sge Range(size_t bytes) {
    return {.address = memory_.data(), .length = static_cast<uint32_t>(bytes), .lkey = region_->lkey()};
  }
  void Send(size_t bytes) {
    const fabric::Sge range = Range(bytes);
    const fabric::SendWorkRequest send = {.signaled = true, .sges = {&range, 1}};
    EXPECT_THAT(queue_pair_->PostSend({&send, 1}), IsOk());
  }
  template <typename Message>
  void SendMessage(const Message& message) {
    std::copy_n(reinterpret_cast<const uint8_t*>(&message), sizeof(message), memory_.data());
    Send(sizeof(message));
  }
  void WaitForEnd() {
    while (!ended_) Turn();
  }

 private:
  void Turn() {
    fabric::Completion completions[16];
    for (size_t i = queue_->Poll(completions); i > 0; --i) {
      if (completions[i - 1].status != fabric::CompletionStatus::kSuccess) ended_ = true;
    }
  }
  void OnEstablished(absl::string_view) override { established_ = true; }
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override {
    why_ = private_data.empty() ? std::string(why.message()) : std::string(private_data);
    ended_ = true;
  }
  void OnDisconnected(const absl::Status&) override { ended_ = true; }

  std::shared_ptr<fabric::Fabric> fabric_;
  std::vector<uint8_t> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::unique_ptr<fabric::CompletionQueue> queue_;
  bool established_ = false, ended_ = false;
  std::string why_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
};

TEST(RawTest, ExchangesInEachDirectionInEachWayToWait) {
  for (const PollingMode polling : {PollingMode::kAdaptive, PollingMode::kSpin, PollingMode::kSleep}) {
    for (const auto& [bytes, answer_bytes] :
         {std::pair<uint64_t, uint64_t>{32, 32}, {100'000, 1}, {1, 70'000}}) {
      Served served(polling);
      const auto client = served.Connect({.bytes = bytes, .answer_bytes = answer_bytes},
                                         {.token = kToken, .polling = polling, .patience = kLong});
      ASSERT_THAT(client, IsOk());
      for (int i = 0; i < 20; ++i) ASSERT_THAT((*client)->ExchangeOne(), IsOk());
    }
  }
}

TEST(RawTest, AsManyExchangesAsItIsToldWithAnyNumberInFlight) {
  for (const uint32_t depth : {1u, 7u, RawPlan::kDepthMax}) {
    Served served;
    const auto client = served.Connect({.depth = depth, .bytes = 100, .answer_bytes = 50});
    ASSERT_THAT(client, IsOk());
    for (const int64_t count : {1, 5, 2000}) {
      const auto ran = (*client)->Exchange({.count = count});
      ASSERT_THAT(ran, IsOk());
      EXPECT_EQ(ran->count, count);
      EXPECT_GT(ran->time, absl::ZeroDuration());
    }
  }
}

TEST(RawTest, ARunEndsAfterItsTime) {
  Served served;
  const auto client = served.Connect({.depth = 4, .bytes = 100, .answer_bytes = 100});
  ASSERT_THAT(client, IsOk());
  const auto ran = (*client)->Exchange({.time = absl::Milliseconds(5)});
  ASSERT_THAT(ran, IsOk());
  EXPECT_GE(ran->time, absl::Milliseconds(5));
  EXPECT_GE(ran->count, 1);
}

TEST(RawTest, EitherEndReadsTheMemoryOfTheOther) {
  for (const Kind kind : {Kind::kClientReads, Kind::kServerReads}) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{100'000}, RawPlan::kBytesMax}) {
      Served served;
      const auto client =
          served.Connect({.kind = kind, .depth = RawPlan::DepthFor(bytes, 2), .bytes = bytes});
      ASSERT_THAT(client, IsOk());
      for (const int64_t count : {int64_t{1}, kReadsMax - 1}) {
        const auto ran = (*client)->Operate({.count = count});
        ASSERT_THAT(ran, IsOk());
        EXPECT_EQ(ran->count, count);
      }
      const auto timed = (*client)->Operate({.count = 1, .time = absl::ZeroDuration()});
      EXPECT_TRUE(!timed.ok() || timed->count == 1);  // A fabric in software may refuse more of them.
    }
  }
}

TEST(RawTest, TheClientOperatesOnMemoryOfTheServer) {
  std::vector<std::pair<Kind, uint64_t>> plans = {
      {Kind::kClientReads, 100}, {Kind::kClientWrites, 1}, {Kind::kClientWrites, RawPlan::kBytesMax}};
  if (NewTestFabric()->atomics() != fabric::Atomics::kNone) plans.emplace_back(Kind::kClientFetchAdds, 8);
  for (const auto& [kind, bytes] : plans) {
    Served served;
    const auto client = served.Connect({.kind = kind, .depth = RawPlan::DepthFor(bytes, 2), .bytes = bytes});
    ASSERT_THAT(client, IsOk());
    EXPECT_THAT((*client)->OperateOne(), IsOk());
    const auto ran = (*client)->Operate({.count = kReadsMax - 1});
    ASSERT_THAT(ran, IsOk());
    EXPECT_EQ(ran->count, kReadsMax - 1);
  }
}

TEST(RawTest, TheEndOfTheClientEndsTheServer) {
  Served served;
  ASSERT_THAT(served.Connect({})->get()->ExchangeOne(), IsOk());
  EXPECT_THAT(served.WaitForEnd(), Not(IsOk()));
}

TEST(RawTest, TheEndOfTheServerEndsTheClient) {
  auto served = std::make_unique<Served>();
  const auto client = served->Connect({});
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT((*client)->ExchangeOne(), IsOk());
  served.reset();
  EXPECT_THAT((*client)->ExchangeOne(), Not(IsOk()));
  EXPECT_THAT((*client)->Exchange({.count = 1}), Not(IsOk()));
}

TEST(RawTest, AServerThatIsSilentIsGivenUp) {
  const auto runtime = NewRuntime();
  const auto silent = *RawServer::Listen(
      runtime, {.address = TestAddress(), .host = PeerHost(TestAddress()), .token = kToken});
  const auto client = RawClient::Connect(NewRuntime(), TestAddress(silent->port()), {},
                                         {.token = kToken, .patience = kExpires});
  EXPECT_THAT(client.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST(RawTest, AClientThatNeverComesIsGivenUp) {
  for (const PollingMode polling : {PollingMode::kAdaptive, PollingMode::kSpin, PollingMode::kSleep}) {
    Served served(polling, kExpires);
    EXPECT_THAT(served.WaitForEnd(), HasCode(absl::StatusCode::kDeadlineExceeded));
    EXPECT_THAT(served.Connect({}), Not(IsOk()));
  }
}

TEST(RawTest, StrangersDoNotProlongTheWait) {
  Served served(PollingMode::kAdaptive, kExpires);
  while (WrongClient(served, "hello").why().find("refused") == std::string::npos) {
    if (served.Connect({}, {.patience = kLong}).status().code() != absl::StatusCode::kPermissionDenied) break;
  }
  EXPECT_THAT(served.WaitForEnd(), HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST(RawTest, OnlyTheTokenIsLetInAndOnlyOnce) {
  Served served;
  for (size_t i = 0; i < kToken.size(); ++i) {
    RawToken wrong = kToken;
    wrong[i] ^= 1;
    EXPECT_THAT(served.Connect({}, {.token = wrong, .patience = kLong}).status(),
                HasCode(absl::StatusCode::kPermissionDenied));
  }
  for (const absl::string_view text :
       {"", "x", "sixteen letters.", "forty letters that are no token at all.."}) {
    EXPECT_FALSE(WrongClient(served, text).established());
  }
  const auto client = served.Connect({});
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(served.Connect({}), Not(IsOk()));
  EXPECT_THAT((*client)->ExchangeOne(), IsOk());
}

TEST(RawTest, AnotherHostIsNotLetIn) {
  Served served(PollingMode::kAdaptive, kLong, PeerHost(*ParseNumericHost("192.0.2.1")));
  EXPECT_THAT(served.Connect({}).status(), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST(RawTest, APlanBeyondTheLimitsIsRefusedWithAReason) {
  const std::pair<RawPlan, const char*> kWrong[] = {
      {{.kind = static_cast<Kind>(0)}, "knows no kind 0"},
      {{.kind = static_cast<Kind>(9)}, "knows no kind 9"},
      {{.kind = Kind::kClientFetchAdds, .bytes = 16}, "a fetch-and-add of 16 bytes"},
      {{.depth = 0}, "depth 0"},
      {{.depth = RawPlan::kDepthMax + 1}, "depth 257"},
      {{.bytes = 0}, "bytes 0"},
      {{.answer_bytes = 0}, "bytes 0"},
      {{.bytes = RawPlan::kBytesMax + 1}, "bytes 8388609"},
      {{.answer_bytes = ~uint64_t{0}}, "bytes 18446744073709551615"},
      {{.depth = 3, .bytes = RawPlan::kBytesMax}, "bytes in flight"},
      {{.depth = RawPlan::kDepthMax, .answer_bytes = 1 << 20}, "bytes in flight"},
  };
  Served served;
  for (const auto& [plan, why] : kWrong) {
    EXPECT_THAT(served.Connect(plan).status(), HasCode(absl::StatusCode::kInvalidArgument));
    const WrongClient wrong(served, EncodeRawGreeting(kToken, plan));
    EXPECT_FALSE(wrong.established());
    EXPECT_THAT(wrong.why(), HasSubstr(why));
  }
  EXPECT_THAT(served.Connect({}), IsOk());
}

TEST(RawTest, TheDepthFollowsTheSize) {
  EXPECT_EQ(RawPlan::DepthFor(1, 0), 1);
  EXPECT_EQ(RawPlan::DepthFor(1, 4096), RawPlan::kDepthMax);
  EXPECT_EQ(RawPlan::DepthFor(1 << 20, 64), 16);
  EXPECT_EQ(RawPlan::DepthFor(RawPlan::kBytesMax, 64), 2);
  EXPECT_EQ(RawPlan::DepthFor(uint64_t{1} << 40, 64), 1);
}

TEST(RawTest, AMessageOfAnotherSizeEndsTheConnection) {
  for (const size_t bytes : {1, 99, 101, 4000}) {
    Served served;
    WrongClient wrong(served, EncodeRawGreeting(kToken, {.bytes = 100, .answer_bytes = 100}));
    ASSERT_TRUE(wrong.established()) << wrong.why();
    wrong.Send(bytes);
    EXPECT_THAT(served.WaitForEnd(), Not(IsOk()));
  }
}

TEST(RawTest, MoreInFlightThanWasSaidEndsTheConnectionAtMost) {
  Served served;
  WrongClient wrong(served, EncodeRawGreeting(kToken, {.depth = 1, .bytes = 100, .answer_bytes = 1}));
  ASSERT_TRUE(wrong.established()) << wrong.why();
  // It has one receive, so the third answer finds none in any case.
  for (int i = 0; i < 30; ++i) wrong.Send(100);
  wrong.WaitForEnd();
  EXPECT_THAT(served.WaitForEnd(), Not(IsOk()));
}

TEST(RawTest, AReadOfWhatWasNotLentEndsTheConnection) {
  Served served;
  WrongClient wrong(served, EncodeRawGreeting(kToken, {.kind = Kind::kServerReads, .bytes = 100}));
  ASSERT_TRUE(wrong.established()) << wrong.why();
  wrong.SendMessage(RawCommand{.address = 4096, .rkey = 12345, .reads_max = 1000, .time_ns = 1});
  wrong.WaitForEnd();
  EXPECT_THAT(served.WaitForEnd(), Not(IsOk()));
}

TEST(RawTest, ARunThatIsNoneEndsTheConnection) {
  for (const auto& [reads_max, time_ns] : {std::pair<int64_t, int64_t>{0, 1}, {-1, 1}, {1, -1}}) {
    Served served;
    WrongClient wrong(served, EncodeRawGreeting(kToken, {.kind = Kind::kServerReads, .bytes = 100}));
    ASSERT_TRUE(wrong.established()) << wrong.why();
    wrong.SendMessage(RawCommand{.reads_max = reads_max, .time_ns = time_ns});
    EXPECT_THAT(served.WaitForEnd(), Not(IsOk()));
  }
}

TEST(RawTest, StopEndsAServerInWhateverItDoes) {
  for (const PollingMode polling : {PollingMode::kAdaptive, PollingMode::kSpin, PollingMode::kSleep}) {
    Served waiting(polling), idle(polling), lending(polling), reading(polling);
    const auto exchanging = idle.Connect({});
    ASSERT_THAT(exchanging, IsOk());
    const auto borrower = lending.Connect({.kind = Kind::kClientReads, .bytes = 100});
    ASSERT_THAT(borrower, IsOk());
    const auto lender = reading.Connect({.kind = Kind::kServerReads, .bytes = 100});
    ASSERT_THAT(lender, IsOk());
    for (Served* each : {&waiting, &idle, &lending, &reading}) {
      each->Stop();
      EXPECT_THAT(each->WaitForEnd(), HasCode(absl::StatusCode::kCancelled));
    }
  }
}

TEST(RawTest, StopEndsARunOfReads) {
  Served served;
  // Nothing answers its READs: this client does not poll.
  WrongClient stalled(served, EncodeRawGreeting(kToken, {.kind = Kind::kServerReads, .bytes = 4096}));
  ASSERT_TRUE(stalled.established()) << stalled.why();
  const auto granted = stalled.queue_pair().Grant(stalled.Range(4096), fabric::QueuePair::Access::kRead);
  ASSERT_THAT(granted, IsOk());
  stalled.SendMessage(RawCommand{.address = granted->address,
                                 .rkey = granted->rkey,
                                 .reads_max = int64_t{1} << 60,
                                 .time_ns = int64_t{1} << 60});
  served.Stop();
  EXPECT_THAT(served.WaitForEnd(), Not(IsOk()));
}

}  // namespace
}  // namespace hawser::transport
