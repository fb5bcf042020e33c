// Calls carry traces from handler to handler, and give spans to a sink.

#include "hawser/rpc/trace.h"

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/rpc/task.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kUnsampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

TEST(TraceContextTest, AWellFormedTraceparentIsReadAndWritten) {
  for (const char* text : {kParent, kUnsampled}) {
    const std::optional<TraceContext> trace = TraceContext::Parse(text);
    ASSERT_TRUE(trace.has_value()) << text;
    EXPECT_EQ(trace->ToString(), text);
    EXPECT_EQ(trace->is_sampled, text == kParent);
  }
}

TEST(TraceContextTest, AHigherVersionMayHaveMoreFieldsAndFlags) {
  const std::string higher = absl::StrCat("cc", absl::string_view(kParent).substr(2));
  EXPECT_TRUE(TraceContext::Parse(higher).has_value());
  EXPECT_TRUE(TraceContext::Parse(higher + "-more").has_value());
  EXPECT_FALSE(TraceContext::Parse(higher + ".more").has_value());
  EXPECT_FALSE(TraceContext::Parse(absl::StrCat(kParent, "-more")).has_value()) << "version 00 has no more";
  const std::string flags = std::string(kParent).replace(53, 2, "ff");
  ASSERT_TRUE(TraceContext::Parse(flags).has_value());
  EXPECT_EQ(TraceContext::Parse(flags)->ToString(), kParent) << "only the flag that we know is passed on";
}

TEST(TraceContextTest, AMalformedTraceparentIsNone) {
  const std::string good = kParent;
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(TraceContext::Parse(good.substr(0, length)).has_value()) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (char c : {'g', 'A', '\0', ' ', '\xff'}) {
      std::string bad = good;
      bad[i] = c;
      EXPECT_FALSE(TraceContext::Parse(bad).has_value()) << bad;
    }
  }
  EXPECT_FALSE(TraceContext::Parse(std::string(good).replace(3, 32, 32, '0')).has_value());
  EXPECT_FALSE(TraceContext::Parse(std::string(good).replace(36, 16, 16, '0')).has_value());
  EXPECT_FALSE(TraceContext::Parse(std::string(good).replace(0, 2, "ff")).has_value());
}

// The spans of a test, by "client act" and the like.
class Spans final : public TraceSink {
 public:
  struct Kept {
    TraceContext context;
    std::optional<std::array<uint8_t, 8>> parent;
    std::string peer;
    absl::Status status;
    absl::Time start, end;
    std::vector<SpanAttribute> attributes;
    uint32_t dropped_attributes;
  };

  void OnSpan(const Span& span) override {
    EXPECT_LE(span.start, span.end);
    Kept kept = {span.context,
                 span.parent_span_id,
                 std::string(span.peer_address),
                 span.status,
                 span.start,
                 span.end,
                 {},
                 span.dropped_attributes};
    kept.attributes.assign(span.attributes.begin(), span.attributes.end());
    absl::MutexLock lock(&mutex_);
    kept_.emplace_back(span.kind == Span::Kind::kClient ? "client" : "server", std::move(kept));
  }

