// Schemas of a server that lies on purpose, not by chance as in mutated_schemas_test.cc: those with which a
// message is built or read outside of its memory, or printed as what it is not, are refused.

#include <capnp/any.h>
#include <capnp/dynamic.h>
#include <capnp/message.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tools/hawser/json_fit.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/node_check.h"
#include "hawser/tools/hawser/schema_text.h"
#include "hawser/tools/hawser/schemas.h"
#include "tests/tools/made_node.h"

namespace hawser::tool {
namespace {

using capnp::schema::Field;
using capnp::schema::Node;
using ::testing::HasSubstr;

// Why the schemas of `nodes` are refused; "": they are not.
std::string Refusal(Schemas& schemas, const std::vector<Node::Reader>& nodes) {
  for (const Node::Reader node : nodes) {
    if (absl::Status status = schemas.Add(node); !status.ok()) return status.ToString();
  }
  const absl::Status status = schemas.Check();
  return status.ok() ? "" : status.ToString();
}
std::string Refusal(const std::vector<Node::Reader>& nodes) {
  Schemas schemas;
  return Refusal(schemas, nodes);
}

// ---- Fields and unions. If a schema is not refused, its test uses it, and the address sanitizer sees what
// comes of that.

// The JSON that a message of the struct `id` has once `json` was put into it.
std::string Built(const Schemas& schemas, uint64_t id, const std::string& json) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<capnp::DynamicStruct>(schemas.SchemaOf(id).asStruct());
  if (absl::Status status = FillFromJson(json, root); !status.ok()) return status.ToString();
  const auto text = ToJson(root.asReader(), {.pretty = false});
  return text.ok() ? *text : text.status().ToString();
}

TEST(HostileSchemasTest, FieldBeyondItsStructIsRefused) {
  // 64 * (offset + 1) is 2^32, which is 0 in the arithmetic of Cap'n Proto's own check.
  for (const uint32_t offset : {1u, 0x3ffffffu, 0xffffffffu}) {
    Made made(kId);
    SetUint64(made.Fields(1)[0], offset);
    made->getStruct().setDataWordCount(1);
    Schemas schemas;
    const std::string refusal = Refusal(schemas, {made.reader()});
    EXPECT_THAT(refusal,
                HasSubstr("DATA_LOSS: its schema 0x8000000000000001 cannot be used: a field lies outside"));
    if (refusal.empty()) Built(schemas, kId, "{\"f0\": 5}");  // Writes 512 MiB behind the struct.
  }
}

TEST(HostileSchemasTest, PointerBeyondItsStructIsRefused) {
  for (const uint32_t offset : {1u, 0xffffffffu}) {
    Made made(kId);
    SetText(made.Fields(1)[0], offset);
    made->getStruct().setPointerCount(1);
    Schemas schemas;
    const std::string refusal = Refusal(schemas, {made.reader()});
    EXPECT_THAT(refusal, HasSubstr("a field lies outside"));
    if (refusal.empty()) Built(schemas, kId, "{\"f0\": \"x\"}");
  }
}

// A union of two numbers, with its tag behind them.
std::unique_ptr<Made> Union(uint32_t tag_offset) {
  auto made = std::make_unique<Made>(kId);
  auto fields = made->Fields(2);
  for (uint16_t i = 0; i < 2; ++i) {
    SetUint64(fields[i], 0);
    fields[i].setDiscriminantValue(i);
  }
  auto body = (*made)->getStruct();
  body.setDataWordCount(2);
  body.setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  body.setDiscriminantCount(2);
  body.setDiscriminantOffset(tag_offset);
  return made;
}

TEST(HostileSchemasTest, UnionTagBeyondItsStructIsRefused) {
  for (const uint32_t offset : {8u, 0x0fffffffu}) {
    const auto made = Union(offset);
    Schemas schemas;
    const std::string refusal = Refusal(schemas, {made->reader()});
    EXPECT_THAT(refusal, HasSubstr("the tag of its union lies outside"));
    if (refusal.empty()) Built(schemas, kId, "{\"f0\": 5}");  // Chooses it, 512 MiB behind the struct.
  }
}

TEST(HostileSchemasTest, WhatEndsWithItsStructIsUsed) {
  const auto made = Union(7);
  Schemas schemas;
  ASSERT_EQ(Refusal(schemas, {made->reader()}), "");
  EXPECT_EQ(Built(schemas, kId, "{\"f1\": 5}"), "{\"f1\": \"5\"}");
}

// The loader writes the number of each field that is not of the union into a table, behind those that are,
// before it counts.
TEST(HostileSchemasTest, UnionWithFewerFieldsThanItSaysIsRefused) {
  const auto made = Union(7);
  for (auto field : (*made)->getStruct().getFields()) field.setDiscriminantValue(Field::NO_DISCRIMINANT);
  EXPECT_THAT(Refusal({made->reader()}), HasSubstr("does not have as many fields as it says"));
}

TEST(HostileSchemasTest, FieldOfAKindThatIsNotKnownIsRefused) {
  Made made(kId);
  auto slot = made.Fields(1)[0].initSlot();
  slot.initType();
  capnp::toAny(slot.getType()).getDataSection()[0] = 99;
  EXPECT_THAT(Refusal({made.reader()}), HasSubstr("of a kind that this program does not know"));
}

// ---- Groups.

// A struct with one group, which is not made.
std::unique_ptr<Made> Outer(uint64_t group = kId + 1) {
  auto made = std::make_unique<Made>(kId);
  made->Fields(1)[0].initGroup().setTypeId(group);
  return made;
}

TEST(HostileSchemasTest, GroupInAGroupIsUsed) {
  const auto outer = Outer(), middle = Made::Group(kId + 1, kId), inner = Made::Group(kId + 2, kId + 1);
  middle->Fields(1)[0].initGroup().setTypeId(kId + 2);
  SetUint64(inner->Fields(1)[0], 0);
  for (const auto* const made : {&outer, &middle, &inner}) (**made)->getStruct().setDataWordCount(1);
  for (const auto* const made : {&outer, &middle, &inner}) {
    (**made)->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::EIGHT_BYTES);
  }
  Schemas schemas;
  ASSERT_EQ(Refusal(schemas, {outer->reader(), middle->reader(), inner->reader()}), "");
  EXPECT_EQ(Built(schemas, kId, "{\"f0\": {\"f0\": {\"f0\": 5}}}"), "{\"f0\": {\"f0\": {\"f0\": \"5\"}}}");
}

