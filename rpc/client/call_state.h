#ifndef HAWSER_RPC_CLIENT_CALL_STATE_H_
#define HAWSER_RPC_CLIENT_CALL_STATE_H_

#include <cstdint>

// The states of a call at the client, as two tables: one for its way to the peer and back, one for the
// handover of the result from the poller to the caller. Only a bug here, or a caller that breaks call.h's
// rules, can lead to kImpossible.
namespace hawser::internal {

// Where a call is.
// Thread: on the poller.
struct CallStage {
  enum class State : uint8_t {
    kNew,        // Not yet arrived on the poller.
    kQueued,     // Waits for a connection or a slot.
    kSent,       // On a connection.
    kReturning,  // Will be sent again, once the fabric does not need the request any more.
    kCarried,    // Another connection of the channel carries it.
    kEnding,     // Has its result, which is handed over in the next turn.
    kEnded,
    kImpossible,
  };
  enum class Event : uint8_t {
    kQueue,         // It cannot be sent now.
    kSend,          // A connection has accepted it.
    kAwaitRequest,  // It was not run, or is idempotent: it will be sent again.
    kCarry,         // Another connection of the channel takes its request.
    kEndSoon,       // It has its result, and no callback may run now.
    kHandOver,      // The caller gets the result.
  };
  static State Next(State state, Event event);
};

inline CallStage::State CallStage::Next(State state, Event event) {
  constexpr State kQueued = State::kQueued, kSent = State::kSent, kReturning = State::kReturning,
                  kCarried = State::kCarried, kEnding = State::kEnding, kEnded = State::kEnded,
                  kNone = State::kImpossible;
  // By event first: the event is known where this is called, so the address of its row is a constant.
  // clang-format off
  static constexpr State kNext[6][7] = {
      //                  new       queued    sent        returning carried   ending  ended
      /* queue         */ {kQueued,  kQueued,  kNone,      kQueued,  kQueued,  kNone,  kNone},
      /* send          */ {kSent,    kSent,    kNone,      kSent,    kSent,    kNone,  kNone},
      /* await request */ {kNone,    kNone,    kReturning, kNone,    kNone,    kNone,  kNone},
      /* carry         */ {kCarried, kCarried, kNone,      kCarried, kCarried, kNone,  kNone},
      /* end soon      */ {kEnding,  kEnding,  kEnding,    kEnding,  kEnding,  kNone,  kNone},
      /* hand over     */ {kNone,    kNone,    kEnded,     kNone,    kEnded,   kEnded, kNone},
  };
  // clang-format on
  return kNext[static_cast<int>(event)][static_cast<int>(state)];
}

// Which of the two has come: the result, or the caller that asks for it.
// Thread: any. The second to come hands the result over.
struct Handover {
  enum class State : uint8_t {
    kNeither,
    kWaiter,
    kCallback,
    kResult,          // Alone, or handed over.
    kResultCallback,  // Both; the callback runs in the next turn.
    kGivenUp,         // The caller stopped waiting at the deadline. A result is dropped.
    kImpossible,
  };
  enum class Event : uint8_t {
    kWait,      // The caller waits, unless the result is there.
    kHook,      // It sets a callback.
    kUnhook,    // It withdraws the callback.
    kGiveUp,    // It stops waiting, unless the result is there.
    kResult,    // The result is there.
    kCallBack,  // The callback of a result that was there first may run now.
  };
  static State Next(State state, Event event);
};

inline Handover::State Handover::Next(State state, Event event) {
  constexpr State kNeither = State::kNeither, kWaiter = State::kWaiter, kCallback = State::kCallback,
                  kResult = State::kResult, kResultCallback = State::kResultCallback,
                  kGivenUp = State::kGivenUp, kNone = State::kImpossible;
  // If the result is there first, a caller that waits, or gives up, takes it, and the state stays. A callback
  // waits for the next turn.
  // clang-format off
  static constexpr State kNext[6][6] = {
      //                    wait     hook             unhook    give up   result   call back
      /* kNeither        */ {kWaiter, kCallback,       kNeither, kNone,    kResult, kNone},
      /* kWaiter         */ {kNone,   kNone,           kNone,    kGivenUp, kResult, kNone},
      /* kCallback       */ {kNone,   kNone,           kNeither, kNone,    kResult, kNone},
      /* kResult         */ {kResult, kResultCallback, kResult,  kResult,  kNone,   kResult},
      /* kResultCallback */ {kNone,   kNone,           kResult,  kNone,    kNone,   kResult},
      /* kGivenUp        */ {kNone,   kNone,           kNone,    kNone,    kResult, kNone},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_STATE_H_
