#include "hawser/transport/wire/wire.h"

#include <string.h>

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::transport {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

// Parse() needs its bytes aligned to 8, as every received buffer is.
absl::StatusOr<ParsedMessage> ParseBytes(const Bytes& bytes) {
  static std::vector<uint64_t> aligned;  // The result points into it, until the next call.
  aligned.assign(bytes.size() / 8 + 1, 0);
  if (!bytes.empty()) memcpy(aligned.data(), bytes.data(), bytes.size());
  ParsedMessage message;
  const auto* const data = reinterpret_cast<const uint8_t*>(aligned.data());
  absl::Status status = Parse(data, bytes.size(), message);
  // ParseSmall() accepts nothing that Parse() refuses, and it accepts all usual messages.
  ParsedMessage small;
  const bool is_small = ParseSmall(data, bytes.size(), small);
  const bool is_usual = status.ok() && message.header.kind <= Kind::kResponse &&
                        message.header.entries == 1 && message.remote_bytes == 0;
  EXPECT_EQ(is_small, is_usual) << status;
  if (is_small) {
    EXPECT_TRUE(small.header.kind == message.header.kind && small.header.slot == message.header.slot &&
                small.header.generation == message.header.generation &&
                small.header.timeout_us == message.header.timeout_us &&
                small.header.envelope_words == message.header.envelope_words && small.header.entries == 1 &&
                small.table == message.table && small.envelope.data() == message.envelope.data() &&
                small.envelope.size() == message.envelope.size() && small.remote_bytes == 0 &&
                small.inline_segments == message.inline_segments &&
                small.inline_bytes == message.inline_bytes);
  }
  if (!status.ok()) return status;
  return message;
}

std::string WhatIsWrong(const Bytes& bytes) {
  const absl::Status status = ParseBytes(bytes).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kDataLoss));
  return std::string(status.message());
}

// A message from its parts.
struct Parts {
  Header header;
  std::vector<TableEntry> table;
  Bytes envelope;
  size_t inline_bytes = 0;

  Bytes Encode() const {
    Bytes bytes(PrefixBytes(table.size(), envelope.size()) + inline_bytes);
    EncodeHeader(header, bytes.data());
    for (size_t i = 0; i < table.size(); ++i) {
      EncodeTableEntry(table[i], bytes.data() + kHeaderBytes + i * kTableEntryBytes);
    }
    if (!envelope.empty()) {
      memcpy(bytes.data() + PrefixBytes(table.size(), 0), envelope.data(), envelope.size());
    }
    return bytes;
  }
};

Parts RequestOf(std::vector<TableEntry> table, size_t inline_bytes) {
  Parts parts;
  parts.header = {.kind = Kind::kRequest, .slot = 3, .generation = 7, .timeout_us = 5000};
  parts.header.entries = static_cast<uint16_t>(table.size());
  parts.table = std::move(table);
  parts.inline_bytes = inline_bytes;
  return parts;
}

// The example of rpc/PROTOCOL.md: a request in slot 3, the seventh exchange of that slot, with 5 ms left, an
// envelope of 16 bytes and one inline segment of 24.
const Bytes kExample = {
    0x01, 0x02, 0x03, 0x00, 0x07, 0x00, 0x00, 0x00, 0x88, 0x13, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00,  // header
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x18, 0x00, 0x00, 0x00,  // table
    0x83, 0x46, 0x1e, 0x7d, 0xc0, 0xa9, 0xf2, 0xb5, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00,                                                  // envelope
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x00,  // segment 0
    0x22, 0x00, 0x00, 0x00, 0x74, 0x6f, 0x77, 0x00, 0x00, 0x00, 0x00, 0x00,
};

TEST(WireTest, TheExampleOfTheProtocolPageIsWhatIsWritten) {
  Parts parts = RequestOf({{0, 0, 24}}, 24);
  parts.header.envelope_words = 2;
  parts.envelope = Bytes(kExample.begin() + 32, kExample.begin() + 48);
  Bytes written = parts.Encode();
  memcpy(written.data() + 48, kExample.data() + 48, 24);
  EXPECT_EQ(written, kExample);
}

