#ifndef EXAMPLES_TLS_FLAGS_H_
#define EXAMPLES_TLS_FLAGS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "examples/arguments.h"
#include "hawser/rpc/options.h"

namespace examples {

// The flags with which a server or a client authenticates itself and its peers, and over TCP encrypts what
// crosses.
class TlsFlags {
 public:
  // `flags` keeps pointers into this object, which must outlive FlagSet::Apply().
  void AddTo(FlagSet& flags);
  // Those of a client, which may expect another name of the server than the host that it connects to.
  void AddForClientTo(FlagSet& flags);

  // nullopt: no TLS. InvalidArgument: one of the three files is missing.
  absl::StatusOr<std::optional<hawser::TlsCredentials>> Credentials() const;

 private:
  hawser::TlsCredentials credentials_;
};

}  // namespace examples

#endif  // EXAMPLES_TLS_FLAGS_H_
