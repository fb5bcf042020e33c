// Pairs of schemas, and what is said of each in both directions.

#include "hawser/codegen/compatibility.h"

#include <capnp/schema-loader.h>
#include <capnp/serialize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <kj/exception.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::codegen {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kHead =
    "@0xc6a81f3b7e02d594; using Hawser = import \"/hawser/annotations.capnp\"; "
    "annotation other @0xe9a1c0d2b3f44576 (*) :Text;\n";

// A schema, compiled.
class Compiled {
 public:
  // The text of foo.capnp and, where it imports them, of other files by their names.
  explicit Compiled(const std::string& text,
                    const std::vector<std::pair<std::string, std::string>>& others = {}) {
    static int count = 0;
    folder_ = absl::StrCat(testing::TempDir(), "/", count++);
    const std::filesystem::path folder = folder_;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "foo.capnp") << text;
    for (const auto& [name, other] : others) std::ofstream(folder / name) << other;
    const std::string command =
        absl::StrCat(std::getenv("CAPNP"), " compile -Icodegen -o- --src-prefix=", folder.string(), " ",
                     (folder / "foo.capnp").string());
    FILE* output = popen(command.c_str(), "r");
    if (output == nullptr) std::abort();
    std::string bytes;
    char buffer[4096];
    for (size_t size; (size = fread(buffer, 1, sizeof(buffer), output)) > 0;) bytes.append(buffer, size);
    if (pclose(output) != 0) ADD_FAILURE() << "does not compile:\n" << text;
    words_ = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words_.begin(), bytes.data(), words_.asBytes().size());
    message_ = std::make_unique<capnp::FlatArrayMessageReader>(words_);
  }

  CodeGeneratorRequest::Reader request() { return message_->getRoot<CodeGeneratorRequest>(); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  kj::Array<capnp::word> words_;
  std::unique_ptr<capnp::FlatArrayMessageReader> message_;
};

std::vector<std::string> Messages(Compiled& released, Compiled& next) {
  setenv("HAWSER_SCHEMA_PATH", next.folder().c_str(), 1);
  auto messages = Incompatibilities(released.request(), next.request());
  EXPECT_THAT(messages, IsOk());
  return messages.ok() ? *messages : std::vector<std::string>();
}

// The first line of each message, without file, line and "error: ".
std::vector<std::string> Findings(Compiled& released, Compiled& next) {
  std::vector<std::string> findings;
  for (const std::string& message : Messages(released, next)) {
    EXPECT_THAT(message, testing::MatchesRegex(
                             "[a-z]*.capnp[:0-9]*: error: [^\n]*\\.\n  [^\n]*\\.\n  Instead: [^\n]*\n"));
    const size_t begin = message.find("error: ") + std::strlen("error: ");
    findings.push_back(message.substr(begin, message.find('\n') - begin));
  }
  return findings;
}

struct Pair {
  std::string name;
  std::string released;
  std::string next;
  std::vector<std::string> findings;  // `next` replaces `released`.
  std::vector<std::string> reverse;   // `released` replaces `next`.
};

void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.name; }

