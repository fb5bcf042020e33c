#ifndef EXAMPLES_KV_AUTHORIZE_H_
#define EXAMPLES_KV_AUTHORIZE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/server_context.h"

namespace kv {

// What ServerOptions::authorize of kv_server answers when `who` calls `method`. Everyone may call what is
// known to change nothing: the methods of KeyValue that only read, and the services that tell of the server
// (health, reflection, introspection). All else is for `writers`, DNS names or URIs of certificates: also a
// method or a service that is added later, until it is named here, and measuring (perf), which takes as much
// as the network carries.
// PermissionDenied: `who` is no writer.
absl::Status Authorize(const std::vector<std::string>& writers, const hawser::PeerIdentity& who,
                       const hawser::Method& method);

}  // namespace kv

#endif  // EXAMPLES_KV_AUTHORIZE_H_
