#include <capnp/message.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "examples/echo/echo.rpc.h"
#include "hawser/base/violation.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/tests/testing/status_matchers.h"
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
