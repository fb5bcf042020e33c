// The log of the process, and the sink that an application sets.

#include "hawser/transport/log/log.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/child.h"

namespace hawser::transport {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::SizeIs;

using Lines = std::vector<std::pair<LogSeverity, std::string>>;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { SetLogSink(nullptr); }

  LogSink Collect() {
    return [this](LogSeverity severity, absl::string_view line) {
      absl::MutexLock lock(&mutex_);
      lines_.emplace_back(severity, std::string(line));
    };
  }
  // Takes all lines so far. From then on the log goes to stderr.
  Lines Take() {
    SetLogSink(nullptr);
    absl::MutexLock lock(&mutex_);
    return std::move(lines_);
  }

 private:
  absl::Mutex mutex_;
  Lines lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(LogTest, WithoutASinkALineGoesToStderr) {
  ::testing::internal::CaptureStderr();
  Log(LogSeverity::kWarning, "a");
  Log(LogSeverity::kError, "b");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "hawser: a\nhawser: error: b\n");
}

TEST_F(LogTest, ASinkGetsTheLinesInOrderWithTheirSeverity) {
  SetLogSink(Collect());
  Log(LogSeverity::kInfo, "a");
  Log(LogSeverity::kWarning, "b");
  EXPECT_TRUE(TryLog(LogSeverity::kError, "c"));
  EXPECT_THAT(Take(), ElementsAre(Pair(LogSeverity::kInfo, "a"), Pair(LogSeverity::kWarning, "b"),
                                  Pair(LogSeverity::kError, "c")));
}

TEST_F(LogTest, ALineIsEscapedAndCut) {
  SetLogSink(Collect());
  Log(LogSeverity::kInfo, "said \x1b[2J\nforged");
  Log(LogSeverity::kInfo, std::string(100'000, '\n') + "the end");
  const Lines lines = Take();
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0].second, "said \\x1b[2J\\nforged");
  EXPECT_LE(lines[1].second.size(), 2048u);
  EXPECT_THAT(lines[1].second, HasSubstr("the end"));
}

TEST_F(LogTest, WhatASinkThrowsIsDroppedAndTheLineIsNot) {
  bool throws = true;
  const LogSink collect = Collect();
  SetLogSink([&](LogSeverity severity, absl::string_view line) {
    if (std::exchange(throws, false)) throw std::runtime_error("on purpose");
    collect(severity, line);
  });
  ::testing::internal::CaptureStderr();
  Log(LogSeverity::kInfo, "a");
  Log(LogSeverity::kInfo, "b");
  const Lines lines = Take();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "hawser: a\n");
  EXPECT_THAT(lines, ElementsAre(Pair(LogSeverity::kInfo, "b")));
}

// A sink that has received one line, and blocks until the test lets it return.
struct BlockingSink {
  explicit BlockingSink(LogSink sink) {
    SetLogSink([this, sink = std::move(sink)](LogSeverity severity, absl::string_view line) {
      if (!called.HasBeenNotified()) called.Notify();
      go_on.WaitForNotification();
      sink(severity, line);
    });
    Log(LogSeverity::kInfo, "the first");
    called.WaitForNotification();
  }

  absl::Notification called, go_on;
};

TEST_F(LogTest, ASinkThatBlocksHoldsUpNoThreadThatLogs) {
  const LogSink collect = Collect();
  BlockingSink sink(collect);
  for (int i = 0; i < 300; ++i) Log(LogSeverity::kInfo, "x");
  sink.go_on.Notify();
  SetLogSink(Collect());  // Returns when the old sink has received all its lines.
  Log(LogSeverity::kInfo, "y");
  const Lines lines = Take();
  ASSERT_EQ(lines.size(), 1u + 256 + 1);
  EXPECT_THAT(lines.back().second, HasSubstr("y (44 lines before this are lost)"));
}

