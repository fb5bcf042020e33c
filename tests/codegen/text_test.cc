#include "hawser/codegen/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hawser::codegen {
namespace {

TEST(TextTest, ADeclarationThatFitsStaysOnOneLine) {
  EXPECT_EQ(Bracketed("  ", "void Get(", {"int a", "int b"}, ");"), "  void Get(int a, int b);\n");
}

TEST(TextTest, ALongDeclarationIsAlignedWithItsBracket) {
  std::string a(50, 'a'), b(50, 'b');
  EXPECT_EQ(Bracketed("  ", "void Get(", {a, b, "c"}, ");"),
            "  void Get(" + a + ",\n           " + b + ", c);\n");
}

TEST(TextTest, AnArgumentTooLongForThatBeginsOnTheNextLine) {
  std::string a(103, 'a');
  EXPECT_EQ(Bracketed("", "void Get(", {a, "b"}, ");"), "void Get(\n    " + a + ",\n    b);\n");
}

TEST(TextTest, AReturnTypeTooLongForThatHasALineOfItsOwn) {
  std::string type(120, 'T');
  EXPECT_EQ(Bracketed("  ", type + " Get(", {"int a"}, ");"), "  " + type + "\n  Get(int a);\n");
}

TEST(TextTest, ACommentCannotContinueIntoTheCode) {
  EXPECT_EQ(Comment("", {"in C:\\kv\\", "", "end"}), "// in C:\\kv\\.\n//\n// end\n");
  for (const char* blanks : {" ", "\t", "\r", " \t\r", "\v", "\f"}) {
    EXPECT_EQ(Comment("", {std::string("C:\\") + blanks}), "// C:\\.\n");
    EXPECT_EQ(Comment("", {std::string("what?\?/") + blanks}), "// what?\?/.\n");
  }
}

TEST(TextTest, EachSortOfLineEndEndsALineOfAComment) {
  for (const char* end : {"\n", "\r", "\r\n", "\v", "\f", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"}) {
    EXPECT_EQ(CommentLines(std::string("a") + end + "b" + end), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(Comment("  ", {std::string("a") + end + "#error b" + end}), "  // a\n  // #error b\n");
  }
}

TEST(TextTest, ACommentHasOnlyPrintableUtf8) {
  EXPECT_EQ(Comment("", {"a\tb \xc3\xa4 \x1b[31m \xe2\x80\xae \xff"}),
            "// a\tb \xc3\xa4 \\x1b[31m \\u202e \\xff\n");
}

TEST(TextTest, AQuotedFieldStaysWithItsType) {
  std::string type(100, 'T');
  EXPECT_EQ(Quotation("", "get @0 (field :" + type + ");"), "//   get @0\n//       (field :" + type + ");\n");
}

}  // namespace
}  // namespace hawser::codegen
