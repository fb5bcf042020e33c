// If a handler throws, the caller gets a Status, and nothing else happens.

#include <kj/debug.h>
#include <kj/exception.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "hawser/rpc/log.h"
#include "hawser/rpc/task.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status StatusOf(std::function<void()> thrower) {
  TestServer server;
  server.probe.on_act = [&](ServerContext&, uint64_t number) {
    if (number == 1) thrower();
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(SendAct(channel, 2).Wait(), IsOk()) << "the connection was harmed";
  return status;
}

[[noreturn]] void Throw(kj::Exception::Type type) {
  kj::throwFatalException(kj::Exception(type, "my/service.cc", 12, kj::str("on purpose")));
}

// What a handler throws is for its own log: it may name what the caller must not know.
TEST(ExceptionsTest, TheTextOfAnExceptionIsLoggedAndDoesNotCross) {
  constexpr char kSecret[] = "password=swordfish";
  const std::vector<std::function<void()>> throwers = {
      [&] { throw std::runtime_error(kSecret); },
      [&] { KJ_FAIL_REQUIRE(kSecret); },
      [&] { KJ_UNIMPLEMENTED(kSecret); },
      // As if it were of Cap'n Proto: a malformed message, and a value that is too large.
      [&] {
        kj::throwFatalException(
            kj::Exception(kj::Exception::Type::FAILED, "my/capnp/service.cc", 12, kj::str(kSecret)));
      },
      [&] {
        kj::throwFatalException(
            kj::Exception(kj::Exception::Type::FAILED, "kj/units.h", 12, kj::str(kSecret)));
      },
      [&] {
        kj::throwFatalException(kj::Exception(kj::Exception::Type::OVERLOADED, "x.cc", 12, kj::str(kSecret)));
      },
  };
  const auto later = [](DeferredCall call, const std::function<void()>& thrower) -> Task {
    thrower();
    call.Finish();
    co_return absl::OkStatus();
  };
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) {
    if (absl::StrContains(line, "threw"))
      lines.Put(std::string(line));  // Not what a server says about its options.
  });
  for (size_t i = 0; i < throwers.size(); ++i) {
    const absl::Status status = StatusOf(throwers[i]);
    EXPECT_THAT(status, Not(IsOk()));
    EXPECT_THAT(std::string(status.message()),
                AllOf(Not(HasSubstr(kSecret)), HasSubstr("its text is in the log of that process")))
        << i;
  }
  TestServer server;
  server.probe.on_act = [&](ServerContext& context, uint64_t) -> absl::Status {
    return later(context.Defer(), throwers[0]);
  };
  EXPECT_THAT(std::string(SendActAgain(server.Connect(), 1).Wait().status().message()),
              Not(HasSubstr(kSecret)));
  // Not all of them: the log takes three lines of one method in ten seconds.
  EXPECT_THAT(lines.Take(),
              AllOf(HasSubstr("the handler of probe.capnp:Probe.act, call "), HasSubstr(kSecret)));
  SetLogSink(nullptr);
}

