#ifndef EXAMPLES_KV_CLIENT_ZIPFIAN_H_
#define EXAMPLES_KV_CLIENT_ZIPFIAN_H_

#include <cstdint>

#include "absl/random/bit_gen_ref.h"

namespace kv {

// Ranks as people choose things: rank r comes up about (r + 1)^-0.99 times as often as rank 0. The constant
// and the method are YCSB's; it is that of Gray et al., "Quickly Generating Billion-Record Synthetic
// Databases", SIGMOD 1994.
// Thread: any, it does not change.
class Zipfian {
 public:
  // `ranks` >= 1. Takes time in proportion to it.
  explicit Zipfian(uint64_t ranks);

  // 0 to ranks - 1.
  uint64_t Sample(absl::BitGenRef random) const;

 private:
  const uint64_t ranks_;
  double zeta_ = 0;  // The sum of all ranks' weights, that of rank 0 being 1.
  double eta_ = 0;
};

// Spreads the popular ranks over all of them, as YCSB does (FNV-1a over the bytes of `rank`), so that what is
// popular does not lie together.
uint64_t Scramble(uint64_t rank);

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_ZIPFIAN_H_
