// What a server tells of what it serves is enough to call it.

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/schema-loader.h>
#include <capnp/schema.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hawser/reflection.rpc.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/codegen/testdata/inheritance.rpc.h"
#include "tests/codegen/testdata/types.rpc.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

struct FileServiceImpl : acme::files::FileService {};
struct EverythingServiceImpl : acme::types::EverythingService {};

// A service of an application that generates no code.
struct ByHand final : Service {
  static constexpr Method kDo = {
      .interface_id = 0x1234567890abcdef, .ordinal = 3, .name = "by.hand:Hand.do", .idempotent = false};
  void AddMethods(MethodTable& table) override {
    table.Add(kDo, this, [](void*, ServerContext&) { return absl::OkStatus(); });
  }
};

// A service whose schema has nodes of the sizes that a test says.
struct Large final : Service {
  static constexpr Method kDo = {
      .interface_id = 0xfedcba0987654321, .ordinal = 0, .name = "large.capnp:Large.do", .idempotent = false};
  static inline std::vector<uint64_t> words;  // The size of each node.

  void AddMethods(MethodTable& table) override {
    table.Add(kDo, this, [](void*, ServerContext&) { return absl::OkStatus(); });
    table.AddInterface(kDo.interface_id, {.name = "large.capnp:Large", .load_schema = Load});
  }
  static void Load(capnp::SchemaLoader& loader) {
    for (size_t i = 0; i < words.size(); ++i) {
      capnp::MallocMessageBuilder message;
      auto node = message.initRoot<capnp::schema::Node>();
      node.setId((uint64_t{1} << 63) + i);
      node.setFile();
      const uint64_t without_name = node.asReader().totalSize().wordCount;
      node.setDisplayName(std::string((words[i] - without_name) * sizeof(capnp::word) - 1, 'n'));
      EXPECT_EQ(loader.load(node).getProto().totalSize().wordCount, words[i]);
    }
  }
};

class ReflectionTest : public ::testing::Test {
 protected:
  // A stub of a server with these services.
  reflection::ReflectionStub Reflect(const std::vector<Service*>& services, ServerOptions options = {}) {
    server_ = std::make_unique<Server>(std::move(options));
    for (Service* service : services) EXPECT_THAT(server_->AddService(service), IsOk());
    const auto uri = server_->Listen(TestUri());
    EXPECT_THAT(uri, IsOk());
    return reflection::ReflectionStub(*Channel::Connect(*uri));
  }

  // Asks until it has all nodes.
  static absl::StatusOr<int> Load(const reflection::ReflectionStub& stub, uint64_t id,
                                  capnp::SchemaLoader& loader) {
    int answers = 0;
    for (uint32_t have = 0, total = 1; have < total; ++answers) {
      auto call = stub.Schema();
      call.request().setInterfaceId(id);
      call.request().setSkip(have);
      auto reply = call.Send().Wait();
      if (!reply.ok()) return reply.status();
      total = (*reply)->getTotal();
      EXPECT_GT((*reply)->getNodes().size(), 0u);
      for (auto node : (*reply)->getNodes()) loader.load(node);
      have += (*reply)->getNodes().size();
    }
    return answers;
  }

  std::unique_ptr<Server> server_;
};

TEST_F(ReflectionTest, ServicesAndTheirMethodsAreListed) {
  FileServiceImpl file;
  ByHand by_hand;
  const auto reply = Reflect({&file, &by_hand}).List().Send().Wait();
  ASSERT_THAT(reply, IsOk());
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> methods;
  for (auto service : (*reply)->getServices()) {
    const std::string name = service.getName().cStr();
    names.push_back(name);
    EXPECT_EQ(service.getHasSchema(), name != "by.hand:Hand");
    for (auto method : service.getMethods()) methods[name].push_back(method.getName().cStr());
    if (name == "by.hand:Hand") {
      EXPECT_EQ(service.getMethods()[0].getOrdinal(), 3);
    }
  }
  EXPECT_THAT(names,
              ElementsAre("base.capnp:Node", "by.hand:Hand", "health.capnp:Health", "inheritance.capnp:File",
                          "inheritance.capnp:Readable", "inheritance.capnp:Writable",
                          "introspection.capnp:Introspection", "reflection.capnp:Reflection"));
  EXPECT_THAT(methods, Contains(Pair("inheritance.capnp:File", ElementsAre("truncate"))));
  EXPECT_THAT(methods, Contains(Pair("by.hand:Hand", ElementsAre("do"))));
  EXPECT_THAT(methods, Contains(Pair("reflection.capnp:Reflection", ElementsAre("list", "schema"))));
}

