// Key-value pairs go along with a call and with its answer.

#include "hawser/rpc/metadata.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> Pairs(MetadataView metadata) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const MetadataView::Pair& each : metadata) pairs.emplace_back(each.key, each.value);
  return pairs;
}

std::vector<std::pair<std::string, std::string>> Pairs(const Metadata& metadata) {
  return Pairs(metadata.view());
}

// ---- What a Metadata takes.

TEST(MetadataTest, KeepsPairsInOrderAndFindsTheFirstOfAKey) {
  Metadata metadata = {{"tenant", "blue"}, {"trace.id", std::string("\0\xff", 2)}};
  metadata.Add("tenant", "red").Add("empty", "");
  EXPECT_THAT(Pairs(metadata), ElementsAre(Pair("tenant", "blue"), Pair("trace.id", std::string("\0\xff", 2)),
                                           Pair("tenant", "red"), Pair("empty", "")));
  EXPECT_EQ(metadata.Get("tenant"), "blue");
  EXPECT_EQ(metadata.Get("empty"), "");
  EXPECT_EQ(metadata.Get("Tenant"), std::nullopt);
  EXPECT_THAT(metadata.status(), IsOk());
  EXPECT_TRUE(Metadata().empty());
}

TEST(MetadataTest, WhatWasMovedFromIsEmptyAndMayBeSent) {
  Metadata metadata = {{"tenant", "blue"}};
  const Metadata moved = std::move(metadata);
  EXPECT_TRUE(metadata.empty());
  EXPECT_THAT(metadata.status(), IsOk());
  EXPECT_EQ(moved.Get("tenant"), "blue");
  Metadata refused = {{"Tenant", "blue"}}, kept = std::move(refused);
  EXPECT_THAT(refused.status(), IsOk());
  EXPECT_THAT(kept.status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(MetadataTest, APairMayBeOfTheSame) {
  Metadata metadata = {{"tenant", std::string(100, 'x')}};
  for (int i = 0; i < 10; ++i) metadata.Add("again", *metadata.Get("tenant"));
  ASSERT_THAT(metadata.status(), IsOk());
  for (const MetadataView::Pair& pair : metadata) EXPECT_EQ(pair.value, std::string(100, 'x'));
}

TEST(MetadataTest, ATemporaryOneGivesCopies) {
  const std::optional<std::string> value = Metadata({{"a", "1"}}).Get("a");
  EXPECT_EQ(value, "1");
  EXPECT_EQ(Metadata({{"a", "1"}}).Get("b"), std::nullopt);
}

TEST(MetadataTest, RefusesAKeyThatIsNone) {
  for (const std::string& key :
       {std::string(), std::string("Tenant"), std::string("a b"), std::string("k\xc3\xa4se"),
        std::string("a\0", 2), std::string(kMetadataKeyMax + 1, 'a')}) {
    Metadata metadata = {{"good", "1"}};
    metadata.Add(key, "secret").Add("later", "2");
    EXPECT_THAT(metadata.status(), HasCode(absl::StatusCode::kInvalidArgument)) << key;
    EXPECT_THAT(metadata.status().ToString(), Not(HasSubstr("secret")));
    EXPECT_THAT(Pairs(metadata), ElementsAre(Pair("good", "1"), Pair("later", "2")));
  }
  EXPECT_THAT(Metadata({{std::string(kMetadataKeyMax, 'a'), ""}}).status(), IsOk());
}

TEST(MetadataTest, IsBoundedInPairsAndInBytes) {
  Metadata pairs;
  for (size_t i = 0; i < kMetadataPairsMax; ++i) pairs.Add("k", "");
  EXPECT_THAT(pairs.status(), IsOk());
  EXPECT_THAT(pairs.Add("k", "").status(), HasCode(absl::StatusCode::kInvalidArgument));

  Metadata bytes = {{"k", std::string(kMetadataBytesMax - 5, 'v')}};
  EXPECT_THAT(bytes.status(), IsOk());
  EXPECT_EQ(bytes.view().bytes().size(), kMetadataBytesMax);
  EXPECT_THAT(bytes.Add("k", "").status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Metadata({{"k", std::string(kMetadataBytesMax - 4, 'v')}}).status(), Not(IsOk()));
  EXPECT_THAT(Metadata({{"k", std::string(1 << 20, 'v')}}).status(), Not(IsOk()));
}

// ---- What a peer sends.

std::string WithZeros(absl::string_view bytes) {
  return std::string(bytes) + std::string(-bytes.size() & 7, '\0');
}

TEST(MetadataTest, WhatCrossesComesBack) {
  const Metadata metadata = {{"a", "1"}, {"b", std::string(300, 'x')}};
  for (const std::string& bytes :
       {std::string(metadata.view().bytes()), WithZeros(metadata.view().bytes())}) {
    const auto view = MetadataView::Parse(bytes);
    ASSERT_THAT(view.status(), IsOk());
    EXPECT_EQ(Pairs(*view), Pairs(metadata));
  }
  EXPECT_EQ(metadata.view().bytes().substr(0, 6), absl::string_view("\1\0\1\0a1", 6));
}

TEST(MetadataTest, WhatIsCutShortIsRefusedAtEachByte) {
  const Metadata metadata = {{"key", "a value"}, {"another", "b"}};
  const std::string bytes(metadata.view().bytes());
  const size_t first = 4 + 3 + 7;
  for (size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_EQ(MetadataView::Parse(bytes.substr(0, size)).ok(), size == first) << size;
  }
}

TEST(MetadataTest, WhatBreaksARuleIsRefusedAndNotQuoted) {
  const auto pair = [](absl::string_view key, absl::string_view value) {
    return absl::StrCat(std::string(1, static_cast<char>(key.size())), std::string(1, '\0'),
                        std::string(1, static_cast<char>(value.size() & 0xff)),
                        std::string(1, static_cast<char>(value.size() >> 8)), key, value);
  };
  std::string reserved = pair("k", "v");
  reserved[1] = 1;
  std::string pairs;
  for (size_t i = 0; i <= kMetadataPairsMax; ++i) pairs += pair("k", "v");
  for (const std::string& bytes :
       {pair("Upper", "secret"), pair(std::string(65, 'a'), "v"), pair(std::string(255, 'a'), "v"), reserved,
        pairs, pair("k", std::string(kMetadataBytesMax, 'v')), pair("k", "v") + std::string(8, '\0'),
        pair("k", "v") + std::string("\0\1", 2), std::string(8, '\0'), std::string(1 << 20, '\xff')}) {
    const absl::Status status = MetadataView::Parse(bytes).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << bytes.size();
    EXPECT_THAT(status.ToString(), Not(HasSubstr("secret")));
  }
}

// ---- With calls.

// Sends back what came, each value with a "!".
absl::Status EchoMetadata(ServerContext& context, uint64_t) {
  for (const MetadataView::Pair& each : context.metadata()) {
    context.reply_metadata().Add(each.key, absl::StrCat(each.value, "!"));
  }
  return absl::OkStatus();
}

TEST(MetadataTest, GoesAlongWithTheCallAndWithTheReply) {
  TestServer server;
  server.probe.on_act = EchoMetadata;
  const auto channel = server.Connect();
  const Metadata metadata = {{"tenant", "blue"}, {"user", "tow"}};
  const auto reply = SendAct(channel, 7, {.metadata = &metadata}).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->getNumber(), 7u);
  EXPECT_THAT(Pairs(reply->metadata()), ElementsAre(Pair("tenant", "blue!"), Pair("user", "tow!")));
}

TEST(MetadataTest, ACallWithoutHasNoneEvenAfterOneThatHad) {
  TestServer server;
  server.probe.on_act = EchoMetadata;
  const auto channel = server.Connect();
  const Metadata metadata = {{"tenant", "blue"}}, empty;
  for (const Metadata* each : {&metadata, static_cast<const Metadata*>(nullptr), &empty}) {
    const auto reply = SendAct(channel, 1, {.metadata = each}).Wait();
    ASSERT_THAT(reply.status(), IsOk());
    EXPECT_EQ(reply->metadata().empty(), each != &metadata);
  }
}

TEST(MetadataTest, ItsCallerNeedNotKeepIt) {
  TestServer server;
  server.probe.on_act = EchoMetadata;
  auto metadata = std::make_unique<Metadata>();
  metadata->Add("tenant", "blue");
  auto call = probe::ProbeStub(server.Connect()).Act({.metadata = metadata.get()});
  metadata.reset();
  const auto reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(reply->metadata().Get("tenant"), "blue!");
}

TEST(MetadataTest, GoesAlongWithBodiesOfEverySizeBuiltOrAttached) {
  TestServer server;
  const auto channel = server.Connect();
  const Metadata short_one = {{"k", "v"}}, long_one = {{"k", std::string(kMetadataBytesMax - 5, 'v')}};
  for (const Metadata* metadata : {&short_one, &long_one}) {
    for (const size_t size : {0, 100, 3000, 5000, 100'000, 3'000'000}) {
      for (const bool attached : {false, true}) {
        const std::string data(size, 'd');
        auto call = probe::ProbeStub(channel).Echo({.metadata = metadata});
        if (attached) {
          Buffer buffer = *channel->AllocateBuffer(size);
          std::copy(data.begin(), data.end(), buffer.data());
          call.request().adoptData(call.Attach(std::move(buffer)));
        } else {
          call.request().setData({reinterpret_cast<const uint8_t*>(data.data()), data.size()});
        }
        const auto reply = call.Send().Wait();
        ASSERT_THAT(reply.status(), IsOk()) << size;
        EXPECT_TRUE((*reply)->getData() ==
                    (capnp::Data::Reader{reinterpret_cast<const uint8_t*>(data.data()), size}));
        EXPECT_EQ(Pairs(reply->metadata()), Pairs(*metadata)) << size;
      }
    }
  }
}

TEST(MetadataTest, TheLargestCrossesBothWays) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply_metadata() = Metadata(context.metadata());
    return absl::OkStatus();
  };
  Metadata metadata;
  for (size_t i = 0; i + 1 < kMetadataPairsMax; ++i) metadata.Add(absl::StrCat("k", i), std::string(i, 'v'));
  metadata.Add("rest", std::string(kMetadataBytesMax - metadata.view().bytes().size() - 8, 'r'));
  ASSERT_THAT(metadata.status(), IsOk());
  ASSERT_EQ(metadata.view().bytes().size(), kMetadataBytesMax);
  const auto reply = SendAct(server.Connect(), 1, {.metadata = &metadata}).Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(Pairs(reply->metadata()), Pairs(metadata));
}