  size_t size() {
    absl::MutexLock lock(&mutex_);
    return kept_.size();
  }
  // Waits for `count` spans, and returns those of `kind`, in the order of their ends.
  std::vector<Kept> Take(size_t count, const std::string& kind) {
    EXPECT_TRUE(Eventually([&] { return size() >= count; })) << size() << " of " << count;
    absl::MutexLock lock(&mutex_);
    EXPECT_EQ(kept_.size(), count);
    std::vector<Kept> of_kind;
    for (const auto& [each, kept] : kept_) {
      if (each == kind) of_kind.push_back(kept);
    }
    return of_kind;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::pair<std::string, Kept>> kept_;
};

// A client that calls `front`, whose handler calls `back`, which keeps the traceparents that come.
class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    back.probe.on_act = [this](ServerContext& context, uint64_t) {
      arrived.Put({std::string(context.metadata().Get("traceparent").value_or("none")),
                   std::string(context.metadata().Get("tracestate").value_or("none"))});
      return absl::OkStatus();
    };
  }
  ~TraceTest() override { EXPECT_THAT(SetTraceSink(nullptr), IsOk()); }

  static ServerOptions WithExecutor() {
    ServerOptions options;
    options.executor = [](absl::AnyInvocable<void()> handler) { std::thread(std::move(handler)).detach(); };
    return options;
  }
  // Front's handler makes one call and answers once that has ended.
  void CallBackend(TestServer& front, const std::shared_ptr<Channel>& to_back) {
    front.probe.on_act = [to_back](ServerContext& context, uint64_t number) {
      auto deferred = std::make_shared<DeferredCall>(context.Defer());
      SendAct(to_back, number).Then([deferred](auto reply) { deferred->Finish(reply.status()); });
      return absl::OkStatus();
    };
  }
  absl::Status Call(TestServer& front, const std::string& traceparent, const std::string& tracestate = "") {
    Metadata metadata = {{"tenant", "blue"}, {"traceparent", traceparent}};
    if (!tracestate.empty()) metadata.Add("tracestate", tracestate);
    return SendAct(front.Connect(), 1, {.metadata = &metadata}).Wait().status();
  }

  Box<std::pair<std::string, std::string>> arrived;  // traceparent and tracestate.
  TestServer back;
};

TEST_F(TraceTest, AHandlersCallCarriesOnTheTraceOfItsOwn) {
  TestServer front;
  CallBackend(front, back.Connect());
  ASSERT_THAT(Call(front, kParent, "vendor=1"), IsOk());
  EXPECT_EQ(arrived.Take(), std::make_pair(std::string(kParent), std::string("vendor=1")));
}

TEST_F(TraceTest, WithoutATraceNothingIsAdded) {
  TestServer front;
  CallBackend(front, back.Connect());
  ASSERT_THAT(Call(front, kParent), IsOk());
  EXPECT_EQ(arrived.Take().first, kParent);
  ASSERT_THAT(SendAct(front.Connect(), 1).Wait(), IsOk());
  EXPECT_EQ(arrived.Take().first, "none");
}

TEST_F(TraceTest, ATraceGoesAlongOnAnExecutor) {
  TestServer front(WithExecutor());
  const auto to_back = back.Connect();
  front.probe.on_act = [to_back](ServerContext&, uint64_t number) {
    EXPECT_NE(TraceContext::Current(), nullptr);
    return SendAct(to_back, number).Wait().status();
  };
  ASSERT_THAT(Call(front, kParent), IsOk());
  EXPECT_EQ(arrived.Take().first, kParent);
  EXPECT_EQ(TraceContext::Current(), nullptr);
}

TEST_F(TraceTest, ATraceGoesAlongThroughCallbacks) {
  TestServer front;
  const auto to_back = back.Connect();
  front.probe.on_act = [to_back](ServerContext& context, uint64_t) {
    auto deferred = std::make_shared<DeferredCall>(context.Defer());
    SendAct(to_back, 1).Then([deferred, to_back](auto) {
      SendAct(to_back, 2).Then([deferred](auto reply) { deferred->Finish(reply.status()); });
    });
    return absl::OkStatus();
  };
  ASSERT_THAT(Call(front, kParent), IsOk());
  EXPECT_EQ(arrived.Take().first, kParent);
  EXPECT_EQ(arrived.Take().first, kParent);
}

TEST_F(TraceTest, ACallbackThatAWaitingHandlersThreadRunsDoesNotGetTheHandlersTrace) {
  ASSERT_THAT(Call(back, kParent), IsOk());  // From here on this process carries traces.
  arrived.Take();
  Driven driven;
  {
    ChannelOptions options;
    options.runtime = driven.runtime;
    const auto channel = back.Connect(std::move(options));
    bool called = false;
    auto first = SendAct(channel, 1);
    first.Then([&](auto) { SendAct(channel, 2).Then([&](auto) { called = true; }); });
    {
      const auto trace = std::make_shared<const internal::CarriedTrace>(
          internal::CarriedTrace{*TraceContext::Parse(kParent)});
      const internal::TraceRef ref = trace;
      const internal::TraceScope handler(ref);
      EXPECT_THAT(SendAct(channel, 3).Wait(), IsOk());
    }
    EXPECT_TRUE(driven.Until([&] { return called; }));
    std::vector<std::string> traces;
    for (int i = 0; i < 3; ++i) traces.push_back(arrived.Take().first);
    EXPECT_THAT(traces, ::testing::UnorderedElementsAre("none", kParent, "none"));
  }
}

