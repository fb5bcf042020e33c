#include "hawser/tests/transport/testing/world.h"

#include <sched.h>

#include <utility>

#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/lane/lane_requests.h"

namespace hawser::transport {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);
// Long enough for a packet over loopback. Turns are slow under a sanitizer, so there are few.
constexpr int kIdleTurnsToSettle = 200;

World::Side MakeSide(const RuntimeOptions& options, TestClock& clock,
                     const std::function<std::shared_ptr<fabric::Fabric>()>& new_fabric) {
  World::Side side;
  side.fabric = std::make_shared<SpyFabric>(new_fabric ? new_fabric() : NewTestFabric());
  absl::StatusOr<std::shared_ptr<Runtime>> runtime =
      Runtime::CreateOn(side.fabric, options, /*start_threads=*/false, clock);
  EXPECT_THAT(runtime, IsOk());
  side.runtime = *std::move(runtime);
  return side;
}

}  // namespace

// ---- World

World::World(const RuntimeOptions& client_options, const RuntimeOptions& server_options,
             const std::function<std::shared_ptr<fabric::Fabric>()>& new_fabric)
    : client(MakeSide(client_options, clock, new_fabric)),
      server(MakeSide(server_options, clock, new_fabric)) {}

World::~World() = default;

size_t World::Turn() {
  size_t work = client.poller().PollOnce();
  for (size_t i = 0; i < server.runtime->poller_count(); ++i) work += server.runtime->poller(i).PollOnce();
  for (const std::function<size_t()>& other : others) work += other();
  return work;
}

bool World::RunUntil(const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition()) {
    if (Turn() != 0) continue;
    if (absl::Now() > end) return false;
    sched_yield();
  }
  return true;
}

bool World::RunUntilPastFirstPing(const std::function<bool()>& condition) {
  const absl::Time late = absl::Now() + absl::Seconds(2);
  bool moved = false;
  return RunUntil([&] {
    if (!moved && absl::Now() > late) {
      moved = true;
      clock.Advance(LaneRequests::kFirstAnswer);
    }
    return condition();
  });
}

size_t World::LeasedBytes(Side& side) {
  On(side, [&] { side.messages().Trim(); });
  return side.buffers().stats().leased_bytes;
}

void World::Settle() {
  // A thread of a device revokes what is granted by registration.
  const absl::Time end = absl::Now() + kPatience;
  for (int idle = 0; idle < kIdleTurnsToSettle;) {
    const bool is_idle =
        Turn() == 0 && ((!client.fabric->revokes() && !server.fabric->revokes()) || absl::Now() > end);
    idle = is_idle ? idle + 1 : 0;
  }
}

void World::Pass(absl::Duration time, absl::Duration step) {
  for (; time > absl::ZeroDuration(); time -= step) {
    clock.Advance(std::min(step, time));
    Settle();
  }
}

// ---- Link

Link::Link(World& the_world, const ConnectionOptions& options) : Link(the_world, options, options) {}

Link::Link(World& the_world, const ConnectionOptions& client_options, const ConnectionOptions& server_options)
    : world(the_world) {
  TestListener listener(world, world.server);
  listener.on_peer = [&](PeerRequest request) {
    server_queue_pair_ = world.server.fabric->queue_pairs();
    server_poller = &world.server.runtime->poller(world.next_poller++);
    server_poller->Run([&, request = std::move(request)]() mutable {
      absl::StatusOr<Connection*> accepted =
          Connection::Accept(*server_poller, std::move(request), server_options,
                             NewSessionToken(Environment::Real()), server_observer, &server);
      ASSERT_THAT(accepted, IsOk());
      server_end = *accepted;
    });
  };
  world.OnClient([&] {
    client_queue_pair_ = world.client.fabric->queue_pairs();
    absl::StatusOr<Connection*> dialed =
        Connection::Dial(world.client.poller(), listener.address(), client_options, Handshake(),
                         absl::Seconds(5), client_observer, nullptr);
    ASSERT_THAT(dialed, IsOk());
    client_end = *dialed;
  });
  EXPECT_TRUE(world.RunUntil([&] { return ready(); }))
      << "client: " << client_observer.closed.value_or(absl::OkStatus())
      << " server: " << server_observer.closed.value_or(absl::OkStatus());
}

Link::~Link() {
  if (client_end != nullptr && client_observer.closings == 0) world.OnClient([&] { client_end->Close(); });
  if (server_end != nullptr && server_observer.closings == 0)
    server_poller->Run([&] { server_end->Close(); });
  EXPECT_TRUE(world.RunUntil([&] {
    return (client_end == nullptr || client_observer.closings != 0) &&
           (server_end == nullptr || server_observer.closings != 0);
  }));
}

absl::Status Link::Send(PendingCall& call, OutgoingMessagePtr request, absl::Duration timeout) {
  // Where SENDs cannot wait, a connection has few credits at first; the responder gives more without being
  // asked.
  if (client_observer.losses == 0 && client_end->state() == Connection::State::kReady &&
      client_end->exchanges_in_flight() < client_end->agreed().slots) {
    world.RunUntil([&] { return client_observer.losses != 0 || client_end->CanSend(); });
    if (client_observer.losses != 0) return *client_observer.lost;
  }
  absl::Status result;
  proxies_.emplace_back(call);
  world.OnClient([&] {
    absl::StatusOr<ExchangeId> sent =
        client_end->SendRequest(request, After(world.clock.NowNs(), timeout), proxies_.back());
    if (sent.ok()) call.id = *sent;
    result = sent.status();
  });
  return result;
}

void Link::Call(PendingCall& call, OutgoingMessagePtr request) {
  const absl::Status sent = Send(call, std::move(request));
  ASSERT_THAT(sent, IsOk());
  ASSERT_TRUE(world.RunUntil([&] { return call.done(); }));
}

void Link::Echo(RecordingServer::Request request) {
  OutgoingMessagePtr response = CopyOf(world.server.messages(), *request.message);
  const absl::Status sent = server_end->Respond(request.id, response);
  EXPECT_THAT(sent, IsOk());
}

void Link::EchoAll() {
  server.answer = [this](RecordingServer::Request request) { Echo(std::move(request)); };
}

absl::Status Link::Respond(ExchangeId id, OutgoingMessagePtr response) {
  absl::Status result;
  server_poller->Run([&] { result = server_end->Respond(id, response); });
  return result;
}

// ---- TestListener

TestListener::TestListener(World& world, World::Side& side) : world_(world), side_(side) {
  World::On(side_, [&] {
    absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
        Acceptor::Listen(side_.poller(), TestAddress(), *this);
    ASSERT_THAT(acceptor, IsOk());
    acceptor_ = *std::move(acceptor);
    address_ = acceptor_->address();
  });
}

TestListener::~TestListener() {
  World::On(side_, [&] {
    waiting.clear();
    acceptor_.reset();
  });
}

void TestListener::OnPeer(PeerRequest request) {
  if (on_peer) return on_peer(std::move(request));
  waiting.push_back(std::move(request));
}

}  // namespace hawser::transport
