#ifndef HAWSER_BENCH_BARE_TLS_H_
#define HAWSER_BENCH_BARE_TLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hawser/tls/credentials.h"

struct ssl_ctx_st;
struct ssl_st;

// The floors of TLS: OpenSSL on a blocking socket, with nothing in between. Both sides show a certificate and
// accept that of the other, as those of Hawser do; the cipher is the same.
namespace hawser::bench {

// Listens on `host`, an IPv4 address, prints where, then serves one connection after the other until it is
// killed. A client sends, repeatedly, two numbers of 8 bytes: how many bytes follow, and how many it gets
// back.
[[noreturn]] void ServeBareTls(const TlsCredentials& credentials, const std::string& host);

// Clients of one server. An error ends the process.
class BareTlsClients {
 public:
  // `address`: "127.0.0.1:PORT".
  BareTlsClients(const TlsCredentials& credentials, std::string address);
  ~BareTlsClients();
  BareTlsClients(const BareTlsClients&) = delete;
  BareTlsClients& operator=(const BareTlsClients&) = delete;

  // Bytes a second of `count` transfers of `memory.size()` on a new connection, one after the other without a
  // pause.
  double StreamInto(std::vector<uint8_t>& memory, int count);
  double StreamFrom(std::vector<uint8_t>& memory, int count);

  // Microseconds of each of `count` new connections: connect, handshake, some bytes each way. `resume`: with
  // a ticket of the connection before, which there is.
  std::vector<double> ConnectUs(int count, bool resume);

  // "TLS_AES_128_GCM_SHA256"
  std::string Cipher();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_BARE_TLS_H_
