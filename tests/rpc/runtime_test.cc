// A runtime ends its threads, on whatever thread its last reference is released.

#include "hawser/transport/runtime.h"

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

std::shared_ptr<transport::Runtime> NewRuntime() {
  return *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
}

// The number of threads of this process.
ptrdiff_t Threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

TEST(RuntimeTest, ItsThreadsEndWhenItsLastOwnerGoesOnItsPoller) {
  // ThreadSanitizer starts a thread of its own with the program's first thread.
  std::thread([] {}).join();
  const ptrdiff_t before = Threads();
  std::shared_ptr<transport::Runtime> last = NewRuntime();
  transport::Poller& poller = last->poller(0);
  std::atomic<bool> gone = false;
  transport::Timer drop([&] {
    last.reset();
    gone.store(true, std::memory_order_release);  // Its last access to this test.
  });
  {
    const std::shared_ptr<transport::Runtime> keep = last;  // Keeps it until Run() has returned.
    poller.Run([&] { poller.timers().Set(drop, poller.now_ns() + 10'000'000); });
  }
  EXPECT_TRUE(Eventually([&] { return gone.load(std::memory_order_acquire); }));
  EXPECT_TRUE(Eventually([&] { return Threads() <= before; })) << Threads() << ", before " << before;
}

// The end of a channel runs on the poller, after the application has released all its references.
TEST(RuntimeTest, ItsThreadsEndWithItsLastChannel) {
  TestServer server({.pollers = 1});
  ASSERT_NE(server.Connect(), nullptr);  // Starts the threads that last as long as the process.
  const ptrdiff_t before = Threads();
  for (int i = 0; i < 20; ++i) {
    ChannelOptions options;
    options.runtime = NewRuntime();
    auto channel = *Channel::Connect(server.uri, std::move(options));
    ASSERT_THAT(SendAct(channel, i).Wait().status(), IsOk());
    channel.reset();
    // Waits for each one, because ThreadSanitizer does not see the lock that serialises abseil's destructors.
    EXPECT_TRUE(Eventually([&] { return Threads() <= before; })) << Threads() << ", before " << before;
  }
}

}  // namespace
}  // namespace hawser
