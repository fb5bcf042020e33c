#ifndef HAWSER_TLS_CREDENTIALS_H_
#define HAWSER_TLS_CREDENTIALS_H_

#include <string>

namespace hawser {

// What one side of TLS has: who it is, and whom it believes. With credentials a client and a server speak TLS 1.3 over
// TCP, and each shows the other a certificate (ChannelOptions::credentials, ServerOptions::credentials). There is no
// mode in which only the server shows one, and the system's authorities are not trusted unless `authorities` says so.
//
// Each of the three is the path of a PEM file. The files are read when the channel is created or the server listens, and
// again when one of them has changed: the next handshake then uses the new ones, and connections that are up stay up.
// If the new files cannot be used, the log says why, and the old ones stay in use until they can.
struct TlsCredentials {
  // The certificate of this side, then those of intermediate authorities, each issued by the next. It is used as a
  // client and as a server, so an extendedKeyUsage in it has to allow what it is used for.
  std::string certificate;
  // The private key of the first certificate, not encrypted: RSA, ECDSA or Ed25519.
  std::string key;
  // The authorities whose certificates this side accepts.
  std::string authorities;
  // For a client: the name that the server's certificate must have. A DNS name, an IP address, or a URI, which is
  // compared as it is ("spiffe://example.org/kv"). Empty: the host of the address that the client connects to.
  std::string server_name;
};

}  // namespace hawser

#endif  // HAWSER_TLS_CREDENTIALS_H_
