#include "hawser/transport/uri.h"

#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hawser::transport {
namespace {

absl::Status Wrong(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not an address: ", what,
                                                 "; say scheme://host:port, as in tcp://kv1:7470 or "
                                                 "tcp://[::1]:7470. The schemes are: ",
                                                 kSchemes));
}

constexpr absl::string_view kEveryAddress =
    "; to listen on every address of this machine, say [::] or 0.0.0.0";

}  // namespace

std::string Uri::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat(scheme, "://[", host, "]:", port) : absl::StrCat(scheme, "://", host, ":", port);
}

absl::StatusOr<Uri> ParseUri(absl::string_view text) {
  // The resolver takes a C string, so it would look up another name than the reported one.
  if (text.find('\0') != absl::string_view::npos) return Wrong(text, "it has a zero byte in it");
  const size_t colon = text.find("://");
  if (colon == absl::string_view::npos || colon == 0) return Wrong(text, "it names no scheme");
  Uri uri;
  uri.scheme = std::string(text.substr(0, colon));
  absl::string_view rest = text.substr(colon + 3);
  if (!rest.empty() && rest[0] == '[') {
    const size_t end = rest.find(']');
    if (end == absl::string_view::npos) return Wrong(text, "the [ of its IPv6 address is not closed");
    uri.host = std::string(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
    if (uri.host.find(':') == std::string::npos) return Wrong(text, "what is in [ ] is no IPv6 address");
  } else {
    const size_t end = rest.find(':');
    if (end == absl::string_view::npos) return Wrong(text, "it names no port");
    uri.host = std::string(rest.substr(0, end));
    rest.remove_prefix(end);
    if (rest.find(':', 1) != absl::string_view::npos) return Wrong(text, "an IPv6 address needs [ ]");
  }
  if (uri.host.empty()) return Wrong(text, absl::StrCat("it names no host", kEveryAddress));
  // For the resolver of glibc it is loopback, which is the contrary of what it is written for.
  if (uri.host == "*") return Wrong(text, absl::StrCat("\"*\" is no host", kEveryAddress));
  if (rest.empty() || rest[0] != ':') return Wrong(text, "it names no port");
  rest.remove_prefix(1);
  uint32_t port;
  const bool digits = rest.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(rest, &port) || port > 65535) {
    return Wrong(text, absl::StrCat("\"", rest, "\" is no port (0 to 65535)"));
  }
  uri.port = static_cast<uint16_t>(port);
  return uri;
}

absl::StatusOr<SocketAddress> ParseNumericHost(absl::string_view host) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  // getaddrinfo() would read the host only up to a zero byte.
  if (host.empty() || host.find('\0') != absl::string_view::npos ||
      getaddrinfo(std::string(host).c_str(), "0", &hints, &found) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", host, "\" is no IPv4 or IPv6 address; say 10.0.0.1 or fd00::1"));
  }
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> guard(found, freeaddrinfo);
  return SocketAddress(found->ai_addr, found->ai_addrlen);
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const Uri& uri) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(uri.host.c_str(), absl::StrCat(uri.port).c_str(), &hints, &found);
  if (error != 0) {
    const std::string text = absl::StrCat("getaddrinfo(", uri.host,
                                          "): ", error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    if (error == EAI_AGAIN) {
      return absl::UnavailableError(
          absl::StrCat(text, "; the name server does not answer, or the name is unknown"));
    }
    return absl::NotFoundError(absl::StrCat(text, "; check the name, /etc/hosts and the name server"));
  }
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> guard(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    addresses.emplace_back(info->ai_addr, info->ai_addrlen);
  }
  if (addresses.empty()) return absl::NotFoundError(absl::StrCat(uri.host, " has no IPv4 or IPv6 address"));
  return addresses;
}

}  // namespace hawser::transport
