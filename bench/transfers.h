#ifndef HAWSER_BENCH_TRANSFERS_H_
#define HAWSER_BENCH_TRANSFERS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "bench/bench.rpc.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench {

// Keeps a number of large puts or gets in flight on one channel: each answer sends the next one, from the poller's thread.
// A put is sent from registered memory, and a get is answered from such. Exits with a message when one fails.
// Thread: one.
class Transfers {
 public:
  Transfers(std::shared_ptr<Channel> channel, uint32_t bytes);

  // Bytes a second.
  double Run(bool put, int count, int in_flight);

 private:
  void Next();
  void OnAnswer();

  std::shared_ptr<Channel> channel_;
  TargetStub target_;
  const uint32_t bytes_;
  std::shared_ptr<Buffer> source_;
  bool put_ = false;
  std::atomic<int> left_{0};
  std::atomic<int> unanswered_{0};
  std::unique_ptr<absl::Notification> done_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_TRANSFERS_H_
