#include "images/serving.h"

#include <pthread.h>
#include <signal.h>

#include <iostream>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"

namespace images {
namespace {

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void StopSignal::Wait() {
  const sigset_t signals = StopSignals();
  int signal;
  sigwait(&signals, &signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

absl::Status ServeUntilStopped(hawser::Server& server, const std::string& uri, StopSignal& stop) {
  absl::StatusOr<std::string> address = server.Listen(uri);
  if (!address.ok()) return address.status();
  std::cout << "listening on " << *address << std::endl;
  stop.Wait();
  absl::Status drained = server.Shutdown(absl::Now() + absl::Seconds(5));
  if (!drained.ok()) std::cerr << "while shutting down: " << drained << std::endl;
  return absl::OkStatus();
}

}  // namespace images
