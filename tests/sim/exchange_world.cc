#include "hawser/tests/sim/exchange_world.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/runtime.h"

namespace hawser::sim {
namespace {

using transport::Connection;
using transport::ExchangeId;
using transport::IncomingMessagePtr;
using transport::kNever;
using transport::OutgoingMessagePtr;

constexpr int kServer = 1;
constexpr uint16_t kPort = 7470;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;
constexpr size_t kConnectionsPerClient = 3;
constexpr int kTurnsMax = 10'000;  // At one point in time.

// Each fault is there in half of the worlds: quiet ones find other bugs than loud ones.
Faults FaultsOf(Dice& dice) {
  const auto often = [&](double probability) { return dice.Chance(0.5) ? probability : 0; };
  Faults faults;
  if (dice.Chance(0.5)) faults.fetch = {0, dice.Between(1, 100'000)};
  if (dice.Chance(0.5)) faults.latency = {1'000, dice.Between(1'000, 2 * kMs)};
  if (dice.Chance(0.5)) faults.completion = {0, dice.Between(1, 3 * kMs)};
  if (dice.Chance(0.5)) faults.flush = {0, dice.Between(1, 20 * kMs)};
  if (dice.Chance(0.5)) faults.event = {1'000, dice.Between(1'000, 10 * kMs)};
  if (dice.Chance(0.5)) faults.revocation = {0, dice.Between(1, 5 * kMs)};
  faults.read_chunk_bytes = static_cast<uint32_t>(dice.Between(1'000, 100'000));
  faults.read_chunk_ns = dice.Between(0, dice.Chance(0.5) ? 5'000 : kMs);
  faults.request_fails = often(0.003);
  faults.connect_request_lost = often(0.1);
  faults.accept_lost = often(0.1);
  faults.goodbye_lost = often(0.3);
  faults.queue_pair_fails = often(0.05);
  faults.registration_fails = often(0.02);
  faults.error_on_goodbye = often(0.5);
  return faults;
}

NetworkOptions NetworkOf(Dice& dice) {
  NetworkOptions options;
  options.seed = dice.Next();
  options.faults = FaultsOf(dice);
  options.strict_destruction = true;
  options.strict_receives = options.faults.registration_fails == 0;
  return options;
}

transport::ConnectionOptions OptionsOf(Dice& dice) {
  transport::ConnectionOptions options;
  options.slots = static_cast<uint32_t>(dice.Between(1, 12));
  options.receive_buffer_bytes = dice.Chance(0.5) ? 4096 : 1024;
  options.keepalive_interval = absl::Seconds(1);
  options.keepalive_timeout = absl::Milliseconds(500);
  return options;
}

class World;

// One request, from before it is sent until after its end; never destroyed before the world.
struct Request final : transport::ResponseHandler {
  void OnResponse(absl::StatusOr<IncomingMessagePtr> response) override;
  bool WantsRequestBack() const override { return wants_back; }
  void OnRequestBack(OutgoingMessagePtr message) override;

  World* world = nullptr;
  uint32_t seed = 0;
  size_t bytes = 0;
  std::vector<size_t>
      parts;  // If not empty: several payloads, of which large ones are granted each by itself.
  int64_t deadline_ns = kNever;
  Connection* connection = nullptr;  // Until its end.
  ExchangeId id;
  bool wants_back = false;
  int ends = 0;
  int backs = 0;
  bool abandoned = false;  // Its host has lost power.
  bool demanded = false;   // Must succeed.
};

// One end of a connection, for as long as the world.
struct End final : transport::ConnectionObserver, transport::RequestHandler {
  void OnReady(const transport::Handshake&) override { ready = true; }
  void OnClosed(const absl::Status& why) override;
  void OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t deadline_ns) override;
  void OnBadRequest(ExchangeId id, const absl::Status& why) override;
  void OnCancel(ExchangeId, const absl::Status&) override {}

  World* world = nullptr;
  int host = 0;
  Connection* connection = nullptr;  // Until it is closed.
  bool ready = false;
  uint32_t unanswered = 0;   // Requests that came and were not answered yet.
  uint64_t server_life = 0;  // Of a client: in which life of the server it dialed.
  int closings = 0;
  bool abandoned = false;
};

class World final : transport::Acceptor::Handler {
 public:
  explicit World(const ExchangeWorldOptions& options)
      : options_(options),
        dice_(options.seed),
        network_(NetworkOf(dice_)),
        hosts_(static_cast<size_t>(2 + dice_.Between(1, 3))) {
    network_.trace = options.trace;
    for (size_t i = kServer; i < hosts_.size(); ++i) PowerOn(static_cast<int>(i));
  }