Task CallTwice(DeferredCall, std::shared_ptr<Channel> channel) {
  for (int i = 0; i < 2; ++i) {
    auto reply = co_await SendAct(channel, i);
    if (!reply.ok()) co_return reply.status();
  }
  co_return absl::OkStatus();
}

TEST_F(TraceTest, ATraceGoesAlongInACoroutine) {
  TestServer front;
  const auto to_back = back.Connect();
  front.probe.on_act = [to_back](ServerContext& context, uint64_t) -> absl::Status {
    return CallTwice(context.Defer(), to_back);
  };
  ASSERT_THAT(Call(front, kParent), IsOk());
  EXPECT_EQ(arrived.Take().first, kParent);
  EXPECT_EQ(arrived.Take().first, kParent);
}

TEST_F(TraceTest, CallOptionsForBringTheTraceToAnotherThread) {
  TestServer front;
  const auto to_back = back.Connect();
  std::thread other;
  front.probe.on_act = [&](ServerContext& context, uint64_t) {
    other = std::thread([&to_back, call = context.Defer()]() mutable {
      EXPECT_EQ(TraceContext::Current(), nullptr);
      EXPECT_THAT(SendAct(to_back, 1, CallOptions::For(call.context())).Wait(), IsOk());
      EXPECT_THAT(SendAct(to_back, 2).Wait(), IsOk());
      call.Finish(absl::OkStatus());
    });
    return absl::OkStatus();
  };
  ASSERT_THAT(Call(front, kParent), IsOk());
  other.join();
  EXPECT_EQ(arrived.Take().first, kParent);
  EXPECT_EQ(arrived.Take().first, "none") << "the other thread runs no handler";
}

TEST_F(TraceTest, SpansOfAChainAreOfOneTraceAndNameTheirParents) {
  auto spans = std::make_shared<Spans>();
  TestServer front;
  CallBackend(front, back.Connect());
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  ASSERT_THAT(SendAct(front.Connect(), 1).Wait(), IsOk());
  const auto clients = spans->Take(4, "client");
  const auto servers = spans->Take(4, "server");
  ASSERT_EQ(clients.size(), 2u);
  // The backend's call ends first.
  const Spans::Kept &inner = clients[0], &outer = clients[1];
  const bool in_order = servers[0].parent == inner.context.span_id;
  const Spans::Kept &back_span = servers[in_order ? 0 : 1], &front_span = servers[in_order ? 1 : 0];
  EXPECT_EQ(outer.parent, std::nullopt);
  EXPECT_EQ(front_span.parent, outer.context.span_id);
  EXPECT_EQ(inner.parent, front_span.context.span_id);
  EXPECT_EQ(back_span.parent, inner.context.span_id);
  for (const Spans::Kept* each : {&inner, &front_span, &back_span}) {
    EXPECT_EQ(each->context.trace_id, outer.context.trace_id);
    EXPECT_NE(each->context.span_id, outer.context.span_id);
  }
  EXPECT_EQ(arrived.Take().first, inner.context.ToString());
  EXPECT_EQ(outer.peer, front.uri);
}

TEST_F(TraceTest, CallsOfDifferentClientsAreDifferentTraces) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  const auto channel = back.Connect();
  for (int i = 0; i < 2; ++i) ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  const auto clients = spans->Take(4, "client");
  EXPECT_NE(clients[0].context.trace_id, clients[1].context.trace_id);
}

TEST_F(TraceTest, ASpanHasTheStatusOfItsSide) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  back.probe.on_act = [](ServerContext&, uint64_t) { return absl::NotFoundError("no tow"); };
  EXPECT_EQ(SendAct(back.Connect(), 1).Wait().status(), absl::NotFoundError("no tow"));
  EXPECT_EQ(spans->Take(2, "client")[0].status, absl::NotFoundError("no tow"));
  EXPECT_EQ(spans->Take(2, "server")[0].status, absl::NotFoundError("no tow"));
}

