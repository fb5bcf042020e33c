#ifndef HAWSER_TESTS_TRANSPORT_TESTING_WORLD_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_WORLD_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/tests/transport/testing/spy_fabric.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {

// Both ends of an application's connections in one thread: a client's runtime and a server's, each on a TCP
// fabric of its own. The test drives both by turns, and moves their clock.
class World {
 public:
  struct Side {
    std::shared_ptr<SpyFabric> fabric;
    std::shared_ptr<Runtime> runtime;
    BufferPool& buffers() { return runtime->buffers(); }
    Poller& poller() { return runtime->poller(0); }
    MessagePool& messages() { return poller().messages(); }
  };

  // `new_fabric` makes the fabric of one side; if it is not set, each side has a test fabric.
  explicit World(const RuntimeOptions& client_options = {}, const RuntimeOptions& server_options = {},
                 const std::function<std::shared_ptr<fabric::Fabric>()>& new_fabric = nullptr);
  ~World();

  TestClock clock;
  Side client, server;
  size_t next_poller = 0;  // The server's one for the next connection.
  // The turns of other participants.
  std::vector<std::function<size_t()>> others;

  // Runs one turn of each side. Returns how much there was to do.
  size_t Turn();
  // Runs turns until `condition` holds. False: it does not within a time that is enough for any machine.
  bool RunUntil(const std::function<bool()>& condition);
  // As RunUntil(), for what a device may hold back that comes first on a connection (Linux's siw), until the
  // client pings: the clock moves for that ping, once, if two seconds of real time were not enough.
  bool RunUntilPastFirstPing(const std::function<bool()>& condition);
  // Runs turns until there was nothing to do for a while, so that everything in flight has arrived.
  void Settle();
  // Moves the clock, in steps, with turns between them.
  void Pass(absl::Duration time, absl::Duration step = absl::Milliseconds(1));

  // The bytes that a side leases from its pool, without those that it keeps for the next message.
  static size_t LeasedBytes(Side& side);
  size_t LeasedBytes() { return LeasedBytes(client) + LeasedBytes(server); }

  // Runs on the poller of a side.
  void OnServer(const std::function<void()>& code) { On(server, code); }
  void OnClient(const std::function<void()>& code) { On(client, code); }
  static void On(Side& side, const std::function<void()>& code) {
    side.poller().Run([&] { code(); });
  }
};

// A connection from the client of a World to its server. `server` answers the requests; by default it keeps
// them.
class Link {
 public:
  // Both ends use the same options, unless the server's are given too.
  explicit Link(World& world, const ConnectionOptions& options = {});
  Link(World& world, const ConnectionOptions& client_options, const ConnectionOptions& server_options);
  ~Link();
  Link(const Link&) = delete;

  // Sends. If it must wait for credits, runs turns until it has them. `call` is notified of its end.
  absl::Status Send(PendingCall& call, OutgoingMessagePtr request,
                    absl::Duration timeout = absl::InfiniteDuration());
  absl::Status Send(PendingCall& call, size_t body_bytes, absl::Duration timeout = absl::InfiniteDuration()) {
    return Send(call, NewMessage(world.client.messages(), body_bytes), timeout);
  }
  // Sends and turns until `call` has ended.
  void Call(PendingCall& call, OutgoingMessagePtr request);

  void Echo(RecordingServer::Request request);
  // From now on the server answers everything with its own content.
  void EchoAll();
  // Answers a request that the server has kept.
  absl::Status Respond(ExchangeId id, OutgoingMessagePtr response);
  absl::Status Respond(ExchangeId id, size_t body_bytes) {
    return Respond(id, NewMessage(world.server.messages(), body_bytes));
  }
  // Answers with an empty response.
  void RespondEmpty(ExchangeId id) { EXPECT_THAT(Respond(id, 0), IsOk()); }

  bool ready() const { return client_observer.ready.has_value() && server_observer.ready.has_value(); }
  bool closed() const { return client_observer.closings != 0 && server_observer.closings != 0; }

  // The spies' counts of this connection's two queue pairs.
  SpyFabric::Counts& client_counts() { return world.client.fabric->counts(client_queue_pair_); }
  SpyFabric::Counts& server_counts() { return world.server.fabric->counts(server_queue_pair_); }

  World& world;
  RecordingObserver client_observer, server_observer;
  RecordingServer server;
  Connection* client_end = nullptr;
  Connection* server_end = nullptr;
  Poller* server_poller = nullptr;

 private:
  size_t client_queue_pair_ = 0, server_queue_pair_ = 0;
  std::deque<PendingCall::Proxy> proxies_;
};

// A listener of a side: it records each connection request, or accepts it.
class TestListener final : public Acceptor::Handler {
 public:
  TestListener(World& world, World::Side& side);
  ~TestListener();

  void OnPeer(PeerRequest request) override;
  SocketAddress address() const { return address_; }

  // If unset, requests are kept in `waiting`.
  std::function<void(PeerRequest)> on_peer;
  std::vector<PeerRequest> waiting;

 private:
  World& world_;
  World::Side& side_;
  std::unique_ptr<Acceptor> acceptor_;
  SocketAddress address_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_WORLD_H_
