// Calls that change from one connection of a channel to another, which is on another poller.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "hawser/rpc/status.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/connections.h"
#include "tests/rpc/controlled_connections.h"
#include "tests/rpc/fake_server.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two pollers that only the test drives, on a clock that only the test moves.
struct TwoPollers {
  transport::TestClock clock;
  std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(NewTestFabric(), {.pollers = 2}, /*start_threads=*/false, clock);
};

// The first connection, and each second one after it, is on the first poller; the others are on the second
// one.
class TwoPollersTest : public FakeServerTest<TwoPollers> {
 protected:
  using Call = PendingCall<probe::Probe::ActResults>;

  void Connect(int connections) {
    ChannelOptions options;
    options.connections = connections;
    options.connection.slots = 1;
    options.runtime = clients_.runtime;
    channel_ = *Channel::Create(server_.uri, std::move(options));
    ASSERT_TRUE(Until([&] { return ReadyConnections(*channel_) == static_cast<size_t>(connections); }));
    for (size_t i = 0; i < static_cast<size_t>(connections); ++i) {
      ASSERT_EQ(&core(i)->poller(), &poller(i % 2));
    }
  }
  void TearDown() override {
    channel_.reset();
    buffer_ = Buffer();
    EXPECT_TRUE(Until([&] { return clients_.runtime.use_count() == 1; }));
  }

  transport::Poller& poller(size_t number) { return clients_.runtime->poller(number); }
  // Drives both pollers, or one of them. False: `condition` did not come true.
  bool Until(const std::function<bool()>& condition) { return Drive({0, 1}, condition); }
  bool UntilOn(size_t number, const std::function<bool()>& condition) { return Drive({number}, condition); }

  // The status of `call` when it has ended.
  std::shared_ptr<std::optional<absl::Status>> StatusOf(Call& call) {
    auto status = std::make_shared<std::optional<absl::Status>>();
    call.Then([status](const auto& reply) { *status = reply.status(); });
    return status;
  }
  absl::Status End(Call call) {
    const auto status = StatusOf(call);
    return Until([&] { return status->has_value(); }) ? **status : absl::UnknownError("it has not ended");
  }

  absl::Status Cancelled(Call& call) {
    Call mine = std::move(call);
    mine.Cancel();
    return End(std::move(mine));
  }

  // Sends one call over each connection, in turn, and waits for its request. Then another one over each:
  // these wait for the slots. Returns the numbers of the connections at the server.
  std::vector<int> FillSlots(size_t connections, std::vector<Call>& calls) {
    std::vector<int> numbers;
    server_.Run([&] { Hold(); });
    const int before = server_.requests;
    for (size_t i = 0; i < 2 * connections; ++i) {
      calls.push_back(i == connections && !into_.empty() ? SendActInto()
                                                         : SendAct(channel_, 1, {.timeout = kLong}));
      const int sent = static_cast<int>(std::min(i + 1, connections));
      EXPECT_TRUE(Until([&] { return server_.requests == before + sent; }));
      if (i < connections) numbers.push_back(LastNumber());
    }
    EXPECT_EQ(std::set<int>(numbers.begin(), numbers.end()).size(), connections);
    return numbers;
  }

  Call SendActInto() {
    auto call = probe::ProbeStub(channel_).Act({.timeout = into_timeout_});
    call.ReceiveInto(into_);
    return call.Send();
  }
  // The second connection carries the third of four calls, which has ReceiveInto().
  void CarryWithMemory(std::vector<Call>& calls) {
    ASSERT_NO_FATAL_FAILURE(Connect(2));
    absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(64 << 10);
    ASSERT_THAT(buffer.status(), IsOk());
    buffer_ = *std::move(buffer);
    into_ = {buffer_.data(), buffer_.size_bytes()};
    const std::vector<int> numbers = FillSlots(2, calls);
    Cut(numbers[0]);
    const bool carried = UntilOn(0, [&] { return core(1)->calls_in_use() == 3; });
    if (!carried) {
      for (Call& call : calls) call.Forget();  // Its destructor would wait for a poller that nothing drives.
    }
    ASSERT_TRUE(carried);
  }
  // The status of that call, once its carrier's poller runs. Before, there is none.
  absl::Status EndWithCarrier(Call& call) {
    const auto status = StatusOf(call);
    for (int i = 0; i < 100; ++i) poller(0).PollOnce();
    EXPECT_FALSE(status->has_value()) << "another poller may be writing to its memory";
    return Until([&] { return status->has_value(); }) ? **status : absl::UnknownError("it has not ended");
  }