using AttributeValue = std::variant<std::string, int64_t, bool>;

// By key.
std::map<std::string, AttributeValue> AttributesOf(const Spans::Kept& span) {
  std::map<std::string, AttributeValue> by_key;
  for (const SpanAttribute& each : span.attributes) by_key[each.key] = each.value;
  EXPECT_EQ(by_key.size(), span.attributes.size()) << "a key comes once";
  return by_key;
}

TEST_F(TraceTest, EachSideAddsAttributesToItsOwnSpan) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  back.probe.on_act = [](ServerContext& context, uint64_t number) {
    context.SetSpanAttribute("text", "first");
    context.SetSpanAttribute("text", std::string("second"));
    context.SetSpanAttribute("number", number);
    context.SetSpanAttribute("largest", std::numeric_limits<uint64_t>::max());
    context.SetSpanAttribute("negative", -1);
    context.SetSpanAttribute("hit", false);
    return absl::OkStatus();
  };
  auto call = probe::ProbeStub(back.Connect()).Act();
  call.request().setNumber(7);
  call.SetSpanAttribute("job", absl::string_view("nightly"));
  call.SetSpanAttribute("retry", true);
  ASSERT_THAT(call.Send().Wait(), IsOk());
  const std::map<std::string, AttributeValue> of_server = {{"text", std::string("second")},
                                                           {"number", int64_t{7}},
                                                           {"largest", std::numeric_limits<int64_t>::max()},
                                                           {"negative", int64_t{-1}},
                                                           {"hit", false}};
  const std::map<std::string, AttributeValue> of_client = {{"job", std::string("nightly")}, {"retry", true}};
  EXPECT_EQ(AttributesOf(spans->Take(2, "server")[0]), of_server);
  const Spans::Kept client = spans->Take(2, "client")[0];
  EXPECT_EQ(AttributesOf(client), of_client);
  EXPECT_EQ(client.dropped_attributes, 0u);
}

TEST_F(TraceTest, AttributesBeyondTheirNumberOrBytesAreCounted) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  back.probe.on_act = [](ServerContext& context, uint64_t) {
    for (size_t i = 0; i < kSpanAttributesMax + 3; ++i) context.SetSpanAttribute(absl::StrCat("k", i), i);
    context.SetSpanAttribute("k0", "another value of it");
    context.SetSpanAttribute("", "no key");
    return absl::OkStatus();
  };
  auto call = probe::ProbeStub(back.Connect()).Act();
  call.SetSpanAttribute("too long", std::string(kSpanAttributeBytesMax, 'x'));
  call.SetSpanAttribute("abc", std::string(kSpanAttributeBytesMax - 4, 'x'));
  call.SetSpanAttribute("d", "");
  call.SetSpanAttribute("e", "");
  call.SetSpanAttribute("abc", "short");
  call.SetSpanAttribute("number", 1);
  ASSERT_THAT(call.Send().Wait(), IsOk());
  const Spans::Kept server = spans->Take(2, "server")[0], client = spans->Take(2, "client")[0];
  EXPECT_EQ(AttributesOf(server).size(), kSpanAttributesMax);
  EXPECT_EQ(AttributesOf(server)["k0"], AttributeValue(std::string("another value of it")));
  EXPECT_EQ(server.dropped_attributes, 4u);
  const std::map<std::string, AttributeValue> of_client = {
      {"abc", std::string("short")}, {"d", std::string()}, {"number", int64_t{1}}};
  EXPECT_EQ(AttributesOf(client), of_client);
  EXPECT_EQ(client.dropped_attributes, 2u);
}

