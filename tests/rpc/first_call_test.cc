// The first call of a connection, before any other message has shown that messages arrive.

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

// Over siw the first message of one connection in 200 wakes no thread (tests/softroce/README.md) when client
// and server have a thread each. The timeout is below keepalive's first ping on an idle connection.
TEST(FirstCallTest, IsAnsweredOnEachOfManyConnections) {
  TestServer server;
  for (int i = 0; i < 400; ++i) {
    const auto channel = server.Connect();
    ASSERT_NE(channel, nullptr);
    ASSERT_THAT(SendAct(channel, i, {.timeout = absl::Seconds(5)}).Wait().status(), IsOk())
        << "connection " << i;
  }
}

}  // namespace
}  // namespace hawser
