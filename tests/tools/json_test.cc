// JSON becomes a message, and a message JSON; what does not fit is refused with where and why.

#include <capnp/message.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tools/hawser/json_fit.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/json_value.h"
#include "tests/tools/everything.capnp.h"

namespace hawser::tool {
namespace {

using everything::All;
using ::testing::HasSubstr;
using ::testing::Not;

class JsonTest : public ::testing::Test {
 protected:
  // The text of the error; "" if it fits.
  std::string Fill(const std::string& json) {
    message_ = std::make_unique<capnp::MallocMessageBuilder>();
    const absl::Status status = FillFromJson(json, message_->initRoot<All>());
    return std::string(status.message());
  }
  All::Reader all() { return message_->getRoot<All>().asReader(); }
  std::string Json(const JsonTextOptions& options = {.pretty = false}) {
    const auto text = ToJson(message_->getRoot<All>().asReader(), options);
    return text.ok() ? *text : text.status().ToString();
  }

  std::unique_ptr<capnp::MallocMessageBuilder> message_;
};

TEST_F(JsonTest, EachTypeIsTaken) {
  EXPECT_EQ(Fill(R"({"void": null, "bool": false, "int8": -128, "int64": "9223372036854775807", "uint64": 7,
                     "float32": 0.5, "float64": "NaN", "text": "\u00e4\n", "data": "tow", "numbers": [3, 4],
                     "color": "green", "inner": {"key": "k", "next": {"value": -1}}, "inners": [{}, {"key": "z"}],
                     "lists": [["a"], []], "datas": ["x", {"base64": "AP8="}], "colors": ["red", 2],
                     "box": {"value": null}, "place": {"x": 1, "y": -1}, "choice": {"pair": {"b": 5}}, "second": "s"})"),
            "");
  EXPECT_FALSE(all().getBool());
  EXPECT_EQ(all().getInt8(), -128);
  EXPECT_EQ(all().getInt64(), 9223372036854775807);
  EXPECT_EQ(all().getUint64(), 7);
  EXPECT_EQ(all().getText(), "\xc3\xa4\n");
  EXPECT_EQ(all().getNumbers()[1], 4);
  EXPECT_EQ(all().getColor(), everything::Color::GREEN);
  EXPECT_EQ(all().getInner().getNext().getValue(), -1);
  EXPECT_EQ(all().getLists()[0][0], "a");
  EXPECT_EQ(all().getDatas()[1].size(), 2);
  EXPECT_EQ(all().getColors()[1], everything::Color::GREEN);
  EXPECT_EQ(all().getPlace().getY(), -1);
  EXPECT_EQ(all().getChoice().getPair().getB(), 5);
  EXPECT_EQ(all().getSecond(), "s");
}

TEST_F(JsonTest, WhatIsLeftOutKeepsItsDefault) {
  EXPECT_EQ(Fill("{}"), "");
  EXPECT_TRUE(all().getBool());
  EXPECT_EQ(all().getUint64(), 18446744073709551615u);
  EXPECT_EQ(all().getColor(), everything::Color::BLUE);
}

TEST_F(JsonTest, WhatIsPrintedIsTakenBack) {
  ASSERT_EQ(
      Fill(R"({"float32": 0.1, "float64": 1e300, "text": "a\"\\\u001b\u202e", "data": {"base64": "AP8="},
                     "inners": [{"key": "z"}], "choice": {"word": "w"}, "third": {"color": "light"}})"),
      "");
  for (const bool base64_always : {false, true}) {
    const std::string first = Json({.pretty = true, .base64_always = base64_always});
    ASSERT_EQ(Fill(first), "") << first;
    EXPECT_EQ(Json({.pretty = true, .base64_always = base64_always}), first);
  }
  EXPECT_EQ(all().getThird().getColor(), All::Inner::Color::LIGHT);
}

TEST_F(JsonTest, DataIsTextWhereItIsText) {
  ASSERT_EQ(Fill(R"({"data": "tow\n"})"), "");
  EXPECT_THAT(Json(), HasSubstr(R"("data": "tow\n")"));
  EXPECT_THAT(Json({.pretty = false, .base64_always = true}), HasSubstr(R"("data": {"base64": "dG93Cg=="})"));
  ASSERT_EQ(Fill(R"({"data": {"base64": "G1s="}})"), "");
  EXPECT_THAT(Json(), HasSubstr(R"("data": {"base64": "G1s="})"));
}

