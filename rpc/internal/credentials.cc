#include "hawser/rpc/internal/credentials.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/log.h"

namespace hawser::internal {

// Contexts of the same credentials are shared, so the line of the log does not name `option`.
absl::StatusOr<std::shared_ptr<tls::Context>> LoadCredentials(const TlsCredentials& credentials,
                                                              absl::string_view option) {
  absl::StatusOr<std::shared_ptr<tls::Context>> context =
      tls::Context::Create(credentials, [](const absl::Status& why) {
        transport::Log(LogSeverity::kWarning,
                       absl::StrCat("TLS goes on with the credentials that it has read before: ",
                                    absl::string_view(why.message())));
      });
  if (context.ok()) return context;
  return absl::Status(context.status().code(),
                      absl::StrCat(option, ": ", absl::string_view(context.status().message())));
}

}  // namespace hawser::internal