// The caller has its OK, so the line does not say that it gets an error.
TEST(ExceptionsTest, WhatAHandlerThrowsAfterItHasAnsweredIsSaidToBeLate) {
  Box<std::string> lines;
  TestServer server;
  std::function<void()> after;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    context.Defer().Finish();
    after();
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  // Of actAgain: the log takes three lines of one method in ten seconds, and the test above writes of act.
  SetLogSink([&](LogSeverity, absl::string_view line) {
    if (absl::StrContains(line, "answered")) lines.Put(std::string(line));
  });
  after = [] { Throw(kj::Exception::Type::FAILED); };
  EXPECT_THAT(SendActAgain(channel, 1).Wait(), IsOk());
  EXPECT_THAT(lines.Take(), AllOf(HasSubstr("threw after it had been answered: "),
                                  HasSubstr("its caller has the answer"), Not(HasSubstr("INTERNAL"))));
  // What Cap'n Proto throws when it finds the end of a message too early.
  after = [] {
    kj::throwFatalException(
        kj::Exception(kj::Exception::Type::FAILED, "my/capnp/service.cc", 12, kj::str("out of bounds")));
  };
  EXPECT_THAT(SendActAgain(channel, 1).Wait(), IsOk());
  EXPECT_THAT(lines.Take(), AllOf(HasSubstr("used its request or reply after it had been answered"),
                                  Not(HasSubstr("malformed"))));
  SetLogSink(nullptr);
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

// Sends a message with `depth` levels. A client may nest deeper than the server's limit.
absl::StatusOr<uint32_t> Depth(TestServer& server, uint32_t depth) {
  auto call = probe::ProbeStub(server.Connect()).Depth();
  probe::Nest::Builder nest = call.request();
  for (uint32_t i = 0; i < depth; ++i) nest = nest.initInner();
  absl::StatusOr<Reply<probe::Probe::DepthResults>> reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getDepth();
}

// The text names the side whose limit it is. It does not call the peer's message malformed.
void ExpectLimit(const absl::Status& status, const std::string& limit) {
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(limit), HasSubstr("ServerOptions::read"), HasSubstr("ChannelOptions::read"),
                    Not(HasSubstr("malformed")), Not(HasSubstr("capnp::"))));
}

TEST(ExceptionsTest, AMessageThatIsNestedTooDeepNamesTheLimit) {
  TestServer server;
  const absl::StatusOr<uint32_t> shallow = Depth(server, 50);
  ASSERT_THAT(shallow.status(), IsOk());
  EXPECT_EQ(*shallow, 50u);
  ExpectLimit(Depth(server, 1000).status(), "ReadLimits::nesting_max");
}

TEST(ExceptionsTest, TheNestingLimitIsAnOption) {
  TestServer server({.read = {.nesting_max = 2000}});
  const absl::StatusOr<uint32_t> depth = Depth(server, 1000);
  ASSERT_THAT(depth.status(), IsOk());
  EXPECT_EQ(*depth, 1000u);
}

TEST(ExceptionsTest, AMessageThatCostsTooMuchToTraverseNamesTheLimit) {
  TestServer server({.read = {.traversal_factor = 1}});
  // Counts as 16 MiB of reads, as a message with many pointers to one list does.
  server.probe.on_echo = [](probe::Probe::EchoParams::Reader request) {
    for (int i = 0; i < 8'000; ++i) request.getData();
  };
  auto call = probe::ProbeStub(server.Connect()).Echo();
  call.request().initData(2048);
  const absl::Status status = call.Send().Wait().status();
  ExpectLimit(status, "ReadLimits::traversal_factor");
  EXPECT_THAT(std::string(status.message()), HasSubstr("ach look at a field"));
}

// Cap'n Proto's own builders throw, and the request is not the cause.
TEST(ExceptionsTest, AReplyBeyondCapnProtosLimitsIsSaidToBeOne) {
  const std::vector<std::function<void(capnp::AnyPointer::Builder)>> too_large = {
      [](auto root) { root.template initAs<capnp::Data>(1 << 29); },
      [](auto root) { root.template initAs<capnp::Text>((1 << 29) - 1); },
      [](auto root) { root.template initAs<capnp::List<uint64_t>>(1 << 29); },
      [](auto root) { root.template initAs<capnp::List<uint64_t>>((1 << 29) - 1); },
      [](auto root) { root.template initAs<capnp::List<probe::Nest>>(1 << 28); },
      [](auto root) {
        root.template setAs<capnp::Data>(capnp::Data::Reader(reinterpret_cast<const uint8_t*>(""), 1 << 29));
      },
  };
  TestServer server;
  server.probe.on_act = [&](ServerContext& context, uint64_t number) {
    too_large[number](context.reply<capnp::AnyPointer>());
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  for (size_t i = 0; i < too_large.size(); ++i) {
    const absl::Status status = SendAct(channel, i).Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << i;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("536870911 bytes"), HasSubstr("the handler"), Not(HasSubstr("malformed"))))
        << i;
  }
}

}  // namespace
}  // namespace hawser