TEST_F(ReflectionTest, TheSchemaIsThatOfTheProgramWithAllThatItRefersTo) {
  FileServiceImpl file;
  EverythingServiceImpl everything;
  const auto stub = Reflect({&file, &everything});
  const uint64_t ids[] = {capnp::typeId<acme::files::File>(), capnp::typeId<acme::types::Everything>()};
  for (uint64_t id : ids) {
    capnp::SchemaLoader received, compiled;
    ASSERT_THAT(Load(stub, id, received), IsOk());
    compiled.loadCompiledTypeAndDependencies<acme::files::File>();
    compiled.loadCompiledTypeAndDependencies<acme::types::Everything>();
    EXPECT_EQ(received.get(id).getProto().toString().flatten(),
              compiled.get(id).getProto().toString().flatten());
    for (auto method : received.get(id).asInterface().getMethods()) {
      for (capnp::StructSchema schema : {method.getParamType(), method.getResultType()}) {
        EXPECT_TRUE(schema.getProto().isStruct());
        for (auto field : schema.getFields()) field.getType();  // Throws if a node lacks.
      }
    }
  }
}

TEST_F(ReflectionTest, ACallCanBeBuiltFromTheSchema) {
  ProbeServiceImpl probe;
  const auto stub = Reflect({&probe});
  capnp::SchemaLoader loader;
  ASSERT_THAT(Load(stub, capnp::typeId<probe::Probe>(), loader), IsOk());
  const auto act = loader.get(capnp::typeId<probe::Probe>()).asInterface().getMethodByName("act");
  capnp::MallocMessageBuilder message;
  message.initRoot<capnp::DynamicStruct>(act.getParamType()).set("number", 7);
  EXPECT_EQ(message.getRoot<probe::Probe::ActParams>().getNumber(), 7u);
}

TEST_F(ReflectionTest, ManyNodesComeInSeveralAnswers) {
  EverythingServiceImpl everything;
  const auto stub = Reflect({&everything});
  capnp::SchemaLoader loader;
  const uint64_t id = capnp::typeId<acme::types::Everything>();
  auto call = stub.Schema();
  call.request().setInterfaceId(id);
  auto all = call.Send().Wait();
  ASSERT_THAT(all, IsOk());
  const uint32_t total = (*all)->getTotal();
  EXPECT_EQ((*all)->getNodes().size(), total) << "these few fit one answer";
  for (uint32_t skip : {total - 1, total, total + 1, UINT32_MAX}) {
    auto later = stub.Schema();
    later.request().setInterfaceId(id);
    later.request().setSkip(skip);
    auto reply = later.Send().Wait();
    ASSERT_THAT(reply, IsOk());
    EXPECT_EQ((*reply)->getTotal(), total);
    EXPECT_EQ((*reply)->getNodes().size(), skip < total ? 1u : 0u);
  }
}