TEST(MetadataTest, GoesAlongWithAnError) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t) {
    context.reply_metadata().Add("retry-after", "3");
    return absl::UnavailableError("not now");
  };
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(Pairs(MetadataOf(status)), ElementsAre(Pair("retry-after", "3")));
  EXPECT_THAT(Pairs(MetadataOf(absl::NotFoundError("no call's"))), IsEmpty());
}

TEST(MetadataTest, OfAFurtherCallStaysWithItsCaller) {
  TestServer behind, front;
  behind.probe.on_act = [](ServerContext& context, uint64_t) {
    EXPECT_TRUE(context.metadata().empty());
    context.reply_metadata().Add("secret", "of the one behind");
    return absl::NotFoundError("no tow");
  };
  const auto channel = behind.Connect();
  front.probe.on_act = [&](ServerContext& context, uint64_t) {
    SendAct(channel, 1, CallOptions::For(context))
        .Then([deferred = context.Defer()](const auto& reply) mutable {
          EXPECT_THAT(Pairs(MetadataOf(reply.status())), ElementsAre(Pair("secret", "of the one behind")));
          deferred.Finish(reply.status());
        });
    return absl::OkStatus();
  };
  const Metadata metadata = {{"tenant", "blue"}};
  const absl::Status status = SendAct(front.Connect(), 1, {.metadata = &metadata}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_TRUE(MetadataOf(status).empty());
}

TEST(MetadataTest, ADeferredCallReadsItAndAnswersWithIt) {
  TestServer server;
  server.probe.on_act = server.held.Handler();
  const Metadata metadata = {{"tenant", "blue"}};
  auto pending = SendAct(server.Connect(), 1, {.metadata = &metadata});
  DeferredCall deferred = server.held.Take();
  std::thread([deferred = std::move(deferred)]() mutable {
    EXPECT_THAT(EchoMetadata(deferred.context(), 1), IsOk());
    deferred.Finish();
  }).join();
  const auto reply = pending.Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(reply->metadata().Get("tenant"), "blue!");
}

// The error counts, and the thread that has the DeferredCall may change the metadata meanwhile.
TEST(MetadataTest, AnErrorAfterDeferGoesWithoutIt) {
  TestServer server;
  Box<DeferredCall> deferred;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    deferred.Put(context.Defer());
    return absl::NotFoundError("no tow");
  };
  const auto channel = server.Connect();
  for (int i = 0; i < 20; ++i) {
    auto pending = SendAct(channel, 1);
    DeferredCall call = deferred.Take();
    for (size_t pair = 0; pair < kMetadataPairsMax; ++pair) call.context().reply_metadata().Add("k", "v");
    const absl::Status status = pending.Wait().status();
    EXPECT_EQ(status, absl::NotFoundError("no tow"));
    call.Finish();
  }
}