  ExchangeWorldResult Run() {
    for (int i = 0; i < options_.steps && result_.broken_rules.empty(); ++i) {
      Step();
      RunFor(dice_.Chance(0.8) ? dice_.Between(0, 200'000) : dice_.Between(0, 100 * kMs));
    }
    Finish();
    result_.simulated_ns = network_.NowNs();
    return std::move(result_);
  }

  void Broken(absl::string_view rule) {
    result_.broken_rules.push_back(absl::StrCat("at ", network_.NowNs(), " ns: ", rule));
  }
  void OnEnd(Request& request, absl::StatusOr<IncomingMessagePtr> response);
  void OnRequest(End& end, ExchangeId id, IncomingMessagePtr message);
  void OnClosed(End& end);
  void Trace(absl::string_view line) {
    if (options_.trace) options_.trace(network_.NowNs(), line);
  }

 private:
  struct Host {
    std::shared_ptr<SimFabric> fabric;
    std::shared_ptr<transport::Runtime> runtime;
    std::unique_ptr<transport::Acceptor> acceptor;
  };

  transport::Poller& PollerOf(int host) { return hosts_[static_cast<size_t>(host)].runtime->poller(0); }
  template <typename T>
  T& AnyOf(std::deque<T>& all) {
    return all[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(all.size()) - 1))];
  }
  int AnyHost() { return static_cast<int>(dice_.Between(kServer, static_cast<int64_t>(hosts_.size()) - 1)); }
  int AnyClient() {
    return static_cast<int>(dice_.Between(kServer + 1, static_cast<int64_t>(hosts_.size()) - 1));
  }

  // ---- Hosts

  // Whatever a fault keeps from starting is tried again at the next step.
  void PowerOn(int number) {
    Host& host = hosts_[static_cast<size_t>(number)];
    network_.SwitchOn(number);
    if (host.fabric == nullptr) host.fabric = std::make_shared<SimFabric>(network_, number);
    if (host.runtime == nullptr) {
      transport::RuntimeOptions options;
      options.pool.limit_bytes = 64 << 20;
      auto runtime = transport::Runtime::CreateOn(host.fabric, options, /*start_threads=*/false, network_);
      if (!runtime.ok()) return;
      host.runtime = *std::move(runtime);
    }
    if (number != kServer || host.acceptor != nullptr) return;
    PollerOf(number).Run([&] {
      auto acceptor =
          transport::Acceptor::Listen(PollerOf(number), SimFabric::AddressOf(number, kPort), *this);
      if (acceptor.ok()) host.acceptor = *std::move(acceptor);
    });
  }

  void PowerOff(int number) {
    network_.SwitchOff(number);
    for (End& end : ends_) {
      if (end.host == number && end.connection != nullptr) Abandon(end);
    }
    Host& host = hosts_[static_cast<size_t>(number)];
    for (auto& [when_ns, answer] : answers_) {
      if (answer.end->abandoned) answer.message.reset();
    }
    host.acceptor.reset();
    host.runtime.reset();
    if (number == kServer) ++server_life_;
  }