  // Makes two connections and calls. The first two have ended, and the second connection has no call any
  // more. The third one waited for the slot of the first connection, which was lost. `what` runs on the
  // second poller, while the second connection has the third call but has not begun to carry it.
  void BeforeItIsCarried(std::vector<Call>& calls, absl::Duration timeout,
                         const std::function<void()>& what) {
    ASSERT_NO_FATAL_FAILURE(Connect(2));
    server_.Run([&] { Hold(); });
    for (int i = 0; i < 3; ++i) {
      calls.push_back(SendAct(channel_, 1, {.timeout = i == 2 ? timeout : kLong}));
      ASSERT_TRUE(Until([&] { return server_.requests == std::min(i + 1, 2); }));
    }
    server_.Run([&] {
      server_.StopListening();
      held_[1].first->Answer(held_[1].second);
    });
    EXPECT_THAT(End(std::move(calls[1])), IsOk());
    ASSERT_TRUE(Until([&] { return core(1)->calls_in_use() == 0; }));
    server_.Run([&] {
      held_[0].first->connection->Close();
      held_.clear();
    });
    bool carries = false;
    poller(1).Run([&] {
      std::thread other([&] { carries = UntilOn(0, [&] { return core(1)->calls_in_use() == 1; }); });
      other.join();
      what();
    });
    ASSERT_TRUE(carries);
    // Before the first poller looks at its timers.
    ASSERT_TRUE(UntilOn(1, [&] { return core(1)->calls_in_use() == 0; }));
    EXPECT_THAT(End(std::move(calls[0])), HasCode(absl::StatusCode::kUnavailable));
  }

  // Another thread runs `post`. What it posts to the second poller does not run before a thread takes that
  // poller for something else: more items than one thread runs come first, and fewer than two threads run.
  void LeaveInMailbox(const std::function<void()>& post) {
    constexpr int kItems = 160;  // A thread that posts runs 128.
    const auto ran = std::make_shared<bool>(false);
    poller(1).Run([&] {
      std::thread other([&] {
        for (int i = 0; i < kItems; ++i) poller(1).Run([] {});
        poller(1).Run([ran] { *ran = true; });
        post();
      });
      other.join();
    });
    ASSERT_FALSE(*ran);
  }

  Buffer buffer_;
  absl::Span<uint8_t> into_;  // Not empty: memory for the calls that wait for slots.
  absl::Duration into_timeout_ = kLong;

 private:
  bool Drive(const std::vector<size_t>& numbers, const std::function<bool()>& condition) {
    return Eventually([&] {
      if (condition()) return true;
      for (const size_t number : numbers) poller(number).PollOnce();
      return false;
    });
  }
};

// The thread that handles the loss takes the poller of another connection, and so finds the cancel.
TEST_F(TwoPollersTest, ACallMayBeCancelledWhileThoseThatWaitGoToAnother) {
  ASSERT_NO_FATAL_FAILURE(Connect(4));
  std::vector<Call> calls;
  const std::vector<int> numbers = FillSlots(4, calls);
  EXPECT_THAT(Cancelled(calls[0]), HasCode(absl::StatusCode::kCancelled));  // The server keeps its slot.
  ASSERT_TRUE(Until([&] { return core(0)->calls_in_use() == 1; }));
  Cut(numbers[1]);
  EXPECT_THAT(End(std::move(calls[1])), HasCode(absl::StatusCode::kUnavailable));
  // Behind a call of its own the first connection has that of the second one.
  ASSERT_TRUE(Until([&] { return core(0)->calls_in_use() == 2; }));
  EXPECT_THAT(Cancelled(calls[3]), HasCode(absl::StatusCode::kCancelled));
  ASSERT_TRUE(Until([&] { return core(3)->calls_in_use() == 1; }));  // Fewer than the third one.
  ASSERT_NO_FATAL_FAILURE(LeaveInMailbox([&] { calls[5].Cancel(); }));
  Cut(numbers[0]);
  ASSERT_TRUE(UntilOn(0, [&] { return core(0)->state() != ChannelState::kReady; }));
  EXPECT_THAT(End(std::move(calls[5])), HasCode(absl::StatusCode::kCancelled));
  AnswerAll();
  for (const size_t i : {2u, 4u, 6u, 7u}) EXPECT_THAT(End(std::move(calls[i])), IsOk()) << i;
}

