#include <capnp/message.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/echo/echo.rpc.h"
#include "hawser/base/violation.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/wire/wire.h"

// The example of rpc/PROTOCOL.md, read from the page itself, so that the page cannot go stale.
namespace hawser {
namespace {

// Found from a workspace that uses Hawser, too, where a test begins in another folder.
std::ifstream OpenPage() {
  return std::ifstream(std::string(getenv("TEST_SRCDIR")) + "/hawser/rpc/PROTOCOL.md");
}

// The bytes of the page's first block of code. Each line: pairs of hexadecimal digits, then three spaces and
// words.
std::vector<uint8_t> BytesOnThePage() {
  std::ifstream page = OpenPage();
  std::vector<uint8_t> bytes;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("```", 0) == 0) {
      if (inside) break;
      inside = true;
      continue;
    }
    if (!inside) continue;
    std::istringstream words(line.substr(0, line.find("   ")));
    for (std::string word; words >> word;)
      bytes.push_back(static_cast<uint8_t>(std::stoi(word, nullptr, 16)));
  }
  return bytes;
}

// Aligned, as a received message is.
struct Received {
  explicit Received(const std::vector<uint8_t>& bytes) : words((bytes.size() + 7) / 8), length(bytes.size()) {
    memcpy(words.data(), bytes.data(), bytes.size());
  }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(words.data()); }
  std::vector<uint64_t> words;
  size_t length;
};

TEST(ProtocolExampleTest, ThePageShowsWhatItSays) {
  const Received received(BytesOnThePage());
  transport::ParsedMessage message;
  const absl::Status parsed = transport::Parse(received.data(), received.length, message);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(message.header.kind, transport::Kind::kRequest);
  EXPECT_EQ(message.header.slot, 3);
  EXPECT_EQ(message.header.generation, 1u);
  EXPECT_EQ(message.header.timeout_us, 5'000'000u);
  EXPECT_EQ(message.header.entries, 1);

  absl::StatusOr<internal::RequestEnvelope> envelope = internal::DecodeRequestEnvelope(message.envelope);
  ASSERT_THAT(envelope, IsOk());
  EXPECT_EQ(envelope->interface_id, echo::EchoStub::kEcho.interface_id);
  EXPECT_EQ(envelope->ordinal, echo::EchoStub::kEcho.ordinal);

  ASSERT_EQ(message.inline_bytes, 24u);
  const kj::ArrayPtr<const capnp::word> segment(reinterpret_cast<const capnp::word*>(message.inline_segments),
                                                3);
  capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1));
  const auto said = reader.getRoot<echo::Echo::EchoParams>().getMessage().asChars();
  EXPECT_EQ(std::string(said.begin(), said.size()), "tow");
}

TEST(ProtocolExampleTest, ThePageNamesEachReasonOfAViolation) {
  std::ifstream page = OpenPage();
  std::stringstream text;
  text << page.rdbuf();
  for (size_t i = 0; i < kViolationCount; ++i) {
    const std::string name(NameOf(static_cast<Violation>(i)));
    EXPECT_THAT(text.str(), ::testing::HasSubstr("\n| " + name + " | "));
  }
}

// The rows of the tables behind a heading, without their heads: cells.
std::vector<std::vector<std::vector<std::string>>> TablesBehind(const std::string& heading) {
  std::ifstream page = OpenPage();
  std::vector<std::vector<std::vector<std::string>>> tables;
  bool inside = false, in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == heading;
    if (!inside || line.rfind("| ", 0) != 0) {
      in_table = in_table && line.rfind("|", 0) == 0;  // The line below the head.
      continue;
    }
    if (!in_table) {
      tables.emplace_back();
      in_table = true;
      continue;
    }
    std::vector<std::string> cells;
    for (const absl::string_view cell : absl::StrSplit(line.substr(2), " | ")) cells.emplace_back(cell);
    tables.back().push_back(std::move(cells));
  }
  return tables;
}

