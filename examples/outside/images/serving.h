#ifndef IMAGES_SERVING_H_
#define IMAGES_SERVING_H_

#include <string>

#include "absl/status/status.h"
#include "hawser/rpc/server.h"

namespace images {

// SIGTERM and SIGINT as something to wait for: a signal handler may call next to nothing, certainly not
// Server::Shutdown(), but a thread that waited may call everything.
// Lifetime: make it before any thread is started, so that no other thread gets the signals.
class StopSignal {
 public:
  StopSignal();

  // Blocks until one of them comes. The next one ends the process, so one that hangs can be ended.
  void Wait();
};

// Listens on `uri`, prints "listening on URI" with the real port, and serves until `stop`. Then new calls are
// refused, and those that run have 5 s to end. Not OK: it could not listen, and why.
absl::Status ServeUntilStopped(hawser::Server& server, const std::string& uri, StopSignal& stop);

}  // namespace images

#endif  // IMAGES_SERVING_H_