  // A request that nothing stands in the way of any more.
  void Demand(End& end, size_t bytes) {
    Request& request = requests_.emplace_back();
    request.world = this;
    request.seed = static_cast<uint32_t>(requests_.size());
    request.bytes = bytes;
    request.demanded = true;
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

  // ---- What happens

  void Step() {
    for (size_t i = kServer; i < hosts_.size(); ++i) {
      if (network_.IsOn(static_cast<int>(i))) PowerOn(static_cast<int>(i));
    }
    const int64_t what = dice_.Between(0, 99);
    if (what < 60) return SendSomething();
    if (what < 75) return DialSomebody();
    if (what < 80) return CancelSomething();
    if (what < 84) return CloseSomething();
    if (what < 88) return network_.Cut(kServer, AnyClient());
    if (what < 93) return network_.Heal(kServer, AnyClient());
    if (what < 94) return network_.RemoveDevice(AnyHost());
    if (what < 96) return JumpClock();
    const int host = AnyHost();
    network_.IsOn(host) ? PowerOff(host) : PowerOn(host);
  }

  void DialSomebody() {
    const int client = AnyClient();
    if (!network_.IsOn(client) || hosts_[static_cast<size_t>(client)].runtime == nullptr) return;
    size_t open = 0;
    for (const End& end : ends_) open += end.host == client && end.connection != nullptr;
    if (open == kConnectionsPerClient) return;
    Dial(client);
  }

  End& Dial(int client) {
    End& end = NewEnd(client);
    end.server_life = server_life_;
    PollerOf(client).Run([&] {
      auto dialed = Connection::Dial(PollerOf(client), SimFabric::AddressOf(kServer, kPort), OptionsOf(dice_),
                                     transport::Handshake(), absl::Seconds(1), end, nullptr);
      if (!dialed.ok())
        return Trace(absl::StrCat("host ", client, " cannot dial: ", dialed.status().ToString()));
      end.connection = *dialed;
      ++result_.connections;
    });
    return end;
  }

  void SendSomething() {
    std::vector<End*> able;
    for (End& end : ends_) {
      if (end.host != kServer && end.connection != nullptr && end.connection->CanSend()) able.push_back(&end);
    }
    if (able.empty()) return;
    End& end = *able[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(able.size()) - 1))];
    constexpr int64_t kBytesMax[] = {8, 100, 900, 3'900, 5'000, 70'000, 600'000};
    const int64_t most = kBytesMax[dice_.Between(0, 6)];
    Request& request = requests_.emplace_back();
    request.world = this;
    request.seed = static_cast<uint32_t>(requests_.size());
    request.bytes = static_cast<size_t>(dice_.Between(2, most / 8 + 2)) * 8;
    if (request.bytes == 3912) request.bytes = 3920;  // See NewMessage().
    if (dice_.Chance(0.2)) {
      for (int64_t i = dice_.Between(2, 4); i > 0; --i) {
        request.parts.push_back(static_cast<size_t>(dice_.Between(1, dice_.Chance(0.5) ? 500 : 30'000)));
      }
    }
    if (dice_.Chance(0.7))
      request.deadline_ns = network_.NowNs() + dice_.Between(0, dice_.Chance(0.5) ? 5 * kMs : 3 * kSecond);
    request.wants_back = dice_.Chance(0.2);
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
      ++result_.requests;
      Trace(
          absl::StrCat("host ", end.host, " sends request ", request.seed, " of ", request.bytes, " bytes"));
    });
  }

  void CancelSomething() {
    if (requests_.empty()) return;
    Request& request = AnyOf(requests_);
    if (request.connection == nullptr) return;
    request.connection->poller().Run([&] { request.connection->Cancel(request.id); });
  }

  void CloseSomething() {
    if (ends_.empty()) return;
    End& end = AnyOf(ends_);
    if (end.connection == nullptr) return;
    const bool drain = dice_.Chance(0.5);
    Trace(absl::StrCat("host ", end.host, drain ? " drains" : " closes", " a connection"));
    end.connection->poller().Run([&] { drain ? end.connection->Drain() : end.connection->Close(); });
  }

  void JumpClock() {
    const int64_t by_ns = dice_.Between(0, 2 * kSecond);
    Trace(absl::StrCat("the clock jumps by ", by_ns, " ns"));
    jumped_at_ns_ = network_.NowNs() + by_ns;
    network_.AdvanceTo(jumped_at_ns_);
  }

  End& NewEnd(int host) {
    End& end = ends_.emplace_back();
    end.world = this;
    end.host = host;
    return end;
  }

