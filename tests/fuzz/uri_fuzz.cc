// Addresses as text: ParseUri() and ParseNumericHost(). They come from users, and from configuration that
// others write.
#include <sys/socket.h>

#include "absl/status/status.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/uri.h"

namespace hawser::fuzz {
namespace {

void CheckUri(absl::string_view text) {
  const absl::StatusOr<transport::Uri> uri = transport::ParseUri(text);
  if (!uri.ok()) {
    FUZZ_EXPECT(absl::IsInvalidArgument(uri.status()), uri.status().ToString());
    return;
  }
  FUZZ_EXPECT(!uri->scheme.empty() && !uri->host.empty());
  // The resolver takes C strings, and must not be given another name than the one that was checked.
  FUZZ_EXPECT(uri->host.find('\0') == std::string::npos, "a host with a zero in it");
  const absl::StatusOr<transport::Uri> again = transport::ParseUri(uri->ToString());
  FUZZ_EXPECT(again.ok(), uri->ToString());
  FUZZ_EXPECT(again->scheme == uri->scheme && again->host == uri->host && again->port == uri->port,
              uri->ToString());
}

void CheckNumericHost(absl::string_view text) {
  const absl::StatusOr<SocketAddress> address = transport::ParseNumericHost(text);
  if (!address.ok()) {
    FUZZ_EXPECT(absl::IsInvalidArgument(address.status()), address.status().ToString());
    return;
  }
  FUZZ_EXPECT(address->family() == AF_INET || address->family() == AF_INET6);
  FUZZ_EXPECT(address->port() == 0);
  FUZZ_EXPECT(text.find('\0') == absl::string_view::npos, "a host with a zero in it");
  // What an address is called, with a port, is a URI; and the host in that is the same address.
  const absl::StatusOr<transport::Uri> uri = transport::ParseUri("tcp://" + address->ToString());
  FUZZ_EXPECT(uri.ok(), address->ToString());
  const absl::StatusOr<SocketAddress> again = transport::ParseNumericHost(uri->host);
  FUZZ_EXPECT(again.ok() && again->ToString() == address->ToString(), address->ToString());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  return {{"name", "tcp://kv1:7470"},        {"ipv4", "rdma://10.0.0.1:7470"}, {"ipv6", "auto://[fd00::1]:0"},
          {"scope", "tcp://[fe80::1%lo]:1"}, {"number", "10.0.0.1"},           {"number6", "fd00::1"},
          {"scoped", "fe80::1%lo"},          {"port", "tcp://kv1:65536"},      {"open", "tcp://[::1:7470"}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hawser::fuzz::ExactCopy text({reinterpret_cast<const char*>(data), size});
  hawser::fuzz::CheckUri(text.view());
  hawser::fuzz::CheckNumericHost(text.view());
  return 0;
}
