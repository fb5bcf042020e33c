#ifndef HAWSER_RPC_HANDLER_GATE_H_
#define HAWSER_RPC_HANDLER_GATE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/transport/environment.h"

namespace hawser::internal {

// The handlers of a server that run on its executor. They use the services, which may be destroyed right after
// the server: so the end of the server closes the gate and waits until the last one has left.
// Thread:   any.
// Lifetime: shared by those that enter and the one that closes it.
class HandlerGate {
 public:
  HandlerGate() = default;
  HandlerGate(const HandlerGate&) = delete;
  HandlerGate& operator=(const HandlerGate&) = delete;

  // Stands around a handler. False: the gate is closed, and the handler must not run.
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
    const Entry* const outer_;  // Of this thread.
  };

  // A handler that has entered runs on this thread, or called what does.
  bool InsideOnThisThread() const;

  // No handler enters from now on.
  void Close();
  // After Close(): waits until all have left, or until `deadline`. True: they have.
  bool AwaitEmpty(transport::Environment& environment, absl::Time deadline);

 private:
  bool Enter();
  void Leave();

  absl::Mutex mutex_;
  absl::CondVar left_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_HANDLER_GATE_H_
