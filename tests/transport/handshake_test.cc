#include "hawser/transport/wire/handshake.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Handshake Example() {
  Handshake handshake;
  handshake.role = Role::kReverse;
  handshake.features = 0x80000001;
  handshake.slots = 32;
  handshake.receive_buffer_bytes = 4096;
  handshake.message_bytes_max = uint64_t{1} << 40;
  for (size_t i = 0; i < handshake.session.size(); ++i) handshake.session[i] = static_cast<uint8_t>(200 + i);
  return handshake;
}

// The bytes of the example, with one byte changed.
std::string ExampleWith(size_t at, int value) {
  std::string bytes = Encode(Example());
  bytes.at(at) = static_cast<char>(value);
  return bytes;
}

std::string WhatIsWrong(absl::string_view data, absl::StatusCode code) {
  const absl::Status status = DecodeHandshake(data).status();
  EXPECT_THAT(status, HasCode(code));
  return std::string(status.message());
}

void ExpectSame(const Handshake& a, const Handshake& b) {
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.features, b.features);
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_EQ(a.receive_buffer_bytes, b.receive_buffer_bytes);
  EXPECT_EQ(a.message_bytes_max, b.message_bytes_max);
  EXPECT_EQ(a.session, b.session);
}

// An older peer has the same, so bytes that change need another version, or a feature that both sides have to
// say.
TEST(HandshakeTest, Version1IsTheseBytes) {
  EXPECT_EQ(absl::BytesToHexString(Encode(Example())),
            "48575352"
            "2c"
            "02"
            "0100"
            "01000080"
            "2000"
            "0000"
            "00100000"
            "0000000000010000"
            "c8c9cacbcccdcecfd0d1d2d3d4d5d6d7");
  EXPECT_EQ(absl::BytesToHexString(EncodeRejection(absl::FailedPreconditionError("too old"))),
            "48575352"
            "0f"
            "09"
            "0100"
            "746f6f206f6c64");
}

TEST(HandshakeTest, EveryFieldComesBack) {
  absl::StatusOr<Handshake> decoded = DecodeHandshake(Encode(Example()));
  ASSERT_THAT(decoded, IsOk());
  ExpectSame(*decoded, Example());
}

TEST(HandshakeTest, FitsWhatAConnectionManagerCarriesEvenPaddedWithZeros) {
  std::string bytes = Encode(Example());
  ASSERT_LE(bytes.size(), fabric::kConnectPrivateDataMax);
  bytes.resize(fabric::kAcceptPrivateDataMax);
  absl::StatusOr<Handshake> decoded = DecodeHandshake(bytes);
  ASSERT_THAT(decoded, IsOk());
  ExpectSame(*decoded, Example());
}

TEST(HandshakeTest, UnknownFeatureBitsAreNoReasonToRefuse) {
  Handshake handshake = Example();
  handshake.features = 0xffffffff;
  EXPECT_THAT(DecodeHandshake(Encode(handshake)), IsOk());
}

TEST(HandshakeTest, ALongerOneOfTheSameVersionIsUnderstood) {
  std::string bytes = ExampleWith(4, 53);
  bytes += "new field";
  EXPECT_THAT(DecodeHandshake(bytes), IsOk());
  bytes.resize(fabric::kConnectPrivateDataMax);
  EXPECT_THAT(DecodeHandshake(bytes), IsOk());
}

TEST(HandshakeTest, BytesBehindTheDeclaredLengthMustBeZeros) {
  std::string bytes = Encode(Example());
  bytes.resize(fabric::kConnectPrivateDataMax);
  bytes.back() = 1;
  EXPECT_THAT(WhatIsWrong(bytes, absl::StatusCode::kInvalidArgument), HasSubstr("behind"));
  EXPECT_THAT(WhatIsWrong(Encode(Example()) + "x", absl::StatusCode::kInvalidArgument), HasSubstr("behind"));
}

TEST(HandshakeTest, ADeclaredLengthBeyondWhatCameIsCutShort) {
  EXPECT_THAT(WhatIsWrong(ExampleWith(4, 52), absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("cut short"), HasSubstr("says 52")));
}

TEST(HandshakeTest, AnotherVersionIsRefusedWithBothNamed) {
  EXPECT_THAT(WhatIsWrong(ExampleWith(6, 7), absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("version 7"), HasSubstr("version 1")));
  // This holds whatever else that version changes.
  EXPECT_THAT(WhatIsWrong(ExampleWith(6, 7).substr(0, 8), absl::StatusCode::kFailedPrecondition),
              HasSubstr("version 7"));
}

TEST(HandshakeTest, WhatIsNoHandshakeIsRefused) {
  for (size_t at : {0, 1, 2, 3}) {
    EXPECT_THAT(WhatIsWrong(ExampleWith(at, 0), absl::StatusCode::kInvalidArgument),
                HasSubstr("no Hawser handshake"));
  }
  EXPECT_THAT(WhatIsWrong("", absl::StatusCode::kInvalidArgument), HasSubstr("0 bytes"));
  WhatIsWrong(std::string(56, '\0'), absl::StatusCode::kInvalidArgument);
  WhatIsWrong("GET / HTTP/1.1\r\n", absl::StatusCode::kInvalidArgument);
}

