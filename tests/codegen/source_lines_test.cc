#include "hawser/codegen/source_lines.h"

#include <gtest/gtest.h>

namespace hawser::codegen {
namespace {

TEST(SourceLinesTest, FindsInterfacesAndMethodsAtAnyNesting) {
  SourceLines lines(
      "@0xa7c3f2b1d0e49586;\n"
      "struct Outer {\n"
      "  interface Inner {\n"
      "    get @0 () -> ();\n"
      "  }\n"
      "}\n"
      "interface Inner { get @0 () -> (); }\n");
  EXPECT_EQ(lines.Find("Outer.Inner"), 3);
  EXPECT_EQ(lines.Find("Outer.Inner.get"), 4);
  EXPECT_EQ(lines.Find("Inner.get"), 7);
  EXPECT_EQ(lines.Find("Inner.put"), 0);
}

TEST(SourceLinesTest, GroupsAndUnionsAreNoScopes) {
  SourceLines lines(
      "struct Outer {\n"
      "  a :group { union { b @0 :Text; c @1 :Text; } }\n"
      "  interface Inner {}\n"
      "}\n");
  EXPECT_EQ(lines.Find("Outer.Inner"), 3);
}

TEST(SourceLinesTest, CommentsAndStringsAreNoCode) {
  SourceLines lines(
      "# interface Foo {\n"
      "const text :Text = \"} \\\" interface Foo {\";\n"
      "interface Foo {  # {\n"
      "  get @0 (key :Text = \"{\") -> ();\n"
      "}\n");
  EXPECT_EQ(lines.Find("Foo"), 3);
  EXPECT_EQ(lines.Find("Foo.get"), 4);
}

TEST(SourceLinesTest, AMethodIsOnTheLineOfItsName) {
  SourceLines lines(
      "interface Foo @0xa7c3f2b1d0e49586 (T)\n"
      "    extends (Bar) {\n"
      "  get\n"
      "    @0 () -> ();\n"
      "}\n");
  EXPECT_EQ(lines.Find("Foo"), 1);
  EXPECT_EQ(lines.Find("Foo.get"), 3);
}

TEST(SourceLinesTest, FindsMembersByTheirOrdinals) {
  SourceLines lines(
      "struct Outer {\n"
      "  a @1 :Text;\n"
      "  g :group { union {\n"
      "    b @0 :Text;\n"
      "    c @2 :Text; } }\n"
      "  enum Kind {\n"
      "    a @1; b @0;\n"
      "  }\n"
      "  interface Inner {\n"
      "    get @0 () -> ();\n"
      "  }\n"
      "}\n");
  EXPECT_EQ(lines.Find("Outer", 0), 4);
  EXPECT_EQ(lines.Find("Outer", 1), 2);
  EXPECT_EQ(lines.Find("Outer", 2), 5);
  EXPECT_EQ(lines.Find("Outer", 3), 0);
  EXPECT_EQ(lines.Find("Outer.Kind"), 6);
  EXPECT_EQ(lines.Find("Outer.Kind", 0), 7);
  EXPECT_EQ(lines.Find("Outer.Inner", 0), 10);
}

TEST(SourceLinesTest, FindsConstantsAndGroups) {
  SourceLines lines(
      "const a :Text = \"b\";\n"
      "struct Outer {\n"
      "  const c :Int32 = 1;\n"
      "  d :group {\n"
      "    e :union { f @0 :Text; g @1 :Text; }\n"
      "  }\n"
      "}\n");
  EXPECT_EQ(lines.Find("a"), 1);
  EXPECT_EQ(lines.Find("Outer.c"), 3);
  EXPECT_EQ(lines.Find("Outer.d"), 4);
  EXPECT_EQ(lines.Find("Outer.e"), 5);
}

TEST(SourceLinesTest, FindsTheNamespaceWhateverItsAnnotationIsCalled) {
  EXPECT_EQ(
      SourceLines("using Cxx = import \"/capnp/c++.capnp\";\n$Cxx.namespace(\"a\");").Find("$Cxx.namespace"),
      2);
  EXPECT_EQ(SourceLines("\n$namespace\n(\"a\");").Find("$Cxx.namespace"), 2);
}

TEST(SourceLinesTest, WhatIsNoSchemaHasNoLines) {
  EXPECT_EQ(SourceLines("").Find("Foo"), 0);
  EXPECT_EQ(SourceLines("}}} \" @ interface").Find("Foo"), 0);
  EXPECT_EQ(SourceLines::OfFile("no/such/file.capnp").Find("Foo"), 0);
}

}  // namespace
}  // namespace hawser::codegen