TEST(WireTest, TheExampleOfTheProtocolPageIsRead) {
  absl::StatusOr<ParsedMessage> message = ParseBytes(kExample);
  ASSERT_THAT(message, IsOk());
  EXPECT_EQ(message->header.kind, Kind::kRequest);
  EXPECT_EQ(message->header.slot, 3);
  EXPECT_EQ(message->header.generation, 7u);
  EXPECT_EQ(message->header.timeout_us, 5000u);
  EXPECT_EQ(message->header.entries, 1);
  EXPECT_THAT(message->envelope, ElementsAreArray(kExample.data() + 32, 16));
  EXPECT_EQ(message->inline_bytes, 24u);
  EXPECT_EQ(message->remote_bytes, 0u);
  EXPECT_EQ(memcmp(message->inline_segments, kExample.data() + 48, 24), 0);
}

TEST(WireTest, EveryFieldOfAHeaderComesBack) {
  Header header;
  header.kind = Kind::kResponse;
  header.envelope_words = 4;
  header.slot = 0x1234;
  header.generation = 0xfedcba98;
  header.entries = 0;
  Bytes bytes(kHeaderBytes + 32);
  EncodeHeader(header, bytes.data());
  absl::StatusOr<ParsedMessage> message = ParseBytes(bytes);
  ASSERT_THAT(message, IsOk());
  EXPECT_EQ(message->header.kind, header.kind);
  EXPECT_EQ(message->header.envelope_words, header.envelope_words);
  EXPECT_EQ(message->header.slot, header.slot);
  EXPECT_EQ(message->header.generation, header.generation);
  EXPECT_EQ(message->header.timeout_us, 0u);
}

TEST(WireTest, ATableEntryComesBack) {
  Bytes bytes(kTableEntryBytes);
  EncodeTableEntry({0x0123456789abcdef, 0x76543210, 0xfffffff8}, bytes.data());
  const TableEntry entry = DecodeTableEntry(bytes.data());
  EXPECT_EQ(entry.address, 0x0123456789abcdefu);
  EXPECT_EQ(entry.rkey, 0x76543210u);
  EXPECT_EQ(entry.length_bytes, 0xfffffff8u);
}

TEST(WireTest, AControlMessageComesBack) {
  Bytes bytes(kHeaderBytes + 2 * kControlOpBytes);
  EncodeHeader({.kind = Kind::kControl, .slot = kControlSlot, .generation = 9, .entries = 2}, bytes.data());
  EncodeControlOp({ControlOp::Code::kCancel, 500, 0x80000001}, bytes.data() + 16);
  EncodeControlOp({ControlOp::Code::kRelease, 2, 3}, bytes.data() + 24);
  absl::StatusOr<ParsedMessage> message = ParseBytes(bytes);
  ASSERT_THAT(message, IsOk());
  EXPECT_EQ(message->header.entries, 2);
  const ControlOp op = DecodeControlOp(message->table);
  EXPECT_EQ(op.code, ControlOp::Code::kCancel);
  EXPECT_EQ(op.slot, 500);
  EXPECT_EQ(op.generation, 0x80000001u);
  EXPECT_EQ(DecodeControlOp(message->table + 8).code, ControlOp::Code::kRelease);
}

TEST(WireTest, InlineAndRemoteSegmentsMayMixAndAreCountedApart) {
  absl::StatusOr<ParsedMessage> message =
      ParseBytes(RequestOf({{0, 0, 8}, {4096, 77, 0xfffffff8}, {0, 0, 0}, {64, 78, 0xfffffff8}}, 8).Encode());
  ASSERT_THAT(message, IsOk());
  EXPECT_EQ(message->inline_bytes, 8u);
  EXPECT_EQ(message->remote_bytes, 2 * uint64_t{0xfffffff8}) << "more than 32 bits";
}

