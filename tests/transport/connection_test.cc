#include "hawser/transport/connection/connection.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/log/log.h"

namespace hawser::transport {
namespace {

using State = Connection::State;
using Event = Connection::Event;

// The state table of a connection, cell by cell. Late events are ignored; events that only a bug could cause
// lead to kImpossible.
TEST(ConnectionStateTest, EveryCellIsAsTheTableSays) {
  struct Row {
    State from;
    std::vector<State> to;  // For each event: established, drain called, exchanges done, failed, flushed.
  };
  const std::vector<Row> table = {
      {State::kConnecting,
       {State::kReady, State::kFlushing, State::kImpossible, State::kFlushing, State::kImpossible}},
      {State::kReady,
       {State::kReady, State::kDraining, State::kImpossible, State::kFlushing, State::kImpossible}},
      {State::kDraining,
       {State::kDraining, State::kDraining, State::kFlushing, State::kFlushing, State::kImpossible}},
      {State::kFlushing,
       {State::kFlushing, State::kFlushing, State::kFlushing, State::kFlushing, State::kClosed}},
      {State::kClosed, {State::kClosed, State::kClosed, State::kClosed, State::kClosed, State::kImpossible}},
  };
  const Event events[] = {Event::kEstablished, Event::kDrainCalled, Event::kExchangesDone, Event::kFailed,
                          Event::kFlushed};
  for (const Row& row : table) {
    for (size_t i = 0; i < std::size(events); ++i) {
      EXPECT_EQ(ConnectionState::Next(row.from, events[i]), row.to[i])
          << "state " << static_cast<int>(row.from) << ", event " << i;
    }
  }
}

TEST(ConnectionStateTest, AClosedConnectionComesBackByNoEvent) {
  for (Event event : {Event::kEstablished, Event::kDrainCalled, Event::kExchangesDone, Event::kFailed}) {
    EXPECT_EQ(ConnectionState::Next(State::kClosed, event), State::kClosed);
    EXPECT_EQ(ConnectionState::Next(State::kFlushing, event), State::kFlushing);
  }
}

TEST(AcceptorTest, WhatAListenerFallsShortOfIsLogged) {
  constexpr absl::string_view kWhy = "it listens on 0.0.0.0 instead";
  absl::Mutex mutex;
  std::vector<LogSeverity> said;
  SetLogSink([&](LogSeverity severity, absl::string_view line) {
    absl::MutexLock lock(&mutex);
    if (line == kWhy) said.push_back(severity);
  });
  World world;
  { TestListener all(world, world.server); }
  world.server.fabric->SetShortfall(absl::UnimplementedError(kWhy));
  { TestListener less(world, world.server); }
  SetLogSink(nullptr);
  EXPECT_THAT(said, ::testing::ElementsAre(LogSeverity::kWarning));
}

TEST(ConnectionOptionsTest, WhatIsOutOfRangeIsRefusedWithTheRange) {
  World world;
  struct Case {
    ConnectionOptions options;
    const char* why;
  };
  const Case cases[] = {
      {{.slots = 0}, "slots is 0: from 1 to 1024"},
      {{.slots = kSlotsMax + 1}, "slots is 1025: from 1 to 1024"},
      {{.receive_buffer_bytes = 448}, "receive_buffer_bytes is 448: from 512 to 65536"},
      {{.receive_buffer_bytes = 1000}, "receive_buffer_bytes is 1000: a multiple of 64 from 512 to 65536"},
      {{.receive_buffer_bytes = 65600}, "receive_buffer_bytes is 65600: from 512 to 65536"}};
  for (const Case& one : cases) {
    RecordingObserver observer;
    world.OnClient([&] {
      const absl::Status refused = Connection::Dial(world.client.poller(), TestAddress(1), one.options,
                                                    Handshake(), absl::Seconds(1), observer, nullptr)
                                       .status();
      EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
      EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(one.why));
    });
    EXPECT_EQ(world.client.poller().connection_count(), 0u);
  }
}

TEST(ConnectionOptionsTest, ALocalAddressIsNumeric) {
  World world;
  RecordingObserver observer;
  world.OnClient([&] {
    const absl::Status refused =
        Connection::Dial(world.client.poller(), TestAddress(1), {.local_address = "localhost"}, Handshake(),
                         absl::Seconds(1), observer, nullptr)
            .status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("local_address: \"localhost\""));
  });
  EXPECT_EQ(world.client.poller().connection_count(), 0u);
}

TEST(ConnectionOptionsTest, TheLargestAndTheSmallestWork) {
  World world;
  for (const ConnectionOptions& options : {ConnectionOptions{.slots = 1, .receive_buffer_bytes = 512},
                                           ConnectionOptions{.slots = 1024, .receive_buffer_bytes = 65536}}) {
    Link link(world, options);
    link.EchoAll();
    for (size_t size : {0, 400, 488, 3000, 60'000, 100'000}) {
      PendingCall call;
      link.Call(call, NewMessage(world.client.messages(), size / 8 * 8));
      ASSERT_THAT(call.response, IsOk());
      EXPECT_EQ(Content(**call.response), ContentOf(size / 8 * 8));
    }
  }
}

}  // namespace
}  // namespace hawser::transport
