#ifndef HAWSER_TESTS_RPC_CREDENTIALS_PROBE_H_
#define HAWSER_TESTS_RPC_CREDENTIALS_PROBE_H_

#include <sched.h>

#include <memory>
#include <string>
#include <utility>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/wire/handshake.h"
#include "tests/rpc/probe.h"

// What the tests of credentials over RDMA share: what holds of a server and its clients wherever these prove
// who they are. The server has the name server.example.org, clients client.example.org.
namespace hawser {

inline const CallOptions kPatient = {.timeout = kLong, .wait_for_ready = true};

inline std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Of an honest client of transport/.
inline transport::Handshake HelloOf(transport::Role role) {
  transport::Handshake hello;
  hello.role = role;
  hello.slots = 4;
  hello.receive_buffer_bytes = 4096;
  hello.message_bytes_max = 1 << 20;
  return hello;
}

inline void ExpectLargeMessagesAreRead(const std::shared_ptr<Channel>& channel) {
  auto call = probe::ProbeStub(channel).Echo({.timeout = kLong});
  call.request().initData(3'000'000)[2'999'999] = 7;
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getData()[2'999'999], 7);
}

// A server that calls its client back. Both know whom they talk to.
inline void ExpectCallsToAClient(TestServer& server, ChannelOptions options) {
  class Listener final : public probe::ListenerService {
   public:
    absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      callers.Put(context.peer_identity());
      return absl::OkStatus();
    }
    Box<PeerIdentity> callers;
  } listener;
  options.services = {&listener};
  const auto channel = server.Connect(std::move(options));
  const std::shared_ptr<Channel> back = WayBack(server, channel);
  EXPECT_TRUE(back->peer_identity().HasDnsName("client.example.org"));
  EXPECT_THAT(probe::ListenerStub(back).Notify({.timeout = kLong}).Send().Wait().status(), IsOk());
  EXPECT_TRUE(listener.callers.Take().HasDnsName("server.example.org"));
  EXPECT_EQ(server.server.stats().connections, 2u);
}

// Channels that end at all steps of connecting. The server then serves a client as before.
inline void ExpectNothingIsLeftOfEndedChannels(TestServer& server, const ChannelOptions& options) {
  for (int i = 0; i < 50; ++i) {
    const auto channel = *Channel::Create(server.uri, options);
    for (int spins = 0; spins < i * 20; ++spins) sched_yield();
    if (i % 2 == 0) channel->Close();
  }
  EXPECT_TRUE(Eventually([&] { return server.server.stats().connections == 0; }));
  EXPECT_THAT(SendAct(server.Connect(options), 1).Wait(), IsOk());
}

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_CREDENTIALS_PROBE_H_