TEST(HandshakeTest, OneThatWasCutShortIsRefusedWithItsLengths) {
  const std::string whole = Encode(Example());
  for (size_t length = 8; length < whole.size(); ++length) {
    EXPECT_THAT(WhatIsWrong(whole.substr(0, length), absl::StatusCode::kInvalidArgument),
                AllOf(HasSubstr("cut short"), HasSubstr(std::to_string(length)), HasSubstr("44")));
  }
  EXPECT_THAT(WhatIsWrong(ExampleWith(4, 43), absl::StatusCode::kInvalidArgument), HasSubstr("says 43"));
}

TEST(HandshakeTest, ARoleThatIsNoneIsRefused) {
  for (int role : {0, 5, 21, 255}) {
    EXPECT_THAT(WhatIsWrong(ExampleWith(5, role), absl::StatusCode::kInvalidArgument),
                HasSubstr("role " + std::to_string(role)));
  }
}

TEST(HandshakeTest, ReservedBitsAreRefused) {
  for (size_t at : {14, 15}) {
    EXPECT_THAT(WhatIsWrong(ExampleWith(at, 0x10), absl::StatusCode::kInvalidArgument),
                HasSubstr("reserved bits"));
  }
}

TEST(HandshakeTest, SlotsAreBounded) {
  for (uint16_t slots : {uint16_t{1}, uint16_t{kSlotsMax}}) {
    Handshake handshake = Example();
    handshake.slots = slots;
    EXPECT_THAT(DecodeHandshake(Encode(handshake)), IsOk()) << slots;
  }
  for (uint16_t slots : {uint16_t{0}, uint16_t{kSlotsMax + 1}, uint16_t{0xffff}}) {
    Handshake handshake = Example();
    handshake.slots = slots;
    EXPECT_THAT(WhatIsWrong(Encode(handshake), absl::StatusCode::kInvalidArgument),
                HasSubstr("wants " + std::to_string(slots) + " slots"));
  }
}

TEST(HandshakeTest, TheReceiveBufferIsBoundedAndAMultipleOf64) {
  for (uint32_t bytes : {kReceiveBufferMin, kReceiveBufferMin + 64, kReceiveBufferMax}) {
    Handshake handshake = Example();
    handshake.receive_buffer_bytes = bytes;
    EXPECT_THAT(DecodeHandshake(Encode(handshake)), IsOk()) << bytes;
  }
  for (uint32_t bytes :
       {0u, kReceiveBufferMin - 64, kReceiveBufferMin + 8, kReceiveBufferMax + 64, 0xffffffc0u}) {
    Handshake handshake = Example();
    handshake.receive_buffer_bytes = bytes;
    EXPECT_THAT(WhatIsWrong(Encode(handshake), absl::StatusCode::kInvalidArgument),
                HasSubstr("receive buffers of " + std::to_string(bytes)));
  }
}

TEST(HandshakeTest, NoBytesWhateverTheyAreAreReadBeyondTheirEnd) {
  // Each prefix has an allocation of its own, so that AddressSanitizer reports a read beyond it.
  const std::string whole = Encode(Example());
  for (size_t length = 0; length <= whole.size(); ++length) {
    const std::unique_ptr<char[]> exact(new char[length]);
    std::copy_n(whole.data(), length, exact.get());
    DecodeHandshake(absl::string_view(exact.get(), length)).IgnoreError();
    DecodeRejection(absl::string_view(exact.get(), length)).IgnoreError();
  }
}

TEST(SessionTokenTest, TwoAreNeverTheSame) {
  std::set<SessionToken> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(NewSessionToken(Environment::Real()));
  EXPECT_EQ(tokens.size(), 100u);
}

// ---- Rejections.

TEST(RejectionTest, CodeAndTextComeBack) {
  const absl::Status why = DecodeRejection(EncodeRejection(absl::FailedPreconditionError("too old")));
  EXPECT_THAT(why, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(why.message()), HasSubstr("too old"));
}

TEST(RejectionTest, ControlCharactersOfThePeersTextAreEscaped) {
  const absl::Status why = DecodeRejection(EncodeRejection(absl::InternalError("too \x1b[31mold\r\n")));
  EXPECT_THAT(std::string(why.message()), HasSubstr("too \\x1b[31mold\\r\\n"));
}

TEST(RejectionTest, EveryCodeComesBack) {
  for (int code = 1; code <= 16; ++code) {
    EXPECT_THAT(DecodeRejection(EncodeRejection(absl::Status(static_cast<absl::StatusCode>(code), "x"))),
                HasCode(static_cast<absl::StatusCode>(code)));
  }
}

