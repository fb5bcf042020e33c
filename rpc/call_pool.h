#ifndef HAWSER_RPC_CALL_POOL_H_
#define HAWSER_RPC_CALL_POOL_H_

#include <cstddef>
#include <memory>
#include <mutex>

namespace hawser::internal {

class ChannelCore;
class UntypedCall;

// The call objects of one channel, kept for the next call, so that a call in steady state allocates nothing.
// There are as many as were ever in use at once.
// Thread:   any.
// Lifetime: a part of its ChannelCore, which it keeps alive while a call is out.
class CallPool {
 public:
  CallPool() = default;
  ~CallPool();
  CallPool(const CallPool&) = delete;
  CallPool& operator=(const CallPool&) = delete;

  UntypedCall* Get(const std::shared_ptr<ChannelCore>& owner);

  // May close and destroy the owner, and this.
  void Put(UntypedCall* call);

  // Nobody can make further calls: the owner is closed when the last one is back. True: none is out.
  bool CloseWhenIdle();

 private:
  // A std::mutex: it is taken twice in each call, and Debian's abseil is built to look for deadlocks.
  std::mutex mutex_;
  UntypedCall* free_ = nullptr;
  size_t out_ = 0;
  bool close_when_idle_ = false;
  std::shared_ptr<ChannelCore> owner_;  // While out_ > 0.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CALL_POOL_H_
