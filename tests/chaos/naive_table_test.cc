// The values of the table tell a mixture from a value: a client that does not look at versions is found out.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::chaos {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

bool Says(const Process& process, absl::string_view text) {
  for (const absl::Time give_up = absl::Now() + kPatience; absl::Now() < give_up;) {
    if (absl::StrContains(process.output(), text)) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

class NaiveTableTest : public ::testing::Test {
 protected:
  NaiveTableTest() {
    EXPECT_TRUE(Says(server_, "\n"));
    const std::string line = server_.output();
    uri_ = line.substr(line.find("tcp://"), line.find('\n') - line.find("tcp://"));
  }
  std::unique_ptr<Process> Client(const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {"tests/chaos/table_client", "--target=" + uri_};
    command.insert(command.end(), flags.begin(), flags.end());
    return std::make_unique<Process>("client", command, ::testing::TempDir() + "/client.log");
  }

  Process server_{"server",
                  {"tests/chaos/table_server", absl::StrCat("--listen=", TestUri())},
                  ::testing::TempDir() + "/server.log"};
  std::string uri_;
};

TEST_F(NaiveTableTest, AClientThatTakesWhatItReadsFindsMixtures) {
  const auto client = Client({"--naive"});
  client->Say("run");
  EXPECT_TRUE(Says(*client, "WRONG: churn/"));
}

TEST_F(NaiveTableTest, AClientThatLooksAtVersionsMeetsMixturesAndTakesNone) {
  const auto client = Client({});
  std::string output;
  size_t from = 0;
  // Until it has met one.
  for (const absl::Time give_up = absl::Now() + kPatience; absl::Now() < give_up;) {
    client->Say("run");
    absl::SleepFor(absl::Milliseconds(50));
    client->Say("settle");
    while (!absl::StrContains(client->output().substr(from), "settled") && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    output = client->output().substr(from);
    from += output.size();
    if (!absl::StrContains(output, ", 0 READs of a mixture")) break;
  }
  EXPECT_TRUE(absl::StrContains(output, "settled") && !absl::StrContains(output, ", 0 READs of a mixture"))
      << output;
  EXPECT_FALSE(absl::StrContains(client->output(), "WRONG")) << client->output();
}

}  // namespace
}  // namespace hawser::chaos
