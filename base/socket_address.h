#ifndef HAWSER_BASE_SOCKET_ADDRESS_H_
#define HAWSER_BASE_SOCKET_ADDRESS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace hawser {

// A numeric IPv4 or IPv6 address and a port: what every fabric connects to and listens on (rdma_cm uses the
// same). A value: copy it freely, from any thread. Names are resolved above the fabric, see transport/uri.h.
class SocketAddress {
 public:
  // Family AF_UNSPEC: no address.
  SocketAddress() = default;

  // `address` must be AF_INET or AF_INET6 and at least as long as its family needs. An IPv4-mapped IPv6
  // address (::ffff:10.0.0.1), as a socket of both families calls an IPv4 peer, becomes the IPv4 address.
  SocketAddress(const sockaddr* address, socklen_t length_bytes);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length_bytes() const;
  int family() const { return storage_.ss_family; }

  // 0.0.0.0 or [::]: every address of this machine.
  bool is_unspecified() const;

  // 127.0.0.0/8 or [::1]: only this machine reaches it.
  bool is_loopback() const;

  // Host byte order; 0 when a listener has yet to be given one.
  uint16_t port() const;
  void set_port(uint16_t port);

  // "10.0.0.1:7470" or "[fe80::1%2]:7470".
  std::string ToString() const;

 private:
  void UnmapIpv4();

  sockaddr_storage storage_ = {};
};

}  // namespace hawser

#endif  // HAWSER_BASE_SOCKET_ADDRESS_H_
