#include "hawser/rpc/wire/envelope.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::internal {
namespace {

TEST(EnvelopeTest, ARequestComesBackAsItWasSaid) {
  const auto bytes = Encode(RequestEnvelope{0xd82b32c4242f6b2a, 513, 7});
  const auto decoded = DecodeRequestEnvelope(bytes);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->interface_id, 0xd82b32c4242f6b2a);
  EXPECT_EQ(decoded->ordinal, 513);
  EXPECT_EQ(decoded->metadata_segment, 7);
}

TEST(EnvelopeTest, ARequestIsLittleEndianOnTheWire) {
  const auto bytes = Encode(RequestEnvelope{0x0102030405060708, 0x090a, 0x0b0c});
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()),
            (std::vector<uint8_t>{8, 7, 6, 5, 4, 3, 2, 1, 10, 9, 12, 11, 0, 0, 0, 0}));
}

TEST(EnvelopeTest, ARequestOfAnyOtherLengthIsRefused) {
  for (size_t size : {0, 8, 15, 17, 24}) {
    const std::vector<uint8_t> bytes(size);
    EXPECT_THAT(DecodeRequestEnvelope(bytes).status(), HasCode(absl::StatusCode::kInvalidArgument)) << size;
  }
}

TEST(EnvelopeTest, ABitThatARequestMustNotSetIsRefused) {
  for (size_t at = 12; at < kRequestEnvelopeBytes; ++at) {
    auto bytes = Encode(RequestEnvelope{1, 2});
    bytes[at] = 0x80;
    EXPECT_THAT(DecodeRequestEnvelope(bytes).status(), HasCode(absl::StatusCode::kInvalidArgument)) << at;
  }
}

TEST(EnvelopeTest, AResponseComesBackAsItWasSaid) {
  for (int code = 0; code <= 16; ++code) {
    for (bool not_run : {false, true}) {
      const auto decoded =
          DecodeResponseEnvelope(Encode(ResponseEnvelope{static_cast<absl::StatusCode>(code), not_run}));
      ASSERT_THAT(decoded, IsOk());
      EXPECT_EQ(static_cast<int>(decoded->code), code);
      EXPECT_EQ(decoded->not_run, not_run);
    }
  }
}

TEST(EnvelopeTest, ACodeThatNobodyKnowsIsUnknown) {
  for (int code : {17, 20, 255}) {
    std::array<uint8_t, kResponseEnvelopeBytes> bytes = {static_cast<uint8_t>(code)};
    const auto decoded = DecodeResponseEnvelope(bytes);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->code, absl::StatusCode::kUnknown);
  }
}

TEST(EnvelopeTest, AResponseOfAnotherShapeIsRefused) {
  EXPECT_THAT(DecodeResponseEnvelope(std::vector<uint8_t>(7)).status(), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeResponseEnvelope(std::vector<uint8_t>(16)).status(),
              HasCode(absl::StatusCode::kDataLoss));
  for (const size_t at : {1, 4, 5, 6, 7}) {
    auto bytes = Encode(ResponseEnvelope{});
    bytes[at] = 0x80;
    EXPECT_THAT(DecodeResponseEnvelope(bytes).status(), HasCode(absl::StatusCode::kDataLoss)) << at;
  }
}

TEST(EnvelopeTest, AResponseSaysWhereItsMetadataIs) {
  const auto bytes = Encode(ResponseEnvelope{absl::StatusCode::kNotFound, false, 0x0102});
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()), (std::vector<uint8_t>{5, 0, 2, 1, 0, 0, 0, 0}));
  EXPECT_EQ(DecodeResponseEnvelope(bytes)->metadata_segment, 0x0102);
}

TEST(EnvelopeTest, AMethodThatWasNotRunSentNoMetadata) {
  const auto bytes = Encode(ResponseEnvelope{absl::StatusCode::kUnavailable, true, 1});
  EXPECT_THAT(DecodeResponseEnvelope(bytes).status(), HasCode(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace hawser::internal
