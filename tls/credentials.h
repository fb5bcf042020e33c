#ifndef HAWSER_TLS_CREDENTIALS_H_
#define HAWSER_TLS_CREDENTIALS_H_

#include <string>

namespace hawser {

// The identity of one side of TLS, and the authorities that it trusts. With credentials a client and a server
// speak TLS 1.3 over TCP, over RDMA they prove each connection by such a session, and each shows the other a
// certificate (ChannelOptions::credentials, ServerOptions::credentials). There is no mode in which only the
// server shows one, and the system's authorities are not trusted unless `authorities` names them.
//
// Each of the three is the path of a PEM file of at most 4 MiB. A pipe or a device is refused: it could keep
// the program waiting. They are read when the first channel or server of the process uses these credentials,
// and again when one of them has changed: a handshake looks, once a second at most, on the thread that makes
// the connection, which may be a poller's, so keep them on a local disk. Connections that are up stay up. If
// the new files cannot be used, the log says why, and the old ones stay in use, for new channels and servers
// too.
struct TlsCredentials {
  // The certificate of this side, then those of intermediate authorities, each issued by the next. It is used
  // as a client and as a server, so an extendedKeyUsage in it has to allow what it is used for.
  std::string certificate = {};
  // The private key of the first certificate, not encrypted: RSA, ECDSA or Ed25519.
  std::string key = {};
  // The certificates of the authorities that this side trusts: roots. A peer's certificate must lead to one
  // of them, through the intermediate authorities that it sends along.
  std::string authorities = {};
  // For a client: the name that the server's certificate must have. A DNS name, an IP address, or a URI,
  // which is compared as it is ("spiffe://example.org/kv"). Empty: the host of the address that the client
  // connects to.
  std::string server_name = {};
  // True: this side connects, or listens, only where all that crosses is encrypted, and so never over RDMA,
  // where credentials say who connects and the network reads along: rdma:// is InvalidArgument, and auto://
  // takes TCP.
  bool require_encryption = false;
};

}  // namespace hawser

#endif  // HAWSER_TLS_CREDENTIALS_H_
