// The other end may have another version, another protocol, or no server at all.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/rpc/wire/envelope.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/handshake.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Listens on loopback and sends `answer` to each peer that connects.
class Stranger {
 public:
  explicit Stranger(std::string answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 8) != 0)
      abort();
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    uri_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] {
      while (true) {
        const int peer = accept(listener_, nullptr, nullptr);
        if (peer < 0) return;
        if (!answer_.empty() && send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) abort();
        peers_.push_back(peer);
      }
    });
  }
  ~Stranger() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    for (int peer : peers_) close(peer);
  }
  const std::string& uri() const { return uri_; }

 private:
  const std::string answer_;
  int listener_ = -1;
  std::string uri_;
  std::vector<int> peers_;
  std::thread thread_;
};

TEST(StrangersTest, AServerOfAnotherProtocolIsNoServer) {
  Stranger web("HTTP/1.1 400 Bad Request\r\n\r\n");
  const absl::Status status = Channel::Connect(web.uri()).status();
  EXPECT_THAT(status, Not(IsOk()));
  EXPECT_THAT(std::string(status.message()), HasSubstr(web.uri().substr(6)));
}

TEST(StrangersTest, AServerThatSaysNothingIsGivenUp) {
  Stranger mute("");
  const absl::Time before = absl::Now();
  const absl::Status status = Channel::Connect(mute.uri(), {.connect_timeout = kExpires}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LT(absl::Now() - before, kLong / 2);
}

// What a server on loopback over TCP answers to `words`, until it closes the connection.
std::string AnswerTo(const std::string& words, const std::string& uri) {
  const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const SocketAddress address = TestAddress(static_cast<uint16_t>(std::stoi(uri.substr(uri.rfind(':') + 1))));
  std::string answer;
  if (connect(peer, address.get(), address.length_bytes()) == 0 &&
      send(peer, words.data(), words.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(words.size())) {
    char buffer[4096];
    for (ssize_t n; (n = recv(peer, buffer, sizeof(buffer), 0)) > 0;)
      answer.append(buffer, static_cast<size_t>(n));
  }
  close(peer);
  return answer;
}

// A peer with any handshake and any messages. It ignores "going away".
class Peer final : transport::ConnectionObserver {
 public:
  // OK: the connection is established.
  absl::Status Dial(const std::string& uri, const transport::Handshake& hello,
                    const transport::ConnectionOptions& options = {},
                    transport::RequestHandler* handler = nullptr) {
    const uint16_t port = static_cast<uint16_t>(std::stoi(uri.substr(uri.rfind(':') + 1)));
    poller_.Run([&, port] {
      auto connection = transport::Connection::Dial(poller_, TestAddress(port), options, hello,
                                                    absl::Seconds(5), *this, handler);
      if (connection.ok()) {
        connection_ = *connection;
      } else {
        states_.Put(connection.status());
      }
    });
    return states_.Take();
  }

  class Response final : public transport::ResponseHandler {
   public:
    absl::StatusOr<internal::ResponseEnvelope> Take() { return envelopes_.Take(); }

   private:
    void OnResponse(absl::StatusOr<transport::IncomingMessagePtr>&& response) override {
      envelopes_.Put(response.ok() ? internal::DecodeResponseEnvelope((*response)->envelope())
                                   : response.status());
    }
    Box<absl::StatusOr<internal::ResponseEnvelope>> envelopes_;
  };

  void Send(const Method& method, std::vector<uint8_t> envelope, Response& response) {
    poller_.Run([&, envelope = std::move(envelope)] {
      auto message = poller_.messages().NewOutgoing();
      message->builder().initRoot<probe::Probe::ActParams>();
      message->SetEnvelope(envelope);
      EXPECT_THAT(connection_->SendRequest(message, transport::kNever, response), IsOk()) << method.name;
    });
  }
  void SendAct(Response& response) {
    const auto envelope = internal::Encode(
        internal::RequestEnvelope{probe::ProbeStub::kAct.interface_id, probe::ProbeStub::kAct.ordinal});
    Send(probe::ProbeStub::kAct, {envelope.begin(), envelope.end()}, response);
  }

  // The token of the session that the server has made. Valid after Dial().
  const transport::SessionToken& session() const { return session_; }

  void WaitForGoingAway() { EXPECT_TRUE(going_away_.Take()); }
  absl::Status WaitForClosed() { return states_.Take(); }
  void Close() {
    poller_.Run([this] { connection_->Close(); });
    states_.Take().IgnoreError();
  }

 private:
  void OnReady(const transport::Handshake& peer) override {
    session_ = peer.session;
    states_.Put(absl::OkStatus());
  }
  void OnGoingAway() override { going_away_.Put(true); }
  void OnClosed(const absl::Status& why) override { states_.Put(why); }

  transport::Poller& poller_ = (*transport::Runtime::Default(TestScheme()))->poller(0);
  transport::Connection* connection_ = nullptr;
  transport::SessionToken session_ = {};
  Box<absl::Status> states_;
  Box<bool> going_away_;
};

TEST(StrangersTest, AClientOfAnotherVersionIsToldBoth) {
  TestServer server;
  transport::Handshake hello;
  hello.version = 9;
  Peer peer;
  const absl::Status status = peer.Dial(server.uri, hello);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1"));
}

TEST(StrangersTest, AServerCountsViolationsByReason) {
  TestServer server;
  transport::Handshake hello;
  hello.version = 9;
  Peer peer;
  EXPECT_THAT(peer.Dial(server.uri, hello), Not(IsOk()));
  EXPECT_TRUE(Eventually([&] { return server.server.stats().violations[Violation::kHandshake] == 1; }));
  if (TestScheme() == "tcp") {
    EXPECT_THAT(AnswerTo("GET / HTTP/1.1\r\n\r\n", server.uri), HasSubstr("not HTTP"));
    EXPECT_TRUE(Eventually([&] { return server.server.stats().violations[Violation::kGreeting] == 1; }));
  }
  EXPECT_EQ(server.server.stats().violations[Violation::kHandshake], 1u);
  EXPECT_EQ(server.server.stats().violations[Violation::kSlot], 0u);
}

TEST(StrangersTest, AReverseConnectionOfNoSessionIsRejected) {
  TestServer server;
  transport::Handshake hello;
  hello.role = transport::Role::kReverse;
  hello.session = transport::NewSessionToken(transport::Environment::Real());
  Peer peer;
  const absl::Status status = peer.Dial(server.uri, hello);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
}

// Answers nothing.
class NoService final : public transport::RequestHandler {
 private:
  void OnRequest(transport::ExchangeId, transport::IncomingMessagePtr, int64_t) override {}
  void OnBadRequest(transport::ExchangeId, const absl::Status&) override {}
  void OnCancel(transport::ExchangeId, const absl::Status&) override {}
};

TEST(StrangersTest, AReverseConnectionFromAnotherHostIsRejected) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "only loopback has a second address everywhere";
  TestServer server;
  Peer client, thief, own;
  ASSERT_THAT(client.Dial(server.uri, {}), IsOk());
  transport::Handshake hello;
  hello.role = transport::Role::kReverse;
  hello.session = client.session();
  NoService nothing;
  const absl::Status status = thief.Dial(server.uri, hello, {.local_address = "127.0.0.2"}, &nothing);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(status.message()), HasSubstr("from the same host as its session"));
  ASSERT_THAT(own.Dial(server.uri, hello, {}, &nothing), IsOk());
  own.Close();
  client.Close();
}

