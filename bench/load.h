#ifndef HAWSER_BENCH_LOAD_H_
#define HAWSER_BENCH_LOAD_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "bench/bench.rpc.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench {

// Keeps a number of echoes in flight on one channel: each answer sends the next one, from the poller's thread.
// Thread: one; Start() and Wait() in turn.
class Load {
 public:
  Load(std::shared_ptr<Channel> channel, size_t bytes) : target_(std::move(channel)), payload_(bytes, 'x') {}

  void Start(int calls, int in_flight);
  void Wait() { done_->WaitForNotification(); }

 private:
  void Next();

  TargetStub target_;
  const std::string payload_;
  std::atomic<int> left_{0};
  std::atomic<int> unanswered_{0};
  std::unique_ptr<absl::Notification> done_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_LOAD_H_