// Cap'n Proto makes a struct as large as its groups, but not as large as the groups of its groups.
TEST(HostileSchemasTest, GroupLargerThanTheStructAroundItIsRefused) {
  const auto outer = Outer(), middle = Made::Group(kId + 1, kId), inner = Made::Group(kId + 2, kId + 1);
  middle->Fields(1)[0].initGroup().setTypeId(kId + 2);
  SetUint64(inner->Fields(1)[0], 10);
  (*inner)->getStruct().setDataWordCount(2000);
  (*inner)->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::INLINE_COMPOSITE);
  Schemas schemas;
  const std::string refusal = Refusal(schemas, {outer->reader(), middle->reader(), inner->reader()});
  EXPECT_THAT(refusal, HasSubstr("has a group that is larger than it"));
  if (refusal.empty()) Built(schemas, kId, "{\"f0\": {\"f0\": {\"f0\": 5}}}");
}

TEST(HostileSchemasTest, GroupWithMorePointersThanTheStructAroundItIsRefused) {
  const auto outer = Outer(), group = Made::Group(kId + 1, kId);
  SetText(group->Fields(1)[0], 0);
  (*group)->getStruct().setPointerCount(1);
  (*group)->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::POINTER);
  EXPECT_THAT(Refusal({outer->reader(), group->reader()}), HasSubstr("has a group that is larger than it"));
}

TEST(HostileSchemasTest, GroupOfTwoFieldsIsRefused) {
  Made outer(kId);
  for (auto field : outer.Fields(2)) field.initGroup().setTypeId(kId + 1);
  const auto group = Made::Group(kId + 1, kId);
  EXPECT_THAT(Refusal({outer.reader(), group->reader()}), HasSubstr("has a group that is none"));
}

