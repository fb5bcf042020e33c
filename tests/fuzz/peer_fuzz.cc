// A peer that follows the protocol up to a point and then lies, against the shipping transport: a victim that
// answers it and asks it. Everything runs over simulated NICs, in one thread and virtual time. The victim
// also has an honest client.
//
// An input is the script of the whole run. What must hold:
//  - The victim's process goes on, and so does the honest client: each of its calls is answered.
//  - Each request of the victim ends once, by its deadline.
//  - A connection that ends names the peer and a reason; DataLoss only if it lied.
//  - What was granted correctly arrives unchanged; what was granted to the peer can be READ.
//  - Memory stays within the pool's limit, and all of it is back in the pool when the liar is gone.
//  - The victim itself follows the protocol, whatever it receives (liar.h).
#include <deque>
#include <map>
#include <set>

#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/fuzz/peer_world.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/transport/testing/endpoint.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/runtime.h"

namespace hawser::fuzz {
namespace {

using sim::SimFabric;
using transport::Connection;
using transport::ExchangeId;
using transport::IncomingMessagePtr;
using transport::kNever;
using transport::OutgoingMessagePtr;

constexpr size_t kEndsMax = 6;
constexpr size_t kLinesMax = 4;

class World;

// A request of the victim to the liar, or of the honest client.
struct Request final : transport::ResponseHandler {
  void OnResponse(absl::StatusOr<IncomingMessagePtr>&& response) override;

  World* world = nullptr;
  Connection* connection = nullptr;  // Until its end.
  ExchangeId id;
  int64_t deadline_ns = kNever;
  uint32_t seed = 0;
  size_t bytes = 0;
  bool honest = false;
  int ends = 0;
  absl::Status status;
};

// The victim's end of a connection, or the honest client's.
struct End final : transport::ConnectionObserver, transport::RequestHandler {
  void OnReady(const transport::Handshake&) override { ready = true; }
  void OnClosed(const absl::Status& why) override;
  void OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t deadline_ns) override;
  void OnBadRequest(ExchangeId id, const absl::Status& why) override;
  void OnCancel(ExchangeId id, const absl::Status& why) override;

  World* world = nullptr;
  Connection* connection = nullptr;
  bool dialed = false;
  bool answers = false;
  bool ready = false;
  bool honest = false;    // Of, or to, the honest client.
  uint32_t features = 0;  // What it is called in the liar's handshakes, if it dialed.
  SocketAddress peer;     // If it accepted.
  int closings = 0;
  std::set<std::pair<uint16_t, uint32_t>> open;  // Requests that were not answered.
};

struct Question {
  End* end;
  ExchangeId id;
  IncomingMessagePtr message;
};

class World final : PeerWorld, transport::Acceptor::Handler {
 public:
  World(const uint8_t* data, size_t size) : PeerWorld(data, size) {
    victim().Run([&] {
      acceptor_ = *transport::Acceptor::Listen(victim(), SimFabric::AddressOf(kVictim, kPort), *this);
    });
    StartLiar(acceptor_->address(), kLinesMax);
    honest_end_ = &NewEnd(/*is_honest=*/true);
    honest().Run([&] {
      honest_end_->connection =
          *Connection::Dial(honest(), acceptor_->address(), ConnectionOptionsOf(), transport::Handshake(),
                            absl::Seconds(1), *honest_end_, nullptr);
    });
    RunFor(10 * kMs);
    FUZZ_EXPECT(honest_end_->ready);
  }

  void Run() {
    RunScript();
    Finish();
  }

  void OnRequest(End& end, ExchangeId id, IncomingMessagePtr message);
  void OnBadRequest(End& end, ExchangeId id);
  void OnEnd(Request& request, absl::StatusOr<IncomingMessagePtr> response);
  void OnClosed(End& end, const absl::Status& why);

 private:
  End& NewEnd(bool is_honest) {
    End& end = ends_.emplace_back();
    end.world = this;
    end.honest = is_honest;
    end.features = static_cast<uint32_t>(ends_.size()) << 8;  // Bits without a meaning.
    return end;
  }

  // ---- What happens

