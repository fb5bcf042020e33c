// A call whose types are known at run time only.

#include "hawser/rpc/dynamic_call.h"

#include <capnp/message.h>
#include <capnp/schema-loader.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using DynamicReply = absl::StatusOr<Reply<capnp::DynamicStruct>>;

// The schema of the probe, as a peer would send it: no generated code is involved.
class DynamicCallTest : public ::testing::Test {
 protected:
  DynamicCallTest() {
    LoadFrom(capnp::Schema::from<probe::Probe>());
    interface_ = loader_->get(capnp::typeId<probe::Probe>()).asInterface();
  }

  void LoadFrom(capnp::InterfaceSchema interface) {
    loader_->loadOnce(interface.getProto());
    for (const auto method : interface.getMethods()) {
      loader_->loadOnce(method.getParamType().getProto());
      loader_->loadOnce(method.getResultType().getProto());
    }
  }

  DynamicCall New(const char* method, const CallOptions& options = {}) {
    auto call = DynamicCall::Create(channel_, interface_.getMethodByName(method), options);
    EXPECT_THAT(call.status(), IsOk());
    return *std::move(call);
  }

  // Behind a pointer: its destructor may throw, that of a test may not.
  const std::unique_ptr<capnp::SchemaLoader> loader_ = std::make_unique<capnp::SchemaLoader>();
  capnp::InterfaceSchema interface_;
  TestServer server_;
  std::shared_ptr<Channel> channel_ = server_.Connect();
};

TEST_F(DynamicCallTest, WaitReturnsTheReply) {
  DynamicCall call = New("act");
  call.request().set("number", 7);
  const DynamicReply reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->get("number").as<uint64_t>(), 7);
}

TEST_F(DynamicCallTest, ThenRunsTheCallbackOnceWithTheReply) {
  Box<uint64_t> numbers;
  DynamicCall call = New("act");
  call.request().set("number", 8);
  call.Send().Then([&](DynamicReply reply) { numbers.Put((*reply)->get("number").as<uint64_t>()); });
  EXPECT_EQ(numbers.Take(), 8);
}

TEST_F(DynamicCallTest, AnAttachedBufferIsSentFromWhereItIs) {
  constexpr size_t kBytes = 1 << 20;
  absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(kBytes);
  ASSERT_THAT(buffer.status(), IsOk());
  std::fill_n(buffer->data(), kBytes, 'x');
  const uint8_t* const where = buffer->data();
  DynamicCall call = New("echo");
  EXPECT_THAT(call.Attach(call.request(), "date", *channel_->AllocateBuffer(1)),
              HasCode(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(call.Attach(call.request(), "data", *std::move(buffer)), IsOk());
  const auto in_request = call.request().asReader().get("data").as<capnp::Data>();
  EXPECT_EQ(in_request.begin(), where);
  const DynamicReply reply = call.Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ((*reply)->get("data").as<capnp::Data>().size(), kBytes);
}

TEST_F(DynamicCallTest, MetadataGoesAlongAndComesBack) {
  const Metadata metadata = {{"tenant", "blue"}};
  const DynamicReply reply = New("echo", {.metadata = &metadata}).Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_EQ(reply->metadata().Get("tenant"), "blue");
}

TEST_F(DynamicCallTest, AnErrorNamesTheMethodAndThePeer) {
  server_.probe.on_act = server_.held.Handler();
  PendingDynamicCall pending = New("act").Send();
  pending.Cancel();
  const DynamicReply reply = pending.Wait();
  EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kCancelled));
  const std::string text = reply.status().ToString();
  EXPECT_THAT(text, HasSubstr("probe.capnp:Probe.act"));
  EXPECT_THAT(text, HasSubstr(server_.uri));
}

TEST_F(DynamicCallTest, ADroppedCallIsCancelled) {
  Box<bool> cancelled;
  server_.probe.on_act = [&](ServerContext& context, uint64_t) {
    context.OnCancel([&] { cancelled.Put(true); });
    server_.held.Handler()(context, 0).IgnoreError();
    return absl::OkStatus();
  };
  {
    auto pending = New("act").Send();
    ASSERT_TRUE(Eventually([&] { return server_.probe.runs == 1; }));
  }
  EXPECT_TRUE(cancelled.Take());
}

