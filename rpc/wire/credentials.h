#ifndef HAWSER_RPC_WIRE_CREDENTIALS_H_
#define HAWSER_RPC_WIRE_CREDENTIALS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/tls/context.h"
#include "hawser/tls/credentials.h"

namespace hawser::internal {

// Reads the files of `credentials`, which `option` has ("ServerOptions::credentials"). The log says why
// files that have changed cannot be used. InvalidArgument: see tls::Context::Create() and, for a server,
// UseForServer(); the text names `option`.
// Thread: any.
absl::StatusOr<std::shared_ptr<tls::Context>> LoadCredentials(const TlsCredentials& credentials,
                                                              absl::string_view option, tls::Side side);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_CREDENTIALS_H_
