// What a client may announce before it is known.
#include "hawser/tls/hello_limit.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace hawser::tls {
namespace {

std::string Message(uint8_t type, size_t length) {
  return {static_cast<char>(type), static_cast<char>(length >> 16), static_cast<char>(length >> 8),
          static_cast<char>(length)};
}

std::string Record(uint8_t type, absl::string_view body) {
  const std::string header = {static_cast<char>(type), 3, 1, static_cast<char>(body.size() >> 8),
                              static_cast<char>(body.size())};
  return absl::StrCat(header, body);
}

constexpr uint8_t kHandshake = 22, kChangeCipherSpec = 20, kApplicationData = 23;
constexpr uint8_t kClientHello = 1;

// Whatever pieces the bytes come in.
void ExpectAllows(bool allows, absl::string_view bytes) {
  for (size_t piece = 1; piece <= bytes.size(); piece = piece < 12 ? piece + 1 : piece * 2) {
    HelloLimit limit;
    bool allowed = true;
    for (absl::string_view rest = bytes; allowed && !rest.empty();) {
      const absl::string_view next = rest.substr(0, piece);
      rest.remove_prefix(next.size());
      allowed = limit.Allows(absl::MakeSpan(reinterpret_cast<const uint8_t*>(next.data()), next.size()));
    }
    EXPECT_EQ(allowed, allows) << "in pieces of " << piece;
  }
}

TEST(HelloLimitTest, AHelloOfSixteenKibibytesIsAllowedAndNoLongerOne) {
  const std::string body(HelloLimit::kHelloBytesMax, 'x');
  const std::string hello = Message(kClientHello, body.size()) + body;
  ExpectAllows(true, Record(kHandshake, hello.substr(0, 16000)) + Record(kHandshake, hello.substr(16000)));
  ExpectAllows(false, Record(kHandshake, Message(kClientHello, body.size() + 1)));
}

TEST(HelloLimitTest, AHeaderInTinyRecordsCountsToo) {
  std::string bytes;
  for (const char byte : Message(kClientHello, 131'396)) bytes += Record(kHandshake, {&byte, 1});
  ExpectAllows(false, bytes);
}

// After a HelloRetryRequest.
TEST(HelloLimitTest, TheSecondHelloHasTheSameLimit) {
  const std::string first = Record(kHandshake, Message(kClientHello, 100) + std::string(100, 'x'));
  const std::string between = Record(kChangeCipherSpec, {"\1", 1});
  ExpectAllows(true, first + between + first);
  ExpectAllows(false, first + between + Record(kHandshake, Message(kClientHello, 20'000)));
  ExpectAllows(false, Record(kHandshake, Message(kClientHello, 2) + "ab" + Message(kClientHello, 20'000)));
}

TEST(HelloLimitTest, WhatIsEncryptedIsNotLookedAt) {
  ExpectAllows(true, Record(kApplicationData, Message(kClientHello, 131'396)) +
                         Record(kHandshake, Message(kClientHello, 131'396)));
  ExpectAllows(true,
               Record(kHandshake, Message(11, 32'000)));  // Another message: OpenSSL has its own limits.
}

TEST(HelloLimitTest, EmptyRecordsArePassedOver) {
  ExpectAllows(false, Record(kHandshake, "") + Record(kHandshake, Message(kClientHello, 20'000)));
}

}  // namespace
}  // namespace hawser::tls
