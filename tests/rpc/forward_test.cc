// A gateway that forwards large values between its server and its channels.

#include <algorithm>
#include <memory>
#include <utility>

#include "hawser/rpc/task.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

constexpr size_t kBytes = 1 << 20;

// Answers Echo with the answer of another server, and records whether it copied anything.
class Gateway final : public ProbeServiceImpl {
 public:
  absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader request,
                    probe::Probe::EchoResults::Builder reply) override {
    return PassOn(context.Defer(), request, reply);
  }

  std::shared_ptr<Channel> backend;
  bool request_copied = false, reply_copied = false;

 private:
  Task PassOn(DeferredCall call, probe::Probe::EchoParams::Reader request,
              probe::Probe::EchoResults::Builder reply) {
    ServerContext& context = call.context();
    auto echo = probe::ProbeStub(backend).Echo(CallOptions::For(context));
    const KeptBytes kept = context.KeepBytes(request.getData());
    capnp::Orphan<capnp::Data> to_backend = echo.Attach(kept.bytes, kept.owner);
    request_copied = to_backend.getReader().begin() != request.getData().begin();
    echo.request().adoptData(std::move(to_backend));
    auto answer = co_await echo.Send();
    if (!answer.ok()) co_return answer.status();
    const capnp::Data::Reader data = (*answer)->getData();
    capnp::Orphan<capnp::Data> to_client = context.Attach(data, (*std::move(answer)).Keep());
    reply_copied = to_client.getReader().begin() != data.begin();
    reply.adoptData(std::move(to_client));
    co_return absl::OkStatus();
  }
};

class ForwardTest : public testing::Test {
 protected:
  // Sends one large echo through the gateway.
  void EchoThroughGateway(const ChannelOptions& options) {
    gateway_.backend = *Channel::Connect(backend_.uri, options);
    const auto channel = *Channel::Connect(*server_.Listen(TestUri()));
    auto call = probe::ProbeStub(channel).Echo();
    std::fill_n(call.request().initData(kBytes).begin(), kBytes, 0x5a);
    const auto reply = call.Send().Wait();
    ASSERT_THAT(reply.status(), IsOk());
    const capnp::Data::Reader data = (*reply)->getData();
    EXPECT_EQ(std::count(data.begin(), data.end(), 0x5a), static_cast<ptrdiff_t>(kBytes));
  }

  void SetUp() override { ASSERT_THAT(server_.AddService(&gateway_), IsOk()); }

  TestServer backend_;
  Gateway gateway_;
  Server server_;
};

TEST_F(ForwardTest, AChannelOfTheServersMemoryCopiesNothing) {
  EchoThroughGateway({.server = &server_});
  EXPECT_FALSE(gateway_.request_copied);
  EXPECT_FALSE(gateway_.reply_copied);
}

TEST_F(ForwardTest, AChannelOfItsOwnMemoryCopies) {
  EchoThroughGateway({});
  EXPECT_TRUE(gateway_.request_copied);
  EXPECT_TRUE(gateway_.reply_copied);
}

TEST_F(ForwardTest, TheChannelMayOutliveTheServer) {
  auto server = std::make_unique<Server>();
  const auto channel = *Channel::Connect(backend_.uri, {.server = server.get()});
  server.reset();
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), IsOk());
}

}  // namespace
}  // namespace hawser