TEST(HostileSchemasTest, GroupOfAnotherScopeIsRefused) {
  const auto outer = Outer(), group = Made::Group(kId + 1, kId + 2);
  EXPECT_THAT(Refusal({outer->reader(), group->reader()}), HasSubstr("has a group that is none"));
}

TEST(HostileSchemasTest, GroupThatIsAStructIsRefused) {
  const auto outer = Outer();
  Made other(kId + 1);
  other->initStruct();
  other->setScopeId(kId);
  EXPECT_THAT(Refusal({outer->reader(), other.reader()}), HasSubstr("has a group that is none"));
}

TEST(HostileSchemasTest, GroupThatWasNotSentIsRefused) {
  const auto outer = Outer();
  EXPECT_THAT(Refusal({outer->reader()}), HasSubstr("has a group that is none"));
}

TEST(HostileSchemasTest, GroupOfNoStructIsRefused) {
  Made outer(kId);
  outer->initStruct();
  const auto group = Made::Group(kId + 1, kId);
  EXPECT_THAT(Refusal({outer.reader(), group->reader()}), HasSubstr("is a group of no struct"));
}

TEST(HostileSchemasTest, GroupInItselfIsRefused) {
  const auto outer = Outer(), group = Made::Group(kId + 1, kId + 1);
  group->Fields(1)[0].initGroup().setTypeId(kId + 1);
  EXPECT_THAT(Refusal({outer->reader(), group->reader()}), HasSubstr("DATA_LOSS"));
}

// Its own field makes it a group of a field, and nothing but the type of a field leads to it.
TEST(HostileSchemasTest, GroupInItselfIsRefusedAlsoAsTheTypeOfAField) {
  Made outer(kId);
  outer->initStruct().setPointerCount(1);
  SetStruct(outer.Fields(1)[0], 0, kId + 1);
  const auto group = Made::Group(kId + 1, kId);
  group->Fields(1)[0].initGroup().setTypeId(kId + 1);
  Schemas schemas;
  const std::string refusal = Refusal(schemas, {outer.reader(), group->reader()});
  EXPECT_THAT(refusal, HasSubstr("DATA_LOSS"));
  if (!refusal.empty()) return;
  capnp::MallocMessageBuilder message;
  message.initRoot<capnp::AnyPointer>().initAsAnyStruct(0, 1).getPointerSection()[0].initAsAnyStruct(0, 0);
  const auto reply = message.getRoot<capnp::AnyPointer>().asReader().getAs<capnp::DynamicStruct>(
      schemas.SchemaOf(kId).asStruct());
  ToJson(reply, {}).IgnoreError();  // Goes from the group to the group.
}

// With `refer`, which makes something else refer to it, a group that is as it should be is refused.
template <typename Refer>
std::string RefusalOfReference(Refer refer) {
  const auto outer = Outer(), group = Made::Group(kId + 1, kId);
  Made other(kId + 2);
  refer(other);
  EXPECT_EQ(Refusal({outer->reader(), group->reader()}), "");
  return Refusal({outer->reader(), group->reader(), other.reader()});
}

TEST(HostileSchemasTest, GroupAsATypeIsRefused) {
  const auto is_refused = HasSubstr("0x8000000000000003 has a group as a type");
  EXPECT_THAT(RefusalOfReference([](Made& other) {
                SetStruct(other.Fields(1)[0], 0, kId + 1);
                other->getStruct().setPointerCount(1);
                other->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::POINTER);
              }),
              is_refused);
  EXPECT_THAT(RefusalOfReference([](Made& other) {
                SetList(other.Fields(1)[0], 0, kId + 1);
                other->getStruct().setPointerCount(1);
                other->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::POINTER);
              }),
              is_refused);
  EXPECT_THAT(RefusalOfReference([](Made& other) { other.Methods(1, kId + 1); }), is_refused);
  EXPECT_THAT(RefusalOfReference([](Made& other) {
                auto nested = other->initNestedNodes(1)[0];
                nested.setName("g");
                nested.setId(kId + 1);
                other->initStruct();
              }),
              is_refused);
  EXPECT_THAT(RefusalOfReference([](Made& other) {
                other->initConst().initType().initStruct().setTypeId(kId + 1);
                other->getConst().initValue().initStruct();
              }),
              is_refused);
  EXPECT_THAT(RefusalOfReference([](Made& other) {
                other.Methods(1, kId + 5);
                auto scope = other->getInterface().getMethods()[0].initParamBrand().initScopes(1)[0];
                scope.setScopeId(kId + 5);
                scope.initBind(1)[0].initType().initStruct().setTypeId(kId + 1);
              }),
              is_refused);
}

