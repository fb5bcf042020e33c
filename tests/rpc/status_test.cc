// The caller gets the Status that the handler returned.

#include "hawser/rpc/status.h"

#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::Status Cross(const absl::Status& status) {
  TestServer server;
  server.probe.on_act = [&](ServerContext&, uint64_t) { return status; };
  return SendAct(server.Connect(), 1).Wait().status();
}

TEST(StatusTest, EveryCodeAndItsMessageCross) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t number) {
    return absl::Status(static_cast<absl::StatusCode>(number), "because of that");
  };
  const auto channel = server.Connect();
  for (int code = 1; code <= 16; ++code) {
    EXPECT_EQ(SendAct(channel, code).Wait().status(),
              absl::Status(static_cast<absl::StatusCode>(code), "because of that"));
  }
}

TEST(StatusTest, DetailsCross) {
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("acme/key", absl::Cord(std::string("a\0b", 3)));
  status.SetPayload("acme/empty", absl::Cord());
  EXPECT_EQ(Cross(status), status);
}

TEST(StatusTest, AMessageMayBeEmptyOrOfAnyLanguage) {
  EXPECT_EQ(Cross(absl::AbortedError("")), absl::AbortedError(""));
  EXPECT_EQ(Cross(absl::AbortedError("k\xc3\xa4se \xe2\x82\xac\\n")),
            absl::AbortedError("k\xc3\xa4se \xe2\x82\xac\\n"));
}

TEST(StatusTest, ControlCharactersOfAPeersTextAreEscaped) {
  EXPECT_EQ(Cross(absl::AbortedError(std::string("a\0b\xff\x1b[2J\n\xe2\x80\xae", 12))),
            absl::AbortedError("a\\x00b\\xff\\x1b[2J\\n\\u202e"));
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("acme/\x1b[2J", absl::Cord("\x1b is data here"));
  absl::Status escaped = absl::NotFoundError("no tow");
  escaped.SetPayload("acme/\\x1b[2J", absl::Cord("\x1b is data here"));
  EXPECT_EQ(Cross(status), escaped);
}

TEST(StatusTest, ALongMessageIsCutBetweenCharactersAndSaysSo) {
  std::string text;
  while (text.size() < 2 * internal::kStatusMessageMax) text += "\xe2\x82\xac";  // 3 bytes each.
  const std::string arrived(Cross(absl::InternalError(text)).message());
  EXPECT_LE(arrived.size(), internal::kStatusMessageMax + 3);
  EXPECT_GT(arrived.size(), internal::kStatusMessageMax - 3);
  EXPECT_EQ(arrived, text.substr(0, arrived.size() - 3) + "...");
  EXPECT_EQ((arrived.size() - 3) % 3, 0u);
}

TEST(StatusTest, DetailsThatAreTooLargeStayBehind) {
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("acme/large", absl::Cord(std::string(internal::kStatusDetailBytesMax + 1, 'x')));
  status.SetPayload("acme/small", absl::Cord("y"));
  const absl::Status arrived = Cross(status);
  EXPECT_EQ(arrived.message(), "no tow");
  EXPECT_FALSE(arrived.GetPayload("acme/large").has_value());
  EXPECT_EQ(arrived.GetPayload("acme/small"), absl::Cord("y"));
}

TEST(StatusTest, MoreDetailsThanFitAreLeftOut) {
  absl::Status status = absl::NotFoundError("no tow");
  for (size_t i = 0; i < 2 * internal::kStatusDetailsMax; ++i) {
    status.SetPayload("acme/" + std::to_string(i), absl::Cord("y"));
  }
  size_t arrived = 0;
  Cross(status).ForEachPayload([&](absl::string_view, const absl::Cord&) { ++arrived; });
  EXPECT_EQ(arrived, internal::kStatusDetailsMax);
}

TEST(StatusTest, WhetherACallWasSentIsAskedOfThatCallOnly) {
  absl::Status other = absl::UnavailableError("the server behind me is down");
  internal::SetWasSent(other, internal::Sent::kNo);
  ASSERT_FALSE(WasSent(other));
  EXPECT_TRUE(WasSent(Cross(other)));
}

TEST(StatusTest, AnErrorOfACallNamesWhatWasDoneAndWhetherItWasSent) {
  const absl::Status sent =
      internal::CallError(absl::StatusCode::kUnavailable, "a", "b", "lost", internal::Sent::kYes);
  EXPECT_TRUE(WasSent(sent));
  EXPECT_EQ(sent.message(), "calling a at b: lost; it was sent, so the server may have run it");
  const absl::Status unsent =
      internal::CallError(absl::StatusCode::kUnavailable, "a", "b", "lost", internal::Sent::kNo);
  EXPECT_FALSE(WasSent(unsent));
  EXPECT_EQ(unsent.message(), "calling a at b: lost; it was not sent");
  const absl::Status perhaps =
      internal::CallError(absl::StatusCode::kUnavailable, "a", "b", "lost", internal::Sent::kPerhaps);
  EXPECT_TRUE(WasSent(perhaps));
  EXPECT_EQ(perhaps.message(), "calling a at b: lost; it may have been sent, and the server may have run it");
}

