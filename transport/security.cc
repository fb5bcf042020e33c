#include "hawser/transport/security.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::transport {

absl::Status CheckCarriesTls(const fabric::Fabric& fabric) {
  if (fabric.carries_tls()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "credentials ask for TLS, which ", fabric.scheme(),
      ":// of this runtime does not carry; use tcp://, or no credentials on a network that you trust"));
}

std::shared_ptr<const PeerIdentity> OrNotAuthenticated(std::shared_ptr<const PeerIdentity> identity) {
  // Never destroyed: connections may end after main() has returned.
  static const auto* const none =
      new std::shared_ptr<const PeerIdentity>(std::make_shared<const PeerIdentity>());
  return identity != nullptr ? std::move(identity) : *none;
}

}  // namespace hawser::transport