  void OnPeer(std::unique_ptr<fabric::ConnectRequest> request, const transport::Handshake& hello) override {
    End& end = NewEnd(kServer);
    auto accepted = Connection::Accept(PollerOf(kServer), std::move(request), OptionsOf(dice_), hello,
                                       transport::NewSessionToken(network_), end, &end);
    if (accepted.ok()) end.connection = *accepted;
  }

  // ---- Time

  void Turns() {
    int turns = 0;
    for (bool work = true; work;) {
      work = false;
      if (++turns == kTurnsMax) return Broken("time stands still: there is always something more to do");
      for (Host& host : hosts_) {
        if (host.runtime != nullptr && host.runtime->poller(0).PollOnce() != 0) work = true;
      }
      while (!answers_.empty() && answers_.begin()->first <= network_.NowNs()) {
        Answer answer = std::move(answers_.begin()->second);
        answers_.erase(answers_.begin());
        Give(answer);
        work = true;
      }
    }
    for (Request& request : requests_) {
      if (request.connection != nullptr && request.deadline_ns != kNever &&
          network_.NowNs() > std::max(request.deadline_ns, jumped_at_ns_) + kMs) {
        Broken(absl::StrCat("request ", request.seed, " lives on after its deadline"));
        request.connection = nullptr;
      }
    }
    for (std::string& violation : network_.TakeViolations()) Broken(violation);
  }

  void RunFor(int64_t ns) {
    const int64_t end_ns = network_.NowNs() + ns;
    while (true) {
      Turns();
      int64_t next_ns = network_.next_ns();
      for (Host& host : hosts_) {
        if (host.runtime != nullptr) next_ns = std::min(next_ns, host.runtime->poller(0).timers().next_ns());
      }
      if (!answers_.empty()) next_ns = std::min(next_ns, answers_.begin()->first);
      if (next_ns > end_ns || !result_.broken_rules.empty()) break;
      network_.AdvanceTo(std::max(next_ns, network_.NowNs()));
    }
    network_.AdvanceTo(end_ns);
    Turns();
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
    if (!result_.broken_rules.empty()) return Dismantle();
    network_.SetFaults(Faults());
    for (size_t i = kServer; i < hosts_.size(); ++i) {
      network_.Heal(kServer, static_cast<int>(i));
      network_.SwitchOn(static_cast<int>(i));
    }
    RunFor(5 * kSecond);
    CheckPeace();
    CheckGoodDay();
    for (End& end : ends_) {
      if (end.connection != nullptr) end.connection->poller().Run([&] { end.connection->Close(); });
    }
    RunFor(2 * kSecond);
    answers_.clear();
    RunFor(kSecond);
    for (const Request& request : requests_) {
      if (request.abandoned) continue;
      if (request.ends != 1)
        Broken(absl::StrCat("request ", request.seed, " ended ", request.ends, " times"));
      if (request.backs > 1) Broken(absl::StrCat("request ", request.seed, " came back twice"));
    }
    for (const End& end : ends_) {
      if (end.connection != nullptr)
        Broken(absl::StrCat("a connection of host ", end.host, " does not close"));
    }
    for (size_t i = kServer; i < hosts_.size(); ++i) {
      Host& host = hosts_[i];
      if (host.runtime == nullptr) continue;
      transport::Poller& poller = host.runtime->poller(0);
      poller.Run([&] {
        host.acceptor.reset();
        poller.messages().Trim();
      });
      const transport::BufferPoolStats stats = host.runtime->buffers().stats();
      if (stats.leases != 0) Broken(absl::StrCat("host ", i, " still leases ", stats.leases, " buffers"));
      if (poller.connection_count() != 0) Broken(absl::StrCat("host ", i, " still has connections"));
      if (poller.timers().next_ns() != kNever) Broken(absl::StrCat("host ", i, " still has a timer set"));
    }
    if (network_.memory_guard().count() != 0) {
      Broken(absl::StrCat("the fabric still owns ", network_.memory_guard().count(), " ranges of memory"));
    }
    Dismantle();
  }

  // Five quiet seconds are enough to connect, or to give up; to notice that a peer is dead; to let go of what
  // was answered.
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
    }
  }

