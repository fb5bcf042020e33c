// Snippets of README.md: a service, its server and a client.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "examples/echo/echo.rpc.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"

namespace {

// snippet: server
class EchoServiceImpl : public echo::EchoService {
 public:
  absl::Status Echo(hawser::ServerContext&, echo::Echo::EchoParams::Reader request,
                    echo::Echo::EchoResults::Builder reply) override {
    reply.setMessage(request.getMessage());
    return absl::OkStatus();
  }
};

absl::Status Serve(const std::string& address) {  // "tcp://[::]:7470"
  EchoServiceImpl service;
  hawser::Server server;
  absl::Status status = server.AddService(&service);
  if (status.ok()) status = server.Listen(address).status();
  return status.ok() ? server.Wait() : status;  // Until Shutdown().
}
// end of snippet

// snippet: client
absl::StatusOr<std::string> Call(const std::string& target, capnp::Data::Reader data) {  // "tcp://kv1:7470"
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(target);
  if (!channel.ok()) return channel.status();
  echo::EchoStub stub(*channel);
  auto call = stub.Echo({.timeout = absl::Seconds(5)});  // Builds the request in registered memory.
  call.request().setMessage(data);
  auto reply = call.Send().Wait();  // Or .Then(callback), or co_await.
  if (!reply.ok()) return reply.status();
  const capnp::Data::Reader echoed = (*reply)->getMessage();  // Read where it was received.
  return std::string(echoed.asChars().begin(), echoed.size());
}
// end of snippet

TEST(ReadmeTest, AClientGetsItsMessageBack) {
  EchoServiceImpl service;
  hawser::Server server;
  ASSERT_TRUE(server.AddService(&service).ok());
  const absl::StatusOr<std::string> uri = server.Listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(uri.ok()) << uri.status();
  constexpr absl::string_view kMessage = "ahoy";
  const absl::StatusOr<std::string> echoed =
      Call(*uri, {reinterpret_cast<const uint8_t*>(kMessage.data()), kMessage.size()});
  ASSERT_TRUE(echoed.ok()) << echoed.status();
  EXPECT_EQ(*echoed, kMessage);
}

TEST(ReadmeTest, AServerThatCannotListenSaysWhy) {
  EXPECT_EQ(Serve("no address").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
