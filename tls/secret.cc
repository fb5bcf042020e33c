#include "hawser/tls/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "hawser/base/check.h"

namespace hawser::tls {

Secret HmacSha256(const Secret& key, absl::string_view message) {
  Secret result;
  unsigned int bytes = 0;
  const unsigned char* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), result.data(), &bytes);
  HAWSER_CHECK(done != nullptr && bytes == result.size(), "HMAC-SHA-256 made ", bytes, " bytes");
  return result;
}

bool EqualSecretly(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace hawser::tls
