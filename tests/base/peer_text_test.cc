#include "hawser/base/peer_text.h"

#include <string>

#include "gtest/gtest.h"

namespace hawser {
namespace {

TEST(PeerTextTest, WhatATerminalShowsAsItIsStays) {
  for (const char* text : {"", "slot 4 of 4", "C:\\new \"x\" \\x1b", "k\xc3\xa4se", "\xe2\x82\xac 5",
                           "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d", "\xf0\x9f\x90\x9f"}) {
    EXPECT_EQ(EscapePeerText(text), text);
  }
}

TEST(PeerTextTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(EscapePeerText("one\ntwo\r\tthree"), "one\\ntwo\\r\\tthree");
  EXPECT_EQ(EscapePeerText("\x1b[2J\x07\x7f"), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(EscapePeerText(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(EscapePeerText("\xc2\x9b"
                           "31m"),
            "\\u009b31m");  // CSI in one character.
}

TEST(PeerTextTest, WhatChangesTheDirectionOrTheLineIsEscaped) {
  EXPECT_EQ(EscapePeerText("\xd8\x9c"), "\\u061c");
  EXPECT_EQ(EscapePeerText("\xe2\x80\x8e\xe2\x80\x8f"), "\\u200e\\u200f");
  EXPECT_EQ(EscapePeerText("\xe2\x80\xa8\xe2\x80\xa9"), "\\u2028\\u2029");
  EXPECT_EQ(EscapePeerText("user\xe2\x80\xae"
                           "txt.exe"),
            "user\\u202etxt.exe");
  EXPECT_EQ(EscapePeerText("\xe2\x81\xa6\xe2\x81\xa9"), "\\u2066\\u2069");
}

TEST(PeerTextTest, WhatIsNoUtf8IsEscapedByteByByte) {
  EXPECT_EQ(EscapePeerText("\xff"), "\\xff");
  EXPECT_EQ(EscapePeerText("\x80"
                           "a"),
            "\\x80a");
  EXPECT_EQ(EscapePeerText("\xc0\x8a"), "\\xc0\\x8a");                    // A newline, in two bytes.
  EXPECT_EQ(EscapePeerText("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");           // In three.
  EXPECT_EQ(EscapePeerText("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // A surrogate.
  EXPECT_EQ(EscapePeerText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // Beyond U+10FFFF.
  EXPECT_EQ(EscapePeerText("\xe2\x82"), "\\xe2\\x82");                    // Cut.
  EXPECT_EQ(EscapePeerText("\xe2\x82"
                           "a"),
            "\\xe2\\x82"
            "a");
}

TEST(PeerTextTest, EscapingTwiceIsEscapingOnce) {
  const std::string once = EscapePeerText("\x1b\xff\n\xe2\x80\xae");
  EXPECT_EQ(EscapePeerText(once), once);
}

}  // namespace
}  // namespace hawser
