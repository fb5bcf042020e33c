#ifndef HAWSER_RPC_INTERNAL_CALL_STATE_H_
#define HAWSER_RPC_INTERNAL_CALL_STATE_H_

#include <cstdint>

// What a call goes through at the client, as two tables: one for what is done with it, one for the result's
// way from the poller to the caller. kImpossible is what only a bug of ours, or a caller that breaks call.h's
// rules, could cause.
namespace hawser::internal {

// Where a call is.
// Thread: on the poller.
struct CallStage {
  enum class State : uint8_t {
    kNew,        // Not yet arrived on the poller.
    kQueued,     // Waits for a connection or a slot.
    kSent,       // On a connection.
    kReturning,  // Is sent again once the fabric needs the request no more.
    kEnding,     // Its result is there; handed over in the next turn.
    kEnded,
    kImpossible,
  };
  enum class Event : uint8_t {
    kQueue,         // It cannot be sent now.
    kSend,          // It was given to a connection.
    kAwaitRequest,  // It was not run, or is idempotent: it will be sent again.
    kEndSoon,       // The result is there, and no callback may run now.
    kHandOver,      // The result is the caller's.
  };
  static State Next(State state, Event event);
};

inline CallStage::State CallStage::Next(State state, Event event) {
  constexpr State kQueued = State::kQueued, kSent = State::kSent, kReturning = State::kReturning,
                  kEnding = State::kEnding, kEnded = State::kEnded, kNone = State::kImpossible;
  // clang-format off
  static constexpr State kNext[6][5] = {
      //               queue    send   take back   end soon  hand over
      /* kNew       */ {kQueued, kSent, kNone,      kEnding,  kNone},
      /* kQueued    */ {kQueued, kSent, kNone,      kEnding,  kNone},
      /* kSent      */ {kNone,   kNone, kReturning, kEnding,  kEnded},
      /* kReturning */ {kQueued, kSent, kNone,      kEnding,  kNone},
      /* kEnding    */ {kNone,   kNone, kNone,      kNone,    kEnded},
      /* kEnded     */ {kNone,   kNone, kNone,      kNone,    kNone},
  };
  // clang-format on
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

// Which of the result and the caller that asks for it has come.
// Thread: any. The one that comes second hands the result over.
struct Handover {
  enum class State : uint8_t {
    kNeither,
    kWaiter,
    kCallback,
    kResult,          // Alone, or handed over.
    kResultCallback,  // Both; the callback runs in the next turn.
    kGivenUp,         // The caller has waited until the deadline, and no longer. A result is dropped.
    kImpossible,
  };
  enum class Event : uint8_t {
    kWait,      // The caller waits, unless the result is there.
    kHook,      // It has given a callback.
    kUnhook,    // It withdraws the callback.
    kGiveUp,    // It waits no longer, unless the result is there.
    kResult,    // The result is there.
    kCallBack,  // The callback of a result that was there first may run now.
  };
  static State Next(State state, Event event);
};

inline Handover::State Handover::Next(State state, Event event) {
  constexpr State kNeither = State::kNeither, kWaiter = State::kWaiter, kCallback = State::kCallback,
                  kResult = State::kResult, kResultCallback = State::kResultCallback,
                  kGivenUp = State::kGivenUp, kNone = State::kImpossible;
  // Where the result is there first, a caller that waits, or gives up, takes it, and the state stays; a
  // callback waits for the next turn.
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

#endif  // HAWSER_RPC_INTERNAL_CALL_STATE_H_