TEST(MetadataTest, OfACallWhoseCallerIsGoneIsForgotten) {
  ClockedRuntime clients;
  TestServer server;
  server.probe.on_act = [&, handler = server.held.Handler()](ServerContext& context, uint64_t number) {
    if (number == 2) return absl::OkStatus();
    context.reply_metadata().Add("late", "1");
    return handler(context, number);
  };
  const auto channel = server.Connect({.connection = {.slots = 1}, .runtime = clients.get()});
  auto call = SendAct(channel, 1, {.timeout = kLong});
  DeferredCall deferred = server.held.Take();
  clients.Pass(kLong);
  const absl::Status status = call.Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(MetadataOf(status).empty());
  deferred.Finish();
  const auto next = SendAct(channel, 2).Wait();
  ASSERT_THAT(next.status(), IsOk());
  EXPECT_TRUE(next->metadata().empty());
}

TEST(MetadataTest, OfAStatusThatAHandlerReturnsStaysBehind) {
  TestServer server;
  server.probe.on_act = [](ServerContext&, uint64_t) {
    absl::Status status = absl::NotFoundError("no tow");
    internal::SetMetadata(status, Metadata({{"secret", "of another call"}}).Add("a", "b").view());
    return status;
  };
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_EQ(status, absl::NotFoundError("no tow"));
}

