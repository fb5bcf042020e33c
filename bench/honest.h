#ifndef HAWSER_BENCH_HONEST_H_
#define HAWSER_BENCH_HONEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/process.h"
#include "hawser/bench/target.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench {

// What calls took, one sample a call.
struct Experience {
  std::vector<double> small_us;
  std::vector<double> put_us;
  int lost = 0;  // Calls that did not succeed.
  std::string why_lost;
  double worst_resident_bytes = 0;  // The server's, meanwhile.
};

// A well-behaved client, which measures how much others slow it down. It makes small calls, then large puts,
// one at a time, so that it does not slow itself down.
// Thread:   one.
class Honest {
 public:
  Honest(const ServerProcess& server, const TargetOptions& options, size_t put_bytes);

  // Half of the time small calls, half of it puts; one of each at least.
  Experience Run(absl::Duration time);

  // Microseconds, if it succeeds.
  absl::StatusOr<double> SmallCall();
  absl::StatusOr<double> Put();

  // The server keeps what it answers gets of a size with.
  absl::Status Get(uint32_t bytes);

  struct ServerMemory {
    double connections = 0;
    double leased_bytes = 0;
    double resident_bytes = 0;
  };
  absl::StatusOr<ServerMemory> Memory();

 private:
  const ServerProcess& server_;
  std::shared_ptr<Channel> channel_;
  TargetStub target_;
  std::shared_ptr<Buffer> source_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_HONEST_H_