// ---- Refused messages. Each error names the values that are wrong.

TEST(WireTest, WhatIsShorterThanAHeaderIsRefused) {
  for (size_t length = 0; length < kHeaderBytes; ++length) {
    EXPECT_THAT(WhatIsWrong(Bytes(kExample.begin(), kExample.begin() + length)),
                HasSubstr(std::to_string(length) + " bytes, shorter than the header"));
  }
}

TEST(WireTest, AMessageCutShortOrWithBytesBehindItsEndIsRefused) {
  for (size_t length = kHeaderBytes; length < kExample.size(); ++length) {
    WhatIsWrong(Bytes(kExample.begin(), kExample.begin() + length));
  }
  Bytes longer = kExample;
  longer.resize(longer.size() + 8);
  EXPECT_THAT(WhatIsWrong(longer), HasSubstr("32 bytes of inline segments, but its table announces 24"));
}

TEST(WireTest, AnUnknownKindIsRefused) {
  for (int kind : {0, 6, 255}) {
    Bytes bytes = kExample;
    bytes[0] = static_cast<uint8_t>(kind);
    EXPECT_THAT(WhatIsWrong(bytes), HasSubstr("kind " + std::to_string(kind)));
  }
}

TEST(WireTest, CreditsComeWithEachKindButAReturn) {
  Bytes bytes = kExample;
  bytes[14] = 0x34;
  bytes[15] = 0x12;
  ParsedMessage parsed, small;
  ASSERT_THAT(Parse(bytes.data(), bytes.size(), parsed), IsOk());
  EXPECT_EQ(parsed.header.credits, 0x1234);
  ASSERT_TRUE(ParseSmall(bytes.data(), bytes.size(), small));
  EXPECT_EQ(small.header.credits, 0x1234);
}

