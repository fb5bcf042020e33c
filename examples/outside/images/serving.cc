#include "images/serving.h"

#include <iostream>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"

namespace images {
absl::Status ServeUntilStopped(hawser::Server& server, const std::string& uri, examples::StopSignal& stop) {
  absl::StatusOr<std::string> address = server.Listen(uri);
  if (!address.ok()) return address.status();
  std::cout << "listening on " << *address << std::endl;
  stop.Wait();
  absl::Status drained = server.Shutdown(absl::Now() + absl::Seconds(5));
  if (!drained.ok()) std::cerr << "while shutting down: " << drained << std::endl;
  return absl::OkStatus();
}

}  // namespace images