std::vector<Pair> Pairs() {
  return {
      // ---- Methods.
      {"SwappedMethods",
       "interface I { get @0 (key :Text) -> (value :Data); del @1 (key :Text) -> (value :Data); }",
       "interface I { del @0 (key :Text) -> (value :Data); get @1 (key :Text) -> (value :Data); }",
       {"I.del @0 was get in the released schema, where del was @1.",
        "I.get @1 was del in the released schema, where get was @0."},
       {"I.get @0 was del in the released schema, where get was @1.",
        "I.del @1 was get in the released schema, where del was @0."}},
      {"SwappedMethodsOnPurpose",
       "interface I { a @0 (); b @1 (); }",
       "interface I { b @0 () $Hawser.renamedFrom(\"a\"); a @1 () $Hawser.renamedFrom(\"b\"); }",
       {},
       {"I.a @0 was b in the released schema, where a was @1.",
        "I.b @1 was a in the released schema, where b was @0."}},
      {"RenamedMethod",
       "interface I { a @0 (); }",
       "interface I { b @0 (); }",
       {"I.b @0 was a in the released schema."},
       {"I.a @0 was b in the released schema."}},
      {"MethodRenamedTwice",
       "interface I { a @0 (); }",
       "interface I { c @0 () $Hawser.renamedFrom(\"b\") $Hawser.renamedFrom(\"a\"); }",
       {},
       {"I.a @0 was c in the released schema."}},
      {"MethodRenamedFromAnother",
       "interface I { a @0 (); }",
       "interface I { c @0 () $Hawser.renamedFrom(\"b\"); }",
       {"I.c @0 was a in the released schema."},
       {"I.a @0 was c in the released schema."}},
      {"AddedMethod",
       "interface I { a @0 (); }",
       "interface I { b @1 (); a @0 (); }",
       {},
       {"I has no b @1 any more, which the released schema has."}},
      {"Idempotent",
       "interface I { a @0 () $Hawser.idempotent; b @1 (); }",
       "interface I { a @0 (); b @1 () $Hawser.idempotent; }",
       {},
       {}},
      {"OrderAndCommentsAndAnnotations",
       "interface I { a @0 (); b @1 (); } struct S { a @0 :Text; b @1 :Bool; } const c :Int8 = 1;",
       "# New.\nstruct S { b @1 :Bool; # New.\n a @0 :Text $other(\"x\"); }\n interface I { b @1 (); a @0 "
       "(); }"
       " const c :Int16 = 2; using T = S;",
       {},
       {}},

      // ---- Parameters and results.
      {"AddedParameterAndResult",
       "interface I { a @0 (x :UInt32) -> (); }",
       "interface I { a @0 (x :UInt32, y :Text = \"y\") -> (z :Bool); }",
       {},
       {"I.a @0 (its parameters) has no y @1 any more, which the released schema has.",
        "I.a @0 (its results) has no z @0 any more, which the released schema has."}},
      {"SwappedParameters",
       "interface I { a @0 (x :Text, y :Text) -> (); }",
       "interface I { a @0 (y :Text, x :Text) -> (); }",
       {"I.a @0: its parameter y @0 was x in the released schema, where y was @1.",
        "I.a @0: its parameter x @1 was y in the released schema, where x was @0."},
       {"I.a @0: its parameter x @0 was y in the released schema, where x was @1.",
        "I.a @0: its parameter y @1 was x in the released schema, where y was @0."}},
      {"ParameterRenamedOnPurpose",
       "interface I { a @0 (x :Text) -> (r :Text); }",
       "interface I { a @0 (y :Text $Hawser.renamedFrom(\"x\")) -> (r :Text); }",
       {},
       {"I.a @0: its parameter x @0 was y in the released schema."}},
      {"ParameterOfAnotherType",
       "interface I { a @0 (x :UInt32) -> (r :Int32); }",
       "interface I { a @0 (x :Text) -> (r :Int64); }",
       {"I.a @0: its parameter x @0 is :Text, and was :UInt32 in the released schema.",
        "I.a @0: its result r @0 is :Int64, and was :Int32 in the released schema."},
       {"I.a @0: its parameter x @0 is :UInt32, and was :Text in the released schema.",
        "I.a @0: its result r @0 is :Int32, and was :Int64 in the released schema."}},
      {"ParametersWithAName",
       "interface I { a @0 (x :UInt32, y :Text) -> (); }",
       "interface I { a @0 P -> (); struct P @0xd95ae2b1b7b00001 { x @0 :UInt32; y @1 :Text; } }",
       {},
       {"I.P is gone, the struct @0xd95ae2b1b7b00001 of the released schema."}},
      {"ParametersWithANameAndOtherFields",
       "interface I { a @0 (x :UInt32) -> (); } struct P { x @0 :UInt64; }",
       "interface I { a @0 P -> (); } struct P { x @0 :UInt64; }",
       {"I.a @0: its parameter x @0 is :UInt64, and was :UInt32 in the released schema."},
       {"I.a @0: its parameter x @0 is :UInt32, and was :UInt64 in the released schema."}},
      {"ParametersOfAnotherStruct",
       "interface I { a @0 P -> Q; } struct P { x @0 :Text; } struct Q { y @0 :Text; }",
       "interface I { a @0 P -> P; } struct P { x @0 :Text; } struct Q { y @0 :Text; }",
       {"I.a @0: its result x @0 was y in the released schema."},
       {"I.a @0: its result y @0 was x in the released schema."}},

      // ---- Interfaces and ids.
      {"RemovedInterface",
       "interface I @0xd95ae2b1b7b00001 {} interface J {}",
       "interface J {}",
       {"I is gone, the interface @0xd95ae2b1b7b00001 of the released schema."},
       {}},
      {"InterfaceOfAnotherId",
       "interface I @0xd95ae2b1b7b00001 { a @0 (); struct S {} }",
       "interface I @0xd95ae2b1b7b00002 { b @0 (); struct S {} }",
       {"I has the id @0xd95ae2b1b7b00002, and had @0xd95ae2b1b7b00001 in the released schema.",
        "I.b @0 was a in the released schema."},
       {"I has the id @0xd95ae2b1b7b00001, and had @0xd95ae2b1b7b00002 in the released schema.",
        "I.a @0 was b in the released schema."}},
      {"RenamedAndMovedTypesWithTheirIds",
       "interface I @0xd95ae2b1b7b00001 { a @0 S -> (); } struct S @0xd95ae2b1b7b00002 { e @0 :E; } "
       "enum E @0xd95ae2b1b7b00003 { a @0; }",
       "interface J @0xd95ae2b1b7b00001 { a @0 T -> (); struct T @0xd95ae2b1b7b00002 { e @0 :F; "
       "enum F @0xd95ae2b1b7b00003 { a @0; } } }",
       {},
       {}},
      {"RenamedStructWithoutItsId",
       "struct S @0xd95ae2b1b7b00001 { a @0 :Text; } struct U { s @0 :S; }",
       "struct T @0xd95ae2b1b7b00002 { a @0 :Text; } struct U { s @0 :T; }",
       {"S is gone, the struct @0xd95ae2b1b7b00001 of the released schema."},
       {"T is gone, the struct @0xd95ae2b1b7b00002 of the released schema."}},
      {"StructAndEnumOfAnotherId",
       "struct S @0xd95ae2b1b7b00001 {} enum E @0xd95ae2b1b7b00003 { a @0; }",
       "struct S @0xd95ae2b1b7b00002 {} enum E @0xd95ae2b1b7b00004 { a @0; }",
       {"S has the id @0xd95ae2b1b7b00002, and had @0xd95ae2b1b7b00001 in the released schema.",
        "E has the id @0xd95ae2b1b7b00004, and had @0xd95ae2b1b7b00003 in the released schema."},
       {"S has the id @0xd95ae2b1b7b00001, and had @0xd95ae2b1b7b00002 in the released schema.",
        "E has the id @0xd95ae2b1b7b00003, and had @0xd95ae2b1b7b00004 in the released schema."}},
      {"AnotherKindOfType",
       "struct T @0xd95ae2b1b7b00001 {}",
       "enum T @0xd95ae2b1b7b00001 { a @0; }",
       {"T is declared as enum, and as struct in the released schema."},
       {"T is declared as struct, and as enum in the released schema."}},
      {"AddedSuperclass",
       "interface A {} interface I {}",
       "interface A {} interface I extends (A) {}",
       {},
       {"I does not extend A any more, which it did in the released schema."}},
      {"SuperclassThroughAnother",
       "interface A {} interface I extends (A) {}",
       "interface A {} interface B @0xd95ae2b1b7b00001 extends (A) {} interface I extends (B) {}",
       {},
       {"B is gone, the interface @0xd95ae2b1b7b00001 of the released schema.",
        "I does not extend B any more, which it did in the released schema."}},

      // ---- Fields.
      {"AddedField",
       "struct S { a @0 :UInt32; }",
       "struct S { a @0 :UInt32; b @1 :UInt32; c @2 :Text; }",
       {},
       {"S has no b @1 any more, which the released schema has.",
        "S has no c @2 any more, which the released schema has."}},
      {"FieldRemovedFromTheMiddle",
       "struct S { a @0 :Text; b @1 :Text; c @2 :Text; }",
       "struct S { a @0 :Text; c @1 :Text; }",
       {"S.c @1 was b in the released schema, where c was @2.",
        "S has no c @2 any more, which the released schema has."},
       {"S.b @1 was c in the released schema."}},
      {"RenamedFieldOnPurpose",
       "struct S { a @0 :Text; }",
       "struct S { b @0 :Text $Hawser.renamedFrom(\"a\"); }",
       {},
       {"S.a @0 was b in the released schema."}},
      {"FieldsOfOtherTypes",
       "struct S { a @0 :UInt32; b @1 :Int16; c @2 :Text; d @3 :Data; e @4 :Void; }",
       "struct S { a @0 :Int32; b @1 :Text; c @2 :Data; d @3 :List(Text); e @4 :Bool; }",
       {"S.a @0 is :Int32, and was :UInt32 in the released schema.",
        "S.b @1 is :Text, and was :Int16 in the released schema.",
        "S.c @2 is :Data, and was :Text in the released schema.",
        "S.d @3 is :List(Text), and was :Data in the released schema.",
        "S.e @4 is :Bool, and was :Void in the released schema."},
       {"S.a @0 is :UInt32, and was :Int32 in the released schema.",
        "S.b @1 is :Int16, and was :Text in the released schema.",
        "S.c @2 is :Text, and was :Data in the released schema.",
        "S.d @3 is :Data, and was :List(Text) in the released schema.",
        "S.e @4 is :Void, and was :Bool in the released schema."}},
      {"WhatATypeMovesIsNotSaid",
       "struct S { a @0 :UInt32; b @1 :UInt32; }",
       "struct S { a @0 :UInt64; b @1 :UInt32; }",
       {"S.a @0 is :UInt64, and was :UInt32 in the released schema."},
       {"S.a @0 is :UInt32, and was :UInt64 in the released schema."}},
      {"DataAndItsBytes",
       "struct S { a @0 :Data; b @1 :Data; c @2 :List(Data); }",
       "struct S { a @0 :List(UInt8); b @1 :List(Int8); c @2 :List(List(UInt8)); }",
       {},
       {}},
      {"AnyPointer",
       "struct T {} struct S { a @0 :Text; b @1 :T; c @2 :List(T); d @3 :AnyStruct; e @4 :AnyList; }",
       "struct T {} struct S { a @0 :AnyPointer; b @1 :AnyStruct; c @2 :AnyList; d @3 :AnyPointer; "
       "e @4 :List(Text); }",
       {},
       {}},
      {"AnyPointerOfAnotherKind",
       "struct T {} struct S { a @0 :UInt64; b @1 :T; c @2 :AnyStruct; }",
       "struct T {} struct S { a @0 :AnyPointer; b @1 :AnyList; c @2 :AnyList; }",
       {"S.a @0 is :AnyPointer, and was :UInt64 in the released schema.",
        "S.b @1 is :AnyList, and was :T in the released schema.",
        "S.c @2 is :AnyList, and was :AnyStruct in the released schema."},
       {"S.a @0 is :UInt64, and was :AnyPointer in the released schema.",
        "S.b @1 is :T, and was :AnyList in the released schema.",
        "S.c @2 is :AnyStruct, and was :AnyList in the released schema."}},
      {"StructsOfTheSameFields",
       "struct S { f @0 :A; } struct A { x @0 :Text; } struct B { x @0 :Text; y @1 :Text; }",
       "struct S { f @0 :B; } struct A { x @0 :Text; } struct B { x @0 :Text; y @1 :Text; }",
       {},
       {"S.f @0 is :A, and was :B in the released schema."}},
      {"StructsOfOtherFields",
       "struct S { f @0 :A; } struct A { x @0 :Text; } struct B { y @0 :Text; }",
       "struct S { f @0 :B; } struct A { x @0 :Text; } struct B { y @0 :Text; }",
       {"S.f @0 is :B, and was :A in the released schema."},
       {"S.f @0 is :A, and was :B in the released schema."}},
      {"StructsThatContainThemselves",
       "struct S { f @0 :A; } struct A { x @0 :A; y @1 :Bool; } struct B { x @0 :B; y @1 :Bool; } "
       "struct C { x @0 :C; y @1 :Int8; }",
       "struct S { f @0 :B; } struct A { x @0 :B; y @1 :Bool; } struct B { x @0 :A; y @1 :Bool; } "
       "struct C { x @0 :A; y @1 :Int8; }",
       {"C.x @0 is :A, and was :C in the released schema."},
       {"C.x @0 is :C, and was :A in the released schema."}},
      {"EnumsOfTheSameNames",
       "struct S { f @0 :A; } enum A { x @0; } enum B { x @0; y @1; }",
       "struct S { f @0 :B; } enum A { x @0; } enum B { x @0; y @1; }",
       {},
       {"S.f @0 is :A, and was :B in the released schema."}},
      {"Capabilities",
       "struct S { f @0 :I; } interface I {} interface J {}",
       "struct S { f @0 :J; } interface I {} interface J {}",
       {"S.f @0 is :J, and was :I in the released schema."},
       {"S.f @0 is :I, and was :J in the released schema."}},

      // ---- Defaults.
      {"Defaults",
       "struct S { a @0 :UInt32 = 5; b @1 :Text = \"b\"; c @2 :List(UInt8) = [1]; d @3 :Float32 = nan; "
       "e @4 :Text; f @5 :Bool = true; g @6 :List(Text); }",
       "struct S { a @0 :UInt32 = 6; b @1 :Text; c @2 :List(UInt8) = [1, 2]; d @3 :Float32 = nan; "
       "e @4 :Text = \"\"; f @5 :Bool = true; g @6 :List(Text) = []; }",
       {"S.a @0 has the default 6, and had 5 in the released schema.",
        "S.b @1 has the default \"\", and had \"b\" in the released schema.",
        "S.c @2 has another default value than in the released schema."},
       {"S.a @0 has the default 5, and had 6 in the released schema.",
        "S.b @1 has the default \"b\", and had \"\" in the released schema.",
        "S.c @2 has another default value than in the released schema."}},
      {"DefaultOfAStructWithMoreFields",
       "struct T { a @0 :Text; } struct S { t @0 :T = (a = \"x\"); }",
       "struct T { a @0 :Text; b @1 :Text; c @2 :Int8; } struct S { t @0 :T = (a = \"x\"); }",
       {},
       {"T has no b @1 any more, which the released schema has.",
        "T has no c @2 any more, which the released schema has."}},

      // ---- Lists.
      {"ListOfStructs",
       "struct T { a @0 :Text; b @1 :Bool; } struct U { a @0 :UInt32; } struct V { a @0 :List(Text); }\n"
       "struct S { a @0 :List(Text); b @1 :List(UInt32); c @2 :List(List(Text)); d @3 :List(List(UInt32)); }",
       "struct T { a @0 :Text; b @1 :Bool; } struct U { a @0 :UInt32; } struct V { a @0 :List(Text); }\n"
       "struct S { a @0 :List(T); b @1 :List(U); c @2 :List(V); d @3 :List(List(U)); }",
       {},
       {"S.a @0 is :List(Text), and was :List(T) in the released schema."}},
      {"ListsThatStructsCannotReplace",
       "struct T { a @0 :Bool; } struct U { a @0 :UInt64; } struct V { a @0 :UInt32 = 1; } struct E {}\n"
       "struct W { union { a @0 :UInt32; b @1 :Bool; } }\n"
       "struct S { a @0 :List(Bool); b @1 :List(UInt32); c @2 :List(UInt32); d @3 :List(UInt32); "
       "e @4 :List(UInt32); f @5 :Text; }",
       "struct T { a @0 :Bool; } struct U { a @0 :UInt64; } struct V { a @0 :UInt32 = 1; } struct E {}\n"
       "struct W { union { a @0 :UInt32; b @1 :Bool; } }\n"
       "struct S { a @0 :List(T); b @1 :List(U); c @2 :List(V); d @3 :List(E); e @4 :List(W); f @5 :V; }",
       {"S.a @0 is :List(T), and was :List(Bool) in the released schema.",
        "S.b @1 is :List(U), and was :List(UInt32) in the released schema.",
        "S.c @2 is :List(V), and was :List(UInt32) in the released schema.",
        "S.d @3 is :List(E), and was :List(UInt32) in the released schema.",
        "S.e @4 is :List(W), and was :List(UInt32) in the released schema.",
        "S.f @5 is :V, and was :Text in the released schema."},
       {"S.a @0 is :List(Bool), and was :List(T) in the released schema.",
        "S.b @1 is :List(UInt32), and was :List(U) in the released schema.",
        "S.c @2 is :List(UInt32), and was :List(V) in the released schema.",
        "S.d @3 is :List(UInt32), and was :List(E) in the released schema.",
        "S.e @4 is :List(UInt32), and was :List(W) in the released schema.",
        "S.f @5 is :Text, and was :V in the released schema."}},
      {"ListOfAnotherType",
       "struct S { a @0 :List(UInt8); b @1 :List(List(Text)); }",
       "struct S { a @0 :List(UInt16); b @1 :AnyList; }",
       {"S.a @0 is :List(UInt16), and was :List(UInt8) in the released schema."},
       {"S.a @0 is :List(UInt8), and was :List(UInt16) in the released schema."}},

      // ---- Groups and unions.
      {"FieldsInANewGroup",
       "struct S { a @0 :UInt32; b @1 :Text; }",
       "struct S { g :group { a @0 :UInt32; b @1 :Text; c @2 :UInt64; } }",
       {},
       {"S has no c @2 any more, which the released schema has."}},
      {"FieldInANewUnion",
       "struct S { a @0 :UInt32; }",
       "struct S { union { a @0 :UInt32; b @1 :UInt64; } }",
       {"S.a @0 is in a union, and was in no union in the released schema."},
       {"S has no b @1 any more, which the released schema has.",
        "S.a @0 is in no union, and was in a union in the released schema."}},
      {"NewMemberOfAUnion",
       "struct S { union { a @0 :UInt32; b @1 :Text; } }",
       "struct S { union { a @0 :UInt32; b @1 :Text; c @2 :UInt32; g :group { d @3 :Bool; } } }",
       {},
       {"S has no c @2 any more, which the released schema has.",
        "S has no d @3 any more, which the released schema has."}},
      {"FieldInAnOldUnion",
       "struct S { a @0 :UInt32; union { b @1 :Text; c @2 :Text; } }",
       "struct S { union { a @0 :UInt32; b @1 :Text; c @2 :Text; } }",
       {"S.a @0 is in a union, and was in no union in the released schema.",
        "S.b @1 is member 1 of the union with its tag at bit 32, and was member 0 of the union with its tag "
        "at bit "
        "32 in the released schema.",
        "S.c @2 is member 2 of the union with its tag at bit 32, and was member 1 of the union with its tag "
        "at bit "
        "32 in the released schema."},
       {"S.a @0 is in no union, and was in a union in the released schema.",
        "S.b @1 is member 0 of the union with its tag at bit 32, and was member 1 of the union with its tag "
        "at bit "
        "32 in the released schema.",
        "S.c @2 is member 1 of the union with its tag at bit 32, and was member 2 of the union with its tag "
        "at bit "
        "32 in the released schema."}},
      {"SwappedGroupsOfAUnion",
       "struct S { union { x :group { size @0 :UInt32; } y :group { size @1 :UInt32; } } }",
       "struct S { union { y :group { size @0 :UInt32; } x :group { size @1 :UInt32; } } }",
       {"S.group y, which has size @0, was x in the released schema.",
        "S.group x, which has size @1, was y in the released schema."},
       {"S.group x, which has size @0, was y in the released schema.",
        "S.group y, which has size @1, was x in the released schema."}},
      {"GroupRenamedOnPurpose",
       "struct S { u :union { a @0 :Text; b @1 :Void; } g :group { c @2 :Text; } }",
       "struct S { v :union $Hawser.renamedFrom(\"u\") { a @0 :Text; b @1 :Void; } "
       "h :group $Hawser.renamedFrom(\"g\") { c @2 :Text; } }",
       {},
       {"S.group u, which has a @0, was v in the released schema.",
        "S.group g, which has c @2, was h in the released schema."}},

      // ---- Enums.
      {"AddedEnumerant",
       "enum E { a @0; }",
       "enum E { b @1; a @0; }",
       {},
       {"E has no b @1 any more, which the released schema has."}},
      {"SwappedEnumerants",
       "enum E { a @0; b @1; }",
       "enum E { b @0; a @1; }",
       {"E.b @0 was a in the released schema, where b was @1.",
        "E.a @1 was b in the released schema, where a was @0."},
       {"E.a @0 was b in the released schema, where a was @1.",
        "E.b @1 was a in the released schema, where b was @0."}},
      {"EnumerantRenamedOnPurpose",
       "enum E { a @0; }",
       "enum E { b @0 $Hawser.renamedFrom(\"a\"); }",
       {},
       {"E.a @0 was b in the released schema."}},

      // ---- Type parameters.
      {"MadeGeneric",
       "struct Map { entries @0 :List(Entry); struct Entry { key @0 :Text; value @1 :Text; } } "
       "struct S { m @0 :Map; e @1 :Map.Entry; }",
       "struct Map(K, V) { entries @0 :List(Entry); struct Entry { key @0 :K; value @1 :V; } } "
       "struct S { m @0 :Map(Text, Text); e @1 :Map(Text, Text).Entry; }",
       {},
       {}},
      {"MadeGenericWithOtherTypes",
       "struct Map { entries @0 :List(Entry); struct Entry { key @0 :Text; value @1 :Text; } } "
       "struct S { m @0 :Map; }",
       "struct Map(K, V) { entries @0 :List(Entry); struct Entry { key @0 :K; value @1 :V; } } "
       "struct S { m @0 :Map(Text, Data); }",
       {"S.m @0 is :Map(Text, Data), and was :Map in the released schema."},
       {"S.m @0 is :Map, and was :Map(Text, Data) in the released schema."}},
      {"SwappedTypeParameters",
       "struct P(A, B) { a @0 :A; b @1 :B; } struct S { p @0 :P(Text, Data); }",
       "struct P(A, B) { a @0 :B; b @1 :A; } struct S { p @0 :P(Data, Text); }",
       {"P.a @0 is :B, and was :A in the released schema.",
        "P.b @1 is :A, and was :B in the released schema."},
       {"P.a @0 is :A, and was :B in the released schema.",
        "P.b @1 is :B, and was :A in the released schema."}},
      {"OtherTypeArguments",
       "struct Box(T) { v @0 :T; } struct A { x @0 :Text; } interface I { m @0 Box(A) -> (); "
       "} "
       "struct S { b @0 :Box(Text); c @1 :Box(Box(A)); d @2 :Box(AnyPointer); }",
       "struct Box(T) { v @0 :T; } struct A { x @0 :Text; } interface I { m @0 Box(Text) -> "
       "(); } "
       "struct S { b @0 :Box(Data); c @1 :Box(Box(Text)); d @2 :Box(Text); }",
       {"I.m @0: its parameter v @0 is :Text, and was :A in the released schema.",
        "S.b @0 is :Box(Data), and was :Box(Text) in the released schema.",
        "S.c @1 is :Box(Box(Text)), and was :Box(Box(A)) in the released schema."},
       {"I.m @0: its parameter v @0 is :A, and was :Text in the released schema.",
        "S.b @0 is :Box(Text), and was :Box(Data) in the released schema.",
        "S.c @1 is :Box(Box(A)), and was :Box(Box(Text)) in the released schema."}},
      {"TypesWithoutEnd",
       "struct A(T) { l @0 :A(B(T)); r @1 :A(A(T)); v @2 :T; } struct B(T) { t @0 :T; } struct S { a @0 "
       ":A(Text); }",
       "struct A(T) { l @0 :A(B(T)); r @1 :A(A(T)); v @2 :T; w @3 :Text; } struct B(T) { t @0 :T; } struct S "
       "{ a @0 :A(Text); }",
       {},
       {"A has no w @3 any more, which the released schema has.",
        "A.l @0 is :A(B(T)), which is another type than the A(B(T)) of the released schema.",
        "A.r @1 is :A(A(T)), which is another type than the A(A(T)) of the released schema.",
        "S.a @0 is :A(Text), which is another type than the A(Text) of the released schema."}},
  };
}

