#ifndef HAWSER_TESTS_SIM_DICE_H_
#define HAWSER_TESTS_SIM_DICE_H_

#include <cstdint>

namespace hawser::sim {

// All chance of a simulated world: the same seed throws the same numbers on every machine, for which the
// standard library's distributions give no guarantee. SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014), which is good for any seed, also 0, 1, 2.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 31;
  }

  // [low, high], both included; low <= high.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % (static_cast<uint64_t>(high - low) + 1));
  }

  // `probability` in [0, 1]; 0 throws nothing, so that a fault which is switched off leaves all others as
  // they were.
  bool Chance(double probability) {
    return probability > 0 && static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }

 private:
  uint64_t state_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_DICE_H_
