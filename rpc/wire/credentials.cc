#include "hawser/rpc/wire/credentials.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/log/log.h"

namespace hawser::internal {

// Contexts of the same credentials are shared, so the line of the log does not name `option`.
absl::StatusOr<std::shared_ptr<tls::Context>> LoadCredentials(const TlsCredentials& credentials,
                                                              absl::string_view option, tls::Side side) {
  absl::StatusOr<std::shared_ptr<tls::Context>> context =
      tls::Context::Create(credentials, [](const absl::Status& why) {
        transport::Log(LogSeverity::kWarning,
                       absl::StrCat("TLS goes on with the credentials that it has read before: ",
                                    absl::string_view(why.message())));
      });
  absl::Status status = context.status();
  if (status.ok() && side == tls::Side::kServer) status = (*context)->UseForServer();
  if (status.ok()) return context;
  return absl::Status(status.code(), absl::StrCat(option, ": ", absl::string_view(status.message())));
}

}  // namespace hawser::internal