TEST_F(DynamicCallTest, AMethodIsNamedAndMarkedAsItsStubDoesIt) {
  const Method act = MethodOf(interface_.getMethodByName("act"));
  const Method again = MethodOf(interface_.getMethodByName("actAgain"));
  EXPECT_STREQ(act.name, probe::ProbeStub::kAct.name);
  EXPECT_EQ(act.interface_id, probe::ProbeStub::kAct.interface_id);
  EXPECT_EQ(again.ordinal, probe::ProbeStub::kActAgain.ordinal);
  EXPECT_FALSE(act.idempotent);
  EXPECT_TRUE(again.idempotent);
  EXPECT_EQ(act.name, MethodOf(interface_.getMethodByName("act")).name);  // Kept once.
}

TEST_F(DynamicCallTest, ReadTurnsAFieldThatIsNotThereIntoAStatus) {
  const DynamicReply reply = New("act").Send().Wait();
  ASSERT_THAT(reply.status(), IsOk());
  EXPECT_THAT(reply->Read([](capnp::DynamicStruct::Reader each) { each.get("nothing"); }),
              HasCode(absl::StatusCode::kDataLoss));
}

// ---- Schemas of a peer.

// An interface with one method, whose params and results are `type_id`.
void LoadInterface(capnp::SchemaLoader& loader, uint64_t id, const std::string& display_name,
                   const std::string& method_name, uint64_t type_id) {
  capnp::MallocMessageBuilder message;
  auto node = message.initRoot<capnp::schema::Node>();
  node.setId(id);
  node.setDisplayName(display_name);
  auto method = node.initInterface().initMethods(1)[0];
  method.setName(method_name);
  method.setParamStructType(type_id);
  method.setResultStructType(type_id);
  loader.load(node.asReader());
}

TEST_F(DynamicCallTest, NamesOfAPeerAreEscapedAndCut) {
  capnp::SchemaLoader loader;
  const uint64_t type = capnp::typeId<probe::Nest>();
  LoadInterface(loader, 0x8000000000000001, "x/a\x1b[2J.capnp:Foo\n", std::string(10000, 'm'), type);
  const auto interface = loader.get(0x8000000000000001).asInterface();
  EXPECT_EQ(NameOf(interface), "a\\x1b[2J.capnp:Foo\\n");
  const std::string name = MethodOf(interface.getMethods()[0]).name;
  EXPECT_THAT(name, StartsWith("a\\x1b[2J.capnp:Foo\\n.mmm"));
  EXPECT_EQ(name.size(), kDynamicNameBytesMax);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"  // For Cap'n Proto's class.
// A loader that asks a peer for what it needs, and does not get it.
class Refusing final : public capnp::SchemaLoader::LazyLoadCallback {
 public:
  void load(const capnp::SchemaLoader&, uint64_t id) const override {
    if (id == capnp::typeId<probe::Nest>()) KJ_FAIL_REQUIRE("the peer has gone");
  }
};
#pragma GCC diagnostic pop

TEST_F(DynamicCallTest, ATypeThatCannotBeLoadedIsRefused) {
  Refusing callback;
  capnp::SchemaLoader loader(callback);
  LoadInterface(loader, 0x8000000000000002, "a.capnp:Foo", "m", capnp::typeId<probe::Nest>());
  const auto interface = loader.get(0x8000000000000002).asInterface();
  const absl::Status status = DynamicCall::Create(channel_, interface.getMethods()[0]).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(status.message(), HasSubstr("the peer has gone"));
}

TEST_F(DynamicCallTest, NoMoreThanSoManyNamesAreKept) {
  std::set<const char*> names;
  for (size_t i = 0; i < kDynamicNamesMax + 10; ++i) {
    capnp::SchemaLoader loader;
    LoadInterface(loader, 0x8000000000000003, absl::StrCat("many.capnp:I", i), "m",
                  capnp::typeId<probe::Nest>());
    names.insert(MethodOf(loader.get(0x8000000000000003).asInterface().getMethods()[0]).name);
  }
  EXPECT_LE(names.size(), kDynamicNamesMax + 1);
  EXPECT_GT(names.size(), kDynamicNamesMax / 2);
}

using DynamicCallDeathTest = DynamicCallTest;

TEST_F(DynamicCallDeathTest, ASecondSendIsABugOfTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  DynamicCall call = New("act");
  auto pending = call.Send();
  EXPECT_DEATH((void)call.Send(), "method probe.capnp:Probe.act");
  EXPECT_THAT(pending.Wait().status(), IsOk());
}

}  // namespace
}  // namespace hawser