TEST_F(JsonTest, IntegersOf64BitsAreInQuotes) {
  ASSERT_EQ(Fill(R"({"uint64": "18446744073709551615", "int64": -3, "uint32": 4})"), "");
  EXPECT_THAT(Json(), HasSubstr(R"("uint64": "18446744073709551615")"));
  EXPECT_THAT(Json(), HasSubstr(R"("int64": "-3")"));
  EXPECT_THAT(Json(), HasSubstr(R"("uint32": 4)"));
}

TEST_F(JsonTest, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(JsonString("a\x1b[2J\x7f\xc2\x9b\xe2\x80\xae\xff\"\\\n"),
            "\"a\\u001b[2J\\u007f\\u009b\\u202e\\ufffd\\\"\\\\\\n\"");
  EXPECT_EQ(JsonString("k\xc3\xa4se"), "\"k\xc3\xa4se\"");
}

TEST_F(JsonTest, AFieldCanBeLeftOut) {
  ASSERT_EQ(Fill(R"({"place": {"x": 1}, "inner": {"key": "k"}})"), "");
  const std::string json = Json({.pretty = false, .left_out = {"place.x", "inner.key"}});
  EXPECT_THAT(json, HasSubstr(R"("place": {"y": 0})"));
  EXPECT_THAT(json, Not(HasSubstr("key")));
}

