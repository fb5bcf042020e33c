#include <gtest/gtest.h>

#include "hawser/rpc/server.h"
#include "polite_greeter.h"

namespace greeter {
namespace {

// A server and a client in one process, over a real connection.
class GreeterTest : public testing::Test {
 protected:
  GreeterTest() : stub_(Connect()) {}

  std::shared_ptr<hawser::Channel> Connect() {
    absl::Status added = server_.AddService(&greeter_);
    EXPECT_TRUE(added.ok()) << added;
    absl::StatusOr<std::string> uri = server_.Listen("tcp://127.0.0.1:0");
    if (!uri.ok()) throw std::runtime_error(uri.status().ToString());
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(*uri);
    if (!channel.ok()) throw std::runtime_error(channel.status().ToString());
    return *channel;
  }

  PoliteGreeter greeter_;  // Outlives the server.
  hawser::Server server_;
  GreeterStub stub_;
};

TEST_F(GreeterTest, GreetsByTitleAndName) {
  auto call = stub_.Greet();
  people::Person::Builder person = call.request().initPerson();
  person.setName("Lovelace");
  person.setTitle("Countess");
  absl::StatusOr<hawser::Reply<Greeter::GreetResults>> reply = call.Send().Wait();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_STREQ((*reply)->getGreeting().cStr(), "Good day, Countess Lovelace");
}

TEST_F(GreeterTest, RefusesAPersonWithoutAName) {
  absl::StatusOr<hawser::Reply<Greeter::GreetResults>> reply = stub_.Greet().Send().Wait();
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument) << reply.status();
}

}  // namespace
}  // namespace greeter
