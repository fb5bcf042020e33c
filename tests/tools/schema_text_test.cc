// What `describe` prints is what the server's schema says, and capnp compiles it.

#include "hawser/tools/hawser/schema_text.h"

#include <capnp/dynamic.h>
#include <capnp/schema-loader.h>
#include <capnp/serialize.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tools/hawser/schemas.h"
#include "hawser/tools/hawser/value_text.h"
#include "tests/tools/everything.capnp.h"

namespace hawser::tool {
namespace {

using capnp::schema::Node;
using everything::All;
using everything::Color;
using everything::Everything;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
void Load(Schemas& schemas) {
  const auto loader = std::make_unique<capnp::SchemaLoader>();
  loader->loadCompiledTypeAndDependencies<T>();
  for (const capnp::Schema& schema : loader->getAllLoaded()) {
    ASSERT_THAT(schemas.Add(schema.getProto()), IsOk());
  }
}

// What counts on the wire, and the names.
std::string Essence(Node::Reader node) {
  std::string text;
  switch (node.which()) {
    case Node::STRUCT: {
      const auto body = node.getStruct();
      text = absl::StrCat("struct of ", body.getDataWordCount(), " words and ", body.getPointerCount(),
                          " pointers, union of ", body.getDiscriminantCount(), " at ",
                          body.getDiscriminantOffset());
      for (const auto field : body.getFields()) {
        absl::StrAppend(&text, "\n  ", field.getName().cStr(), " in union ", field.getDiscriminantValue(),
                        " ");
        if (field.isGroup()) {
          absl::StrAppend(&text, "group ", field.getGroup().getTypeId());
        } else {
          absl::StrAppend(&text, "at ", field.getSlot().getOffset(), " ",
                          kj::str(field.getSlot().getType()).cStr(), " default ",
                          kj::str(field.getSlot().getDefaultValue()).cStr());
        }
      }
      return text;
    }
    case Node::ENUM:
      for (const auto enumerant : node.getEnum().getEnumerants())
        absl::StrAppend(&text, enumerant.getName().cStr(), " ");
      return text;
    case Node::INTERFACE:
      for (const auto method : node.getInterface().getMethods()) {
        absl::StrAppend(&text, method.getName().cStr(), " ", method.getParamStructType(), " -> ",
                        method.getResultStructType(),
                        method.getAnnotations().size() > 0 ? " idempotent\n" : "\n");
      }
      for (const auto base : node.getInterface().getSuperclasses())
        absl::StrAppend(&text, "extends ", base.getId());
      return text;
    default:
      return "";
  }
}

// The nodes of `text`, as capnp compiles it. Empty, and a failure, if it does not.
std::map<uint64_t, std::string> Compiled(const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/described.capnp");
  std::ofstream(path) << text;
  const std::string out = path + ".request";
  const std::string command =
      absl::StrCat("external/hawser_system/bin/capnp compile --no-standard-import -o- ", path, " > ", out);
  std::map<uint64_t, std::string> nodes;
  if (std::system(command.c_str()) != 0) {
    ADD_FAILURE() << "capnp does not take it:\n" << text;
    return nodes;
  }
  const int fd = open(out.c_str(), O_RDONLY);
  capnp::StreamFdMessageReader message(fd);
  for (const auto node : message.getRoot<capnp::schema::CodeGeneratorRequest>().getNodes()) {
    nodes[node.getId()] = Essence(node);
  }
  close(fd);
  return nodes;
}

std::string Text(const Schemas& schemas, const std::vector<uint64_t>& ids) {
  const auto text = SchemaText(schemas, ids);
  EXPECT_THAT(text, IsOk());
  return text.ok() ? *text : "";
}

TEST(SchemaTextTest, CapnpCompilesItToTheSameSchema) {
  Schemas schemas;
  Load<Everything>(schemas);
  const std::string text = Text(schemas, {capnp::typeId<Everything>()});
  const auto compiled = Compiled(text);
  int compared = 0;
  for (const auto& [id, node] : schemas.nodes()) {
    if (node.isFile()) continue;
    const auto found = compiled.find(id);
    ASSERT_NE(found, compiled.end()) << node.getDisplayName().cStr() << " is not in\n" << text;
    EXPECT_EQ(found->second, Essence(node)) << node.getDisplayName().cStr() << "\n" << text;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

TEST(SchemaTextTest, OneTypeIsDescribedWithWhatItRefersTo) {
  Schemas schemas;
  Load<Everything>(schemas);
  const std::string text = Text(schemas, {capnp::typeId<All::Inner>()});
  EXPECT_THAT(text, HasSubstr("struct Inner @0x"));
  EXPECT_THAT(text, HasSubstr("next @2 :Inner;"));
  EXPECT_THAT(text, HasSubstr("outer @4 : .Color;"));
  EXPECT_THAT(text, Not(HasSubstr("struct All")));
  const auto compiled = Compiled(text);
  EXPECT_EQ(compiled.at(capnp::typeId<All::Inner>()), Essence(schemas.Get(capnp::typeId<All::Inner>())));
}

TEST(SchemaTextTest, ATypeThatWasNotSentIsAnyPointer) {
  Schemas schemas;
  ASSERT_THAT(schemas.Add(capnp::Schema::from<All::Inner>().getProto()), IsOk());
  const std::string text = Text(schemas, {capnp::typeId<All::Inner>()});
  EXPECT_THAT(text, HasSubstr("color @3 :UInt16;"));
  EXPECT_FALSE(Compiled(text).empty());
}

TEST(SchemaTextTest, RootsOfOneNameAreNumbered) {
  Schemas schemas;
  Load<Everything>(schemas);
  const std::string text = Text(schemas, {capnp::typeId<All::Inner::Color>(), capnp::typeId<Color>()});
  EXPECT_THAT(text, HasSubstr("enum Color @0x"));
  EXPECT_THAT(text, HasSubstr("enum Color2 @0x"));
  EXPECT_FALSE(Compiled(text).empty());
}

// ---- Values.

std::string ValueOf(All::Reader all, size_t bytes_max) {
  const auto text =
      ValueText(capnp::Type(capnp::Schema::from<All>()), capnp::DynamicStruct::Reader(all), bytes_max);
  return text.has_value() ? *text : "too long";
}

TEST(ValueTextTest, AStructIsWrittenAsTheSchemaLanguageHasIt) {
  capnp::MallocMessageBuilder message;
  auto all = message.initRoot<All>();
  all.setText("a\"\n\xff");
  all.setFloat64(-0.5);
  all.setData(capnp::Data::Reader(reinterpret_cast<const uint8_t*>("\x01\xff"), 2));
  all.initNumbers(2).set(1, -7);
  all.setColor(everything::Color::GREEN);
  all.initInners(2)[0].setKey("k");
  all.getPlace().setX(3);
  all.getChoice().initPair().setB(4);
  all.setSecond("s");
  EXPECT_EQ(ValueOf(all, 1000),
            "(float64 = -0.5, text = \"a\\\"\\n\\xff\", data = 0x\"01ff\", numbers = [0, -7], color = green, "
            "inners = [(key = \"k\"), ()], place = (x = 3), choice = (pair = (b = 4)), second = \"s\")");
}

TEST(ValueTextTest, AValueThatIsTooLongIsNotWritten) {
  capnp::MallocMessageBuilder message;
  auto all = message.initRoot<All>();
  all.initInners(100);  // 4 letters and 6 steps each.
  EXPECT_NE(ValueOf(all, 1000), "too long");
  EXPECT_EQ(ValueOf(all, 500), "too long");
  all.disownInners();
  all.setText(std::string(1000, 'x'));
  EXPECT_EQ(ValueOf(all, 1000), "too long");
}

// ---- Names.

class SchemasTest : public ::testing::Test {
 protected:
  SchemasTest() {
    Load<Everything>(schemas_);
    schemas_.Serve(capnp::typeId<Everything>());
    EXPECT_THAT(schemas_.Check(), IsOk());
  }
  std::string Found(const std::string& name) {
    const auto method = schemas_.FindMethod(name);
    return method.ok() ? method->getProto().getName().cStr() : std::string(method.status().message());
  }
  Schemas schemas_;
};

TEST_F(SchemasTest, AMethodIsFoundByTheEndOfItsName) {
  for (const char* const name : {"everything.capnp:Everything.echo", "Everything.echo", "echo"}) {
    EXPECT_EQ(Found(name), "echo") << name;
  }
  EXPECT_EQ(Found("Everything.hello"), "hello");  // Inherited.
  EXPECT_THAT(Found("cho"), HasSubstr("the server has no method \"cho\""));
}

TEST_F(SchemasTest, AMethodThatDoesNotExistIsRefusedWithWhatDoes) {
  EXPECT_THAT(Found("Everything.ehco"),
              HasSubstr("has no method \"ehco\"; did you mean \"echo\"? It has: echo, fail"));
  EXPECT_THAT(Found("Everithing.echo"),
              HasSubstr("did you mean \"Everything.echo\"? It has: everything.capnp:Everything.echo"));
  EXPECT_THAT(Found(""), HasSubstr("It has: everything.capnp:Everything.echo"));
}

TEST_F(SchemasTest, ANameThatSeveralEndWithIsRefused) {
  const auto node = schemas_.FindNode("Color");
  EXPECT_THAT(node.status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(node.status().message(), HasSubstr("everything.capnp:All.Inner.Color"));
  EXPECT_THAT(schemas_.FindNode("everything.capnp:Color"), IsOk());
  EXPECT_THAT(schemas_.FindNode("Inner.Color"), IsOk());
}

// ---- What a hostile server may send, beside what hostile_schemas_test.cc has.

Node::Builder NewStruct(capnp::MallocMessageBuilder& message, uint64_t id, uint64_t scope) {
  auto node = message.initRoot<Node>();
  node.setId(id);
  node.setScopeId(scope);
  node.setDisplayName("a.capnp:A");
  node.initStruct();
  return node;
}

TEST(HostileSchemasTest, AStructThatIsItsOwnGroupIsRefused) {
  constexpr uint64_t kA = 0x8000000000000001;
  capnp::MallocMessageBuilder a;
  auto field = NewStruct(a, kA, 0).getStruct().initFields(1)[0];
  field.setName("g");
  field.initGroup().setTypeId(kA);
  Schemas schemas;
  ASSERT_THAT(schemas.Add(a.getRoot<Node>().asReader()), IsOk());
  EXPECT_THAT(schemas.Check(), HasCode(absl::StatusCode::kDataLoss));
}

TEST(HostileSchemasTest, SchemasBeyondTheLimitAreRefused) {
  Schemas schemas;
  absl::Status status;
  for (uint64_t i = 0; i < 100 && status.ok(); ++i) {
    capnp::MallocMessageBuilder message;
    NewStruct(message, 0x8000000000000001 + i, 0).initAnnotations(1)[0].initValue().initData(1 << 20);
    status = schemas.Add(message.getRoot<Node>().asReader());
  }
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
}

TEST(HostileSchemasTest, ScopesWithoutEndAreRefused) {
  constexpr uint64_t kA = 0x8000000000000001, kB = 0x8000000000000002;
  capnp::MallocMessageBuilder a, b;
  NewStruct(a, kA, kB);
  NewStruct(b, kB, kA);
  Schemas schemas;
  ASSERT_THAT(schemas.Add(a.getRoot<Node>().asReader()), IsOk());
  ASSERT_THAT(schemas.Add(b.getRoot<Node>().asReader()), IsOk());
  EXPECT_THAT(schemas.Check(), HasCode(absl::StatusCode::kDataLoss));
}

TEST(HostileSchemasTest, AServiceThatIsNoInterfaceIsRefused) {
  Schemas schemas;
  Load<All>(schemas);
  schemas.Serve(capnp::typeId<All>());
  EXPECT_THAT(schemas.Check(), HasCode(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace hawser::tool
