// The pollers of a runtime: how many there are, and where they run.
#include "hawser/transport/runtime.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/cores.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"

namespace hawser::transport {
namespace {

TEST(RuntimeTest, PollersAreDealtOutInTurn) {
  RuntimeOptions options;
  options.pollers = 3;
  absl::StatusOr<std::shared_ptr<Runtime>> runtime =
      Runtime::CreateOn(NewTestFabric(), options, /*start_threads=*/false);
  ASSERT_THAT(runtime, IsOk());
  EXPECT_EQ((*runtime)->poller_count(), 3u);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(&(*runtime)->NextPoller(), &(*runtime)->poller(i));
  }
}

TEST(RuntimeTest, WithoutANumberPollersAreStartedForConnectionsUpToOneForEachCore) {
  const auto runtime = Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  ASSERT_THAT(runtime, IsOk());
  const size_t cores = std::min<size_t>(AllowedCores().size(), std::ceil(CpuQuota().value_or(1e6)));
  const size_t limit = (*runtime)->poller_limit();
  EXPECT_EQ(limit, std::clamp<size_t>(cores, 1, 32));
  for (size_t i = 0; i < 2 * limit; ++i) {
    EXPECT_EQ((*runtime)->poller_count(), std::clamp<size_t>(i, 1, limit));
    const Poller* const next = &(*runtime)->NextPoller();
    EXPECT_EQ(next, &(*runtime)->poller(i % limit));
  }
}

TEST(RuntimeTest, WithoutANumberThereIsAPollerForEachCoreThatIsAskedFor) {
  const int core = *AllowedCores().begin();
  const auto chosen =
      Runtime::CreateOn(NewTestFabric(), {.poller = {.cores = {core, core, core}}}, /*start_threads=*/true);
  ASSERT_THAT(chosen, IsOk());
  EXPECT_EQ((*chosen)->poller_count(), 3u);
}

TEST(RuntimeTest, AProcessThatMayOpenFewFilesHasFewPollersByDefault) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 127;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto runtime = Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_THAT(runtime, IsOk());
  EXPECT_EQ((*runtime)->poller_limit(), 1u);
}

TEST(RuntimeTest, WhereAnotherPollerCannotBeStartedThoseThatRunServeAndItIsTriedAgainLater) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "a poller over RDMA takes other things than file descriptors";
  TestClock clock;
  const auto runtime = Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true, clock);
  ASSERT_THAT(runtime, IsOk());
  if ((*runtime)->poller_limit() == 1) GTEST_SKIP() << "this machine has one core";
  (*runtime)->NextPoller();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = dup(0);
  close(static_cast<int>(tight.rlim_cur));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(&(*runtime)->NextPoller(), &(*runtime)->poller(0));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(&(*runtime)->NextPoller(), &(*runtime)->poller(0));
  clock.Advance(absl::Seconds(11));
  (*runtime)->NextPoller();
  EXPECT_GT((*runtime)->poller_count(), 1u);
}

// The cores that each thread of a poller of this process may run on.
std::vector<std::set<int>> CoresOfPollerThreads() {
  std::vector<std::set<int>> cores;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "hawser-poller") continue;
    for (std::ifstream status(task.path() / "status"); std::getline(status, line);) {
      constexpr absl::string_view kList = "Cpus_allowed_list:\t";
      if (absl::StartsWith(line, kList)) cores.push_back(ParseCores(line.substr(kList.size())).value());
    }
  }
  return cores;
}

TEST(RuntimeTest, ThreadsOfPollersRunOnTheirCores) {
  const std::set<int> allowed = AllowedCores();
  const int first = *allowed.begin(), last = *allowed.rbegin();
  const auto runtime =
      Runtime::CreateOn(NewTestFabric(), {.pollers = 3, .poller = {.cores = {first, last}}}, true);
  ASSERT_THAT(runtime, IsOk());
  const std::vector<std::set<int>> cores = CoresOfPollerThreads();
  EXPECT_GE(std::count(cores.begin(), cores.end(), std::set<int>{first}), 2);
  EXPECT_GE(std::count(cores.begin(), cores.end(), std::set<int>{last}), 1);
}

TEST(RuntimeTest, ACoreThatTheProcessMayNotUseIsRefusedByNumber) {
  const auto runtime = Runtime::CreateOn(NewTestFabric(), {.poller = {.cores = {9999}}}, true);
  EXPECT_THAT(runtime.status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(runtime.status().message(),
              ::testing::HasSubstr("does not let a poller run on core 9999: this machine has no such core"));
}

// A program that logs nothing hears of it, too. In a process of its own, which has not read it yet.
TEST(RuntimeTest, AWrongLogLevelOfTheEnvironmentIsSaidAtTheStart) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("HAWSER_LOG_LEVEL", "verbose", 1);
  const auto create = [] { _exit(Runtime::Create(TestScheme(), {.pollers = 1}).ok() ? 0 : 1); };
  EXPECT_EXIT(create(), testing::ExitedWithCode(0),
              "HAWSER_LOG_LEVEL is .verbose., and not debug, info, warning or error; info is used");
  unsetenv("HAWSER_LOG_LEVEL");
}

TEST(RuntimeTest, ASchemeWithoutAFabricIsRefusedByName) {
  const absl::Status status = Runtime::Create("pigeon").status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("pigeon://"));
}

TEST(RuntimeTest, TheDefaultOneOfASchemeIsSharedByAll) {
  absl::StatusOr<std::shared_ptr<Runtime>> one = Runtime::Default("tcp"), other = Runtime::Default("tcp");
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(*one, *other);
}

}  // namespace
}  // namespace hawser::transport
