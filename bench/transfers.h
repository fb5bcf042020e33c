#ifndef HAWSER_BENCH_TRANSFERS_H_
#define HAWSER_BENCH_TRANSFERS_H_

#include <cstdint>
#include <memory>

#include "bench/bench.rpc.h"
#include "hawser/measure/in_flight.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench {

// Keeps a number of large puts or gets in flight on one channel. A put is sent from registered memory, and a
// get is answered from such. Exits with a message when one fails.
// Thread: one.
class Transfers {
 public:
  Transfers(std::shared_ptr<Channel> channel, uint32_t bytes);

  // Bytes a second.
  double Run(bool put, int count, int in_flight);

 private:
  void Put();
  void Get();

  std::shared_ptr<Channel> channel_;
  TargetStub target_;
  const uint32_t bytes_;
  std::shared_ptr<Buffer> source_;
  measure::InFlight puts_{[this] { Put(); }};
  measure::InFlight gets_{[this] { Get(); }};
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_TRANSFERS_H_
