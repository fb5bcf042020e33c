// What a server sends costs no more memory and time than in proportion to its bytes, up to a bound: schemas
// and answers of a server that lies on purpose.

#include <capnp/any.h>
#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <capnp/schema-loader.h>
#include <malloc.h>

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/heap.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/node_check.h"
#include "hawser/tools/hawser/schema_text.h"
#include "hawser/tools/hawser/schemas.h"
#include "tests/tools/made_node.h"

namespace hawser::tool {
namespace {

using ::testing::HasSubstr;

void Add(Schemas& schemas, Made& made) {
  const absl::Status status = schemas.Add(made.reader());
  ASSERT_THAT(status, IsOk());
}

std::string LongName(char letter) { return std::string(200, letter); }

// ---- Schemas.

TEST(HostileBoundsTest, NodesHaveABoundAndNoMoreMemoryThanTheyNeed) {
  const size_t before = mallinfo2().uordblks;  // 0 with a sanitizer.
  Schemas schemas;
  for (uint64_t i = 0; i < kSchemaNodesMax; ++i) {
    Made made(kId + i);
    made->initStruct();
    Add(schemas, made);
  }
  EXPECT_LT((mallinfo2().uordblks - before) / kSchemaNodesMax, 2000);
  Made made(kId + kSchemaNodesMax);
  made->initStruct();
  EXPECT_THAT(schemas.Add(made.reader()), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST(HostileBoundsTest, ElementsOfNoSizeAreCounted) {
  Made made(kId);
  made->initStruct();
  capnp::toAny(*made.operator->())
      .getPointerSection()[2]
      .initAsListOfAnyStruct(0, 0, 2 << 20);  // Annotations.
  ASSERT_LT(made.reader().totalSize().wordCount, 100);
  Schemas schemas;
  EXPECT_THAT(schemas.Add(made.reader()), HasCode(absl::StatusCode::kResourceExhausted));
}

// The loader makes a node for each.
TEST(HostileBoundsTest, ReferencesAreCounted) {
  Made made(kId);
  constexpr uint32_t kFields = 45'000;
  auto fields = made.Fields(kFields);
  made->getStruct().setPointerCount(kFields);
  made->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  for (uint32_t i = 0; i < kFields; ++i) SetStruct(fields[i], i, kId + 1);
  ASSERT_LT(made.reader().totalSize().wordCount * sizeof(capnp::word), kSchemaBytesMax / 2);
  Schemas schemas;
  EXPECT_THAT(schemas.Add(made.reader()), HasCode(absl::StatusCode::kResourceExhausted));
}

// The loader sorts them for each reference to the interface.
TEST(HostileBoundsTest, SuperclassesHaveABound) {
  Made made(kId);
  auto bases = made->initInterface().initSuperclasses(1001);
  for (uint32_t i = 0; i < bases.size(); ++i) bases[i].setId(kId + 1 + i);
  Schemas schemas;
  EXPECT_THAT(schemas.Add(made.reader()).message(), HasSubstr("extends more than 1000"));
}

TEST(HostileBoundsTest, ScopesOfABrandHaveABound) {
  Made made(kId);
  made.Methods(1, kId + 1);
  made->getInterface().getMethods()[0].initParamBrand().initScopes(kScopeDepthMax + 1);
  Schemas schemas;
  EXPECT_THAT(schemas.Add(made.reader()).message(), HasSubstr("bound in more than 64 scopes"));
}

TEST(HostileBoundsTest, MethodsThatAreLookedAtHaveABound) {
  constexpr uint32_t kMethods = 2000, kServices = 101;
  Schemas schemas;
  Made base(kId);
  base.Methods(kMethods, kId + 1);
  Add(schemas, base);
  for (uint64_t i = 0; i < kServices; ++i) {
    Made service(kId + 2 + i);
    service->initInterface().initSuperclasses(1)[0].setId(kId);
    Add(schemas, service);
    schemas.Serve(kId + 2 + i);
  }
  EXPECT_THAT(schemas.FindMethod("KeyValue.get").status(), HasCode(absl::StatusCode::kResourceExhausted));
}

// ---- Their text.

// 64 structs, each inside the one before: kId + 100 and so on. The innermost has a name of 12 KiB.
void AddNested(Schemas& schemas) {
  for (uint64_t i = 0; i < 64; ++i) {
    Made made(kId + 100 + i, absl::StrCat("evil.capnp:", LongName('N')));
    made->initStruct();
    if (i > 0) made->setScopeId(kId + 99 + i);
    auto nested = made->initNestedNodes(1)[0];
    nested.setName("n");
    nested.setId(kId + 101 + i);
    Add(schemas, made);
  }
}

TEST(HostileBoundsTest, TextOfParametersHasABound) {
  Made interface(kId), params(kId + 1);
  interface.Methods(1, kId + 1);
  constexpr uint32_t kFields = 20'000;
  auto fields = params.Fields(kFields);
  params->getStruct().setPointerCount(kFields);
  params->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  for (uint32_t i = 0; i < kFields; ++i) SetStruct(fields[i], i, i == 0 ? kId + 100 : kId + 163);
  Schemas schemas;
  Add(schemas, interface);
  Add(schemas, params);
  AddNested(schemas);
  schemas.Serve(kId);
  ASSERT_THAT(schemas.Check(), IsOk());
  const uint64_t before = HeapAllocatedBytes();
  const auto text = SchemaText(schemas, {kId});
  EXPECT_THAT(text.status().message(), HasSubstr("the text has more than 16777216 bytes"));
  const std::string method = MethodText(schemas, (*schemas.FindMethod("m0")));
  EXPECT_LT(method.size(), 200'000);
  EXPECT_LT(HeapAllocatedBytes() - before, 256u << 20);
}

// 400,000,000 fields, if each is looked at again for each method.
TEST(HostileBoundsTest, ParametersOfManyMethodsHaveABound) {
  Made interface(kId), params(kId + 1);
  interface.Methods(10'000, kId + 1);
  constexpr uint32_t kFields = 20'000;
  auto fields = params.Fields(kFields);
  params->getStruct().setDataWordCount(kFields);
  params->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  for (uint32_t i = 0; i < kFields; ++i) SetUint64(fields[i], i);
  Schemas schemas;
  Add(schemas, interface);
  Add(schemas, params);
  const std::clock_t start = std::clock();
  EXPECT_THAT(SchemaText(schemas, {kId}).status().message(), HasSubstr("it refers to more types"));
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 4);
}

TEST(HostileBoundsTest, LongDefaultIsLeftOut) {
  Made made(kId);
  auto fields = made.Fields(3);
  made->getStruct().setPointerCount(3);
  made->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  for (uint32_t i = 0; i < 3; ++i) {
    fields[i].initSlot().setHadExplicitDefault(true);
    fields[i].getSlot().setOffset(i);
  }
  fields[0].getSlot().initType().initList().initElementType().setBool();
  fields[0].getSlot().initDefaultValue().initList().initAs<capnp::List<bool>>(1 << 20);
  fields[1].getSlot().initType().initList().initElementType().setVoid();
  fields[1].getSlot().initDefaultValue().initList().initAs<capnp::List<capnp::Void>>(1 << 28);
  fields[2].getSlot().initType().setText();
  fields[2].getSlot().initDefaultValue().setText(std::string(3 << 20, 'x'));
  Schemas schemas;
  Add(schemas, made);
  const uint64_t before = HeapAllocatedBytes();
  const auto text = SchemaText(schemas, {kId});
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(*text, HasSubstr("f0 :List(Bool);\n  f1 :List(Void);\n  f2 :Text;\n"));
  EXPECT_LT(HeapAllocatedBytes() - before, 1u << 20);
}

// Allocations of SchemaText() if a struct refers to so many structs of the same name.
uint64_t AllocationsOfNamesakes(uint32_t count) {
  Made made(kId);
  auto fields = made.Fields(count);
  made->getStruct().setPointerCount(static_cast<uint16_t>(count));
  made->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  Schemas schemas;
  for (uint32_t i = 0; i < count; ++i) {
    SetStruct(fields[i], i, kId + 1 + i);
    Made namesake(kId + 1 + i, absl::StrCat("evil.capnp:", LongName('N')));
    namesake->initStruct();
    Add(schemas, namesake);
  }
  Add(schemas, made);
  EXPECT_THAT(schemas.Check(), IsOk());
  const uint64_t before = HeapAllocations();
  EXPECT_THAT(SchemaText(schemas, {kId}), IsOk());
  return HeapAllocations() - before;
}

TEST(HostileBoundsTest, NamesakesTakeTimeInProportion) {
  const uint64_t few = AllocationsOfNamesakes(500), many = AllocationsOfNamesakes(2000);
  EXPECT_LT(many, 6 * few);
}

// ---- Answers.

// Loads a list of structs of no size whose schema has `element`.
capnp::StructSchema ListOf(capnp::SchemaLoader& loader, Made& element) {
  Made list(kId);
  SetList(list.Fields(1)[0], 0, kId + 1);
  list->getStruct().setPointerCount(1);
  list->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::POINTER);
  loader.load(element.reader());
  return loader.load(list.reader()).asStruct();
}

capnp::DynamicStruct::Reader Answer(capnp::MallocMessageBuilder& message, capnp::StructSchema schema,
                                    uint32_t elements) {
  auto root = message.initRoot<capnp::AnyPointer>();
  auto list = root.initAsAnyStruct(0, 1).getPointerSection()[0].initAsListOfAnyStruct(0, 0, elements);
  EXPECT_EQ(list.size(), elements);
  return root.asReader().getAs<capnp::DynamicStruct>(schema);
}

TEST(HostileBoundsTest, NameOfAnAbsentFieldIsNotCopied) {
  const auto loader = std::make_unique<capnp::SchemaLoader>();
  Made element(kId + 1);
  SetText(element.Fields(1)[0], 0);
  element->getStruct().setPointerCount(1);
  element->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::POINTER);
  element->getStruct().getFields()[0].setName(std::string(100'000, 'x'));
  capnp::MallocMessageBuilder message;
  const auto answer = Answer(message, ListOf(*loader, element), 1000);
  for (const std::string left_out : {"", "f0.y"}) {
    const uint64_t before = HeapAllocatedBytes();
    JsonTextOptions options;
    if (!left_out.empty()) options.left_out = {left_out};
    EXPECT_THAT(ToJson(answer, options), IsOk());
    EXPECT_LT(HeapAllocatedBytes() - before, 1u << 20);
  }
}

TEST(HostileBoundsTest, AbsentFieldsHaveABound) {
  const auto loader = std::make_unique<capnp::SchemaLoader>();
  constexpr uint32_t kFields = 100;
  Made element(kId + 1);
  auto fields = element.Fields(kFields);
  element->getStruct().setPointerCount(kFields);
  element->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  for (uint32_t i = 0; i < kFields; ++i) SetText(fields[i], i);
  capnp::MallocMessageBuilder message;
  const auto schema = ListOf(*loader, element);
  EXPECT_THAT(ToJson(Answer(message, schema, 1000), {.bytes_max = 1 << 20}), IsOk());
  const auto json = ToJson(Answer(message, schema, 3000), {.bytes_max = 1 << 20});
  EXPECT_THAT(json.status().message(), HasSubstr("very many fields that are absent"));
}

TEST(HostileBoundsTest, LongTextIsNotCopiedBeforeItIsRefused) {
  const auto loader = std::make_unique<capnp::SchemaLoader>();
  Made made(kId);
  auto fields = made.Fields(2);
  SetText(fields[0], 0);
  SetText(fields[1], 1);
  fields[1].getSlot().initType().setData();
  fields[1].getSlot().initDefaultValue().initData(0);
  made->getStruct().setPointerCount(2);
  made->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  const auto schema = loader->load(made.reader()).asStruct();
  for (const char* const field : {"f0", "f1"}) {
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<capnp::DynamicStruct>(schema);
    root.init(field, 1 << 20);
    const uint64_t before = HeapAllocatedBytes();
    EXPECT_THAT(ToJson(root.asReader(), {.bytes_max = 1000}).status(),
                HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_LT(HeapAllocatedBytes() - before, 100'000) << field;
  }
}

}  // namespace
}  // namespace hawser::tool