  // Whatever happened before, now everything works, over the old connections and over new ones.
  void CheckGoodDay() {
    good_day_ = true;
    for (size_t i = kServer; i < hosts_.size(); ++i) PowerOn(static_cast<int>(i));
    for (size_t i = kServer + 1; i < hosts_.size(); ++i) Dial(static_cast<int>(i));
    RunFor(kSecond);
    std::vector<End*> able;
    for (End& end : ends_) {
      if (end.host != kServer && end.connection != nullptr && end.connection->CanSend()) able.push_back(&end);
    }
    if (able.size() + 2 < hosts_.size()) Broken("on a good day a client cannot connect");
    for (End* end : able) {
      for (const size_t bytes : {64, 300'000, 64}) {
        if (end->connection != nullptr && end->connection->CanSend()) Demand(*end, bytes);
      }
    }
    RunFor(kSecond);
    // More than any queue holds.
    for (int i = 0; i < 80; ++i) {
      for (End* end : able) {
        if (end->connection != nullptr && end->connection->CanSend()) Demand(*end, 64);
      }
      RunFor(kMs / 10);
    }
    RunFor(kSecond);
  }

  void Dismantle() {
    answers_.clear();
    for (Host& host : hosts_) {
      if (host.runtime == nullptr) continue;
      host.runtime->poller(0).Run([&] { host.acceptor.reset(); });
      host.runtime.reset();
    }
  }

  const ExchangeWorldOptions options_;
  Dice dice_;
  Network network_;
  std::deque<Host> hosts_;  // By number; 0 is nobody.
  std::deque<End> ends_;
  std::deque<Request> requests_;
  std::multimap<int64_t, Answer> answers_;
  int64_t jumped_at_ns_ = 0;
  uint64_t server_life_ = 0;
  bool good_day_ = false;  // No faults any more, and the server answers at once.
  ExchangeWorldResult result_;
};

void Request::OnResponse(absl::StatusOr<IncomingMessagePtr> response) {
  world->OnEnd(*this, std::move(response));
}
void Request::OnRequestBack(OutgoingMessagePtr) { ++backs; }
void End::OnClosed(const absl::Status& why) {
  if (absl::IsDataLoss(why)) world->Broken(absl::StrCat("one of two honest peers: ", why.ToString()));
  world->OnClosed(*this);
}
void End::OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t) {
  world->OnRequest(*this, id, std::move(message));
}
void End::OnBadRequest(ExchangeId id, const absl::Status&) {
  OutgoingMessagePtr response = transport::NewMessage(connection->poller().messages(), 16, 0);
  (void)connection->Respond(id, response);
}

void World::OnEnd(Request& request, absl::StatusOr<IncomingMessagePtr> response) {
  ++request.ends;
  request.connection = nullptr;
  if (request.demanded && !response.ok()) {
    Broken(
        absl::StrCat("on a good day request ", request.seed, " ended with ", response.status().ToString()));
  }
  if (response.ok()) {
    ++result_.answered;
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
                       (absl::IsDeadlineExceeded(why) && request.deadline_ns <= network_.NowNs()) ||
                       absl::IsResourceExhausted(why);
  if (!allowed) Broken(absl::StrCat("request ", request.seed, " ended with ", why.ToString()));
}

void World::OnRequest(End& end, ExchangeId id, IncomingMessagePtr message) {
  ++end.unanswered;
  Answer answer = {&end, id, std::move(message)};
  if (good_day_ || dice_.Chance(0.5)) return Give(answer);
  if (dice_.Chance(0.05)) return;  // Never.
  answers_.emplace(network_.NowNs() + dice_.Between(0, dice_.Chance(0.9) ? 2 * kMs : 2 * kSecond),
                   std::move(answer));
}

void World::OnClosed(End& end) {
  if (++end.closings != 1) Broken("a connection closed twice");
  for (Request& request : requests_) {
    if (end.host != kServer && request.connection == end.connection) {
      Broken(absl::StrCat("request ", request.seed, " had not ended when its connection closed"));
    }
  }
  end.connection = nullptr;
}

}  // namespace

ExchangeWorldResult RunExchangeWorld(const ExchangeWorldOptions& options) { return World(options).Run(); }

}  // namespace hawser::sim
