// A runtime ends its threads, on whatever thread its last owner goes.

#include "hawser/transport/runtime.h"

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "tests/rpc/probe.h"

namespace hawser {
namespace {

std::shared_ptr<transport::Runtime> NewRuntime() {
  return *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
}

// Of this process, now.
ptrdiff_t Threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

TEST(RuntimeTest, ItsThreadsEndWhenItsLastOwnerGoesOnItsPoller) {
  // ThreadSanitizer has a thread of its own, from the first one of the program on.
  std::thread([] {}).join();
  const ptrdiff_t before = Threads();
  std::shared_ptr<transport::Runtime> last = NewRuntime();
  transport::Poller& poller = last->poller(0);
  std::atomic<bool> gone = false;
  transport::Timer drop([&] {
    last.reset();
    gone.store(true, std::memory_order_release);  // The last that it touches here.
  });
  {
    const std::shared_ptr<transport::Runtime> keep = last;  // Until Run() has returned.
    poller.Run([&] { poller.timers().Set(drop, poller.now_ns() + 10'000'000); });
  }
  EXPECT_TRUE(Eventually([&] { return gone.load(std::memory_order_acquire); }));
  EXPECT_TRUE(Eventually([&] { return Threads() <= before; })) << Threads() << ", before " << before;
}

// What ends a channel runs on the poller, after the application has given up all that it had.
TEST(RuntimeTest, ItsThreadsEndWithItsLastChannel) {
  TestServer server;
  ASSERT_NE(server.Connect(), nullptr);  // What lasts as long as the process is there.
  const ptrdiff_t before = Threads();
  for (int i = 0; i < 20; ++i) {
    ChannelOptions options;
    options.runtime = NewRuntime();
    auto channel = *Channel::Connect(server.uri, std::move(options));
    ASSERT_THAT(SendAct(channel, i).Wait().status(), HasCode(absl::StatusCode::kOk));
    channel.reset();
    // One by one: ThreadSanitizer does not see the lock by which abseil's destructors exclude each other.
    EXPECT_TRUE(Eventually([&] { return Threads() <= before; })) << Threads() << ", before " << before;
  }
}

}  // namespace
}  // namespace hawser