std::string DeadUri() {
  TestServer gone;
  return gone.uri;
}

std::string Printed(const absl::Status& status) {
  std::ostringstream text;
  text << status;
  return text.str();
}

TEST(StatusTest, ItIsPrintedWithoutADetailThatItsTextSays) {
  const std::string uri = DeadUri();
  const absl::Status connecting = Channel::Connect(uri).status();
  EXPECT_THAT(std::string(connecting.message()), StartsWith(absl::StrCat("connecting to ", uri, ": ")));
  const absl::Status unsent = SendAct(*Channel::Create(uri), 1, {.timeout = kLong}).Wait().status();
  EXPECT_FALSE(WasSent(unsent));
  Server backend;
  const absl::Status unserved = SendAct(*Channel::Connect(*backend.Listen(TestUri())), 1).Wait().status();
  EXPECT_THAT(unserved, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_FALSE(WasSent(unserved));
  TestServer held;
  held.probe.on_act = held.held.Handler();
  const absl::Status sent = SendAct(held.Connect(), 1, {.timeout = kExpires}).Wait().status();
  EXPECT_TRUE(WasSent(sent));
  for (const absl::Status& status : {connecting, unsent, unserved, sent}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Printed(status), Not(HasSubstr("type.hawser")));
  }
}

TEST(StatusTest, ADetailSaysWhatTheTextDoesNot) {
  absl::Status refused = absl::PermissionDeniedError("no such tenant");
  internal::SetWasSent(refused, internal::Sent::kNo);
  EXPECT_THAT(Printed(refused), HasSubstr("type.hawser/call='unsent'"));
  internal::SetWasSent(refused, internal::Sent::kPerhaps);
  EXPECT_THAT(Printed(refused), HasSubstr("type.hawser/call='perhaps sent'"));
  EXPECT_TRUE(WasSent(refused));
  internal::SetWasSent(refused, internal::Sent::kNo);
  internal::KeepTextHere(refused, "looking for a tenant");
  EXPECT_THAT(Printed(refused), HasSubstr("type.hawser/call='unsent, looking for a tenant'"));
  EXPECT_FALSE(WasSent(refused));
  absl::Status lost = absl::UnavailableError("READ of the memory of tcp://10.0.0.9:7470: lost");
  internal::KeepTextHere(lost, "reaching the memory of a server");
  EXPECT_THAT(Printed(lost), HasSubstr("type.hawser/call='reaching the memory of a server'"));
  EXPECT_EQ(Cross(lost).message(),
            "reaching the memory of a server: its server could not be reached, or was lost");
  absl::Status sent = internal::CallError(absl::StatusCode::kUnavailable, "kv.capnp:KeyValue.get",
                                          "tcp://10.0.0.9:7470", "lost", internal::Sent::kNo);
  EXPECT_THAT(Printed(sent), Not(HasSubstr("type.hawser")));
  internal::SetWasSent(sent, internal::Sent::kYes);
  EXPECT_TRUE(WasSent(sent)) << "not what the text says";
  internal::SetWasSent(sent, internal::Sent::kNo);
  EXPECT_FALSE(WasSent(sent));
  EXPECT_THAT(Printed(sent), Not(HasSubstr("type.hawser")));
}

// ---- A gateway, whose handler returns the result of its call to a backend.

absl::Status ThroughAGateway(const std::shared_ptr<Channel>& backend, absl::Status* local = nullptr) {
  TestServer gateway;
  gateway.probe.on_act = [&](ServerContext& context, uint64_t number) {
    SendAct(backend, number, {.timeout = absl::Seconds(5)})
        .Then([&, call = std::make_shared<DeferredCall>(context.Defer())](auto reply) {
          if (local != nullptr) *local = reply.status();
          call->Finish(reply.status());
        });
    return absl::OkStatus();
  };
  return SendAct(gateway.Connect(), 1).Wait().status();
}

