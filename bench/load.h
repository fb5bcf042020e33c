#ifndef HAWSER_BENCH_LOAD_H_
#define HAWSER_BENCH_LOAD_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "bench/bench.rpc.h"
#include "hawser/measure/in_flight.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench {

// Keeps a number of echoes in flight on one channel. Exits with a message when one fails.
// Thread: one; Start() and Wait() in turn.
class Load {
 public:
  Load(std::shared_ptr<Channel> channel, size_t bytes)
      : target_(std::move(channel)), payload_(bytes, 'x'), in_flight_([this] { Next(); }) {}

  void Start(int calls, int in_flight) { in_flight_.Start({.exchanges = calls}, in_flight); }
  void Wait();

 private:
  void Next();

  TargetStub target_;
  const std::string payload_;
  measure::InFlight in_flight_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_LOAD_H_