class CompatibilityTest : public testing::TestWithParam<Pair> {};

TEST_P(CompatibilityTest, IsSaidInBothDirections) {
  Compiled released(kHead + GetParam().released), next(kHead + GetParam().next);
  EXPECT_THAT(Findings(released, next), ElementsAreArray(GetParam().findings));
  EXPECT_THAT(Findings(next, released), ElementsAreArray(GetParam().reverse));
}

TEST_P(CompatibilityTest, ASchemaCanReplaceItself) {
  Compiled released(kHead + GetParam().released), same(kHead + GetParam().released);
  EXPECT_THAT(Findings(released, same), IsEmpty());
}

// Cap'n Proto's own check compares the ids of two types, not their members. It refuses a default value whose
// type has changed, even an empty one. It refuses a type that was extended and cut at the same time, though
// nothing is lost.
TEST_P(CompatibilityTest, WhatCapnProtoRefusesIsFound) {
  const std::set<std::string> refused_needlessly = {"ParametersWithAName", "StructsOfTheSameFields",
                                                    "EnumsOfTheSameNames", "SuperclassThroughAnother",
                                                    "DataAndItsBytes",     "AnyPointer",
                                                    "FieldsInANewGroup",   "MadeGeneric"};
  if (refused_needlessly.count(GetParam().name)) GTEST_SKIP() << "both directions work all the same";
  Compiled released(kHead + GetParam().released), next(kHead + GetParam().next);
  bool refused = false;
  try {
    capnp::SchemaLoader loader;
    for (auto node : released.request().getNodes()) loader.load(node);
    for (auto node : next.request().getNodes()) loader.load(node);
  } catch (const kj::Exception&) {
    refused = true;
  }
  EXPECT_TRUE(!refused || !Findings(released, next).empty());
}