TEST(WireTest, AReturnIsTheHeaderAloneWithNothingInIt) {
  Header header;
  header.kind = Kind::kReturn;
  header.slot = kControlSlot;
  Bytes bytes(kHeaderBytes);
  EncodeHeader(header, bytes.data());
  // The example of rpc/PROTOCOL.md.
  EXPECT_EQ(bytes, Bytes({5, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  ParsedMessage parsed;
  ASSERT_THAT(Parse(bytes.data(), bytes.size(), parsed), IsOk());
  EXPECT_EQ(parsed.header.kind, Kind::kReturn);
  for (size_t at = 1; at < kHeaderBytes; ++at) {
    Bytes other = bytes;
    other[at] ^= 1;
    EXPECT_THAT(WhatIsWrong(other), HasSubstr("return")) << at;
  }
  bytes.resize(bytes.size() + 8);
  EXPECT_THAT(WhatIsWrong(bytes), HasSubstr("a return of 24 bytes"));
}

TEST(WireTest, AnEnvelopeLongerThanAllowedIsRefused) {
  for (int words : {5, 255}) {
    Parts parts = RequestOf({}, 0);
    parts.header.envelope_words = static_cast<uint8_t>(words);
    parts.envelope = Bytes(static_cast<size_t>(words) * 8);
    EXPECT_THAT(WhatIsWrong(parts.Encode()), HasSubstr("envelope of " + std::to_string(words * 8)));
  }
}

TEST(WireTest, TooManySegmentsAreRefused) {
  EXPECT_THAT(ParseBytes(RequestOf(std::vector<TableEntry>(kSegmentsMax), 0).Encode()), IsOk());
  EXPECT_THAT(WhatIsWrong(RequestOf(std::vector<TableEntry>(kSegmentsMax + 1), 0).Encode()),
              HasSubstr("121 segments"));
}

TEST(WireTest, ATableThatIsLongerThanTheMessageIsRefused) {
  Parts parts = RequestOf({{0, 0, 0}}, 0);
  parts.header.entries = 2;
  EXPECT_THAT(WhatIsWrong(parts.Encode()), HasSubstr("announces 48"));
}

TEST(WireTest, ASegmentThatIsNoWholeNumberOfWordsIsRefused) {
  EXPECT_THAT(WhatIsWrong(RequestOf({{0, 0, 12}}, 12).Encode()), HasSubstr("segment of 12 bytes"));
  EXPECT_THAT(WhatIsWrong(RequestOf({{4096, 1, 4095}}, 0).Encode()), HasSubstr("segment of 4095 bytes"));
}

TEST(WireTest, AnInlineSegmentWithAnAddressIsRefused) {
  EXPECT_THAT(WhatIsWrong(RequestOf({{64, 0, 8}}, 8).Encode()),
              HasSubstr("segment 0 with an address, rkey 0 and length 8"));
}

TEST(WireTest, ARemoteSegmentOfNoBytesIsRefused) {
  EXPECT_THAT(WhatIsWrong(RequestOf({{64, 9, 0}}, 0).Encode()), HasSubstr("rkey 9 and length 0"));
}

TEST(WireTest, AResponseWithATimeoutIsRefused) {
  Parts parts = RequestOf({}, 0);
  parts.header.kind = Kind::kResponse;
  EXPECT_THAT(WhatIsWrong(parts.Encode()), HasSubstr("timeout"));
}

TEST(WireTest, AControlMessageThatIsNotExactlyItsOperationsIsRefused) {
  const auto message = [](Header header, size_t length) {
    Bytes bytes(length);
    EncodeHeader(header, bytes.data());
    return bytes;
  };
  const Header good = {.kind = Kind::kControl, .slot = kControlSlot, .generation = 1, .entries = 1};
  ASSERT_THAT(ParseBytes(message(good, 24)), IsOk());
  const std::vector<std::function<void(Header&)>> spoilers = {
      [](Header& header) { header.slot = 0; },            //
      [](Header& header) { header.envelope_words = 1; },  //
      [](Header& header) { header.timeout_us = 1; },      //
      [](Header& header) { header.entries = 2; },         //
      [](Header& header) { header.entries = 0; },
  };
  for (const auto& spoil : spoilers) {
    Header bad = good;
    spoil(bad);
    EXPECT_THAT(WhatIsWrong(message(bad, 24)), HasSubstr("control message"));
  }
  for (size_t length : {16, 17, 32}) {
    EXPECT_THAT(WhatIsWrong(message(good, length)), HasSubstr("control message"));
  }
  Header many = good;
  many.entries = kControlOpsMax;
  EXPECT_THAT(ParseBytes(message(many, kControlMessageMax)), IsOk());
  many.entries = kControlOpsMax + 1;
  EXPECT_THAT(WhatIsWrong(message(many, kControlMessageMax + 8)), HasSubstr("33 operations"));
}

TEST(WireTest, ReservedBitsOfAControlOperationAreRefused) {
  Bytes bytes(kHeaderBytes + 2 * kControlOpBytes);
  EncodeHeader({.kind = Kind::kControl, .slot = kControlSlot, .generation = 1, .entries = 2}, bytes.data());
  ASSERT_THAT(ParseBytes(bytes), IsOk());
  bytes[kHeaderBytes + kControlOpBytes + 1] = 0x10;
  EXPECT_THAT(WhatIsWrong(bytes), HasSubstr("control operation 1 with reserved bits 10"));
}

TEST(WireTest, AControlAnswerIsAHeaderAlone) {
  Header header = {.kind = Kind::kControlAck, .slot = kControlSlot, .generation = 1};
  Bytes bytes(kHeaderBytes);
  EncodeHeader(header, bytes.data());
  EXPECT_THAT(ParseBytes(bytes), IsOk());
  bytes.resize(24);
  WhatIsWrong(bytes);
  header.entries = 1;
  EncodeHeader(header, bytes.data());
  WhatIsWrong(bytes);
}

}  // namespace
}  // namespace hawser::transport
