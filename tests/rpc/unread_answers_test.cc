// Clients of one host that ask every server's reflection service for schemas, and never READ the answers: what they hold of the
// server's memory is bounded, and a client of another host is served.

#include <arpa/inet.h>
#include <netinet/in.h>

#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "hawser/base/endian.h"
#include "hawser/reflection.rpc.h"
#include "hawser/tests/strangers/crowd.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

class Unread final : public strangers::Stranger {
  void OnAccepted() override {
    // The root: two words of data, the id of the interface and `skip`.
    std::string body(24, '\0');
    body[4] = 2;
    StoreLittle64(reinterpret_cast<uint8_t*>(&body[8]), capnp::typeId<reflection::Reflection>());
    for (uint16_t slot = 0; slot < kSlots; ++slot) {
      SendRequest(slot, 1, {{0, 0, static_cast<uint32_t>(body.size())}}, body);
    }
    answers_ = 0;
  }
  void OnResponse(uint16_t, absl::Span<const transport::TableEntry>) override {
    if (++answers_ == kSlots) AtWork();
  }
  int answers_ = 0;
};

constexpr strangers::StrangerKind kUnread = {
    "unread", "Asks for 32 schemas and READs none.",
    []() -> std::unique_ptr<strangers::Stranger> { return std::make_unique<Unread>(); }};

// The parameter is the number of pollers.
class UnreadAnswersTest : public ::testing::TestWithParam<int> {};

TEST_P(UnreadAnswersTest, AClientOfAnotherHostIsServed) {
  ServerOptions options;
  options.pollers = GetParam();
  options.pool.limit_bytes = 64 << 20;
  TestServer server(std::move(options), "tcp://127.0.0.1:0");
  const auto channel = server.Connect();
  ASSERT_NE(channel, nullptr);
  strangers::CrowdOptions crowd_options;
  crowd_options.target.interface_id = capnp::typeId<reflection::Reflection>();
  sockaddr_in& address = crowd_options.target.address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(server.uri.substr(server.uri.rfind(':') + 1), &port));
  address.sin_port = htons(static_cast<uint16_t>(port));
  crowd_options.groups = {{&kUnread, 60}};
  crowd_options.from = strangers::From::kOne;
  strangers::Crowd crowd(crowd_options);
  crowd.WaitUntilAtWork(absl::Seconds(3));

  int failed = 0;
  absl::Status last;
  for (int i = 0; i < 20; ++i) {
    auto call = probe::ProbeStub(channel).Echo({.timeout = absl::Milliseconds(200)});
    call.request().initData(64 << 10);
    const absl::Status status = call.Send().Wait().status();
    failed += !status.ok();
    if (!status.ok()) last = status;
  }
  EXPECT_EQ(failed, 0) << last;
  EXPECT_THAT(Channel::Connect(server.uri).status(), HasCode(absl::StatusCode::kOk));
}

INSTANTIATE_TEST_SUITE_P(Pollers, UnreadAnswersTest, ::testing::Values(1, 4),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace hawser