INSTANTIATE_TEST_SUITE_P(Pairs, CompatibilityTest, testing::ValuesIn(Pairs()),
                         [](const auto& pair) { return pair.param.name; });

// ---- Messages, files, imports.

TEST(CompatibilityMessageTest, SaysWhereWhatHappensAndWhatToDo) {
  Compiled released(absl::StrCat(kHead, "interface Kv {\n  get @0 (key :Text) -> (value :Data);\n",
                                 "  del @1 (key :Text) -> (value :Data);\n}\n"));
  Compiled next(absl::StrCat(kHead, "interface Kv {\n  del @0 (key :Text) -> (value :Data);\n",
                             "  get @1 (key :Text) -> (value :Data);\n}\n"));
  EXPECT_THAT(Messages(released, next),
              ElementsAre("foo.capnp:3: error: Kv.del @0 was get in the released schema, where del was @1.\n"
                          "  A released client that calls get runs del on a server of this schema; a client "
                          "of this schema that "
                          "calls del runs get on a released server. Both may see OK.\n"
                          "  Instead: give del its released ordinal, @1. If it means the same and only its "
                          "name has changed, say "
                          "so: del @0 ... $Hawser.renamedFrom(\"get\").\n",
                          "foo.capnp:4: error: Kv.get @1 was del in the released schema, where get was @0.\n"
                          "  A released client that calls del runs get on a server of this schema; a client "
                          "of this schema that "
                          "calls get runs del on a released server. Both may see OK.\n"
                          "  Instead: give get its released ordinal, @0. If it means the same and only its "
                          "name has changed, say "
                          "so: get @1 ... $Hawser.renamedFrom(\"del\").\n"));
}

