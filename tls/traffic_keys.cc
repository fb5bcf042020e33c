#include "hawser/tls/traffic_keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <string>

namespace hawser::tls {
namespace {

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// HKDF-Expand-Label(secret, label, "", out.size()).
bool ExpandLabel(absl::Span<const uint8_t> secret, std::string digest, std::string label,
                 absl::Span<uint8_t> out) {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "TLS13-KDF", nullptr);
  EVP_KDF_CTX* const context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  if (context == nullptr) return false;
  int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
  std::string prefix = "tls13 ";
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<uint8_t*>(secret.data()),
                                        secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_PREFIX, prefix.data(), prefix.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_LABEL, label.data(), label.size()),
      OSSL_PARAM_construct_end()};
  const bool derived = EVP_KDF_derive(context, out.data(), out.size(), params) == 1;
  EVP_KDF_CTX_free(context);  // Wipes its copy of the secret.
  return derived;
}

}  // namespace

std::optional<Aead> AeadOf(uint16_t cipher_suite) {
  switch (cipher_suite) {
    case 0x1301:
      return Aead::kAes128Gcm;
    case 0x1302:
      return Aead::kAes256Gcm;
    case 0x1303:
      return Aead::kChaCha20Poly1305;
    default:
      return std::nullopt;
  }
}

bool KeyLasts(Aead aead) { return aead == Aead::kChaCha20Poly1305; }

void TrafficSecret::Set(absl::string_view hex) {
  Wipe();
  if (hex.size() != 64 && hex.size() != 96) return;
  for (size_t i = 0; i < hex.size() / 2; ++i) {
    const int high = DigitOf(hex[2 * i]), low = DigitOf(hex[2 * i + 1]);
    if (high < 0 || low < 0) return Wipe();
    bytes_[i] = static_cast<uint8_t>(high << 4 | low);
  }
  size_ = hex.size() / 2;
}

void TrafficSecret::Wipe() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
  size_ = 0;
}

TrafficKey::~TrafficKey() {
  OPENSSL_cleanse(key.data(), key.size());
  OPENSSL_cleanse(iv.data(), iv.size());
}

bool DeriveTrafficKey(const TrafficSecret& secret, Aead aead, TrafficKey* key) {
  const bool sha384 = aead == Aead::kAes256Gcm;
  if (secret.bytes().size() != (sha384 ? 48u : 32u)) return false;
  const char* const digest = sha384 ? "SHA384" : "SHA256";
  key->aead = aead;
  key->key_bytes = aead == Aead::kAes128Gcm ? 16 : 32;
  const bool derived =
      ExpandLabel(secret.bytes(), digest, "key", absl::MakeSpan(key->key.data(), key->key_bytes)) &&
      ExpandLabel(secret.bytes(), digest, "iv", absl::MakeSpan(key->iv));
  ERR_clear_error();
  return derived;
}

}  // namespace hawser::tls
