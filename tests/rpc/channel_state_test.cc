#include "hawser/rpc/client/channel_state.h"

#include <optional>

#include "gtest/gtest.h"

namespace hawser::internal {
namespace {

constexpr ChannelState kStates[] = {ChannelState::kConnecting, ChannelState::kReady,
                                    ChannelState::kTransientFailure, ChannelState::kClosed};
constexpr ChannelEvent kEvents[] = {ChannelEvent::kConnected, ChannelEvent::kAttemptFailed,
                                    ChannelEvent::kLost, ChannelEvent::kRetry, ChannelEvent::kClose};

// The same transitions, written as rules instead of a table.
std::optional<ChannelState> ByRules(ChannelState state, ChannelEvent event) {
  if (state == ChannelState::kClosed || event == ChannelEvent::kClose) return ChannelState::kClosed;
  const bool attempt_is_under_way = state == ChannelState::kConnecting;
  if (event == ChannelEvent::kConnected && attempt_is_under_way) return ChannelState::kReady;
  if (event == ChannelEvent::kAttemptFailed && attempt_is_under_way) return ChannelState::kTransientFailure;
  if (event == ChannelEvent::kLost && state == ChannelState::kReady) return ChannelState::kConnecting;
  if (event == ChannelEvent::kRetry && state == ChannelState::kTransientFailure)
    return ChannelState::kConnecting;
  return std::nullopt;
}

TEST(ChannelStateTest, EveryCellOfTheTableIsWhatTheRulesSay) {
  for (ChannelState state : kStates) {
    for (ChannelEvent event : kEvents) {
      EXPECT_EQ(NextState(state, event), ByRules(state, event))
          << ToString(state) << ", event " << static_cast<int>(event);
    }
  }
}

}  // namespace
}  // namespace hawser::internal