TEST(StrangersTest, ARequestOfAnUnknownShapeIsInvalidAndTheConnectionGoesOn) {
  TestServer server;
  Peer peer;
  ASSERT_THAT(peer.Dial(server.uri, {}), IsOk());
  for (size_t size : {0, 8, 24}) {
    Peer::Response response;
    peer.Send(probe::ProbeStub::kAct, std::vector<uint8_t>(size, 0xff), response);
    const auto envelope = response.Take();
    ASSERT_THAT(envelope.status(), IsOk());
    EXPECT_EQ(envelope->code, absl::StatusCode::kInvalidArgument);
  }
  Peer::Response response;
  peer.SendAct(response);
  const auto answer = response.Take();
  ASSERT_THAT(answer.status(), IsOk());
  EXPECT_EQ(answer->code, absl::StatusCode::kOk);
  peer.Close();
}

TEST(StrangersTest, ARequestWhoseMetadataIsNotThereIsInvalidAndNotRun) {
  TestServer server;
  Peer peer;
  ASSERT_THAT(peer.Dial(server.uri, {}), IsOk());
  for (const uint16_t segment : {1, 2, 0xffff}) {
    const Method& act = probe::ProbeStub::kAct;
    const auto bytes = internal::Encode(internal::RequestEnvelope{act.interface_id, act.ordinal, segment});
    Peer::Response response;
    peer.Send(act, {bytes.begin(), bytes.end()}, response);
    const auto envelope = response.Take();
    ASSERT_THAT(envelope.status(), IsOk());
    EXPECT_EQ(envelope->code, absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(server.probe.runs, 0);
  peer.Close();
}

TEST(StrangersTest, ARequestThatCrossesTheNewsOfTheDrainWasNotRun) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  Peer peer;
  ASSERT_THAT(peer.Dial(server.uri, {}), IsOk());
  Peer::Response running, crossing;
  peer.SendAct(running);
  DeferredCall deferred = server.held.Take();
  std::thread shutdown([&] { EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk()); });
  peer.WaitForGoingAway();
  peer.SendAct(crossing);
  const auto envelope = crossing.Take();
  EXPECT_THAT(envelope.status(), IsOk());
  if (envelope.ok()) {
    EXPECT_EQ(envelope->code, absl::StatusCode::kUnavailable);
    EXPECT_TRUE(envelope->not_run);
  }
  EXPECT_EQ(server.probe.runs, 1);
  deferred.Finish();
  const auto answer = running.Take();
  EXPECT_THAT(answer.status(), IsOk());
  if (answer.ok()) {
    EXPECT_EQ(answer->code, absl::StatusCode::kOk);
  }
  EXPECT_THAT(peer.WaitForClosed(), Not(IsOk()));
  shutdown.join();
}

}  // namespace
}  // namespace hawser
