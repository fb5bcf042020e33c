// What is thrown in a handler is a Status to the caller, and nothing else happens.

#include <kj/debug.h>
#include <kj/exception.h>

#include <stdexcept>
#include <string>

#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

absl::Status StatusOf(std::function<void()> thrower) {
  TestServer server;
  server.probe.on_act = [&](ServerContext&, uint64_t number) {
    if (number == 1) thrower();
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_TRUE(SendAct(channel, 2).Wait().ok()) << "the connection was harmed";
  return status;
}

[[noreturn]] void Throw(kj::Exception::Type type) {
  kj::throwFatalException(kj::Exception(type, "my/service.cc", 12, kj::str("on purpose")));
}

TEST(ExceptionsTest, AStdExceptionIsInternalWithItsText) {
  const absl::Status status = StatusOf([] { throw std::runtime_error("on purpose"); });
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(std::string(status.message()), HasSubstr("on purpose"));
}

TEST(ExceptionsTest, AnythingElseIsInternal) {
  EXPECT_THAT(StatusOf([] { throw 42; }), HasCode(absl::StatusCode::kInternal));
}

TEST(ExceptionsTest, AKjExceptionBecomesACodeByItsType) {
  EXPECT_THAT(StatusOf([] { Throw(kj::Exception::Type::FAILED); }), HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(StatusOf([] { Throw(kj::Exception::Type::OVERLOADED); }),
              HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(StatusOf([] { Throw(kj::Exception::Type::DISCONNECTED); }),
              HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(StatusOf([] { Throw(kj::Exception::Type::UNIMPLEMENTED); }),
              HasCode(absl::StatusCode::kUnimplemented));
}

// A client may nest its message deeper than the server is willing to follow.
absl::StatusOr<uint32_t> Depth(TestServer& server, uint32_t depth) {
  auto call = probe::ProbeStub(server.Connect()).Depth();
  probe::Nest::Builder nest = call.request();
  for (uint32_t i = 0; i < depth; ++i) nest = nest.initInner();
  absl::StatusOr<Reply<probe::Probe::DepthResults>> reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getDepth();
}

TEST(ExceptionsTest, AMessageThatIsNestedTooDeepIsInvalid) {
  TestServer server;
  const absl::StatusOr<uint32_t> shallow = Depth(server, 50);
  ASSERT_THAT(shallow.status(), HasCode(absl::StatusCode::kOk));
  EXPECT_EQ(*shallow, 50u);
  EXPECT_THAT(Depth(server, 1000).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(ExceptionsTest, TheNestingLimitIsAnOption) {
  TestServer server({.read = {.nesting_max = 2000}});
  const absl::StatusOr<uint32_t> depth = Depth(server, 1000);
  ASSERT_THAT(depth.status(), HasCode(absl::StatusCode::kOk));
  EXPECT_EQ(*depth, 1000u);
}

TEST(ExceptionsTest, AMessageThatCostsTooMuchToTraverseIsInvalid) {
  TestServer server({.read = {.traversal_factor = 1}});
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    // 16 MiB of words that are no bytes of the message: what a small message with many pointers to one list
    // does.
    for (int i = 0; i < 4'000'000; ++i) context.request<probe::Probe::ActParams>().getNumber();
    return absl::OkStatus();
  };
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hawser