// The poller of the connection that carries it may be held.
TEST_F(TwoPollersTest, CloseEndsACallWithoutTheConnectionThatCarriesIt) {
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  std::vector<Call> calls;
  const std::vector<int> numbers = FillSlots(2, calls);
  Cut(numbers[0]);
  ASSERT_TRUE(UntilOn(0, [&] { return core(1)->calls_in_use() == 3; }));
  const auto status = StatusOf(calls[2]);
  channel_->Close();
  ASSERT_TRUE(UntilOn(0, [&] { return status->has_value(); }));
  EXPECT_THAT(**status, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(TwoPollersTest, ACallMayBeCancelledWhileTheChannelClosesAnotherThatIsCarried) {
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  std::vector<Call> calls;
  const std::vector<int> numbers = FillSlots(2, calls);
  calls.push_back(SendAct(channel_, 1, {.timeout = kLong}));
  Cut(numbers[0]);
  ASSERT_TRUE(UntilOn(0, [&] { return core(0)->state() != ChannelState::kReady; }));
  ASSERT_TRUE(UntilOn(0, [&] { return core(1)->calls_in_use() == 4; }));  // It carries two.
  ASSERT_NO_FATAL_FAILURE(LeaveInMailbox([&] { poller(1).Run([&] { calls[4].Cancel(); }); }));
  channel_->Close();
  EXPECT_THAT(End(std::move(calls[0])), HasCode(absl::StatusCode::kUnavailable));
  const absl::Status closed = End(std::move(calls[2])), cancelled = End(std::move(calls[4]));
  EXPECT_THAT(closed, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(std::string(closed.message()), HasSubstr("the channel was closed"));
  EXPECT_THAT(cancelled, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(std::string(cancelled.message()), HasSubstr("cancelled by the caller"));
  for (const size_t i : {1u, 3u}) {
    EXPECT_THAT(End(std::move(calls[i])), HasCode(absl::StatusCode::kCancelled)) << i;
  }
}

// ---- With ReceiveInto(): the response may be READ on the carrier's poller into the caller's memory.

TEST_F(TwoPollersTest, ACancelledCallWithMemoryEndsWithItsCarrier) {
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(CarryWithMemory(calls));
  calls[2].Cancel();
  EXPECT_THAT(EndWithCarrier(calls[2]), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(TwoPollersTest, AtItsDeadlineACallWithMemoryEndsWithItsCarrier) {
  into_timeout_ = absl::Seconds(3);
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(CarryWithMemory(calls));
  clients_.clock.Advance(into_timeout_ + absl::Seconds(1));
  EXPECT_THAT(EndWithCarrier(calls[2]), HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(TwoPollersTest, WhenTheChannelIsClosedACallWithMemoryEndsWithItsCarrier) {
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(CarryWithMemory(calls));
  channel_->Close();
  const absl::Status status = EndWithCarrier(calls[2]);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the channel was closed"));
}

TEST_F(TwoPollersTest, TheResponseOfACarriedCallLandsInItsMemory) {
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(CarryWithMemory(calls));
  const auto reply = std::make_shared<std::optional<absl::StatusOr<Reply<probe::Probe::ActResults>>>>();
  calls[2].Then([reply](auto result) { *reply = std::move(result); });
  const std::vector<uint8_t> part(into_.size(), 'x');
  server_.Run([&] {
    server_.on_request = [this, part](FakeServer::Client& client, transport::ExchangeId id) {
      transport::OutgoingMessagePtr message = server_.poller().messages().NewOutgoing();
      message->builder().initRoot<probe::Probe::ActResults>().setNumber(42);
      message->AddSegment(part);
      message->SetEnvelope(internal::Encode(internal::ResponseEnvelope{}));
      EXPECT_THAT(client.connection->Respond(id, message), IsOk());
    };
  });
  AnswerHeld();
  ASSERT_TRUE(Until([&] { return reply->has_value(); }));
  const auto& answer = **reply;
  ASSERT_THAT(answer.status(), IsOk());
  EXPECT_EQ((*answer)->getNumber(), 42u);
  EXPECT_EQ(answer->landed().data(), into_.data());
  EXPECT_EQ(std::vector<uint8_t>(into_.begin(), into_.end()), part);
  reply->reset();
  for (Call& call : calls) call.Cancel();
}

// As by a callback of the second connection.
TEST_F(TwoPollersTest, ACallThatIsCancelledBeforeItIsCarriedIsNotSent) {
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(BeforeItIsCarried(calls, kLong, [&] { calls[2].Cancel(); }));
  EXPECT_THAT(End(std::move(calls[2])), HasCode(absl::StatusCode::kCancelled));
  AnswerAll();
  EXPECT_THAT(End(SendAct(channel_, 1)), IsOk());  // Behind what the second connection has sent.
  EXPECT_EQ(server_.requests, 3);
}

TEST_F(TwoPollersTest, ACallThatExpiresBeforeItIsCarriedIsNotSent) {
  constexpr absl::Duration kTimeout = absl::Seconds(3);
  std::vector<Call> calls;
  ASSERT_NO_FATAL_FAILURE(BeforeItIsCarried(calls, kTimeout, [&] { clients_.clock.Advance(kTimeout); }));
  const absl::Status status = End(std::move(calls[2]));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(WasSent(status));
  AnswerAll();
  EXPECT_THAT(End(SendAct(channel_, 1)), IsOk());
  EXPECT_EQ(server_.requests, 3);
}

// The channel is destroyed while its second connection has no call. Before that closes, it carries the call
// of the first one.
TEST_F(TwoPollersTest, AConnectionThatWasIdleWhenTheChannelEndedCarriesACallThatIsHeld) {
  ASSERT_NO_FATAL_FAILURE(Connect(2));
  server_.Run([&] { Hold(); });
  auto call = SendActAgain(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Until([&] { return server_.requests == 1; }));
  std::shared_ptr<internal::ChannelCore> second = core(1);
  poller(1).Run([&] {
    std::thread other([&] {
      channel_.reset();
      server_.Run([&] {
        server_.StopListening();
        std::exchange(held_, {})[0].first->connection->Close();
      });
    });
    other.join();
    EXPECT_TRUE(UntilOn(0, [&] { return second->calls_in_use() == 1; }));
  });
  second.reset();
  AnswerAll();
  std::optional<absl::Status> status;
  call.Then([&](const auto& reply) { status = reply.status(); });
  EXPECT_TRUE(Until([&] { return status.has_value(); }));
  EXPECT_THAT(status, testing::Optional(IsOk()));
}

TEST_F(TwoPollersTest, AConnectionThatIsMadeWhileTheChannelEndsCarriesACallThatIsHeld) {
  std::vector<transport::PeerRequest> requests;
  std::atomic<int> came{0};
  server_.on_peer = [&](transport::PeerRequest request) {
    requests.push_back(std::move(request));
    ++came;
  };
  channel_ = *Channel::Create(server_.uri, {.connections = 2, .runtime = clients_.runtime});
  Call call = SendAct(channel_, 1, {.timeout = kLong});
  ASSERT_TRUE(Until([&] { return came == 2; }));
  server_.Run([&] {
    for (transport::PeerRequest& request : std::exchange(requests, {})) server_.Accept(std::move(request));
  });
  std::shared_ptr<internal::ChannelCore> second = core(1);
  poller(1).Run([&] {
    std::thread other([&] { channel_.reset(); });
    other.join();
    EXPECT_TRUE(Eventually([&] {
      poller(1).PollOnce();
      return second->state() != ChannelState::kConnecting;
    }));
  });
  second.reset();
  EXPECT_THAT(End(std::move(call)), IsOk());
}

TEST_F(TwoPollersTest, ConnectEndsWhileThePollerOfTheOtherConnectionIsHeld) {
  const std::string uri = std::make_unique<TestServer>()->uri;  // Nothing listens there any more.
  Box<bool> holding;
  absl::Notification go_on;
  std::thread holder([&] {
    poller(1).Run([&] {
      static constexpr transport::CalledCode kCode{"the callback of"};
      const transport::Poller::CallOut out(poller(1), kCode, "a test");
      holding.Put(true);
      go_on.WaitForNotification();
    });
  });
  holding.Take();
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over) {
      clients_.clock.Advance(absl::Milliseconds(100));
      sched_yield();
    }
  });
  const absl::Status late =
      Channel::Connect(uri,
                       {.connect_timeout = absl::Seconds(2), .connections = 2, .runtime = clients_.runtime})
          .status();
  over = true;
  go_on.Notify();
  time.join();
  holder.join();
  EXPECT_THAT(late, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(late.message()),
              AllOf(HasSubstr("not done within 2s"), HasSubstr("held by the callback of a test")));
}

}  // namespace
}  // namespace hawser