TEST_F(TraceTest, ADeferredCallAddsAttributesUntilItsAnswer) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  back.probe.on_act = [this](ServerContext& context, uint64_t number) {
    context.SetSpanAttribute("before", true);
    absl::Status deferred = back.held.Handler()(context, number);
    return number == 2 ? absl::NotFoundError("it answers at once, too") : deferred;
  };
  const auto channel = back.Connect();
  auto first = SendAct(channel, 1);
  DeferredCall call = back.held.Take();
  call.context().SetSpanAttribute("after", true);
  call.Finish();
  ASSERT_THAT(first.Wait(), IsOk());
  EXPECT_EQ(AttributesOf(spans->Take(2, "server")[0]).size(), 2u);
  EXPECT_THAT(SendAct(channel, 2).Wait(), HasCode(absl::StatusCode::kNotFound));
  DeferredCall late = back.held.Take();
  EXPECT_EQ(AttributesOf(spans->Take(4, "server")[1]).size(), 1u);
  late.context().SetSpanAttribute("after", true);  // The span has ended.
  late.Finish();
}

TEST_F(TraceTest, AttributesOfACallWithoutASpanHaveNoEffect) {
  back.probe.on_act = [](ServerContext& context, uint64_t) {
    context.SetSpanAttribute("key", "value");
    return absl::OkStatus();
  };
  const auto channel = back.Connect();
  const auto calls = [&] {
    auto call = probe::ProbeStub(channel).Act();
    call.SetSpanAttribute("key", "value");
    return call.Send().Wait().status();
  };
  EXPECT_THAT(calls(), IsOk());
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans, {.sample_rate = 0}), IsOk());
  EXPECT_THAT(calls(), IsOk());
  ASSERT_THAT(SetTraceSink(nullptr), IsOk());
  EXPECT_THAT(calls(), IsOk());
  EXPECT_EQ(spans->size(), 0u);
}

TEST_F(TraceTest, ATraceThatIsNotSampledMakesNoSpansAndIsPassedOn) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  ASSERT_THAT(Call(back, kUnsampled), IsOk());
  const std::string traceparent = arrived.Take().first;
  EXPECT_THAT(traceparent, HasSubstr(kTraceId));
  EXPECT_EQ(traceparent.substr(53), "00");

  ASSERT_THAT(SetTraceSink(spans, {.sample_rate = 0}), IsOk());
  ASSERT_THAT(SendAct(back.Connect(), 1).Wait(), IsOk());
  EXPECT_EQ(arrived.Take().first.substr(53), "00");
  ASSERT_THAT(Call(back, kParent), IsOk());
  EXPECT_EQ(arrived.Take().first.substr(53), "01") << "the caller's choice counts";
  EXPECT_EQ(spans->Take(2, "client").size(), 1u);
}

TEST_F(TraceTest, PeersSampleNoMoreThanTheyMay) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans, {.peers_spans_per_second = 0.001}), IsOk());
  const auto channel = back.Connect();
  for (int i = 0; i < 10; ++i) ASSERT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_EQ(spans->Take(11, "client").size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(arrived.Take().first.substr(53), "01") << "the trace is passed on as it came";
  }
}

// ServerCalls are used again: the trace of one caller must not go to the next.
TEST_F(TraceTest, ACallDoesNotInheritTheTraceOfTheCallBeforeIt) {
  TestServer front;
  CallBackend(front, back.Connect());
  const auto channel = front.Connect();
  const Metadata metadata = {{"traceparent", kParent}};
  ASSERT_THAT(SendAct(channel, 1, {.metadata = &metadata}).Wait(), IsOk());
  EXPECT_EQ(arrived.Take().first, kParent);
  ASSERT_THAT(SendAct(channel, 2).Wait(), IsOk());
  EXPECT_EQ(arrived.Take().first, "none");
}

// A handler that calls on: what the peer's traceparent samples is bounded in all, not only the spans of
// kServer.
TEST_F(TraceTest, PeersSampleNoMoreOfTheHandlersCallsThanTheyMay) {
  auto spans = std::make_shared<Spans>();
  TestServer front;
  CallBackend(front, back.Connect());
  const auto channel = front.Connect();
  // The peer: no sink of its own.
  Metadata metadata = {{"traceparent", kParent}};
  ASSERT_THAT(SendAct(channel, 1, {.metadata = &metadata}).Wait(), IsOk());
  ASSERT_THAT(SetTraceSink(spans, {.sample_rate = 0, .peers_spans_per_second = 0.001}), IsOk());
  // The client's own spans are in this process, too: 20 of them. Those of the handler's calls exceed them.
  for (int i = 0; i < 20; ++i) ASSERT_THAT(SendAct(channel, 1, {.metadata = &metadata}).Wait(), IsOk());
  EXPECT_LE(spans->size(), 20u + 2u);
}