// Asks for the schema of Large, and returns how many nodes each answer had.
std::vector<size_t> NodesByAnswer(const reflection::ReflectionStub& stub) {
  std::vector<size_t> nodes;
  size_t have = 0;
  do {
    auto call = stub.Schema();
    call.request().setInterfaceId(Large::kDo.interface_id);
    call.request().setSkip(static_cast<uint32_t>(have));
    const auto reply = call.Send().Wait();
    EXPECT_THAT(reply, IsOk());
    if (!reply.ok()) break;
    EXPECT_EQ((*reply)->getTotal(), Large::words.size());
    nodes.push_back((*reply)->getNodes().size());
    for (const auto node : (*reply)->getNodes()) {
      EXPECT_EQ(node.totalSize().wordCount, Large::words[have++]) << "it is whole";
    }
  } while (have < Large::words.size() && nodes.back() > 0);
  return nodes;
}

constexpr uint64_t kAnswerWords = 256 * 1024 / sizeof(capnp::word);

TEST_F(ReflectionTest, NodesOf256KiBComeInOneAnswerAndWhatIsBeyondInTheNext) {
  Large large;
  Large::words = {kAnswerWords / 4, kAnswerWords / 2, kAnswerWords / 4};
  EXPECT_THAT(NodesByAnswer(Reflect({&large})), ElementsAre(3));
  Large::words.push_back(100);
  EXPECT_THAT(NodesByAnswer(Reflect({&large})), ElementsAre(3, 1));
  Large::words = {kAnswerWords / 4, kAnswerWords / 2, kAnswerWords / 4 + 1};
  EXPECT_THAT(NodesByAnswer(Reflect({&large})), ElementsAre(2, 1));
}

TEST_F(ReflectionTest, ANodeOfMoreThan256KiBComesAlone) {
  Large large;
  Large::words = std::vector<uint64_t>(20, 2560);
  Large::words.push_back(kAnswerWords + 1);
  Large::words.insert(Large::words.end(), 30, 2560);
  EXPECT_THAT(NodesByAnswer(Reflect({&large})), ElementsAre(12, 8, 1, 12, 12, 6));
}

TEST_F(ReflectionTest, WhatIsNotThereIsSaid) {
  ByHand by_hand;
  const auto stub = Reflect({&by_hand});
  capnp::SchemaLoader loader;
  const absl::Status unknown = Load(stub, 0xdead, loader).status();
  EXPECT_THAT(unknown, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("no interface 0x000000000000dead"));
  const absl::Status without = Load(stub, ByHand::kDo.interface_id, loader).status();
  EXPECT_THAT(without, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(without.message()), HasSubstr("by.hand:Hand has no schema"));
}

TEST_F(ReflectionTest, TheOptionTurnsItOff) {
  ServerOptions options;
  options.reflection = false;
  const auto reply = Reflect({}, std::move(options)).List().Send().Wait();
  EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kUnimplemented));
}

TEST_F(ReflectionTest, ClientsThatMayNotCallAreToldNothing) {
  ServerOptions options;
  options.authorize = [](const ServerContext&) { return absl::PermissionDeniedError("not you"); };
  ProbeServiceImpl probe;
  const auto stub = Reflect({&probe}, std::move(options));
  EXPECT_THAT(stub.List().Send().Wait().status(), HasCode(absl::StatusCode::kPermissionDenied));
  capnp::SchemaLoader loader;
  const absl::Status refused = Load(stub, capnp::typeId<probe::Probe>(), loader).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("Probe.act")));
}

TEST_F(ReflectionTest, AServiceOfTheApplicationTakesItsPlace) {
  struct Own final : reflection::ReflectionService {
    absl::Status List(ServerContext&, reflection::Reflection::ListParams::Reader,
                      reflection::Reflection::ListResults::Builder) override {
      return absl::UnavailableError("mine");
    }
  };
  Own own;
  EXPECT_THAT(Reflect({&own}).List().Send().Wait().status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(ReflectionTest, ErrorsThatSayWhatThereIsLeaveTheBuiltInServicesOut) {
  ProbeServiceImpl probe;
  const auto channel = Reflect({&probe}).channel();
  const auto reply = acme::files::FileStub(channel).Truncate().Send().Wait();
  EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(reply.status().message()), HasSubstr("it implements: probe.capnp:Probe. Was"));
}

}  // namespace
}  // namespace hawser
