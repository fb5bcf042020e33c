#ifndef HAWSER_TLS_SECRET_H_
#define HAWSER_TLS_SECRET_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace hawser::tls {

// What only the two ends of one TLS session know: exported from it (RFC 5705; RFC 8446, 7.5), or made of
// that.
using Secret = std::array<uint8_t, 32>;

// HMAC-SHA-256 of `message` (RFC 2104).
Secret HmacSha256(const Secret& key, absl::string_view message);

// Takes as long for any bytes of that length, so that its time reveals nothing of them.
bool EqualSecretly(absl::string_view a, absl::string_view b);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_SECRET_H_
