#include "hawser/transport/poller/poller_stats.h"

#include "absl/strings/str_cat.h"

namespace hawser::transport {
namespace {

std::string ToString(const PollerStats::Messages& messages) {
  return absl::StrCat(messages.whole, " whole, ", messages.pushed, " pushed, ", messages.read, " by READ");
}

std::string HowItWaits(const PollerStats& stats) {
  switch (stats.mode) {
    case PollingMode::kSpin:
      return "spins";
    case PollingMode::kSleep:
      return "does not spin";
    case PollingMode::kAdaptive:
      break;
  }
  return absl::StrCat("spins for ", absl::FormatDuration(stats.spin_now), ": ", stats.spins_paid,
                      " spins paid, ", stats.spins_in_vain, " were in vain, ", stats.crowded,
                      " times other programs needed the core");
}

}  // namespace

std::string ToString(const PollerStats& stats) {
  return absl::StrCat(HowItWaits(stats), "; slept ", stats.sleeps,
                      " times; turns with work: ", stats.turns_of_waiting_threads,
                      " of threads that waited, ", stats.turns_of_own_thread, " of its own thread; sent ",
                      ToString(stats.sent), "; received ", ToString(stats.received));
}

}  // namespace hawser::transport
