// The values of the table tell a mixture from a value: a client that does not look at versions is found out.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::chaos {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// A process, and what it has said.
class Speaker {
 public:
  explicit Speaker(const std::vector<std::string>& command)
      : process_(command[0], command, ::testing::TempDir() + "/naive_table.log", [this](auto& line) {
          const absl::MutexLock lock(&mutex_);
          absl::StrAppend(&said_, line, "\n");
        }) {}

  // Waits until it has said a line with `text`. Returns all that it has said since the last time.
  std::string Await(absl::string_view text) {
    const absl::MutexLock lock(&mutex_);
    const auto is_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return absl::StrContains(said_, text);
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&is_there), kPatience)) << text << ": " << said_;
    return std::exchange(said_, {});
  }
  std::string Ask(const std::string& line, absl::string_view answer) {
    process_.Say(line);
    return Await(answer);
  }

 private:
  absl::Mutex mutex_;
  std::string said_ ABSL_GUARDED_BY(mutex_);
  Process process_;
};

// The server has written half of another value of churn/0.
class NaiveTableTest : public ::testing::Test {
 protected:
  NaiveTableTest() {
    const std::string line = server_.Await("listening on ");
    const size_t begin = line.find("tcp://");
    uri_ = line.substr(begin, line.find('\n', begin) - begin);
  }
  std::unique_ptr<Speaker> Client(const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {"tests/chaos/table_client", "--target=" + uri_};
    command.insert(command.end(), flags.begin(), flags.end());
    return std::make_unique<Speaker>(command);
  }

  Speaker server_{{"tests/chaos/table_server", absl::StrCat("--listen=", TestUri()), "--torn"}};
  std::string uri_;
};

TEST_F(NaiveTableTest, AClientThatTakesWhatItReadsFindsAMixture) {
  const auto client = Client({"--naive"});
  const std::string said = client->Ask("look", "looked");
  EXPECT_TRUE(absl::StrContains(said, "WRONG: churn/0: 200 bytes: a torn value: put 2")) << said;
  server_.Ask("on", "whole");
  const std::string whole = client->Ask("look", "looked");
  EXPECT_FALSE(absl::StrContains(whole, "WRONG")) << whole;
}

TEST_F(NaiveTableTest, AClientThatLooksAtVersionsMeetsAMixtureAndTakesNone) {
  const auto client = Client({});
  // Each of its three threads finds the other seven.
  const std::string said = client->Ask("look", "looked");
  EXPECT_TRUE(absl::StrContains(said, "looked: 21 values found, ")) << said;
  EXPECT_FALSE(absl::StrContains(said, ", 0 READs of a mixture")) << said;
  EXPECT_FALSE(absl::StrContains(said, "WRONG")) << said;
  server_.Ask("on", "whole");
  const std::string whole = client->Ask("look", "looked");
  EXPECT_TRUE(absl::StrContains(whole, "looked: 45 values found, ")) << whole;
  EXPECT_FALSE(absl::StrContains(whole, "WRONG")) << whole;
}

}  // namespace
}  // namespace hawser::chaos