  void Step(uint8_t what) override {
    switch (what % 12) {
      case 0:
      case 1:
      case 2:
        return AskTheLiar();
      case 3:
      case 4:
        return AnswerTheLiar();
      case 5:
        return DialTheLiar();
      case 6: {
        constexpr int64_t kWaits[] = {1'000, 10'000, 100'000, kMs, 5 * kMs, 20 * kMs, 300 * kMs, kSecond};
        return RunFor(kWaits[script().Byte() % 8]);
      }
      case 7:
        return CancelSomething();
      case 8:
        return EndSomething();
      case 9:
        return network().Cut(kVictim, kLiar);
      case 10:
        return network().Heal(kVictim, kLiar);
      default:
        return CallHonestly(8 + script().Byte() % 64 * 1'000);
    }
  }

  void DialTheLiar() {
    const bool reverse = script().Below(4) == 0;
    if (ends_.size() >= kEndsMax) return;
    End& end = NewEnd(/*is_honest=*/false);
    end.dialed = true;
    end.answers = reverse;
    transport::Handshake hello;
    hello.role = reverse ? transport::Role::kReverse : transport::Role::kForward;
    hello.features = end.features;
    victim().Run([&] {
      end.connection = *Connection::Dial(victim(), liar().address(), ConnectionOptionsOf(), hello,
                                         absl::Seconds(1), end, reverse ? &end : nullptr);
    });
  }

  void OnPeer(transport::PeerRequest request) override {
    const bool is_honest = SimFabric::HostOf(request.peer_address()) == kHonest;
    if (!is_honest && ends_.size() >= kEndsMax) return;  // A server's limit of connections.
    End& end = NewEnd(is_honest);
    end.answers = request.hello().role == transport::Role::kForward;
    end.peer = request.peer_address();
    auto accepted =
        Connection::Accept(victim(), std::move(request), ConnectionOptionsOf(),
                           transport::NewSessionToken(network()), end, end.answers ? &end : nullptr);
    if (accepted.ok()) end.connection = *accepted;
  }

  End* AnyEnd(bool answers) {
    std::vector<End*> able;
    for (End& end : ends_) {
      if (!end.honest && end.answers == answers && end.connection != nullptr) able.push_back(&end);
    }
    const uint8_t which = script().Byte();
    return able.empty() ? nullptr : able[which % able.size()];
  }

  void AskTheLiar() {
    End* const end = AnyEnd(false);
    const uint8_t how = script().Byte();
    if (end == nullptr || !end->connection->CanSend()) return;
    constexpr size_t kBytes[] = {16, 504, 896, 2'000, 5'000, 70'000, 300'000, 5 << 20};
    constexpr int64_t kDeadlines[] = {kNever, 0, 50'000, kMs, 10 * kMs, kSecond, kNever, kNever};
    Request& request = NewRequest(kBytes[how % 8], *end);
    const int64_t wait_ns = kDeadlines[how / 8 % 8];
    if (wait_ns != kNever) request.deadline_ns = network().NowNs() + wait_ns;
    SendRequest(*end, request, victim());
  }

  Request& NewRequest(size_t bytes, End& end) {
    Request& request = requests_.emplace_back();
    request.world = this;
    request.seed = static_cast<uint32_t>(requests_.size());
    request.bytes = bytes;
    request.honest = end.honest;
    return request;
  }

  bool SendRequest(End& end, Request& request, transport::Poller& poller) {
    bool sent = false;
    poller.Run([&] {
      OutgoingMessagePtr message = transport::NewMessage(poller.messages(), request.bytes, request.seed);
      request.connection = end.connection;
      const absl::StatusOr<ExchangeId> id =
          end.connection->SendRequest(message, request.deadline_ns, request);
      if (id.ok()) {
        request.id = *id;
        sent = true;
        return;
      }
      FUZZ_EXPECT(request.ends == 0, "it was not sent, and yet it ended");
      requests_.pop_back();
    });
    return sent;
  }

  void AnswerTheLiar() {
    const uint8_t which = script().Byte();
    if (questions_.empty()) return;
    const auto at = questions_.begin() + which % static_cast<int>(questions_.size());
    Question question = std::move(*at);
    questions_.erase(at);
    constexpr size_t kBytes[] = {8, 504, 896, 2'000, 70'000, 300'000};
    if (question.end->connection == nullptr) return;
    Answer(*question.end, question.id, kBytes[which / 8 % 6]);
  }

  void Answer(End& end, ExchangeId id, size_t bytes) {
    OutgoingMessagePtr response = transport::NewMessage(victim().messages(), bytes);
    victim().Run([&] {
      absl::Status status = end.connection->Respond(id, response);
      if (!status.ok()) {
        // Something smaller, as whoever answers in earnest would.
        response = transport::NewMessage(victim().messages(), 8);
        status = end.connection->Respond(id, response);
      }
      if (status.ok()) end.open.erase({id.slot, id.generation});
    });
  }

  void CancelSomething() {
    const uint8_t which = script().Byte();
    if (requests_.empty()) return;
    Request& request = requests_[which % requests_.size()];
    if (request.honest || request.connection == nullptr) return;
    victim().Run([&] { request.connection->Cancel(request.id); });
  }

  void EndSomething() {
    const uint8_t how = script().Byte();
    End* const end = AnyEnd(how % 2 == 0);
    if (end == nullptr) return;
    victim().Run([&] { how % 4 < 2 ? end->connection->Drain() : end->connection->Close(); });
  }

  // A call of the honest client, which is answered with what it sent.
  void CallHonestly(size_t bytes) {
    bytes = bytes / 8 * 8;
    if (bytes == 3912) bytes += 8;  // See NewMessage().
    Request& request = NewRequest(bytes, *honest_end_);
    request.deadline_ns = network().NowNs() + 5 * kSecond;
    FUZZ_EXPECT(honest_end_->connection != nullptr, "the honest client has lost its connection");
    FUZZ_EXPECT(SendRequest(*honest_end_, request, honest()), "an honest request cannot be sent");
    const int64_t give_up_ns = network().NowNs() + 6 * kSecond;
    while (request.ends == 0 && network().NowNs() < give_up_ns) RunFor(kMs / 10);
    FUZZ_EXPECT(request.ends == 1, "an honest call has no end");
    FUZZ_EXPECT(request.status.ok() || (tight() && !gone_), request.status.ToString());
  }

  void CheckTurn() override {
    for (const Request& request : requests_) {
      FUZZ_EXPECT(request.ends <= 1);
      FUZZ_EXPECT(request.ends == 1 || request.deadline_ns == kNever ||
                      network().NowNs() <= request.deadline_ns + kMs,
                  "a request lives on after its deadline");
    }
  }

  // ---- The end

  void Finish() {
    network().Heal(kVictim, kLiar);
    liar().Leave();
    RunFor(10 * kSecond);
    for (const End& end : ends_) {
      FUZZ_EXPECT(end.honest || end.connection == nullptr, "a connection to a liar who left lives on");
      FUZZ_EXPECT(end.honest || end.closings == 1 || (!end.dialed && end.closings == 0), end.closings);
    }
    for (const Request& request : requests_) FUZZ_EXPECT(request.ends == 1, request.ends);
    questions_.clear();
    gone_ = true;
    for (const size_t bytes : {64, 50'000, 64}) CallHonestly(bytes);

    honest().Run([&] { honest_end_->connection->Close(); });
    RunFor(3 * kSecond);
    victim().Run([&] { acceptor_.reset(); });
    CheckNothingIsLeft();
  }

  std::unique_ptr<transport::Acceptor> acceptor_;
  std::deque<End> ends_;
  std::deque<Request> requests_;
  std::deque<Question> questions_;
  End* honest_end_ = nullptr;
  bool gone_ = false;  // The liar.
};

void Request::OnResponse(absl::StatusOr<IncomingMessagePtr>&& response) {
  world->OnEnd(*this, std::move(response));
}
void End::OnClosed(const absl::Status& why) { world->OnClosed(*this, why); }
void End::OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t) {
  world->OnRequest(*this, id, std::move(message));
}
void End::OnBadRequest(ExchangeId id, const absl::Status& why) {
  FUZZ_EXPECT(!why.ok());
  world->OnBadRequest(*this, id);
}
void End::OnCancel(ExchangeId id, const absl::Status&) {
  FUZZ_EXPECT(open.count({id.slot, id.generation}) == 1, "cancelled what was not there");
}

void World::OnEnd(Request& request, absl::StatusOr<IncomingMessagePtr> response) {
  ++request.ends;
  request.connection = nullptr;
  request.status = response.status();
  if (!response.ok()) return;
  if (request.honest) {
    FUZZ_EXPECT(transport::Content(**response) == transport::ContentOf(request.bytes, request.seed));
    return;
  }
  // Read as far as it can be; what is malformed throws.
  FUZZ_EXPECT((*response)->body_bytes() <= 4 << 20);
}

void World::OnRequest(End& end, ExchangeId id, IncomingMessagePtr message) {
  FUZZ_EXPECT(end.open.insert({id.slot, id.generation}).second, "a request came twice");
  FUZZ_EXPECT(message->body_bytes() <= 4 << 20);
  if (end.honest) {
    OutgoingMessagePtr response = transport::CopyOf(victim().messages(), *message);
    message.reset();
    const absl::Status given = end.connection->Respond(id, response);
    if (given.ok()) {
      end.open.erase({id.slot, id.generation});
    } else {
      FUZZ_EXPECT(absl::IsResourceExhausted(given), given.ToString());
      Answer(end, id, 8);
    }
    return;
  }
  questions_.push_back({&end, id, std::move(message)});
}

void World::OnBadRequest(End& end, ExchangeId id) {
  end.open.insert({id.slot, id.generation});
  Answer(end, id, 8);
}

void World::OnClosed(End& end, const absl::Status& why) {
  FUZZ_EXPECT(++end.closings == 1, "a connection closed twice");
  FUZZ_EXPECT(!why.ok() && why.message().size() > 10, why.ToString());
  for (const Request& request : requests_) {
    FUZZ_EXPECT(request.connection != end.connection || end.connection == nullptr,
                "a request had not ended when its connection closed");
  }
  end.connection = nullptr;
  if (!absl::IsDataLoss(why)) return;
  FUZZ_EXPECT(!end.honest, why.ToString());
  FUZZ_EXPECT(absl::StrCat(why.message()).find("://10.0.0.3:") != std::string::npos, why.ToString());
  FUZZ_EXPECT(end.dialed ? liar().HasLied(end.features) : liar().HasLied(end.peer),
              "it did not lie: ", why.ToString());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  const auto from = [](std::initializer_list<int> bytes) {
    std::string seed = {'\0', '\1'};
    for (const int byte : bytes) seed.push_back(static_cast<char>(byte));
    return seed;
  };
  // Steps of the victim, the clock and the honest client; below 160 are the liar's steps, most of which name
  // a line first.
  constexpr int kDialLiar = 161, kWait = 162, kCancel = 163, kEnd = 164, kCallHonestly = 167, kAskLiar = 168,
                kAnswerLiar = 171;
  constexpr int kDial = 0, kSpoil = 1, kSend = 3, kRead = 6, kControl = 8, kControlAck = 9;
  constexpr int kBits = 0, kCut = 1, kTwice = 3, kDescriptor = 6;  // What to spoil.
  return {
      {"request", from({kDial, 0, kWait, 3, kSend, 0, 0, 0, 0,     2, kWait,       3,  kAnswerLiar, 0,
                        kWait, 3, kSend, 0, 0,     0, 0, 2, kWait, 3, kAnswerLiar, 16, kWait,       3})},
      {"large_request",
       from({kDial, 0,     kWait, 3,     kSend, 0, 1,     0, 1,        2, 2, 0, kWait, 3, kAnswerLiar,
             32,    kWait, 3,     kRead, 0,     0, kWait, 3, kControl, 0, 0, 6, kWait, 3})},
      {"asked", from({kDialLiar, 1, kWait, 5, kAskLiar, 0, 0, kWait, 3, kSend, 0, 0, 0, 2, kWait, 3,
                      kCallHonestly, 9})},
      {"asked_much", from({kDialLiar, 1, kWait, 5, kAskLiar, 0, 5, kWait, 3, kRead,       0, 0,     kWait, 3,
                           kSend,     0, 0,     1, 2,        3, 0, kWait, 4, kControlAck, 0, kWait, 3})},
      {"reverse", from({kDial, 1, kWait,     3, kAskLiar, 0, 0,     kWait, 3, kSend, 0, 0, 0,     2,
                        kWait, 3, kDialLiar, 0, kWait,    5, kSend, 1,     0, 0,     0, 2, kWait, 3})},
      {"control",
       from({kDial, 0, kWait, 3, kControl, 0, 0, 0, kWait, 3, kControl, 0, 3, 0, 1, 2, 6, kWait, 3})},
      {"pings", from({kDial, 0, kWait, 7, kWait, 7, kControlAck, 0, kWait, 6})},
      {"cancelled",
       from({kDialLiar, 1, kWait, 5, kAskLiar, 0,     32, kAskLiar, 0, 0, kWait, 3, kCancel, 1, kWait, 5,
             kSend,     0, 0,     0, 2,        kSend, 0,  0,        0, 2, kWait, 3, kEnd,    0, kWait, 6})},
      {"answered_twice",
       from({kDialLiar, 1, kWait, 5, kAskLiar, 0, 0,        kWait, 3, kSpoil,   kTwice, 0, 0,     kSend,
             0,         0, 0,     2, kWait,    3, kAskLiar, 0,     0, kAskLiar, 0,      0, kWait, 3})},
      {"slot_beyond", from({kDial, 0, kWait, 3, kSpoil, kBits, 2, 8, kSend, 0, 0, 0, 0, 2, kWait, 3})},
      {"cut",
       from({kDial, 0, kWait, 3, kSpoil, kCut, 30, 0, kSend, 0, 0, 0, 0, 2, kWait, 3, kCallHonestly, 1})},
      {"descriptor",
       from({kDial, 0, kWait, 3, kSpoil, kDescriptor, kSend, 0, 0, 0, 1, 0, 3, 0, 17, 9, 9, kWait, 5})},
  };
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hawser::fuzz::World(data, size).Run();
  return 0;
}
