#ifndef HAWSER_RPC_SERVING_HANDLER_GATE_H_
#define HAWSER_RPC_SERVING_HANDLER_GATE_H_

#include <atomic>
#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {

// Encloses the handlers that a server runs on its executor, its OnCancel() callbacks, and OnEnd() of its
// interceptors. They use what the application may destroy right after the server, so the server's destructor
// closes the gate and waits until the last one has left.
// Thread:   any. To enter and leave an open gate takes no lock.
class HandlerGate {
 public:
  HandlerGate() = default;
  HandlerGate(const HandlerGate&) = delete;
  HandlerGate& operator=(const HandlerGate&) = delete;

  // Brackets a handler. False: the gate is closed, and the handler must not run.
  class Entry {
   public:
    explicit Entry(HandlerGate& gate);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    explicit operator bool() const { return inside_; }

   private:
    friend class HandlerGate;
    HandlerGate& gate_;
    const bool inside_;
    const Entry* const outer_;  // The one around it, on this thread.
  };

  // This thread is inside the gate: it runs a handler, or something that the handler called.
  bool InsideOnThisThread() const;

  // No handler can enter from now on.
  void Close();
  // After Close(): waits until all have left, or until `deadline`. True: they have.
  bool AwaitEmpty(transport::Environment& environment, absl::Time deadline);

 private:
  bool Enter();
  void Leave();

  std::atomic<uint64_t> state_{0};  // 2 for each handler inside, plus 1 if it is closed.
  absl::Mutex mutex_;
  absl::CondVar left_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_HANDLER_GATE_H_