TEST_F(JsonTest, WhatIsTooLongIsRefused) {
  ASSERT_EQ(Fill(R"({"text": "0123456789"})"), "");
  const auto text = ToJson(message_->getRoot<All>().asReader(), {.bytes_max = 50});
  EXPECT_THAT(text.status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(text.status().message(), HasSubstr("--out"));
}

// ---- What does not fit.

TEST_F(JsonTest, AnErrorSaysWhereWhatWasExpectedAndWhatIsThere) {
  EXPECT_EQ(Fill(R"({"inners": [{}, {}, {}, {"key": 5}]})"),
            "at .inners[3].key: expected a string (Text), found the number 5");
  EXPECT_EQ(Fill(R"({"inner": [1, 2]})"), "at .inner: expected an object (All.Inner), found an array of 2");
  EXPECT_EQ(Fill(R"({"numbers": {}})"), "at .numbers: expected an array (List(Int32)), found an object");
  EXPECT_EQ(Fill(R"({"bool": "true"})"),
            "at .bool: expected true or false (Bool), found the string \"true\"");
  EXPECT_EQ(Fill(R"({"void": 1})"), "at .void: expected null (Void), found the number 1");
  EXPECT_THAT(Fill(R"({"float64": "many"})"),
              HasSubstr("at .float64: expected a number of Float64, or \"NaN\""));
  EXPECT_THAT(Fill(R"({"data": 5})"), HasSubstr("at .data: expected Data: a string, or {\"base64\""));
  EXPECT_THAT(Fill(R"({"data": {"base64": "!"}})"), HasSubstr("at .data.base64: that is not base64"));
  EXPECT_THAT(Fill(R"({"any": "x"})"),
              HasSubstr("at .any: a value of type AnyPointer cannot be given in JSON"));
  EXPECT_EQ(Fill("[]"), "at .: expected an object (All), found an array of 0");
}

TEST_F(JsonTest, ANumberIsInTheRangeOfItsType) {
  EXPECT_EQ(Fill(R"({"uint8": 256})"),
            "at .uint8: expected a whole number from 0 to 255 (UInt8), found the number 256");
  EXPECT_THAT(Fill(R"({"int8": -129})"), HasSubstr("from -128 to 127"));
  EXPECT_THAT(Fill(R"({"uint32": -1})"), HasSubstr("from 0 to 4294967295"));
  EXPECT_THAT(Fill(R"({"int32": 1.5})"), HasSubstr("expected a whole number"));
  EXPECT_EQ(Fill(R"({"uint64": 18446744073709551615})"), "");
  EXPECT_EQ(all().getUint64(), 18446744073709551615u);
  EXPECT_EQ(Fill(R"({"uint32": 1e3, "int8": -5.0})"), "");
  EXPECT_EQ(all().getUint32(), 1000);
  EXPECT_THAT(Fill(R"({"uint64": "18446744073709551616"})"), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_THAT(Fill(R"({"int64": "-9223372036854775809"})"), HasSubstr("from -9223372036854775808"));
  EXPECT_EQ(Fill(R"({"int64": "-9223372036854775808"})"), "");
  EXPECT_THAT(Fill(R"({"uint32": 1e400})"), HasSubstr("found the number 1e400"));
  EXPECT_THAT(Fill(R"({"float64": 1e400})"), HasSubstr("found the number 1e400"));
  EXPECT_THAT(Fill(R"({"float32": -1e39})"), HasSubstr("expected a number of Float32"));
}

TEST_F(JsonTest, AnUnknownFieldIsNamedWithTheNearest) {
  const std::string error = Fill(R"({"inner": {"kye": "a"}})");
  EXPECT_THAT(error, HasSubstr("at .inner: there is no field \"kye\"; did you mean \"key\"?"));
  EXPECT_THAT(error, HasSubstr("There are: key, value, next, color, outer"));
}

TEST_F(JsonTest, AnUnknownEnumerantIsNamedWithTheNearest) {
  const std::string error = Fill(R"({"color": "gren"})");
  EXPECT_THAT(error,
              HasSubstr("at .color: expected one of red, blue, green (Color), found the string \"gren\""));
  EXPECT_THAT(error, HasSubstr("did you mean \"green\"?"));
}

TEST_F(JsonTest, ANameThatIsThereTwiceIsRefused) {
  EXPECT_EQ(Fill(R"({"uint8": 1, "uint8": 2})"), "at .: the name \"uint8\" is there twice");
}

TEST_F(JsonTest, TwoFieldsOfAUnionAreRefused) {
  EXPECT_EQ(Fill(R"({"first": 1, "second": "s"})"),
            "at .: \"first\" and \"second\" are of one union: give one of them");
  EXPECT_THAT(Fill(R"({"choice": {"word": "w", "none": null}})"),
              HasSubstr("at .choice: \"word\" and \"none\""));
}

TEST_F(JsonTest, HalfASurrogateIsNoText) {
  EXPECT_NE(Fill(R"({"text": "\ud800"})"), "");
  EXPECT_EQ(Fill(R"({"text": "\ud83d\ude00"})"), "");
  EXPECT_EQ(all().getText(), "\xf0\x9f\x98\x80");
}

// ---- What is no JSON.

TEST_F(JsonTest, ASyntaxErrorSaysTheLineAndTheColumn) {
  EXPECT_EQ(Fill("{\"text\": }"), "line 1, column 10: expected a value, found \"}\"");
  EXPECT_EQ(Fill("{\n  \"text\" 1}"), "line 2, column 10: expected \":\" after the name, found \"1\"");
  EXPECT_EQ(Fill(""), "line 1, column 1: expected a value, found the end");
  EXPECT_EQ(Fill("{} {}"), "line 1, column 4: expected the end, or one value only, found \"{\"");
  EXPECT_EQ(Fill("{'a': 1}"), "line 1, column 2: expected a name in quotes, found \"'\"");
  for (const char* const text :
       {"{\"a\": 01}", "{\"a\": +1}", "{\"a\": 1.}", "{\"a\": .5}", "{\"a\": 1e}", "{\"a\": tru}",
        "{\"a\": \"\\x\"}", "{\"a\": \"\\u12g4\"}", "{\"a\": \"", "{\"a\": 1,}", "[1,]", "{", "[",
        "{\"a\": \"\n\"}", "{\"a\": -}", "{\"a\": \"\\"}) {
    EXPECT_THAT(Fill(text), HasSubstr("line ")) << text;
  }
}

TEST_F(JsonTest, WhatIsNotUtf8IsRefused) {
  EXPECT_THAT(Fill("{\"text\": \"\xff\"}"), HasSubstr("byte 10 (0xff) is not UTF-8"));
  EXPECT_THAT(Fill("{\"text\": \"\xed\xa0\x80\"}"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(Fill("{\"text\": \"\xc0\x80\"}"), HasSubstr("is not UTF-8"));
}

TEST_F(JsonTest, NestingIsBounded) {
  std::string deep = "{\"inner\": ";
  for (int i = 0; i < kJsonNestingMax - 1; ++i) deep += "{\"next\": ";
  EXPECT_EQ(Fill(deep + "null" + std::string(kJsonNestingMax, '}')), "");
  EXPECT_THAT(Fill(deep + "{}" + std::string(kJsonNestingMax, '}')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(Fill(std::string(10'000'000, '[')), HasSubstr("nested deeper than 64"));
}

TEST_F(JsonTest, SizeIsBounded) {
  EXPECT_THAT(Fill(std::string(kJsonBytesMax + 1, ' ')), HasSubstr("--in=FIELD=FILE"));
}

}  // namespace
}  // namespace hawser::tool