TEST(CompatibilityMessageTest, NamesTheLineOfFieldsAndEnumerants) {
  Compiled released(absl::StrCat(kHead, "struct S {\n  union {\n    a @0 :Text;\n    b @1 :Text;\n  }\n",
                                 "  enum E {\n    a @0;\n  }\n}\n"));
  Compiled next(absl::StrCat(kHead, "struct S {\n  union {\n    a @0 :Text;\n    c @1 :Text;\n  }\n",
                             "  enum E {\n    b @0;\n  }\n}\n"));
  EXPECT_THAT(Messages(released, next),
              ElementsAre(testing::StartsWith("foo.capnp:5: error: S.c @1 was b"),
                          testing::StartsWith("foo.capnp:8: error: S.E.b @0 was a")));
}

TEST(CompatibilityFileTest, AnotherFileIdIsSaidOnce) {
  const std::string body = "interface I { a @0 (); } interface J { b @0 (); struct S {} }";
  Compiled released("@0xc6a81f3b7e02d594; " + body), next("@0xc6a81f3b7e02d595; " + body);
  EXPECT_THAT(Findings(released, next), ElementsAre("the file has the id @0xc6a81f3b7e02d595, and had "
                                                    "@0xc6a81f3b7e02d594 in the released schema."));
}

TEST(CompatibilityFileTest, AFileWithAnotherIdIsComparedByItsNames) {
  Compiled released("@0xc6a81f3b7e02d594; interface I { a @0 (x :Text); struct S { x @0 :Text; } }");
  Compiled next("@0xc6a81f3b7e02d595; interface I { b @0 (x :Data); struct S { y @0 :Text; } }");
  EXPECT_THAT(Findings(released, next),
              ElementsAre(HasSubstr("the file has the id"), "I.b @0 was a in the released schema.",
                          "I.b @0: its parameter x @0 is :Data, and was :Text in the released schema.",
                          "I.S.y @0 was x in the released schema."));
}

