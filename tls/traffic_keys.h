#ifndef HAWSER_TLS_TRAFFIC_KEYS_H_
#define HAWSER_TLS_TRAFFIC_KEYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// What protects the records of one direction, for a record layer other than OpenSSL's.
namespace hawser::tls {

// The ciphers of TLS 1.3 that Hawser speaks.
enum class Aead : uint8_t { kAes128Gcm, kAes256Gcm, kChaCha20Poly1305 };

// The AEAD of a cipher suite (RFC 8446, B.4).
std::optional<Aead> AeadOf(uint16_t cipher_suite);
// Whether a key protects as many records as a connection can have. AES-GCM's does not (RFC 8446, 5.5).
bool KeyLasts(Aead aead);

// The secret of one direction, client_ or server_application_traffic_secret_0 (RFC 8446, 7.1). Its memory is
// wiped.
class TrafficSecret {
 public:
  TrafficSecret() = default;
  ~TrafficSecret() { Wipe(); }
  TrafficSecret(const TrafficSecret&) = delete;
  TrafficSecret& operator=(const TrafficSecret&) = delete;

  // In hexadecimal. What is no secret of SHA-256 or SHA-384 leaves it empty.
  void Set(absl::string_view hex);
  void Wipe();
  bool empty() const { return size_ == 0; }
  absl::Span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }

 private:
  std::array<uint8_t, 48> bytes_ = {};
  size_t size_ = 0;
};

// Its memory is wiped.
struct TrafficKey {
  TrafficKey() = default;
  ~TrafficKey();
  TrafficKey(const TrafficKey&) = delete;
  TrafficKey& operator=(const TrafficKey&) = delete;

  Aead aead = Aead::kAes128Gcm;
  size_t key_bytes = 0;
  std::array<uint8_t, 32> key = {};
  std::array<uint8_t, 12> iv = {};
};

// By RFC 8446, 7.3. False: the secret is not of the cipher's hash, or OpenSSL has failed.
bool DeriveTrafficKey(const TrafficSecret& secret, Aead aead, TrafficKey* key);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_TRAFFIC_KEYS_H_
