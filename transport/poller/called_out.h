#ifndef HAWSER_TRANSPORT_POLLER_CALLED_OUT_H_
#define HAWSER_TRANSPORT_POLLER_CALLED_OUT_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace hawser::transport {

// A kind of code of the application that a poller calls. Static storage.
struct CalledCode {
  const char* name = nullptr;  // Before whose it is: "the callback of".
  // What its author can do if it holds the poller.
  const char* remedy = "do on another thread what takes long";
};

// An exchange that this process answers: "12:3.17".
struct CallId {
  uint64_t connection = 0;  // Its number in this process, from 1 on. 0: no call.
  uint16_t slot = 0;
  uint32_t generation = 0;
};
std::string ToString(const CallId& id);

// The code of the application that a poller calls now, or called last.
// Thread:   the thread on the poller writes; any thread reads Now(). No locks: a call costs a few stores.
// Lifetime: the strings are static.
class CalledOut {
 public:
  struct Call {
    const CalledCode* what = nullptr;  // Null: there is none.
    const char* whose = nullptr;       // The name of a request, for example.
    // The start of the turn that the call is part of, on the poller's clock. Calls of one turn together hold
    // the poller as one would.
    int64_t since_ns = 0;
    CallId id;  // Of what answers a request.
  };

  // ---- On the poller.

  // A turn of the thread that drives.
  void StartTurn(int64_t now_ns) {
    what_before_ = what_.load(std::memory_order_relaxed);
    turn_before_ns_ = turn_ns();
    what_.store(nullptr, std::memory_order_relaxed);
    turn_ns_.store(now_ns, std::memory_order_relaxed);
  }
  // Around a call; Leave() gets what Enter() has returned.
  bool Enter(const CalledCode& what, const char* whose, const CallId& id = {}) {
    const bool outer = inside_.load(std::memory_order_relaxed);
    what_.store(&what, std::memory_order_relaxed);
    whose_.store(whose, std::memory_order_relaxed);
    connection_.store(id.connection, std::memory_order_relaxed);
    if (id.connection != 0)
      exchange_.store(uint64_t{id.slot} << 32 | id.generation, std::memory_order_relaxed);
    inside_.store(true, std::memory_order_relaxed);
    return outer;
  }
  void Leave(bool outer) { inside_.store(outer, std::memory_order_relaxed); }
  // The last call of this turn or, if it has called nothing yet, of the turn before.
  Call Last() const {
    const CalledCode* const what = what_.load(std::memory_order_relaxed);
    return what != nullptr ? Load(what, turn_ns()) : Load(what_before_, turn_before_ns_);
  }

  // ---- From any thread.

  bool inside() const { return inside_.load(std::memory_order_relaxed); }
  int64_t turn_ns() const { return turn_ns_.load(std::memory_order_relaxed); }
  // The call that runs at this moment. A call that has just ended may have the name or the id of the next.
  std::optional<Call> Now() const {
    if (!inside()) return std::nullopt;
    const Call call = Load(what_.load(std::memory_order_relaxed), turn_ns());
    if (call.what == nullptr || !inside()) return std::nullopt;
    return call;
  }

 private:
  Call Load(const CalledCode* what, int64_t since_ns) const {
    const uint64_t exchange = exchange_.load(std::memory_order_relaxed);
    return {what,
            whose_.load(std::memory_order_relaxed),
            since_ns,
            {connection_.load(std::memory_order_relaxed), static_cast<uint16_t>(exchange >> 32),
             static_cast<uint32_t>(exchange)}};
  }

  std::atomic<bool> inside_{false};
  std::atomic<const CalledCode*> what_{nullptr};  // That of the last call in this turn; null: there was none.
  std::atomic<const char*> whose_{nullptr};
  std::atomic<int64_t> turn_ns_{0};
  std::atomic<uint64_t> connection_{0};  // That of a CallId; 0: the call has none.
  std::atomic<uint64_t> exchange_{0};    // Its slot and generation.
  // Of the turn before: its last call, and its start. Until this turn calls something, the rest of that call
  // is what the other members still hold.
  const CalledCode* what_before_ = nullptr;
  int64_t turn_before_ns_ = 0;
};

// The name of the code, and whose it is: "the callback of kv.capnp:KeyValue.get".
std::string Describe(const CalledOut::Call& call);
// With the id, "..., call 12:3.17": for those who operate this process. A peer must not learn how many
// connections there are.
std::string DescribeWithId(const CalledOut::Call& call);
// "7 s", "1.95 s" or "120 ms": as people say it, rounded down to 10 ms.
std::string RoughDuration(absl::Duration duration);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_CALLED_OUT_H_