TEST(CompatibilityFileTest, AnotherFileAltogetherIsAnError) {
  Compiled released("@0xc6a81f3b7e02d594; interface I {}"), next("@0xc6a81f3b7e02d595; interface J {}");
  auto messages = Incompatibilities(released.request(), next.request());
  EXPECT_THAT(messages.status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(messages.status().message()),
              HasSubstr("foo.capnp is no version of foo.capnp: their ids differ, @0xc6a81f3b7e02d594 and "
                        "@0xc6a81f3b7e02d595, and no type of the one has a name or an id of the other."));
}

TEST(CompatibilityFileTest, ImportedTypesAreComparedWhereBothHaveThem) {
  const std::string foo = "@0xc6a81f3b7e02d594; struct S { u @0 :import \"bar.capnp\".U; }";
  Compiled released(foo, {{"bar.capnp", "@0xd6a81f3b7e02d594;\nstruct U { a @0 :Text; } struct V {}"}});
  Compiled next(foo, {{"bar.capnp", "@0xd6a81f3b7e02d594;\nstruct U { b @0 :Text; }"}});
  EXPECT_THAT(Messages(released, next),
              ElementsAre(testing::StartsWith("bar.capnp:2: error: U.b @0 was a in the released schema.")));
}

TEST(CompatibilityFileTest, ATypeMayMoveToAnImportedFileWithItsId) {
  Compiled released(
      "@0xc6a81f3b7e02d594; struct U @0xd95ae2b1b7b00001 { a @0 :Text; } struct S { u @0 :U; }");
  Compiled next("@0xc6a81f3b7e02d594; struct S { u @0 :import \"bar.capnp\".U; }",
                {{"bar.capnp", "@0xd6a81f3b7e02d594; struct U @0xd95ae2b1b7b00001 { a @0 :Text; }"}});
  EXPECT_THAT(Findings(released, next), IsEmpty());
}

}  // namespace
}  // namespace hawser::codegen