TEST(GatewayTest, TheBackendsAddressStaysWithTheGateway) {
  std::string address;
  std::shared_ptr<Channel> backend;
  {
    TestServer gone;
    address = gone.uri.substr(gone.uri.find("://") + 3);
    backend = gone.Connect();
  }
  EXPECT_TRUE(Eventually([&] { return backend->state() != ChannelState::kReady; }));
  absl::Status local;
  const absl::Status status = ThroughAGateway(backend, &local);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(local.message()), HasSubstr(address));
  EXPECT_THAT(status.ToString(), testing::Not(HasSubstr(address)));
  EXPECT_THAT(status.ToString(), testing::Not(HasSubstr(TestHost())));
  EXPECT_EQ(std::string(status.message()),
            "calling probe.capnp:Probe.act: its server could not be reached, or was lost; it was not sent");
}

TEST(GatewayTest, TheBackendsAddressStaysThoughMemoryIsShort) {
  const absl::Status status = internal::CallError(absl::StatusCode::kUnavailable, "kv.capnp:KeyValue.get",
                                                  "tcp://10.0.0.9:7470", "lost", internal::Sent::kNo);
  EXPECT_EQ(std::string(internal::Shortened(status, 256).message()),
            "calling kv.capnp:KeyValue.get: its server could not be reached, or was lost; it was not sent");
  EXPECT_EQ(internal::Shortened(status, 8), absl::UnavailableError("calling "));
  const absl::Status own = absl::NotFoundError("a caf\u00e9");
  EXPECT_EQ(internal::Shortened(own, 7), own);
  EXPECT_EQ(internal::Shortened(own, 6), absl::NotFoundError("a caf"));
}

TEST(GatewayTest, WhatTheBackendDoesNotServeIsSaidWithoutItsAddress) {
  Server backend;
  const std::string uri = *backend.Listen(TestUri());
  const absl::Status status = ThroughAGateway(*Channel::Connect(uri));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("calling probe.capnp:Probe.act: "));
  EXPECT_THAT(status.ToString(), testing::Not(HasSubstr(uri)));
}

TEST(GatewayTest, ABackendThatCannotBeConnectedToIsNotNamed) {
  absl::Status local;
  TestServer gateway;
  gateway.probe.on_act = [&](ServerContext&, uint64_t) {
    std::thread([&] { local = Channel::Connect("tcp://127.0.0.1:1").status(); }).join();
    return local;
  };
  const absl::Status status = SendAct(gateway.Connect(), 1).Wait().status();
  EXPECT_THAT(std::string(local.message()), HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(std::string(status.message()), "connecting: its server could not be reached, or was lost");
}

TEST(GatewayTest, WhatTheBackendSaidPassesAsItIs) {
  TestServer backend;
  absl::Status said = absl::NotFoundError("no tow at tcp://10.0.0.1:7470");
  said.SetPayload("acme/key", absl::Cord("tow"));
  backend.probe.on_act = [&](ServerContext&, uint64_t) { return said; };
  EXPECT_EQ(ThroughAGateway(backend.Connect()), said);
}

TEST(GatewayTest, APeerCannotSayWhatIsSaidOfItsCalls) {
  absl::Status status = absl::NotFoundError("no tow");
  status.SetPayload("type.hawser/call", absl::Cord("unsent, nothing"));
  EXPECT_EQ(Cross(status).GetPayload("type.hawser/call"), absl::nullopt);
  EXPECT_TRUE(WasSent(Cross(status)));
}

// As a peer that is not ours may send it: EncodeStatus() would write another text.
TEST(GatewayTest, TheTextOfAPeerDoesNotSayWhetherACallWasSent) {
  for (const char* text : {"calling kv.capnp:KeyValue.get at tcp://10.0.0.9:7470: no; it was not sent",
                           "connecting to tcp://10.0.0.9:7470: no"}) {
    absl::Status as_it_is = absl::UnavailableError(text);
    as_it_is.SetPayload("type.hawser/call", absl::Cord());
    const absl::Status status = Cross(as_it_is);
    EXPECT_EQ(status.message(), text);
    EXPECT_TRUE(WasSent(status));
    // Nor is it another text when it is passed on.
    EXPECT_EQ(internal::Shortened(status, 256).message(), text);
  }
}

TEST(GatewayTest, AnErrorThatIsQuotedKeepsItsAddressHere) {
  const absl::Status status = internal::CallError(absl::StatusCode::kUnavailable, "kv.capnp:KeyValue.get",
                                                  "tcp://10.0.0.9:7470", "lost", internal::Sent::kNo);
  EXPECT_EQ(Cross(absl::InternalError(status.message())).message(),
            "calling kv.capnp:KeyValue.get: it failed; it was not sent");
  for (const char* own : {"calling the doctor at tcp://10.0.0.9:7470", "connecting to the database: late",
                          "calling kv.capnp:KeyValue.get at once"}) {
    EXPECT_EQ(Cross(absl::InternalError(own)).message(), own);
  }
}

}  // namespace
}  // namespace hawser
