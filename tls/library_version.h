#ifndef HAWSER_TLS_LIBRARY_VERSION_H_
#define HAWSER_TLS_LIBRARY_VERSION_H_

#include <string>

namespace hawser::tls {

// The OpenSSL that this process runs with, as it names itself: "OpenSSL 3.0.11 19 Sep 2023".
std::string OpenSslVersion();

}  // namespace hawser::tls

#endif  // HAWSER_TLS_LIBRARY_VERSION_H_
