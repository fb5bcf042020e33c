#include "hawser/rpc/client/channel_state.h"

namespace hawser {
namespace internal {
namespace {

constexpr ChannelState kConnecting = ChannelState::kConnecting, kReady = ChannelState::kReady,
                       kTransientFailure = ChannelState::kTransientFailure, kClosed = ChannelState::kClosed;
constexpr std::nullopt_t kNever = std::nullopt;

// A channel that loses its connection is connecting, not failing: a new call waits for the result of the next
// attempt. A closed channel ignores late events.
// clang-format off
constexpr std::optional<ChannelState> kNext[4][5] = {
    //                      connected  attempt failed      lost         retry        close
    /* kConnecting */       {kReady,   kTransientFailure,  kNever,      kNever,      kClosed},
    /* kReady */            {kNever,   kNever,             kConnecting, kNever,      kClosed},
    /* kTransientFailure */ {kNever,   kNever,             kNever,      kConnecting, kClosed},
    /* kClosed */           {kClosed,  kClosed,            kClosed,     kClosed,     kClosed},
};
// clang-format on

}  // namespace

std::optional<ChannelState> NextState(ChannelState state, ChannelEvent event) {
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace internal

absl::string_view ToString(ChannelState state) {
  switch (state) {
    case ChannelState::kConnecting:
      return "connecting";
    case ChannelState::kReady:
      return "ready";
    case ChannelState::kTransientFailure:
      return "transient failure";
    case ChannelState::kClosed:
      return "closed";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, ChannelState state) { return out << ToString(state); }

}  // namespace hawser
