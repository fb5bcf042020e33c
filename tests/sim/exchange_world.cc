#include "hawser/tests/sim/exchange_world.h"

#include <string.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/runtime.h"

namespace hawser::sim {
namespace {

using transport::Connection;
using transport::ExchangeId;
using transport::IncomingMessagePtr;
using transport::kNever;
using transport::OutgoingMessagePtr;

constexpr uint16_t kPort = 7470;
constexpr int kClientsMax = 3;
constexpr size_t kConnectionsPerClient = 3;
constexpr int64_t kLandingMax = 7 * kSecond;  // See AnyConnectionOptions(), and ending.cc.
constexpr size_t kHoardBytes = 600'000;       // The size of each message.
// The receives of an idle connection whose SENDs cannot wait: two credits, two for control, one spare.
constexpr uint32_t kIdleReceives = 5;

class ExchangeWorld;

// One request, from before it is sent until after its end; never destroyed before the world.
struct Request final : transport::ResponseHandler {
  void OnResponse(absl::StatusOr<IncomingMessagePtr>&& response) override;
  bool WantsRequestBack() override { return wants_back; }
  void OnRequestReturned(OutgoingMessagePtr message) override;
  const transport::Landing* landing() const override { return region != nullptr ? &into : nullptr; }

  ExchangeWorld* world = nullptr;
  uint32_t seed = 0;
  size_t bytes = 0;
  int host = 0;
  std::vector<size_t>
      parts;  // If not empty: there are several payloads, and each large one is granted by itself.
  int64_t deadline_ns = kNever;
  Connection* connection = nullptr;  // Null after its end.
  ExchangeId id;
  bool wants_back = false;
  int ends = 0;
  int backs = 0;
  bool abandoned = false;  // Its host has lost power.
  bool demanded = false;   // Must succeed.
  // Its own, for the response, until its end. Then the fabric must not write there any more.
  std::vector<uint64_t> memory;
  std::unique_ptr<fabric::MemoryRegion> region;
  transport::Landing into;
};

constexpr uint64_t kOwnAgain = 0x5a5a5a5a5a5a5a5a;

// One end of a connection; never destroyed before the world.
struct End final : transport::ConnectionObserver, transport::RequestHandler {
  void OnReady(const transport::Handshake& peer) override {
    ready = true;
    memcpy(&server_life, peer.session.data(), sizeof(server_life));
  }
  void OnClosed(const absl::Status& why) override;
  void OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t deadline_ns) override;
  void OnBadRequest(ExchangeId id, const absl::Status& why) override;
  void OnCancel(ExchangeId, const absl::Status&) override {}

  ExchangeWorld* world = nullptr;
  int host = 0;
  Connection* connection = nullptr;  // Null after it is closed.
  bool ready = false;
  uint32_t unanswered = 0;   // Requests that have arrived and are not answered yet.
  uint64_t server_life = 0;  // At a client: the life of the server in which it dialed, then was accepted.
  int closings = 0;
  bool abandoned = false;
};

class ExchangeWorld final : public World, public transport::Acceptor::Handler {
 public:
  explicit ExchangeWorld(const WorldOptions& options) : World(options, kClientsMax), steps_(options.steps) {
    for (int host = kServer; host <= host_count(); ++host) PowerOn(host);
  }

