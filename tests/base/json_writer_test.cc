#include "hawser/base/json_writer.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace hawser {
namespace {

using Layout = JsonWriter::Layout;

TEST(JsonStringTest, WhatJsonOrATerminalDoesNotTakeIsEscaped) {
  EXPECT_EQ(JsonString(""), "\"\"");
  EXPECT_EQ(JsonString("k\xc3\xa4se"), "\"k\xc3\xa4se\"");
  EXPECT_EQ(JsonString("\"\\/"), "\"\\\"\\\\/\"");
  EXPECT_EQ(JsonString("a\n\r\t\b\x1b\x7f"), "\"a\\n\\r\\t\\u0008\\u001b\\u007f\"");
  EXPECT_EQ(JsonString(std::string("a\0b", 3)), "\"a\\u0000b\"");
  // A control character of two bytes, and one that turns the direction of text.
  EXPECT_EQ(JsonString("\xc2\x9b\xe2\x80\xae"), "\"\\u009b\\u202e\"");
}

TEST(JsonStringTest, EachByteThatIsNotUtf8IsTheReplacementCharacter) {
  EXPECT_EQ(JsonString("\xff\"\xc3"), "\"\\ufffd\\\"\\ufffd\"");
  // A surrogate, one too large, one not in the shortest form, one that is cut off by a plain character.
  EXPECT_EQ(JsonString("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");
  EXPECT_EQ(JsonString("\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
  EXPECT_EQ(JsonString("\xc0\xaf"), "\"\\ufffd\\ufffd\"");
  EXPECT_EQ(JsonString("\xe2\x80z"), "\"\\ufffd\\ufffdz\"");
}

// An object, lists of lists and of objects, empty ones, and each type of value.
std::string Everything(Layout layout) {
  JsonWriter json(layout);
  json.BeginObject();
  json.Name("a\"").Number(-1);
  json.Name("list").BeginList();
  json.BeginList();
  json.EndList();
  json.BeginObject();
  json.EndObject();
  json.Bool(false);
  json.EndList();
  json.Name("line").BeginLineList();
  json.Number(1);
  json.Null();
  json.EndList();
  json.Name("b").String("x");
  json.EndObject();
  return std::move(json).Take();
}

TEST(JsonWriterTest, EachLayoutHasTheSameValues) {
  EXPECT_EQ(Everything(Layout::kDense), R"({"a\"":-1,"list":[[],{},false],"line":[1,null],"b":"x"})");
  EXPECT_EQ(Everything(Layout::kLine),
            R"({"a\"": -1, "list": [[], {}, false], "line": [1, null], "b": "x"})");
  EXPECT_EQ(Everything(Layout::kLines), R"({
  "a\"": -1,
  "list": [
    [],
    {},
    false
  ],
  "line": [1, null],
  "b": "x"
})");
}

TEST(JsonWriterTest, NumbersOf64BitsAreStrings) {
  JsonWriter json;
  json.BeginList();
  json.Number64(std::numeric_limits<int64_t>::min());
  json.Number64(std::numeric_limits<uint64_t>::max());
  json.EndList();
  EXPECT_EQ(std::move(json).Take(), R"(["-9223372036854775808", "18446744073709551615"])");
}

TEST(JsonWriterTest, WhatIsNoNumberInJsonIsNull) {
  JsonWriter json;
  json.BeginList();
  json.Decimal(0.125, 2);
  json.Decimal(1e6, 0);
  json.Decimal(std::numeric_limits<double>::infinity(), 3);
  json.Decimal(std::numeric_limits<double>::quiet_NaN(), 3);
  json.EndList();
  EXPECT_EQ(std::move(json).Take(), "[0.12, 1000000, null, null]");
}

TEST(JsonWriterTest, ItSaysHowLongTheTextIs) {
  JsonWriter json;
  json.String("abc");
  EXPECT_EQ(json.size_bytes(), 5u);
}

}  // namespace
}  // namespace hawser