// ---- Names. Text of a schema goes into files that people compile, and the compiler of Cap'n Proto copies a
// $Cxx.namespace into C++ as it is.

constexpr char kDeclarations[] =
    "Evil {} using Cxx = import \"/capnp/c++.capnp\"; $Cxx.namespace(\"a { inline int evil() { return "
    "system(\\\"date\\\"); } } namespace b\"); struct Rest";

TEST(HostileSchemasTest, DisplayNameThatIsNoneIsRefused) {
  for (const std::string& name :
       {absl::StrCat("evil.capnp:", kDeclarations), std::string("evil.capnp:A.\x1b[2J"),
        std::string("evil.capnp:"), std::string("evil.capnp:A..B"), std::string("evil.capnp:A $B"),
        std::string("evil.capnp:A$B$C"), std::string("evil.capnp:1A"), std::string(""),
        std::string("evil\n.capnp:A"), std::string("evil\".capnp:A"), std::string("\xff:A"),
        absl::StrCat("evil.capnp:", std::string(kNameBytesMax, 'x'))}) {
    Made made(kId, name);
    made->initStruct();
    EXPECT_THAT(Refusal({made.reader()}), HasSubstr("its name is not that of a file")) << name;
  }
}

TEST(HostileSchemasTest, DisplayNameOfAFileAndScopesIsUsed) {
  const std::string folder = std::string(1000, 'f') + "/a (1)/";
  for (const char* const name : {"k\xc3\xa4se-1.capnp:A_1.B", "a b.capnp:Key.get$Params", "x:y.capnp:A"}) {
    Made made(kId, folder + name);
    made->setDisplayNamePrefixLength(0xffffffff);
    made->initStruct();
    Schemas schemas;
    ASSERT_EQ(Refusal(schemas, {made.reader()}), "") << name;
    EXPECT_EQ(schemas.SchemaOf(kId).getProto().getDisplayName(), name);
    EXPECT_EQ(LocalName(name).data() - name, schemas.Get(kId).getDisplayNamePrefixLength());
  }
}

TEST(HostileSchemasTest, NameThatIsNoIdentifierIsRefused) {
  for (const std::string& name : {std::string(kDeclarations), std::string("a b"), std::string("\x1b"),
                                  std::string(""), std::string("1"), std::string(kNameBytesMax + 1, 'x')}) {
    Made a_struct(kId), an_enum(kId), interface(kId), generic(kId), nested(kId), implicit(kId);
    SetUint64(a_struct.Fields(1)[0], 0);
    a_struct->getStruct().setDataWordCount(1);
    a_struct->getStruct().setPreferredListEncoding(capnp::schema::ElementSize::EIGHT_BYTES);
    a_struct->getStruct().getFields()[0].setName(name);
    an_enum->initEnum().initEnumerants(1)[0].setName(name);
    interface.Methods(1, kId + 1);
    interface->getInterface().getMethods()[0].setName(name);
    generic->initStruct();
    generic->setIsGeneric(true);
    generic->initParameters(1)[0].setName(name);
    nested->initStruct();
    nested->initNestedNodes(1)[0].setName(name);
    implicit.Methods(1, kId + 1);
    implicit->getInterface().getMethods()[0].initImplicitParameters(1)[0].setName(name);
    for (Made* const made : {&a_struct, &an_enum, &interface, &generic, &nested, &implicit}) {
      EXPECT_THAT(Refusal({made->reader()}), HasSubstr("is no identifier")) << name;
    }
  }
}

}  // namespace
}  // namespace hawser::tool
