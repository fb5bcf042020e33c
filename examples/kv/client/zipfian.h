#ifndef EXAMPLES_KV_CLIENT_ZIPFIAN_H_
#define EXAMPLES_KV_CLIENT_ZIPFIAN_H_

#include <cstdint>

#include "absl/random/bit_gen_ref.h"

namespace kv {

// Random ranks with a Zipfian distribution: rank r occurs about (r + 1)^-0.99 times as often as rank 0. The
// constant and the method are those of YCSB; the method is from Gray et al., "Quickly Generating
// Billion-Record Synthetic Databases", SIGMOD 1994.
// Thread: any; it is immutable.
class Zipfian {
 public:
  // `ranks` is at least 1. Takes time in proportion to `ranks`.
  explicit Zipfian(uint64_t ranks);

  // Returns 0 to ranks - 1.
  uint64_t Sample(absl::BitGenRef random) const;

 private:
  const uint64_t ranks_;
  double zeta_ = 0;  // The sum of all ranks' weights; rank 0 has weight 1.
  double eta_ = 0;
};

// Spreads the popular ranks over all ranks, as YCSB does (FNV-1a over the bytes of `rank`), so that popular
// records are not next to each other.
uint64_t Scramble(uint64_t rank);

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_ZIPFIAN_H_
