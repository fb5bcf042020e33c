#include "hawser/transport/clock/environment.h"

#include <errno.h>
#include <sys/random.h>

#include <random>

#include "absl/time/clock.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

int64_t Environment::NowNs() { return fabric::MonotonicNs(); }

absl::Time Environment::Now() { return absl::Now(); }

void Environment::FillRandom(absl::Span<uint8_t> bytes) {
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n = getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (n > 0) {
      filled += static_cast<size_t>(n);
    } else if (errno != EINTR) {  // A kernel without getrandom(2): random_device reads /dev/urandom.
      std::random_device device;
      for (; filled < bytes.size(); ++filled) bytes[filled] = static_cast<uint8_t>(device());
    }
  }
}

bool Environment::Await(absl::Mutex& mutex, absl::CondVar& changed, absl::FunctionRef<bool()> condition,
                        absl::Time deadline) {
  bool late = false;
  while (!condition() && !late) late = changed.WaitWithDeadline(&mutex, deadline);
  return condition();
}

Environment& Environment::Real() {
  // Never destroyed: pollers run until the process ends, which is after the destructors of statics.
  static Environment* const environment = new Environment;
  return *environment;
}

}  // namespace hawser::transport