TEST_F(LogTest, ALongLineThatCountsLostOnesIsNoLonger) {
  BlockingSink sink([](LogSeverity, absl::string_view) {});
  for (int i = 0; i < 300; ++i) Log(LogSeverity::kInfo, "x");
  sink.go_on.Notify();
  SetLogSink(Collect());
  Log(LogSeverity::kInfo, std::string(100'000, 'y') + "the end");
  const Lines lines = Take();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_LE(lines[0].second.size(), 2048u);
  EXPECT_THAT(lines[0].second, ContainsRegex("the end \\(44 lines before this are lost\\)$"));
}

TEST_F(LogTest, ASinkMayLogAndMaySetAnother) {
  absl::Notification replaced;
  SetLogSink([&](LogSeverity severity, absl::string_view line) {
    Log(severity, absl::string_view(line).substr(1));  // The next sink gets it.
    SetLogSink(Collect());
    replaced.Notify();
  });
  Log(LogSeverity::kInfo, ">a");
  replaced.WaitForNotification();
  EXPECT_THAT(Take(), ElementsAre(Pair(LogSeverity::kInfo, "a")));
}

// A thread that starts after the log's own has ended may get its id.
TEST_F(LogTest, AnyThreadMaySetTheNextSink) {
  for (int i = 0; i < 3; ++i) {
    SetLogSink(Collect());
    SetLogSink(nullptr);
    std::thread([&] {
      SetLogSink(Collect());
      Log(LogSeverity::kInfo, "heard");
    }).join();
    EXPECT_THAT(Take(), ElementsAre(Pair(LogSeverity::kInfo, "heard")));
  }
}

// RLIMIT_FSIZE (ulimit -f) comes as a signal, which by default ends the process.
TEST_F(LogTest, AFileThatMayNotBeLargerLosesLinesAndEndsNothing) {
  EXPECT_TRUE(InChild([] {
    const UniqueFd file(memfd_create("stderr", MFD_CLOEXEC));
    const rlimit limit = {4096, 4096};
    if (dup2(file.get(), STDERR_FILENO) != STDERR_FILENO || setrlimit(RLIMIT_FSIZE, &limit) != 0)
      return false;
    bool written = true;
    for (int i = 0; i < 100; ++i) written = TryLog(LogSeverity::kInfo, std::string(100, 'x'));
    sigset_t pending;
    return !written && sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 0;
  }));
}

// Seen by poll(), before it is written to.
TEST_F(LogTest, APipeWhoseReaderIsGoneLosesLinesAndEndsNothing) {
  EXPECT_TRUE(InChild([] {
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0 || dup2(pipe[1], STDERR_FILENO) != STDERR_FILENO) return false;
    close(pipe[0]);
    return !TryLog(LogSeverity::kInfo, "to nobody");
  }));
}

// The next connection gets the number of a stderr that the program has closed.
TEST_F(LogTest, AConnectionInThePlaceOfStderrReadsNoLog) {
  EXPECT_TRUE(InChild([] {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const UniqueFd peer(socket(AF_INET, SOCK_STREAM, 0));
    if (bind(listener.get(), any, size) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), any, &size) != 0 || connect(peer.get(), any, size) != 0) {
      return false;
    }
    close(STDERR_FILENO);
    char byte;
    return accept(listener.get(), nullptr, nullptr) == STDERR_FILENO &&
           !TryLog(LogSeverity::kInfo, "of another peer") && close(STDERR_FILENO) == 0 &&
           recv(peer.get(), &byte, 1, 0) == 0;
  }));
}

TEST_F(LogTest, AfterForkTheChildsLinesGoToStderr) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  SetLogSink(Collect());
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(InChild([] { return TryLog(LogSeverity::kInfo, "of the child"); }));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "hawser: of the child\n");
  Log(LogSeverity::kInfo, "of the parent");
  EXPECT_THAT(Take(), ElementsAre(Pair(LogSeverity::kInfo, "of the parent")));
}

TEST_F(LogTest, TheSinkBeforeIsNotCalledOnceAnotherIsSet) {
  for (int i = 0; i < 50; ++i) {
    auto alive = std::make_unique<int>(0);
    SetLogSink([&, count = alive.get()](LogSeverity, absl::string_view) { ++*count; });
    std::thread other([] {
      for (int line = 0; line < 20; ++line) Log(LogSeverity::kInfo, "x");
    });
    Log(LogSeverity::kInfo, "x");
    SetLogSink(Collect());
    EXPECT_GE(*alive, 1);
    alive.reset();
    other.join();
  }
}

// In a process of its own, which has read the variable not yet.
TEST(LogLevelTest, TheEnvironmentHasTheFirstLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto log_debug = [] {
    Log(LogSeverity::kDebug, "talk");
    _exit(LogLevel() == LogSeverity::kDebug ? 0 : 1);
  };
  setenv("HAWSER_LOG_LEVEL", "Debug", 1);
  EXPECT_EXIT(log_debug(), ::testing::ExitedWithCode(0), "hawser: talk");
  setenv("HAWSER_LOG_LEVEL", "loud", 1);
  EXPECT_EXIT(log_debug(), ::testing::ExitedWithCode(1),
              "HAWSER_LOG_LEVEL is .loud., and not debug, info, warning or error; info is used");
}

}  // namespace
}  // namespace hawser::transport
