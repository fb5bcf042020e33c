#include "hawser/base/socket_address.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace hawser {
namespace {

// The bytes of an address of this family, which are copied and compared. 0: another than IPv4 and IPv6, of
// which nothing is known.
socklen_t LengthOfFamily(int family) {
  switch (family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    default:
      return 0;
  }
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length_bytes) {
  const socklen_t needed = LengthOfFamily(address->sa_family);
  if (needed == 0 || length_bytes < needed) return;  // AF_UNSPEC: the caller finds no address in it.
  std::memcpy(&storage_, address, needed);
  if (family() == AF_INET6) UnmapIpv4();
}

void SocketAddress::UnmapIpv4() {
  const sockaddr_in6 v6 = reinterpret_cast<const sockaddr_in6&>(storage_);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return;
  storage_ = {};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage_);
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof(v4.sin_addr));
}

bool SocketAddress::is_unspecified() const {
  switch (family()) {
    case AF_INET:
      return reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr == htonl(INADDR_ANY);
    case AF_INET6:
      return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
    default:
      return false;
  }
}

bool SocketAddress::is_loopback() const {
  switch (family()) {
    case AF_INET:
      return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    case AF_INET6:
      return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
    default:
      return false;
  }
}

socklen_t SocketAddress::length_bytes() const { return LengthOfFamily(family()); }

uint16_t SocketAddress::port() const {
  switch (family()) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
    default:
      return 0;
  }
}

void SocketAddress::set_port(uint16_t port) {
  switch (family()) {
    case AF_INET:
      reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
      break;
    case AF_INET6:
      reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = htons(port);
      break;
    default:
      break;
  }
}

std::string SocketAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  switch (family()) {
    case AF_INET:
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr, text, sizeof(text));
      return absl::StrCat(text, ":", port());
    case AF_INET6: {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage_);
      inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
      if (v6.sin6_scope_id == 0) return absl::StrCat("[", text, "]:", port());
      return absl::StrCat("[", text, "%", v6.sin6_scope_id, "]:", port());
    }
    default:
      return "no address";
  }
}

}  // namespace hawser
