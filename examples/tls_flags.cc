#include "examples/tls_flags.h"

namespace examples {

void TlsFlags::AddTo(FlagSet& flags) {
  flags.Text("tls_certificate", &credentials_.certificate);
  flags.Text("tls_key", &credentials_.key);
  flags.Text("tls_authorities", &credentials_.authorities);
}

void TlsFlags::AddForClientTo(FlagSet& flags) {
  AddTo(flags);
  flags.Text("tls_server_name", &credentials_.server_name);
}

absl::StatusOr<std::optional<hawser::TlsCredentials>> TlsFlags::Credentials() const {
  const int given =
      !credentials_.certificate.empty() + !credentials_.key.empty() + !credentials_.authorities.empty();
  if (given == 0 && credentials_.server_name.empty()) return std::nullopt;
  if (given == 3) return credentials_;
  return absl::InvalidArgumentError("TLS needs all of --tls_certificate, --tls_key and --tls_authorities");
}

}  // namespace examples
