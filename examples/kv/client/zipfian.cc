#include "examples/kv/client/zipfian.h"

#include <algorithm>
#include <cmath>

#include "absl/random/random.h"

namespace kv {
namespace {

constexpr double kTheta = 0.99;
constexpr double kAlpha = 1 / (1 - kTheta);

double Weight(uint64_t rank) { return 1 / std::pow(static_cast<double>(rank + 1), kTheta); }

}  // namespace

Zipfian::Zipfian(uint64_t ranks) : ranks_(ranks) {
  for (uint64_t rank = 0; rank < ranks; ++rank) zeta_ += Weight(rank);
  const double first_two = Weight(0) + Weight(1);
  eta_ = (1 - std::pow(2.0 / static_cast<double>(ranks), 1 - kTheta)) / (1 - first_two / zeta_);
}

uint64_t Zipfian::Sample(absl::BitGenRef random) const {
  const double u = absl::Uniform(random, 0.0, 1.0);
  // The first two ranks are exact; a curve approximates the others.
  if (u * zeta_ < Weight(0)) return 0;
  if (u * zeta_ < Weight(0) + Weight(1)) return std::min<uint64_t>(1, ranks_ - 1);
  const double rank = static_cast<double>(ranks_) * std::pow(eta_ * u - eta_ + 1, kAlpha);
  return std::min(static_cast<uint64_t>(rank), ranks_ - 1);
}

uint64_t Scramble(uint64_t rank) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int byte = 0; byte < 8; ++byte, rank >>= 8) hash = (hash ^ (rank & 0xff)) * 0x100000001b3;
  return hash;
}

}  // namespace kv
