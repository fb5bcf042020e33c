// Both sides of the raw sockets, on a pair of this process.

#include "hawser/measure/raw_floor.h"

#include <sys/socket.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::measure {
namespace {

constexpr uint64_t kBytesMax = 1 << 20;

// One that is served, by a thread that ends when `socket` does.
class Served {
 public:
  explicit Served(RawService service) : socket_(Pair(service)) {}
  ~Served() {
    shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
  }
  RawSocket& socket() { return socket_; }

 private:
  RawSocket Pair(RawService service) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
    thread_ = std::thread([service, end = RawSocket(UniqueFd(ends[1]))]() mutable {
      ServeRaw(end, service, /*spin=*/false, kBytesMax);
    });
    return RawSocket(UniqueFd(ends[0]));
  }

  std::thread thread_;
  RawSocket socket_;
};

TEST(RawFloorTest, OneExchangeOfEachKind) {
  std::vector<uint8_t> memory(100'000, 'p');
  for (const bool spin : {false, true}) {
    Served ping_pong(RawService::kPingPong), sink(RawService::kSink), source(RawService::kSource);
    ASSERT_THAT(BeginPingPong(ping_pong.socket(), memory.size(), spin), IsOk());
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(PingPong(ping_pong.socket(), absl::MakeSpan(memory), spin), IsOk());
      EXPECT_THAT(PutOne(sink.socket(), memory, spin), IsOk());
      EXPECT_THAT(GetOne(source.socket(), absl::MakeSpan(memory), spin), IsOk());
    }
  }
}

TEST(RawFloorTest, AsManyAsItIsTold) {
  Served echo(RawService::kEcho), sink(RawService::kSink), source(RawService::kSource);
  std::vector<uint8_t> memory(20'000, 'p');
  for (const int64_t exchanges : {1, 7, 500}) {
    const Extent extent = {.exchanges = exchanges};
    EXPECT_EQ(StreamInto(sink.socket(), memory, extent).value().exchanges, exchanges);
    EXPECT_EQ(StreamFrom(source.socket(), absl::MakeSpan(memory), extent).value().exchanges, exchanges);
  }
  EXPECT_EQ(Batches(echo.socket(), 32, 4, {.exchanges = 10}, false).value().exchanges, 12);  // Whole batches.
}

TEST(RawFloorTest, UntilItsTimeIsOver) {
  Served echo(RawService::kEcho), sink(RawService::kSink), source(RawService::kSource);
  std::vector<uint8_t> memory(20'000, 'p');
  const Extent extent = {.time = absl::Milliseconds(10)};
  for (int i = 0; i < 2; ++i) {  // The first leaves nothing behind that the second would get.
    for (const auto& ran : {StreamInto(sink.socket(), memory, extent),
                            StreamFrom(source.socket(), absl::MakeSpan(memory), extent),
                            Batches(echo.socket(), 32, 4, extent, false)}) {
      EXPECT_GT(ran.value().exchanges, 0);
      EXPECT_GE(ran->time, extent.time);
    }
  }
}

TEST(RawFloorTest, AServerThatCloses) {
  Served sink(RawService::kSink), source(RawService::kSource);
  std::vector<uint8_t> memory(kBytesMax + 1, 'p');  // More than it serves.
  EXPECT_THAT(GetOne(source.socket(), absl::MakeSpan(memory), false),
              HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(StreamInto(sink.socket(), memory, {}).status(), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace hawser::measure