TEST_F(TraceTest, TheApplicationsOwnTraceparentIsTheParent) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  ASSERT_THAT(Call(back, kParent, "vendor=1"), IsOk());
  const auto client = spans->Take(2, "client")[0];
  EXPECT_EQ(client.parent, TraceContext::Parse(kParent)->span_id);
  EXPECT_EQ(client.context.trace_id, TraceContext::Parse(kParent)->trace_id);
  EXPECT_EQ(arrived.Take(), std::make_pair(client.context.ToString(), std::string("vendor=1")));
}

TEST_F(TraceTest, AMalformedTraceOfAPeerIsIgnored) {
  TestServer front;
  CallBackend(front, back.Connect());
  for (const std::string& bad :
       {std::string(), std::string("00-"), std::string(55, '-'), std::string(2000, 'a')}) {
    ASSERT_THAT(Call(front, bad), IsOk()) << bad;
    EXPECT_EQ(arrived.Take().first, "none");
  }
  ASSERT_THAT(Call(front, kParent, std::string(513, 'a')), IsOk());
  EXPECT_EQ(arrived.Take(), std::make_pair(std::string(kParent), std::string("none")));
  ASSERT_THAT(Call(front, kParent, "a=\n"), IsOk());
  EXPECT_EQ(arrived.Take().second, "none");
}

TEST_F(TraceTest, MetadataThatIsFullGoesWithoutTheTrace) {
  ASSERT_THAT(SetTraceSink(std::make_shared<Spans>()), IsOk());
  Metadata metadata;
  for (size_t i = 0; i < kMetadataPairsMax; ++i) metadata.Add("k", "v");
  EXPECT_THAT(SendAct(back.Connect(), 1, {.metadata = &metadata}).Wait(), IsOk());
  EXPECT_EQ(arrived.Take().first, "none");
}

TEST_F(TraceTest, InterceptorsSeeTheTraceOfTheCall) {
  class Looks final : public Interceptor {
   public:
    absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) override {
      seen.Put(std::string(call.metadata.Get("traceparent").value_or("none")));
      return nullptr;
    }
    Box<std::string> seen;
  };
  auto looks = std::make_shared<Looks>();
  ASSERT_THAT(SetTraceSink(std::make_shared<Spans>()), IsOk());
  ChannelOptions options;
  options.interceptors = {looks};
  ASSERT_THAT(SendAct(back.Connect(std::move(options)), 1).Wait(), IsOk());
  EXPECT_EQ(looks->seen.Take(), arrived.Take().first);
}

TEST_F(TraceTest, ASinkThatThrowsHurtsNoCall) {
  class Throws final : public TraceSink {
    void OnSpan(const Span&) override { throw std::runtime_error("full"); }
  };
  ASSERT_THAT(SetTraceSink(std::make_shared<Throws>()), IsOk());
  EXPECT_THAT(SendAct(back.Connect(), 1).Wait(), IsOk());
}

TEST_F(TraceTest, TheSpanOfACallThatIsUnderWayGoesToTheSinkOfItsBegin) {
  auto spans = std::make_shared<Spans>();
  ASSERT_THAT(SetTraceSink(spans), IsOk());
  back.probe.on_act = back.held.Handler();
  auto call = SendAct(back.Connect(), 1);
  DeferredCall deferred = back.held.Take();
  ASSERT_THAT(SetTraceSink(nullptr), IsOk());
  EXPECT_THAT(spans->Take(0, "client"), IsEmpty());
  deferred.Finish(absl::OkStatus());
  EXPECT_THAT(call.Wait(), IsOk());
  spans->Take(2, "client");
}

TEST_F(TraceTest, ASampleRateOutOfItsRangeIsRefused) {
  EXPECT_THAT(SetTraceSink(std::make_shared<Spans>(), {.peers_spans_per_second = -1}),
              HasCode(absl::StatusCode::kInvalidArgument));
  for (double rate : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(SetTraceSink(std::make_shared<Spans>(), {.sample_rate = rate}),
                HasCode(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace hawser