TEST(RejectionTest, ALongTextIsCutToWhatFits) {
  const std::string text(1000, 'x');
  const std::string data = EncodeRejection(absl::InternalError(text));
  EXPECT_EQ(data.size(), fabric::kRejectPrivateDataMax);
  EXPECT_THAT(std::string(DecodeRejection(data).message()), HasSubstr(text.substr(0, 140)));
}

TEST(RejectionTest, PaddingIsNotPartOfTheText) {
  std::string data = EncodeRejection(absl::InternalError("why"));
  data.resize(fabric::kRejectPrivateDataMax);
  EXPECT_EQ(std::string(DecodeRejection(data).message()), "the peer rejected the connection: why");
}

TEST(RejectionTest, DataThatIsNoneOfOursIsUnavailable) {
  for (const std::string& data :
       {std::string(), std::string("no"), std::string(100, 'x'), Encode(Example()).substr(0, 7)}) {
    EXPECT_THAT(DecodeRejection(data), HasCode(absl::StatusCode::kUnavailable));
  }
}

// ---- Where to prove.

// rpc/PROTOCOL.md, "Over RDMA with credentials".
TEST(ProofPortTest, ARejectionCarriesItBehindItsDeclaredLength) {
  const std::string data = EncodeRejection(absl::FailedPreconditionError("at 7471"), 7471);
  const std::string expected = {0x48, 0x57, 0x53, 0x52, 15,  9, 1, 0,    'a', 't',
                                ' ',  '7',  '4',  '7',  '1', 1, 2, 0x2f, 0x1d};
  EXPECT_EQ(data, expected);
  EXPECT_EQ(*DecodeProofPort(data), 7471);
  // What an older client makes of it.
  EXPECT_EQ(std::string(DecodeRejection(data).message()), "the peer rejected the connection: at 7471");
}

TEST(ProofPortTest, ItComesPaddedWithZerosAndBehindALongText) {
  std::string data = EncodeRejection(absl::InternalError(std::string(1000, 'x')), 65535);
  EXPECT_EQ(data.size(), fabric::kRejectPrivateDataMax);
  EXPECT_EQ(*DecodeProofPort(data), 65535);
  data = EncodeRejection(absl::InternalError("why"), kProofPortMin);
  data.resize(fabric::kRejectPrivateDataMax);
  EXPECT_EQ(*DecodeProofPort(data), kProofPortMin);
}

TEST(ProofPortTest, ARejectionWithoutOneTellsNone) {
  std::string data = EncodeRejection(absl::InternalError("why"));
  EXPECT_EQ(*DecodeProofPort(data), 0);
  data.resize(fabric::kRejectPrivateDataMax);
  EXPECT_EQ(*DecodeProofPort(data), 0);
  data = EncodeRejection(absl::InternalError("why"), 7471);
  data[6] = 2;  // Of another version, whose rejections may look otherwise.
  EXPECT_EQ(*DecodeProofPort(data), 0);
  for (const std::string& other :
       {std::string(), std::string("no"), std::string(100, 'x'), Encode(Example())}) {
    EXPECT_EQ(*DecodeProofPort(other), 0);
  }
}

TEST(ProofPortTest, APortOfTheSystemIsRefused) {
  for (const uint16_t port : {0, 1, 22, 80, 1023}) {
    EXPECT_THAT(DecodeProofPort(EncodeRejection(absl::InternalError("why"), port)).status(),
                HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ProofPortTest, WhatALaterVersionAddsIsSkipped) {
  const std::string plain = EncodeRejection(absl::InternalError("why"));
  EXPECT_EQ(*DecodeProofPort(plain + std::string("\x07\x03", 2) + "abc" + std::string("\x01\x02\x2f\x1d", 4)),
            7471);
  EXPECT_EQ(*DecodeProofPort(plain + std::string("\x07\x00", 2) + std::string("\x01\x02\x2f\x1d", 4)), 7471);
}

TEST(ProofPortTest, OneThatWasCutShortIsRefused) {
  const std::string plain = EncodeRejection(absl::InternalError("why"));
  for (const std::string& tail : {std::string("\x01"), std::string("\x01\x02"), std::string("\x01\x02\x2f"),
                                  std::string("\x01\x01\x2f"), std::string("\x01\x03\x2f\x1d\x00", 5),
                                  std::string("\x01\x00", 2), std::string("\x07\xff\x01")}) {
    const std::string whole = plain + tail;
    const std::unique_ptr<char[]> exact(new char[whole.size()]);
    std::copy_n(whole.data(), whole.size(), exact.get());
    EXPECT_THAT(DecodeProofPort(absl::string_view(exact.get(), whole.size())).status(),
                HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST(RejectionTest, IsNeverOk) {
  std::string data = EncodeRejection(absl::InternalError("why"));
  for (int code : {0, 17, 255}) {
    data[5] = static_cast<char>(code);
    EXPECT_THAT(DecodeRejection(data), HasCode(absl::StatusCode::kUnknown));
  }
}

}  // namespace
}  // namespace hawser::transport