TEST(ProtocolExampleTest, MessagesOfLanesAreAsThePageSays) {
  using transport::LaneMessage;
  const auto tables = TablesBehind("## Lanes");
  ASSERT_GE(tables.size(), 2u);
  size_t at = 0;
  std::vector<std::string> fields;
  for (const auto& row : tables[0]) {
    fields.push_back(absl::StrCat(row[1], "@", at));
    at += static_cast<size_t>(std::stoi(row[0]));
  }
  EXPECT_THAT(fields, ::testing::ElementsAre("lane message@0", "access, or code@1", "text bytes@2",
                                             "reserved@3", "handle@4"));
  EXPECT_EQ(at, 8u);
  LaneMessage message;
  message.handle = 0x01020304;
  message.ticket = {
      0x1112131415161718,
      0x2122232425262728,
      0x3132333435363738,
      0x41424344,
      3,
      {0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xAB, 0xAC, 0xAD, 0xAE, 0xAF}};
  message.address = 0x5152535455565758;
  message.length = 0x61626364;
  message.rkey = 0x71727374;
  message.access = 5;
  message.count = 0x0304;
  message.why = absl::PermissionDeniedError("no");
  const std::string header = "04030201";
  const std::string bodies[] = {
      "18171615141312112827262524232221383736353433323144434241"
      "00000000"
      "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
      "585756555453525164636261000000007473727100000000",
      "6e6f",
      "",
      "",
      "",
      "",
      "0403000000000000",
      ""};
  const std::string second_to_fourth[] = {"030000", "050000", "070200", "000000", "000000",
                                          "000000", "000000", "000000", "000000"};
  const char* const names[] = {"open",   "opened", "refused", "close",  "closed",
                               "revoke", "ping",   "arrived", "counted"};
  ASSERT_EQ(tables[1].size(), std::size(names));
  for (size_t i = 0; i < std::size(names); ++i) {
    const auto& row = tables[1][i];
    EXPECT_EQ(row[0], absl::StrCat(i + 1));
    EXPECT_EQ(row[1], names[i]);
    message.kind = static_cast<LaneMessage::Kind>(i + 1);
    const std::string bytes = Encode(message);
    EXPECT_EQ(absl::BytesToHexString(bytes),
              absl::StrCat("0", i + 1, second_to_fourth[i], header, bodies[i]));
    if (i < 2 || message.kind == LaneMessage::Kind::kArrived) {
      EXPECT_TRUE(
          absl::StrContains(row[3], absl::StrCat(bytes.size(), i == 0 ? " bytes in all" : " in all")));
    } else if (i > 2) {
      EXPECT_TRUE(absl::StrContains(row[3], "nothing"));
      EXPECT_EQ(bytes.size(), at);
    }
  }
}

TEST(ProtocolExampleTest, TheEncodersWriteThePage) {
  std::vector<uint8_t> bytes(transport::kHeaderBytes + transport::kTableEntryBytes);
  transport::Header header;
  header.kind = transport::Kind::kRequest;
  header.envelope_words = 2;
  header.slot = 3;
  header.generation = 1;
  header.timeout_us = 5'000'000;
  header.entries = 1;
  transport::EncodeHeader(header, bytes.data());
  transport::EncodeTableEntry({0, 0, 24}, bytes.data() + transport::kHeaderBytes);
  const Method& method = echo::EchoStub::kEcho;
  for (uint8_t byte : internal::Encode(internal::RequestEnvelope{method.interface_id, method.ordinal}))
    bytes.push_back(byte);

  capnp::MallocMessageBuilder builder;
  builder.initRoot<echo::Echo::EchoParams>().setMessage(kj::StringPtr("tow").asBytes());
  for (const auto& segment : builder.getSegmentsForOutput()) {
    for (kj::byte byte : segment.asBytes()) bytes.push_back(byte);
  }
  EXPECT_EQ(bytes, BytesOnThePage());
}

}  // namespace
}  // namespace hawser
