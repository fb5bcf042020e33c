// How the log reports exceptions over messages. Either side may be their cause, and a peer may send many such
// messages.

#include <capnp/serialize.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "hawser/rpc/log.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Pair;

class ExceptionLogTest : public ::testing::Test {
 protected:
  ExceptionLogTest() {
    SetLogSink([this](LogSeverity severity, absl::string_view line) {
      lines_.Put({severity, std::string(line)});
    });
  }
  ~ExceptionLogTest() override { SetLogSink(nullptr); }

  // Calls echo() of `service`, which throws, and returns the status.
  static absl::Status EchoOf(Service& service) {
    Server server;
    EXPECT_THAT(server.AddService(&service), IsOk());
    const auto channel = *Channel::Connect(*server.Listen(TestUri()));
    return probe::ProbeStub(channel).Echo().Send().Wait().status();
  }

  Box<std::pair<LogSeverity, std::string>> lines_;
};

TEST_F(ExceptionLogTest, AHandlerThatBuildsTooMuchIsToldThoughItIsInvalidArgument) {
  class TooMuch final : public ProbeServiceImpl {
    absl::Status Echo(ServerContext&, probe::Probe::EchoParams::Reader,
                      probe::Probe::EchoResults::Builder reply) override {
      reply.initData(1 << 30);
      return absl::OkStatus();
    }
  } service;
  EXPECT_THAT(EchoOf(service), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(lines_.Take(),
              Pair(LogSeverity::kError, ContainsRegex("Probe.echo, call [0-9]+:[0-9]+[.][0-9]+ of ")));
}

TEST_F(ExceptionLogTest, AHandlerThatReadsBrokenDataOfItsOwnIsTold) {
  class Broken final : public ProbeServiceImpl {
    absl::Status Echo(ServerContext&, probe::Probe::EchoParams::Reader,
                      probe::Probe::EchoResults::Builder) override {
      alignas(capnp::word) static constexpr uint8_t kCutShort[16] = {1, 0, 0, 0, 9};
      capnp::FlatArrayMessageReader reader(kj::arrayPtr(reinterpret_cast<const capnp::word*>(kCutShort),
                                                        sizeof(kCutShort) / sizeof(capnp::word)));
      reader.getRoot<capnp::AnyPointer>();
      return absl::OkStatus();
    }
  } service;
  EXPECT_THAT(EchoOf(service), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(lines_.Take(),
              Pair(LogSeverity::kError, HasSubstr("(the request, unless the handler reads others)")));
}

TEST_F(ExceptionLogTest, MessagesThatAPeerNestsTooDeepDoNotSilenceAHandler) {
  struct Throwing final : ProbeServiceImpl {
    absl::Status Depth(ServerContext&, probe::Nest::Reader request,
                       probe::Probe::DepthResults::Builder) override {
      if (!request.hasInner()) throw std::runtime_error("on purpose");
      while (request.hasInner()) request = request.getInner();
      return absl::OkStatus();
    }
  } service;
  Server server;
  ASSERT_THAT(server.AddService(&service), IsOk());
  const auto channel = *Channel::Connect(*server.Listen(TestUri()));
  for (int i = 0; i < 10; ++i) {
    auto call = probe::ProbeStub(channel).Depth();
    probe::Nest::Builder nest = call.request();
    for (int depth = 0; depth < 100; ++depth) nest = nest.initInner();
    EXPECT_THAT(call.Send().Wait().status(), HasCode(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_THAT(probe::ProbeStub(channel).Depth().Send().Wait().status(), HasCode(absl::StatusCode::kInternal));
  int of_the_peer = 0;
  while (!absl::StrContains(lines_.Take().second, "on purpose")) ++of_the_peer;
  EXPECT_LE(of_the_peer, 3);
}

}  // namespace
}  // namespace hawser
