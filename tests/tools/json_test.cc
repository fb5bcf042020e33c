// JSON becomes a message, and a message JSON; what does not fit is refused with where and why.

#include <capnp/any.h>
#include <capnp/capability.h>
#include <capnp/message.h>
#include <kj/exception.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tools/hawser/json_fit.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/json_value.h"
#include "hawser/tools/hawser/whole_number.h"
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

// As the words of a message: JSON that was printed is taken again, and what comes of it is the same.
TEST_F(JsonTest, WhatIsPrintedMeansTheSame) {
  const auto expect_same = [&](const std::string& what) {
    for (const bool base64_always : {false, true}) {
      const kj::Array<capnp::word> before = capnp::canonicalize(all());
      const std::string json = Json({.pretty = false, .base64_always = base64_always});
      ASSERT_EQ(Fill(json), "") << what << ": " << json;
      const kj::Array<capnp::word> after = capnp::canonicalize(all());
      EXPECT_TRUE(before.asBytes() == after.asBytes()) << what << ": " << json << "\nbecomes " << Json();
    }
  };
  const auto make = [&] {
    message_ = std::make_unique<capnp::MallocMessageBuilder>();
    return message_->initRoot<All>();
  };
  const auto extremes = [&](auto of_type, auto set, const char* what) {
    using Limits = std::numeric_limits<decltype(of_type)>;
    for (const auto value : {Limits::lowest(), Limits::max(), Limits::min(), decltype(of_type){0},
                             decltype(of_type){1}, static_cast<decltype(of_type)>(Limits::max() - 1),
                             Limits::denorm_min(), Limits::infinity(), Limits::epsilon()}) {
      set(make(), value);
      expect_same(absl::StrCat(what, " ", value));
    }
  };
  extremes(
      int8_t{}, [](All::Builder all, auto value) { all.setInt8(value); }, "int8");
  extremes(
      int16_t{}, [](All::Builder all, auto value) { all.setInt16(value); }, "int16");
  extremes(
      int32_t{}, [](All::Builder all, auto value) { all.setInt32(value); }, "int32");
  extremes(
      int64_t{}, [](All::Builder all, auto value) { all.setInt64(value); }, "int64");
  extremes(
      uint8_t{}, [](All::Builder all, auto value) { all.setUint8(value); }, "uint8");
  extremes(
      uint16_t{}, [](All::Builder all, auto value) { all.setUint16(value); }, "uint16");
  extremes(
      uint32_t{}, [](All::Builder all, auto value) { all.setUint32(value); }, "uint32");
  extremes(
      uint64_t{}, [](All::Builder all, auto value) { all.setUint64(value); }, "uint64");
  extremes(
      float{}, [](All::Builder all, auto value) { all.setFloat32(value); }, "float32");
  extremes(
      double{}, [](All::Builder all, auto value) { all.setFloat64(value); }, "float64");
  for (const float value :
       {-0.0F, -std::numeric_limits<float>::infinity(), 0.1F, 16777217.0F, 1.17549421e-38F}) {
    make().setFloat32(value);
    expect_same(absl::StrCat("float32 ", value));
    make().setFloat64(value);
    expect_same(absl::StrCat("float64 ", value));
  }
  make().setFloat64(std::numeric_limits<double>::quiet_NaN());
  expect_same("NaN");

  for (const std::string& text :
       {std::string(), std::string(1, '\0'), std::string("a\0b\"\\/\b\f\n\r\t\x7f", 13),
        std::string("\xf4\x8f\xbf\xbf\xef\xbf\xbf\xe2\x80\xa8\xc2\x80"), std::string("\xff not UTF-8 \xc3"),
        std::string("\xed\xa0\x80")}) {
    make().setText(capnp::Text::Reader(text.c_str(), text.size()));
    expect_same("text " + text);
    make().setData(capnp::Data::Reader(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
    expect_same("data " + text);
  }

  auto lists = make();
  lists.initNumbers(0);
  lists.initInners(1);
  auto texts = lists.initLists(2);
  texts.init(0, 0);
  texts.init(1, 1).set(0, "");
  lists.initDatas(1).set(0, capnp::Data::Reader());
  lists.setColors({everything::Color::RED, static_cast<everything::Color>(65535)});
  lists.setColor(static_cast<everything::Color>(3));
  lists.initBox();
  lists.initPreset();
  expect_same("lists");

  for (const bool value : {true, false}) {
    make().setBool(value);
    expect_same(absl::StrCat("bool ", value));
  }
  auto values = make();
  values.setBools({true, false, true, true, false, false, true, false, true});  // More than a byte of them.
  expect_same("bools");
  EXPECT_FALSE(all().getBools()[1]);
  EXPECT_TRUE(all().getBools()[8]);
  values = make();
  values.initVoids(3);
  expect_same("voids");
  EXPECT_EQ(all().getVoids().size(), 3u);
  values = make();
  values.setInt64s({std::numeric_limits<int64_t>::min(), -1, 0, std::numeric_limits<int64_t>::max()});
  expect_same("int64s");
  values = make();
  values.setUint64s({0, (uint64_t{1} << 53) + 1, std::numeric_limits<uint64_t>::max()});
  expect_same("uint64s");
  values = make();
  using Float = std::numeric_limits<float>;
  values.setFloat32s({0.1F, -0.0F, Float::lowest(), Float::max(), Float::denorm_min(), Float::infinity(),
                      -Float::infinity(), Float::quiet_NaN()});
  expect_same("float32s");
  values = make();
  using Double = std::numeric_limits<double>;
  values.setFloat64s({0.1, -0.0, Double::lowest(), Double::max(), Double::denorm_min(), Double::infinity(),
                      -Double::infinity(), Double::quiet_NaN()});
  expect_same("float64s");
  values = make();
  values.initTexts(3).set(0, "");
  values.getTexts().set(1, "k\xc3\xa4se \"\\\n");
  values.getTexts().set(2, "\xff not UTF-8");
  expect_same("texts");
}

// What JSON has no form for. It goes in again, and is not there then.
TEST_F(JsonTest, AnAnyPointerThatIsSetIsNull) {
  message_ = std::make_unique<capnp::MallocMessageBuilder>();
  auto made = message_->initRoot<All>();
  made.setText("t");
  made.getAny().setAs<capnp::Text>("something");
  const std::string json = Json();
  EXPECT_THAT(json, HasSubstr(R"("any": null)"));
  ASSERT_EQ(Fill(json), "");
  EXPECT_TRUE(all().getAny().isNull());
  EXPECT_EQ(all().getText(), "t");
}

TEST(JsonTextTest, ACapabilityThatIsSetIsNull) {
  using Box = everything::Box<everything::Base>;
  capnp::MallocMessageBuilder message;
  auto box = message.initRoot<Box>();
  box.setValue(everything::Base::Client(KJ_EXCEPTION(FAILED, "it is not called")));
  ASSERT_TRUE(box.hasValue());
  const absl::StatusOr<std::string> json = ToJson(box.asReader(), {.pretty = false});
  ASSERT_THAT(json, IsOk());
  EXPECT_EQ(*json, R"({"value": null})");
  capnp::MallocMessageBuilder again;
  ASSERT_THAT(FillFromJson(*json, again.initRoot<Box>()), IsOk());
  EXPECT_FALSE(again.getRoot<Box>().hasValue());
}

TEST_F(JsonTest, OfAUnionTheMemberThatIsSetIsPrinted) {
  message_ = std::make_unique<capnp::MallocMessageBuilder>();
  auto made = message_->initRoot<All>();
  made.setSecond("s");
  made.disownSecond();  // Still the one that is set, and null.
  made.getChoice().setWord("w");
  made.getChoice().disownWord();
  ASSERT_TRUE(made.isSecond());
  ASSERT_TRUE(made.getChoice().isWord());
  const std::string json = Json();
  EXPECT_THAT(json, HasSubstr(R"("second": null)"));
  EXPECT_THAT(json, HasSubstr(R"("choice": {"word": null})"));
  ASSERT_EQ(Fill(json), "");
  EXPECT_TRUE(all().isSecond());
  EXPECT_FALSE(all().hasSecond());
  EXPECT_TRUE(all().getChoice().isWord());
}

TEST_F(JsonTest, NullInAListOfPointersIsNone) {
  ASSERT_EQ(Fill(R"({"lists": [null, ["a", null]], "datas": [null, "d"]})"), "");
  EXPECT_EQ(all().getLists()[0].size(), 0);
  EXPECT_EQ(all().getLists()[1][1], "");
  EXPECT_EQ(all().getDatas()[1].size(), 1);
  EXPECT_EQ(Fill(R"({"numbers": [null]})"),
            "at .numbers[0]: expected a whole number from -2147483648 to 2147483647 (Int32), found null");
}

TEST_F(JsonTest, TextThatIsNotUtf8IsBase64) {
  ASSERT_EQ(Fill(R"({"text": {"base64": "YQD/"}})"), "");
  EXPECT_EQ(absl::string_view(all().getText().begin(), all().getText().size()),
            absl::string_view("a\0\xff", 3));
  EXPECT_THAT(Json(), HasSubstr(R"("text": {"base64": "YQD/"})"));
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

TEST_F(JsonTest, ANumberThatIsNotWholeIsNeverRounded) {
  for (const char* number :
       {"0.99999999999999999", "4.9999999999999999999", "9007199254740992.9", "1e-400", "-1e-400",
        "127.00000000000000001", "-0.99999999999999999", "1e-99999999999", "0.1e-2147483648",
        "18446744073709551615.5", "1.5", "1e19999999999", "18446744073709551616"}) {
    for (const char* field : {"uint64", "int64", "int8"}) {
      EXPECT_THAT(Fill(absl::StrCat("{\"", field, "\": ", number, "}")), HasSubstr("expected a whole number"))
          << number;
    }
  }
  EXPECT_EQ(Fill(R"({"uint64": 9007199254740993.0, "int64": -922337203685477580.8e1, "int8": 1270000e-4})"),
            "");
  EXPECT_EQ(all().getUint64(), 9007199254740993u);
  EXPECT_EQ(all().getInt64(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(all().getInt8(), 127);
  for (const char* string : {" 5", "5 ", "+5", "5.0", "1e3", "-", "", "0x5"}) {
    EXPECT_THAT(Fill(absl::StrCat("{\"int64\": \"", string, "\"}")), HasSubstr("expected a whole number"))
        << string;
  }
}

TEST_F(JsonTest, AFloatIsTheNearestOfItsType) {
  EXPECT_EQ(Fill(R"({"float32": 3.4028235e+38})"), "");
  EXPECT_EQ(all().getFloat32(), std::numeric_limits<float>::max());
  EXPECT_THAT(Fill(R"({"float32": 3.4028236e+38})"), HasSubstr("expected a number of Float32"));
  // As a double first it would be half way between two floats, and then the lower one.
  EXPECT_EQ(Fill(R"({"float32": 1.00000005960464477540})"), "");
  EXPECT_EQ(all().getFloat32(), std::nextafter(1.0F, 2.0F));
  // These would be rounded to zero.
  EXPECT_THAT(Fill(R"({"float64": 1e-400})"), HasSubstr("expected a number of Float64"));
  EXPECT_THAT(Fill(R"({"float32": 1e-60})"), HasSubstr("expected a number of Float32"));
  EXPECT_EQ(Fill(R"({"float32": 0e-60, "float64": -0.0e400})"), "");
  EXPECT_TRUE(std::signbit(all().getFloat64()));
}

TEST(WholeNumberTest, IsReadDigitByDigit) {
  const auto of = [](absl::string_view text) {
    const std::optional<WholeNumber> number = ToWholeNumber(text);
    return number ? absl::StrCat(number->is_negative ? "-" : "", number->magnitude) : "none";
  };
  EXPECT_EQ(of("0"), "0");
  EXPECT_EQ(of("-0"), "0");
  EXPECT_EQ(of("0.000e999999999999"), "0");
  EXPECT_EQ(of("0e-7"), "0");
  EXPECT_EQ(of("12e3"), "12000");
  EXPECT_EQ(of("-1.50E+1"), "-15");
  EXPECT_EQ(of("500e-2"), "5");
  EXPECT_EQ(of("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(of("1844674407370955161.50e1"), "18446744073709551615");
  EXPECT_EQ(of("18446744073709551616"), "none");
  EXPECT_EQ(of("1e20"), "none");
  EXPECT_EQ(of("1e2147483647"), "none");
  EXPECT_EQ(of("1e-2147483648"), "none");
  EXPECT_EQ(of("501e-2"), "none");
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
