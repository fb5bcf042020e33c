// Calls that a coroutine makes on the poller of its channel: the road of usual calls
// (rpc/client/usual_call.cc), and where others leave it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/rpc/client/outgoing_calls.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/rpc/metadata.h"
#include "hawser/tests/testing/detached.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using Act = absl::StatusOr<Reply<probe::Probe::ActResults>>;

class UsualCallTest : public testing::Test {
 protected:
  struct Count {
    uint64_t ok = 0, not_found = 0, all = 0;
  };
  // What this process counts of the calls of act to the server.
  Count Counted() const {
    Count count;
    for (const auto& each : internal::OutgoingCalls::Process().Look(1 << 20).totals) {
      if (each.target != server_.uri || each.method != "probe.capnp:Probe.act") continue;
      count.ok += each.ended.by_code[0];
      count.not_found += each.ended.by_code[static_cast<size_t>(absl::StatusCode::kNotFound)];
      count.all += each.ended.latency.count();
    }
    return count;
  }

  TestServer server_;
  Driven client_;
};

// The first call is made by the test, all others on the poller.
Detached ActInTurn(std::shared_ptr<Channel> channel, uint64_t count, std::vector<absl::Status>& statuses,
                   std::vector<uint64_t>& numbers) {
  for (uint64_t i = 0; i < count; ++i) {
    const Act reply = co_await SendAct(channel, i);
    statuses.push_back(reply.status());
    numbers.push_back(reply.ok() ? (*reply)->getNumber() : 0);
  }
}

TEST_F(UsualCallTest, EachCallHasItsOwnResultAndIsCounted) {
  const auto channel = server_.Connect({.runtime = client_.runtime});
  server_.probe.on_act = [](ServerContext&, uint64_t number) {
    return number == 2 ? absl::NotFoundError("no two") : absl::OkStatus();
  };
  std::vector<absl::Status> statuses;
  std::vector<uint64_t> numbers;
  ActInTurn(channel, 5, statuses, numbers);
  ASSERT_TRUE(client_.Until([&] { return statuses.size() == 5; }));
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(statuses[i].code(), i == 2 ? absl::StatusCode::kNotFound : absl::StatusCode::kOk);
    EXPECT_EQ(numbers[i], i == 2 ? 0 : i);
  }
  const Count counted = Counted();
  EXPECT_EQ(counted.ok, 4u);
  EXPECT_EQ(counted.not_found, 1u);
  EXPECT_EQ(counted.all, 5u);
}

Detached ActOnce(std::shared_ptr<Channel> channel, uint64_t number, uint64_t& ended) {
  const Act reply = co_await SendAct(channel, number);
  EXPECT_THAT(reply, IsOk());
  EXPECT_EQ((*reply)->getNumber(), number);
  ++ended;
}

Detached ActAtOnce(std::shared_ptr<Channel> channel, uint64_t count, uint64_t& ended) {
  EXPECT_THAT(co_await SendAct(channel, 0), IsOk());
  for (uint64_t i = 1; i < count; ++i) ActOnce(channel, i, ended);
  ++ended;
}

TEST_F(UsualCallTest, MoreThanThereAreSlotsAllEnd) {
  const auto channel = server_.Connect({.connection = {.slots = 4}, .runtime = client_.runtime});
  uint64_t ended = 0;
  ActAtOnce(channel, 50, ended);
  EXPECT_TRUE(client_.Until([&] { return ended == 50; }));
  EXPECT_EQ(Counted().ok, 50u);
}

Detached ActThenActFor(std::shared_ptr<Channel> channel, absl::Duration timeout, absl::Status& status) {
  EXPECT_THAT(co_await SendAct(channel, 0), IsOk());
  const CallOptions options = {.timeout = timeout};
  auto call = SendAct(channel, 1, options);
  const Act reply = co_await std::move(call);
  status = reply.status();
}

TEST_F(UsualCallTest, AShortTimeoutIsKept) {
  const auto channel =
      server_.Connect({.default_timeout = absl::InfiniteDuration(), .runtime = client_.runtime});
  server_.probe.on_act = [this](ServerContext& context, uint64_t number) {
    return number == 0 ? absl::OkStatus() : server_.held.Handler()(context, number);
  };
  constexpr absl::Duration kExpiresAfter = absl::Milliseconds(5);
  absl::Status status;
  ActThenActFor(channel, kExpiresAfter, status);
  EXPECT_TRUE(client_.Until([&] { return absl::IsDeadlineExceeded(status); }));
}

Detached ActThenEcho(std::shared_ptr<Channel> channel, std::string& value, bool& ended) {
  EXPECT_THAT(co_await SendAct(channel, 0), IsOk());
  Metadata metadata;
  metadata.Add("key", "a value");
  CallOptions options;
  options.metadata = &metadata;
  auto call = probe::ProbeStub(channel).Echo(options);
  auto sent = call.Send();
  const auto reply = co_await std::move(sent);
  EXPECT_THAT(reply, IsOk());
  if (reply.ok()) value = std::string(reply->metadata().Get("key").value_or("nothing"));
  ended = true;
}

TEST_F(UsualCallTest, MetadataGoesAlong) {
  const auto channel = server_.Connect({.runtime = client_.runtime});
  std::string value;
  bool ended = false;
  ActThenEcho(channel, value, ended);
  ASSERT_TRUE(client_.Until([&] { return ended; }));
  EXPECT_EQ(value, "a value");
}

TEST_F(UsualCallTest, AnInterceptorSeesEachCall) {
  struct Counter : Interceptor {
    absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning&) override {
      ++begun;
      return nullptr;
    }
    int begun = 0;
  };
  const auto counter = std::make_shared<Counter>();
  const auto channel = server_.Connect({.interceptors = {counter}, .runtime = client_.runtime});
  std::vector<absl::Status> statuses;
  std::vector<uint64_t> numbers;
  ActInTurn(channel, 3, statuses, numbers);
  ASSERT_TRUE(client_.Until([&] { return statuses.size() == 3; }));
  EXPECT_EQ(counter->begun, 3);
}

}  // namespace
}  // namespace hawser
