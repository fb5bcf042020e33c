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
}

TEST(TextTest, AQuotedFieldStaysWithItsType) {
  std::string type(100, 'T');
  EXPECT_EQ(Quotation("", "get @0 (field :" + type + ");"), "//   get @0\n//       (field :" + type + ");\n");
}

}  // namespace
}  // namespace hawser::codegen
