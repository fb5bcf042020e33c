#ifndef EXAMPLES_TLS_FLAGS_H_
#define EXAMPLES_TLS_FLAGS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "examples/arguments.h"
#include "hawser/rpc/options.h"

namespace examples {

// The flags with which a server or a client authenticates itself and its peers, and encrypts what crosses.
class TlsFlags {
 public:
  // Three lines, for a program's usage.
  static constexpr char kUsage[] =
      "  --tls_certificate, --tls_key, --tls_authorities\n"
      "               PEM files: who this side is, and the authorities of those that it talks to; all three\n"
      "               together: TLS, and both sides show a certificate";

  // Of an object that lives until they are applied.
  void AddTo(FlagSet& flags);

  // nullopt: no TLS. InvalidArgument: one of the three is missing.
  absl::StatusOr<std::optional<hawser::TlsCredentials>> Credentials() const;

 private:
  hawser::TlsCredentials credentials_;
};

}  // namespace examples

#endif  // EXAMPLES_TLS_FLAGS_H_
