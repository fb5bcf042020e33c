#ifndef IMAGES_SERVING_H_
#define IMAGES_SERVING_H_

#include <string>

#include "absl/status/status.h"
#include "examples/stop_signal.h"
#include "hawser/rpc/server.h"

namespace images {

// Listens on `uri`, prints "listening on URI" with the real port, and serves until `stop`. Then it refuses
// new calls, and running calls have 5 s to end. Not OK: it could not listen.
absl::Status ServeUntilStopped(hawser::Server& server, const std::string& uri, examples::StopSignal& stop);

}  // namespace images

#endif  // IMAGES_SERVING_H_
