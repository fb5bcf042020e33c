// A server whose process is stopped (SIGSTOP), and goes on later. Nothing announces the stop. Over RDMA what
// is sent to it arrives, and the kernel or the NIC acknowledges it. Only the answers are missing.

#include <signal.h>
#include <sys/wait.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/echo/echo.rpc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

// Not met unless something is broken. Less than a small test has, so that it can still say what.
constexpr absl::Duration kLong = absl::Seconds(45);
// The deadline of a call whose server is stopped.
constexpr absl::Duration kExpires = absl::Milliseconds(100);

class FrozenServerTest : public ::testing::Test {
 protected:
  FrozenServerTest() { EXPECT_TRUE(listening_.WaitForNotificationWithTimeout(kLong)) << server_.errors(); }

  std::shared_ptr<Channel> Connect(ChannelOptions options) {
    options.on_state_change = [this](ChannelState state, const absl::Status& why) {
      absl::MutexLock lock(&mutex_);
      if (first_loss_.ok()) first_loss_ = why;
      if (state == ChannelState::kTransientFailure) ++failures_;
    };
    const auto channel = Channel::Connect(uri_, std::move(options));
    EXPECT_THAT(channel, IsOk());
    return *channel;
  }

  static absl::Status Echo(const std::shared_ptr<Channel>& channel, size_t size, const CallOptions& options) {
    auto call = echo::EchoStub(channel).Echo(options);
    const std::string message(size, 'x');
    call.request().setMessage({reinterpret_cast<const uint8_t*>(message.data()), message.size()});
    const auto reply = call.Send().Wait();
    EXPECT_TRUE(!reply.ok() || (*reply)->getMessage().size() == size);
    return reply.status();
  }

  void Freeze() {
    server_.Signal(SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(server_.pid()), &info, WSTOPPED), 0);
    ASSERT_EQ(info.si_code, CLD_STOPPED);
  }
  void GoOn() { server_.Signal(SIGCONT); }

  // Attempts to connect that failed.
  int failures() {
    absl::MutexLock lock(&mutex_);
    return failures_;
  }
  std::string first_loss() {
    absl::MutexLock lock(&mutex_);
    return std::string(first_loss_.message());
  }
  bool AwaitFailures(int count) {
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return failures_ >= count; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kLong);
  }

 private:
  absl::Mutex mutex_;
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status first_loss_ ABSL_GUARDED_BY(mutex_);
  absl::Notification listening_;
  std::string uri_;
  chaos::Process server_{"server",
                         {"examples/echo/echo_server", "--listen=" + TestUri()},
                         ::testing::TempDir() + "/echo_server.err",
                         [this](const std::string& line) {
                           absl::string_view uri = line;
                           if (!absl::ConsumePrefix(&uri, "listening on ")) return;
                           uri_ = std::string(uri);
                           listening_.Notify();
                         }};
};

TEST_F(FrozenServerTest, ShorterThanKeepaliveIsOnlyMissedByCallsThatCannotWait) {
  const auto channel = Connect({.connection = {.keepalive_interval = kLong}});
  ASSERT_THAT(Echo(channel, 100, {.timeout = kLong}), IsOk());
  Freeze();
  for (const size_t size : {100, 1 << 20}) {
    const absl::Time start = absl::Now();
    const absl::Status status = Echo(channel, size, {.timeout = kExpires});
    EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
    EXPECT_LT(absl::Now() - start, kLong / 2);
  }
  GoOn();
  for (const size_t size : {100, 1 << 20}) {
    EXPECT_THAT(Echo(channel, size, {.timeout = kLong}), IsOk());
  }
  EXPECT_EQ(first_loss(), "");
}

TEST_F(FrozenServerTest, LongerThanKeepaliveIsFoundAndItIsMissedByNobodyOnceItIsBack) {
  const auto channel = Connect(
      {.connect_timeout = absl::Seconds(2),
       .backoff_max = absl::Milliseconds(100),
       .connection = {.keepalive_interval = absl::Seconds(2), .keepalive_timeout = absl::Seconds(2)}});
  ASSERT_THAT(Echo(channel, 100, {.timeout = kLong, .wait_for_ready = true}), IsOk());
  Freeze();
  const absl::Time start = absl::Now();
  const absl::Status lost = Echo(channel, 100, {.timeout = kLong});
  EXPECT_THAT(lost, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(first_loss(), HasSubstr("its process is stopped"));
  EXPECT_LT(absl::Now() - start, kLong / 2);
  const absl::Status late = Echo(channel, 100, {.timeout = kExpires, .wait_for_ready = true});
  EXPECT_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(AwaitFailures(failures() + 2));  // Attempts, which the server finds when it goes on.
  GoOn();
  for (const size_t size : {100, 1 << 20}) {
    EXPECT_THAT(Echo(channel, size, {.timeout = kLong, .wait_for_ready = true}), IsOk());
  }
}

}  // namespace
}  // namespace hawser