TEST(MetadataTest, ACallWithABadOneEndsUnsent) {
  TestServer server;
  const Metadata metadata = {{"Tenant", "blue"}};
  const absl::Status status = SendAct(server.Connect(), 1, {.metadata = &metadata}).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"Tenant\" is no key of metadata"));
  EXPECT_FALSE(WasSent(status));
  EXPECT_EQ(server.probe.runs, 0);
}

TEST(MetadataTest, AReplyWithABadOneBecomesAnErrorAndAnErrorGoesWithoutIt) {
  TestServer server;
  absl::Status answer;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    context.reply_metadata().Add("good", "1").Add("Tenant", "blue");
    return answer;
  };
  const auto channel = server.Connect();
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"Tenant\" is no key of metadata"));
  answer = absl::NotFoundError(std::string(600, 'x'));
  answer.SetPayload("acme/key", absl::Cord("tow"));
  EXPECT_EQ(SendAct(channel, 1).Wait().status(), answer);
}

TEST(MetadataTest, PushedCallsHaveItToo) {
  class ListenerImpl final : public probe::ListenerService {
   public:
    absl::Status Notify(ServerContext& context, probe::Listener::NotifyParams::Reader,
                        probe::Listener::NotifyResults::Builder) override {
      return EchoMetadata(context, 0);
    }
  } listener;
  TestServer server;
  ChannelOptions options;
  options.services = {&listener};
  const auto channel = server.Connect(options);
  const std::shared_ptr<Channel> peer = WayBack(server, channel);
  const Metadata metadata = {{"tenant", "blue"}};
  const auto reply = probe::ListenerStub(peer).Notify({.metadata = &metadata}).Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(reply->metadata().Get("tenant"), "blue!");
}

}  // namespace
}  // namespace hawser
