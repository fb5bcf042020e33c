// Readers that outlive their message are detected: the compiler refuses them, AddressSanitizer reports them,
// and in a debug build they read no byte of a message.

#include <string.h>

#include <memory>
#include <string>
#include <utility>

#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/memory/retired_memory.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using EchoReply = Reply<probe::Probe::EchoResults>;

// Whether getData() compiles. On a temporary Reply its Reader would dangle.
template <typename T>
concept Readable = requires(T reply) {
  std::forward<T>(reply)->getData();
};
template <typename T>
concept Dereferenceable = requires(T reply) {
  *std::forward<T>(reply);
};

template <typename T>
concept HasMetadata = requires(T reply) {
  std::forward<T>(reply).metadata();
};

static_assert(HasMetadata<EchoReply&> && !HasMetadata<EchoReply> && !HasMetadata<const EchoReply>);
static_assert(Readable<EchoReply&> && Dereferenceable<EchoReply&>);
static_assert(Readable<const EchoReply&> && Dereferenceable<const EchoReply&>);
static_assert(!Readable<EchoReply> && !Dereferenceable<EchoReply>);
static_assert(!Readable<const EchoReply> && !Dereferenceable<const EchoReply>);

constexpr char kContent[] = "the bytes of a message";

// A server whose handler leaks the Reader of its request, and a call of it.
struct Leaky {
  Leaky() {
    server.probe.on_act = [this](ServerContext& context, uint64_t) {
      request = context.request<probe::Probe::EchoParams>().getData();
      return absl::OkStatus();
    };
    channel = server.Connect({.runtime = runtime});
    auto call = Call<probe::Probe::EchoParams, probe::Probe::ActResults>(channel, probe::ProbeStub::kAct, {});
    built = call.request().initData(sizeof(kContent));
    memcpy(built.begin(), kContent, sizeof(kContent));
    EXPECT_THAT(call.Send().Wait().status(), IsOk());
    // The pollers destroy the messages a little later than the call ends.
    server.server.Shutdown(absl::InfinitePast()).IgnoreError();
    channel->Close();
    EXPECT_TRUE(Eventually([&] {
      size_t connections = 0;
      internal::RunAndWait(runtime->poller(0), [&] { connections = runtime->poller(0).connection_count(); });
      return connections == 0;
    }));
  }

  std::shared_ptr<transport::Runtime> runtime = *transport::Runtime::Create(TestScheme());
  std::shared_ptr<transport::Runtime> server_runtime = *transport::Runtime::Create(TestScheme());
  TestServer server{{.runtime = server_runtime}};
  std::shared_ptr<Channel> channel;
  capnp::Data::Reader request;
  capnp::Data::Builder built;
};

capnp::Data::Reader ReaderOfAReplyThatIsGone(const std::shared_ptr<Channel>& channel) {
  auto call = probe::ProbeStub(channel).Echo();
  call.request().setData({reinterpret_cast<const uint8_t*>(kContent), sizeof(kContent)});
  const absl::StatusOr<EchoReply> reply = call.Send().Wait();
  EXPECT_THAT(reply.status(), IsOk());
  return (*reply)->getData();
}

volatile uint8_t sink;

class DanglingDeathTest : public ::testing::Test {
 protected:
  DanglingDeathTest() {
    if (!transport::kPoisonsRetiredMemory) skip = true;
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // The process has threads.
  }
  bool skip = false;
};

TEST_F(DanglingDeathTest, ARequestReadAfterItsHandlerIsReported) {
  if (skip) GTEST_SKIP() << "not built with AddressSanitizer";
  EXPECT_DEATH(
      {
        Leaky leaky;
        sink = leaky.request[0];
      },
      "use-after-poison");
}

TEST_F(DanglingDeathTest, AReplyReadAfterItsEndIsReported) {
  if (skip) GTEST_SKIP() << "not built with AddressSanitizer";
  EXPECT_DEATH(
      {
        TestServer server;
        const auto channel = server.Connect();
        sink = ReaderOfAReplyThatIsGone(channel)[0];
      },
      "use-after-poison");
}

TEST_F(DanglingDeathTest, ARequestBuiltOnAfterItsCallIsReported) {
  if (skip) GTEST_SKIP() << "not built with AddressSanitizer";
  EXPECT_DEATH(
      {
        Leaky leaky;
        leaky.built[0] = 1;
      },
      "use-after-poison");
}

class DanglingTest : public ::testing::Test {
 protected:
  DanglingTest() { skip = !transport::kOverwritesRetiredMemory || transport::kPoisonsRetiredMemory; }
  static void ExpectOverwritten(capnp::Data::Reader bytes) {
    ASSERT_EQ(bytes.size(), sizeof(kContent));
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], transport::kRetiredByte) << i;
  }
  bool skip;
};

TEST_F(DanglingTest, ARequestIsOverwrittenAfterItsHandler) {
  if (skip) GTEST_SKIP() << "only debug builds without AddressSanitizer overwrite what may be read";
  const Leaky leaky;
  ExpectOverwritten(leaky.request);
}

TEST_F(DanglingTest, AReplyIsOverwrittenAfterItsEnd) {
  if (skip) GTEST_SKIP() << "only debug builds without AddressSanitizer overwrite what may be read";
  TestServer server;
  const auto channel = server.Connect();
  ExpectOverwritten(ReaderOfAReplyThatIsGone(channel));
}

TEST_F(DanglingTest, ARequestIsOverwrittenAtTheClientAfterItsCall) {
  if (skip) GTEST_SKIP() << "only debug builds without AddressSanitizer overwrite what may be read";
  Leaky leaky;
  ExpectOverwritten(leaky.built.asReader());
}

}  // namespace
}  // namespace hawser
