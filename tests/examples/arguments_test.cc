#include "examples/arguments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const FlagSet& flags, const std::vector<std::string>& arguments) {
  return std::string(flags.Apply(CommandLine::Split(arguments)).message());
}

TEST(CommandLineTest, FlagsMayStandBeforeAndAfterWords) {
  CommandLine line = CommandLine::Split({"--target=tcp://a:1", "put", "--file=/tmp/x", "key"});
  EXPECT_THAT(line.words, ElementsAre("put", "key"));
  ASSERT_EQ(line.flags.size(), 2u);
  EXPECT_EQ(line.flags[0].name, "target");
  EXPECT_EQ(line.flags[0].value, "tcp://a:1");
  EXPECT_EQ(line.flags[1].name, "file");
}

TEST(CommandLineTest, BehindTwoDashesEverythingIsAWord) {
  EXPECT_THAT(CommandLine::Split({"put", "--", "key", "--value=1", "--"}).words,
              ElementsAre("put", "key", "--value=1", "--"));
}

TEST(CommandLineTest, AnEmptyWordIsAWord) {
  EXPECT_THAT(CommandLine::Split({"put", "k", ""}).words, ElementsAre("put", "k", ""));
}

TEST(CommandLineTest, TheValueMayHoldEqualSignsAndBeEmpty) {
  CommandLine line = CommandLine::Split({"--a=b=c", "--d="});
  EXPECT_EQ(line.flags[0].value, "b=c");
  EXPECT_EQ(line.flags[1].value, "");
}

TEST(FlagSetTest, ValuesAreReadIntoTheirVariables) {
  std::string text;
  std::vector<std::string> texts;
  uint64_t number = 0, bytes = 0;
  absl::Duration duration;
  bool on = false;
  FlagSet flags;
  flags.Text("text", &text)
      .Texts("texts", &texts)
      .Number("number", 0, 99, &number)
      .Bytes("bytes", 0, 1 << 30, &bytes);
  size_t choice = 0;
  flags.Duration("duration", &duration).Switch("on", &on).Choice("choice", {"red", "blue"}, &choice);
  EXPECT_EQ(Message(flags, {"--text=a", "--text=b", "--texts=c", "--texts=d", "--number=7", "--bytes=64KiB",
                            "--duration=250ms", "--on", "--choice=blue"}),
            "");
  EXPECT_EQ(text, "b");
  EXPECT_THAT(texts, ElementsAre("c", "d"));
  EXPECT_EQ(number, 7u);
  EXPECT_EQ(bytes, 65536u);
  EXPECT_EQ(duration, absl::Milliseconds(250));
  EXPECT_TRUE(on);
  EXPECT_EQ(choice, 1u);
}

TEST(FlagSetTest, WhatIsNotGivenKeepsItsDefault) {
  uint64_t number = 5;
  FlagSet flags;
  flags.Number("number", 0, 9, &number);
  EXPECT_EQ(Message(flags, {"word"}), "");
  EXPECT_EQ(number, 5u);
}

TEST(FlagSetTest, WhatIsWrongIsNamed) {
  uint64_t number, bytes;
  absl::Duration duration;
  bool on;
  FlagSet flags;
  flags.Number("number", 1, 9, &number)
      .Bytes("bytes", 0, UINT64_MAX, &bytes)
      .Duration("wait", &duration)
      .Switch("on", &on);
  size_t choice;
  flags.Choice("choice", {"red", "blue"}, &choice);
  EXPECT_EQ(Message(flags, {"--numbre=1"}), "there is no flag --numbre here");
  EXPECT_EQ(Message(flags, {"--number"}), "--number needs a value: --number=...");
  EXPECT_EQ(Message(flags, {"--on=1"}), "--on takes no value");
  EXPECT_EQ(Message(flags, {"--number=x"}), "--number=x: that is not a whole number");
  EXPECT_EQ(Message(flags, {"--number=-1"}), "--number=-1: that is not a whole number");
  EXPECT_EQ(Message(flags, {"--number=99999999999999999999"}),
            "--number=99999999999999999999: that is not from 1 to 9");
  EXPECT_EQ(Message(flags, {"--number="}), "--number=: that is not a whole number");
  EXPECT_EQ(Message(flags, {"--number=10"}), "--number=10: 10 is not from 1 to 9");
  EXPECT_THAT(Message(flags, {"--bytes=12KB"}), HasSubstr("not a size"));
  EXPECT_THAT(Message(flags, {"--bytes=KiB"}), HasSubstr("not a size"));
  EXPECT_THAT(Message(flags, {"--bytes=18446744073709551615TiB"}), HasSubstr("not a size"));
  EXPECT_THAT(Message(flags, {"--wait=10"}), HasSubstr("not a time span"));
  EXPECT_EQ(Message(flags, {"--wait=-1s"}), "--wait=-1s: that is not above 0");
  EXPECT_EQ(Message(flags, {"--wait=0s"}), "--wait=0s: that is not above 0");
  EXPECT_EQ(Message(flags, {"--choice=green"}), "--choice=green: that is none of red, blue");
}

}  // namespace
}  // namespace examples