  WorldResult Run() {
    for (int i = 0; i < steps_ && well(); ++i) {
      Step();
      RunFor(dice().Chance(0.8) ? dice().Between(0, 200'000) : dice().Between(0, 100 * kMs));
    }
    Finish();
    result().simulated_ns = now_ns();
    return std::move(result());
  }

  using World::Broken;
  void OnEnd(Request& request, absl::StatusOr<IncomingMessagePtr> response);
  void OnRequest(End& end, ExchangeId id, IncomingMessagePtr message);
  void OnClosed(End& end);

 private:
  transport::Poller& PollerOf(int host) { return runtime(host)->poller(0); }

  // ---- Hosts

  // If a fault prevents a start, the next step tries again.
  void PowerOn(int host) {
    network().SwitchOn(host);
    if (!StartRuntime(host) || host != kServer || acceptor_ != nullptr) return;
    PollerOf(host).Run([&] {
      auto acceptor = transport::Acceptor::Listen(PollerOf(host), SimFabric::AddressOf(host, kPort), *this);
      if (acceptor.ok()) acceptor_ = *std::move(acceptor);
    });
  }

  void PowerOff(int host) {
    Resume(host);
    network().SwitchOff(host);
    for (End& end : ends_) {
      if (end.host == host && end.connection != nullptr) Abandon(end);
    }
    for (Answer& answer : answers_) {
      if (answer.end->abandoned) answer.message.reset();
    }
    if (host == kServer) {
      acceptor_.reset();
      ++server_life_;
    }
    DropRuntime(host);
  }

  // Sends a request that must succeed.
  void Demand(End& end, size_t bytes) {
    Request& request = NewRequest(end, bytes);
    request.demanded = true;
    ++result().calls;
    PollerOf(end.host).Run([&] {
      OutgoingMessagePtr message =
          transport::NewMessage(PollerOf(end.host).messages(), request.bytes, request.seed);
      request.connection = end.connection;
      const auto sent = end.connection->SendRequest(message, kNever, request);
      if (!sent.ok()) {
        request.connection = nullptr;
        requests_.pop_back();
        return Broken(absl::StrCat("on a good day a request cannot be sent: ", sent.status().ToString()));
      }
      request.id = *sent;
    });
  }

  void Abandon(End& end) {
    for (Request& request : requests_) {
      if (request.connection != end.connection) continue;
      request.abandoned = true;
      request.connection = nullptr;
    }
    end.abandoned = true;
    end.connection = nullptr;
  }

  // ---- The workload

  void Step() {
    for (int host = kServer; host <= host_count(); ++host) {
      if (network().IsOn(host)) PowerOn(host);
    }
    if (StallsNow()) return Stall(AnyHost());
    if (TricklesNow()) return Trickle(AnyClient());
    if (HoardsNow()) return Hoard(AnyClient());
    const int64_t what = dice().Between(0, 99);
    if (what < 60) return SendSomething();
    if (what < 75) return DialSomebody();
    if (what < 80) return CancelSomething();
    if (what < 84) return CloseSomething();
    if (what < 88) return network().Cut(kServer, AnyClient());
    if (what < 93) return network().Heal(kServer, AnyClient());
    if (what < 94) return network().RemoveDevice(AnyHost());
    if (what < 96) return JumpClock();
    const int host = AnyHost();
    network().IsOn(host) ? PowerOff(host) : PowerOn(host);
  }

  void DialSomebody() {
    const int client = AnyClient();
    if (!network().IsOn(client) || runtime(client) == nullptr || stalled(client)) return;
    size_t open = 0;
    for (const End& end : ends_) open += end.host == client && end.connection != nullptr;
    if (open == kConnectionsPerClient) return;
    Dial(client);
  }

  End& Dial(int client) {
    End& end = NewEnd(client);
    end.server_life = server_life_;
    PollerOf(client).Run([&] {
      auto dialed =
          Connection::Dial(PollerOf(client), SimFabric::AddressOf(kServer, kPort), AnyConnectionOptions(),
                           transport::Handshake(), absl::Seconds(1), end, nullptr);
      if (!dialed.ok()) return Note(client, absl::StrCat("cannot dial: ", dialed.status().ToString()));
      end.connection = *dialed;
    });
    return end;
  }

  void SendSomething() {
    std::vector<End*> able = Able();
    able.erase(std::remove_if(able.begin(), able.end(), [this](End* end) { return stalled(end->host); }),
               able.end());
    if (able.empty()) return;
    End& end = *able[static_cast<size_t>(dice().Between(0, static_cast<int64_t>(able.size()) - 1))];
    constexpr int64_t kBytesMax[] = {8, 100, 900, 3'900, 5'000, 70'000, 600'000};
    const int64_t most = kBytesMax[dice().Between(0, 6)];
    Request& request = NewRequest(end, static_cast<size_t>(dice().Between(2, most / 8 + 2)) * 8);
    if (request.bytes == 3912) request.bytes = 3920;  // See NewMessage().
    if (dice().Chance(0.2)) {
      for (int64_t i = dice().Between(2, 4); i > 0; --i) {
        request.parts.push_back(static_cast<size_t>(dice().Between(1, dice().Chance(0.5) ? 500 : 30'000)));
      }
    }
    if (dice().Chance(0.7))
      request.deadline_ns = now_ns() + dice().Between(0, dice().Chance(0.5) ? 5 * kMs : 3 * kSecond);
    request.wants_back = dice().Chance(0.2);
    if (most > 3'900 && dice().Chance(0.4)) GiveMemory(request);
    Send(end, request);
  }

  // For its response: for all of it, or for less.
  void GiveMemory(Request& request) {
    size_t bytes = request.bytes;
    for (const size_t part : request.parts) bytes = std::max(bytes, part + 8);
    request.memory.resize(dice().Chance(0.8) ? bytes / 8 + 1 : static_cast<size_t>(dice().Between(1, 2000)));
    auto* const address = reinterpret_cast<uint8_t*>(request.memory.data());
    const size_t length_bytes = request.memory.size() * sizeof(uint64_t);
    auto region = runtime(request.host)->fabric().Register(address, length_bytes);
    if (!region.ok()) return;  // A fault.
    request.region = *std::move(region);
    request.into = {address, length_bytes, request.region->lkey(), true};
  }

  Request& NewRequest(End& end, size_t bytes) {
    Request& request = requests_.emplace_back();
    request.world = this;
    request.host = end.host;
    request.seed = static_cast<uint32_t>(requests_.size());
    request.bytes = bytes;
    return request;
  }

  // False: it could not be sent, and was removed. `request` is the latest one.
  bool Send(End& end, Request& request) {
    bool done = false;
    PollerOf(end.host).Run([&] {
      transport::MessagePool& pool = PollerOf(end.host).messages();
      OutgoingMessagePtr message = request.parts.empty()
                                       ? transport::NewMessage(pool, request.bytes, request.seed)
                                       : transport::NewMessageOfParts(pool, request.parts, request.seed);
      request.connection = end.connection;
      const absl::StatusOr<ExchangeId> sent =
          end.connection->SendRequest(message, request.deadline_ns, request);
      if (!sent.ok()) {
        request.connection = nullptr;
        requests_.pop_back();
        return;
      }
      request.id = *sent;
      ++result().calls;
      Note(end.host, absl::StrCat("sends request ", request.seed, " of ", request.bytes, " bytes"));
      done = true;
    });
    return done;
  }

  // Ends of clients that can send.
  std::vector<End*> Able() {
    std::vector<End*> able;
    for (End& end : ends_) {
      if (end.host != kServer && end.connection != nullptr && end.connection->CanSend()) able.push_back(&end);
    }
    return able;
  }

  void Hoard(int client) {
    if (stalled(client)) return;
    StopServingReads(client);
    FillSlots(client);
  }

  // Sends large messages in all slots.
  void FillSlots(int client) {
    for (End* end : Able()) {
      while (end->host == client && end->connection != nullptr && end->connection->CanSend()) {
        if (!Send(*end, NewRequest(*end, kHoardBytes))) break;
      }
    }
  }

  void CancelSomething() {
    if (requests_.empty()) return;
    Request& request = AnyOf(requests_);
    if (request.connection == nullptr || stalled(request.host)) return;
    request.connection->poller().Run([&] { request.connection->Cancel(request.id); });
  }

  void CloseSomething() {
    if (ends_.empty()) return;
    End& end = AnyOf(ends_);
    if (end.connection == nullptr || stalled(end.host)) return;
    const bool drain = dice().Chance(0.5);
    Note(end.host, drain ? "drains a connection" : "closes a connection");
    end.connection->poller().Run([&] { drain ? end.connection->Drain() : end.connection->Close(); });
  }

  End& NewEnd(int host) {
    End& end = ends_.emplace_back();
    end.world = this;
    end.host = host;
    return end;
  }

  void OnPeer(transport::PeerRequest request) override {
    End& end = NewEnd(kServer);
    // If a request to connect was in flight while the server died, the server accepts it in its next life.
    // The session token tells the client which life.
    transport::SessionToken session = transport::NewSessionToken(network());
    memcpy(session.data(), &server_life_, sizeof(server_life_));
    auto accepted =
        Connection::Accept(PollerOf(kServer), std::move(request), AnyConnectionOptions(), session, end, &end);
    if (accepted.ok()) end.connection = *accepted;
  }

  void CheckTurn() override {
    for (Request& request : requests_) {
      // READs into its memory may have to end first: for the time that bounds them, and that of a flush.
      const int64_t most_ns = request.region != nullptr ? kLandingMax : kMs;
      if (request.connection != nullptr && request.deadline_ns != kNever &&
          now_ns() - most_ns > std::max(request.deadline_ns, excused_until_ns(request.host))) {
        Broken(absl::StrCat("request ", request.seed, " lives on after its deadline"));
        request.connection = nullptr;
      }
    }
  }

  // ---- The server

  struct Answer {
    End* end;
    ExchangeId id;
    IncomingMessagePtr message;
  };
  void Give(Answer& answer) {
    if (answer.end->connection == nullptr || answer.message == nullptr) return;
    Connection& connection = *answer.end->connection;
    connection.poller().Run([&] {
      OutgoingMessagePtr response = transport::CopyOf(connection.poller().messages(), *answer.message);
      answer.message.reset();
      const absl::Status given = connection.Respond(answer.id, response);
      if (given.ok()) --answer.end->unanswered;
      if (!given.ok() && connection.state() == Connection::State::kReady &&
          given.code() != absl::StatusCode::kResourceExhausted) {
        Broken(absl::StrCat("an answer was refused: ", given.ToString()));
      }
    });
  }

  // ---- The end

  void Finish() {
    if (!well()) return Dismantle();
    MakePeace();
    RunFor(5 * kSecond);
    CheckPeace();
    if (well() && host_count() > kServer + 1 &&
        (chosen_faults().hoards > 0 || chosen_faults().trickles > 0)) {
      CheckBadNeighbour();
    }
    if (well()) CheckGoodDay();
    for (End& end : ends_) {
      if (end.connection != nullptr) end.connection->poller().Run([&] { end.connection->Close(); });
    }
    RunFor(2 * kSecond);
    for (Answer& answer : answers_) answer.message.reset();
    RunFor(kSecond);
    for (const Request& request : requests_) {
      if (request.abandoned) continue;
      if (request.ends != 1)
        Broken(absl::StrCat("request ", request.seed, " ended ", request.ends, " times"));
      if (request.backs > 1) Broken(absl::StrCat("request ", request.seed, " came back twice"));
      for (const uint64_t word : request.memory) {
        if (word != kOwnAgain) {
          Broken(absl::StrCat("the memory of request ", request.seed, " was written to after its end"));
          break;
        }
      }
    }
    for (const End& end : ends_) {
      if (end.connection != nullptr)
        Broken(absl::StrCat("a connection of host ", end.host, " does not close"));
    }
    PollerOf(kServer).Run([&] { acceptor_.reset(); });
    CheckNothingIsLeft();
    Dismantle();
  }

  // Five quiet seconds are enough to connect, or to give up; to detect that a peer is dead; to release
  // answered messages; and to return credits, if there was memory at any time.
  void CheckPeace() {
    for (End& end : ends_) {
      if (end.connection == nullptr) continue;
      if (!end.ready) Broken(absl::StrCat("host ", end.host, " is still connecting"));
      if (end.host != kServer) {
        if (end.server_life != server_life_)
          Broken(absl::StrCat("host ", end.host, " still talks to a dead server"));
        continue;
      }
      if (const uint32_t open = end.connection->exchanges_in_flight(); open > end.unanswered) {
        Broken(absl::StrCat(open - end.unanswered, " responses of ", open, " exchanges were never released"));
      }
      const uint32_t posted = end.connection->receives_posted();
      if (network().options().strict_receives && end.unanswered == 0 && posted > kIdleReceives) {
        Broken(absl::StrCat("an idle connection has ", posted, " receives"));
      }
    }
  }

  // One client hoards, or trickles, as much as it can, and nothing else goes wrong. The server must answer
  // the requests of the others within a second, before it can give up the bad client.
  void CheckBadNeighbour() {
    good_day_ = true;
    const int bad = AnyClient();
    for (int host = kServer; host <= host_count(); ++host) PowerOn(host);
    for (int host = kServer + 1; host <= host_count(); ++host) Dial(host);
    for (size_t i = 1; i < kConnectionsPerClient; ++i) Dial(bad);
    RunFor(kSecond);
    network().SetReadService(bad, chosen_faults().hoards > 0 ? ReadService() : ReadService{100, 100 * kMs});
    const size_t first = requests_.size();
    FillSlots(bad);
    RunFor(10 * kMs);
    const size_t before = requests_.size();
    for (End* end : Able()) {
      if (end->host == bad) continue;
      for (const size_t bytes : {64, 300'000, 64}) {
        if (end->connection->CanSend()) Demand(*end, bytes);
      }
    }
    RunFor(kSecond);
    for (size_t i = before; i < requests_.size(); ++i) {
      if (requests_[i].ends == 0) {
        Broken(absl::StrCat("beside a bad client request ", requests_[i].seed, " has no answer"));
      }
    }
    RunFor(5 * kSecond);
    for (size_t i = first; i < before; ++i) {
      if (requests_[i].ends == 0) Broken("a client that serves no READ is not given up");
    }
    network().SetReadService(bad, std::nullopt);
    RunFor(kSecond);
  }

  // After any history, all requests now succeed, over the old connections and over new ones.
  void CheckGoodDay() {
    good_day_ = true;
    for (int host = kServer; host <= host_count(); ++host) PowerOn(host);
    for (int host = kServer + 1; host <= host_count(); ++host) Dial(host);
    RunFor(kSecond);
    const std::vector<End*> able = Able();
    if (static_cast<int>(able.size()) + 1 < host_count()) Broken("on a good day a client cannot connect");
    for (End* end : able) {
      for (const size_t bytes : {64, 300'000, 64}) {
        if (end->connection != nullptr && end->connection->CanSend()) Demand(*end, bytes);
      }
    }
    RunFor(kSecond);
    // Sends more than any queue holds.
    for (int i = 0; i < 80; ++i) {
      for (End* end : able) {
        if (end->connection != nullptr && end->connection->CanSend()) Demand(*end, 64);
      }
      RunFor(kMs / 10);
    }
    RunFor(kSecond);
  }

  void Dismantle() {
    for (Answer& answer : answers_) answer.message.reset();
    if (acceptor_ != nullptr) PollerOf(kServer).Run([&] { acceptor_.reset(); });
    for (int host = kServer; host <= host_count(); ++host) DropRuntime(host);
  }

  const int steps_;
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::deque<End> ends_;
  std::deque<Request> requests_;
  std::deque<Answer> answers_;
  uint64_t server_life_ = 0;
  bool good_day_ = false;  // There are no faults any more, and the server answers at once.
};

void Request::OnResponse(absl::StatusOr<IncomingMessagePtr>&& response) {
  world->OnEnd(*this, std::move(response));
}
void Request::OnRequestReturned(OutgoingMessagePtr) { ++backs; }
void End::OnClosed(const absl::Status& why) {
  if (absl::IsDataLoss(why)) world->Broken(absl::StrCat("one of two honest peers: ", why.ToString()));
  world->OnClosed(*this);
}
void End::OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t) {
  world->OnRequest(*this, id, std::move(message));
}
// Only this answer has an envelope, which says why the request could not be received.
void End::OnBadRequest(ExchangeId id, const absl::Status& why) {
  OutgoingMessagePtr response = transport::NewMessage(connection->poller().messages(), 16, 0);
  const uint8_t envelope[8] = {static_cast<uint8_t>(why.code())};
  response->SetEnvelope(envelope);
  (void)connection->Respond(id, response);
}

void ExchangeWorld::OnEnd(Request& request, absl::StatusOr<IncomingMessagePtr> response) {
  ++request.ends;
  request.connection = nullptr;
  // What the program does with its memory, whatever the result is.
  struct TakeBack {
    ~TakeBack() {
      request.region = nullptr;
      std::fill(request.memory.begin(), request.memory.end(), kOwnAgain);
    }
    Request& request;
  } take_back{request};
  if (response.ok() && !(*response)->envelope().empty()) {
    const auto code = static_cast<absl::StatusCode>((*response)->envelope()[0]);
    response = absl::Status(code, "the server could not take it");
  }
  if (request.demanded && !response.ok()) {
    Broken(
        absl::StrCat("on a good day request ", request.seed, " ended with ", response.status().ToString()));
  }
  if (response.ok()) {
    ++result().answered;
    if (!(*response)->landed().empty()) ++result().landed;
    bool right = true;
    if (request.parts.empty()) {
      right = transport::Content(**response) == transport::ContentOf(request.bytes, request.seed);
    } else {
      std::vector<std::string> expected;
      for (size_t i = 0; i < request.parts.size(); ++i) {
        expected.push_back(transport::PartOf(i, request.parts[i], request.seed));
      }
      right = transport::Parts(**response) == expected;
    }
    if (!right) {
      Broken(absl::StrCat("request ", request.seed, " got a wrong answer"));
    }
    return;
  }
  const absl::Status& why = response.status();
  const bool allowed = absl::IsUnavailable(why) || absl::IsCancelled(why) ||
                       (absl::IsDeadlineExceeded(why) && request.deadline_ns <= now_ns()) ||
                       absl::IsResourceExhausted(why);
  if (!allowed) Broken(absl::StrCat("request ", request.seed, " ended with ", why.ToString()));
}

void ExchangeWorld::OnRequest(End& end, ExchangeId id, IncomingMessagePtr message) {
  ++end.unanswered;
  Answer answer = {&end, id, std::move(message)};
  if (good_day_ || dice().Chance(0.5)) return Give(answer);
  if (dice().Chance(0.05)) return;  // Never answers.
  Answer& later = answers_.emplace_back(std::move(answer));
  AtOn(kServer, now_ns() + dice().Between(0, dice().Chance(0.9) ? 2 * kMs : 2 * kSecond),
       [&] { Give(later); });
}

void ExchangeWorld::OnClosed(End& end) {
  if (++end.closings != 1) Broken("a connection closed twice");
  for (Request& request : requests_) {
    if (end.host != kServer && request.connection == end.connection) {
      Broken(absl::StrCat("request ", request.seed, " had not ended when its connection closed"));
    }
  }
  end.connection = nullptr;
}

}  // namespace

WorldResult RunExchangeWorld(const WorldOptions& options) { return ExchangeWorld(options).Run(); }

}  // namespace hawser::sim
