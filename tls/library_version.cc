#include "hawser/tls/library_version.h"

#include <openssl/crypto.h>

namespace hawser::tls {

std::string OpenSslVersion() { return OpenSSL_version(OPENSSL_VERSION); }

}  // namespace hawser::tls
