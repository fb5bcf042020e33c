#include "hawser/tls/traffic_keys.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace hawser::tls {
namespace {

std::string Hex(const uint8_t* bytes, size_t count) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), count});
}

// RFC 8448, 3, "Simple 1-RTT Handshake".
TEST(TrafficKeysTest, KeysAreThoseOfRfc8448) {
  TrafficSecret secret;
  TrafficKey key;
  secret.Set("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
  ASSERT_TRUE(DeriveTrafficKey(secret, Aead::kAes128Gcm, &key));
  EXPECT_EQ(Hex(key.key.data(), key.key_bytes), "17422dda596ed5d9acd890e3c63f5051");
  EXPECT_EQ(Hex(key.iv.data(), key.iv.size()), "5b78923dee08579033e523d9");
  secret.Set("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
  ASSERT_TRUE(DeriveTrafficKey(secret, Aead::kAes128Gcm, &key));
  EXPECT_EQ(Hex(key.key.data(), key.key_bytes), "9f02283b6c9c07efc26bb9f2ac92e356");
  EXPECT_EQ(Hex(key.iv.data(), key.iv.size()), "cf782b88dd83549aadf1e984");
}

TEST(TrafficKeysTest, ASecretOfAnotherHashMakesNoKey) {
  TrafficSecret secret;
  TrafficKey key;
  EXPECT_FALSE(DeriveTrafficKey(secret, Aead::kAes128Gcm, &key));
  secret.Set(std::string(64, 'a'));
  EXPECT_TRUE(DeriveTrafficKey(secret, Aead::kChaCha20Poly1305, &key));
  EXPECT_FALSE(DeriveTrafficKey(secret, Aead::kAes256Gcm, &key));
  secret.Set(std::string(96, 'a'));
  EXPECT_TRUE(DeriveTrafficKey(secret, Aead::kAes256Gcm, &key));
  EXPECT_FALSE(DeriveTrafficKey(secret, Aead::kAes128Gcm, &key));
}

TEST(TrafficKeysTest, WhatIsNoSecretIsNotKept) {
  TrafficSecret secret;
  for (const std::string& hex :
       {std::string(), std::string(62, 'a'), std::string(66, 'a'), std::string(64, 'x')}) {
    secret.Set(std::string(64, 'a'));
    EXPECT_FALSE(secret.empty());
    secret.Set(hex);
    EXPECT_TRUE(secret.empty()) << hex;
  }
}

}  // namespace
}  // namespace hawser::tls
