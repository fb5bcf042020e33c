#ifndef HAWSER_RPC_SERVING_CALLBACK_GATE_H_
#define HAWSER_RPC_SERVING_CALLBACK_GATE_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace hawser::internal {

// Guards calls of application code that may be destroyed with its channel: on_state_change, and the handlers
// of the services that the channel offers. After Close() there are no more such calls.
// Thread:   Enter() and Leave() on one poller; Close() from any thread.
// Lifetime: shared by the objects that call through it and the one that closes it.
class CallbackGate {
 public:
  CallbackGate() = default;
  CallbackGate(const CallbackGate&) = delete;
  CallbackGate& operator=(const CallbackGate&) = delete;

  // False: closed; the code must not be called. True: Leave() follows, on this thread.
  bool Enter();
  void Leave();
  // For the code inside, which may have closed it.
  bool closed() const { return (state_.load(std::memory_order_acquire) & kClosed) != 0; }

  // Enter() returns false from now on. Waits until code that is inside has left, unless that would never end:
  // this thread is inside, or the thread inside waits in a Close() for this one, directly or through others.
  void Close();

 private:
  bool WaitsForThisThread() const;

  static constexpr uint32_t kInside = 1, kClosed = 2;
  std::atomic<uint32_t> state_{0};
  std::atomic<std::thread::id> inside_;  // Fixed while state_ has both bits.
  uint32_t depth_ = 0;                   // On the poller.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_CALLBACK_GATE_H_
