// The fabric contract over TCP, and over TLS.

#include <netinet/in.h>

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tls_fabric.h"
#include "hawser/transport/fabric/tcp/fabric.h"

namespace hawser::fabric {
namespace {

SocketAddress Loopback(int family) {
  if (family == AF_INET6) {
    sockaddr_in6 v6 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    return SocketAddress(reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
  }
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
}

// Long enough for a machine under load to post a receive in between.
std::shared_ptr<Fabric> NewTcpFabric() { return CreateTcpFabric({.rnr_timeout = absl::Milliseconds(300)}); }

// The least that the kernel gives for sending, so that every larger frame is cut somewhere. Receiving with
// less than loopback's segments of 64 KiB would only wait for TCP's timers.
std::shared_ptr<Fabric> NewTcpFabricWithTinyBuffers() {
  return CreateTcpFabric(
      {.rnr_timeout = absl::Milliseconds(300), .send_buffer_bytes = 1, .receive_buffer_bytes = 65536});
}

std::shared_ptr<Fabric> NewTlsFabric() {
  return std::make_shared<TlsFabric>(CreateTcpFabric({.rnr_timeout = absl::Milliseconds(300)}));
}

// With room for two records. With less, a record of 16 KiB is less than one of loopback's segments, and the
// socket stays full until the peer's delayed acknowledgement.
std::shared_ptr<Fabric> NewTlsFabricWithTinyBuffers() {
  return std::make_shared<TlsFabric>(CreateTcpFabric(
      {.rnr_timeout = absl::Milliseconds(300), .send_buffer_bytes = 32768, .receive_buffer_bytes = 65536}));
}

// Each side changes its key with every third record that it sends.
std::shared_ptr<Fabric> NewTlsFabricWithShortLivedKeys() {
  return std::make_shared<TlsFabric>(
      CreateTcpFabric({.rnr_timeout = absl::Milliseconds(300), .tls_key_records_max = 3}));
}

}  // namespace

std::vector<FabricUnderTest> FabricsUnderTest() {
  std::vector<FabricUnderTest> all = {
      {"Tcp",
       NewTcpFabric,
       Loopback(AF_INET),
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"TcpOverIpv6",
       NewTcpFabric,
       Loopback(AF_INET6),
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"TcpWithTinyBuffers",
       NewTcpFabricWithTinyBuffers,
       Loopback(AF_INET),
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"Tls",
       NewTlsFabric,
       Loopback(AF_INET),
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"TlsWithTinyBuffers",
       NewTlsFabricWithTinyBuffers,
       Loopback(AF_INET),
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
      {"TlsWithShortLivedKeys",
       NewTlsFabricWithShortLivedKeys,
       Loopback(AF_INET),
       {},
       /*pushes=*/true,
       /*sends_can_wait=*/true,
       /*posts_inline=*/true,
       /*offers_sends=*/true},
  };
  for (FabricUnderTest& one : all) one.atomics = true;
  return all;
}

}  // namespace hawser::fabric
