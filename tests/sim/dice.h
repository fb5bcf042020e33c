#ifndef HAWSER_TESTS_SIM_DICE_H_
#define HAWSER_TESTS_SIM_DICE_H_

#include <cstdint>

namespace hawser::sim {

// The random numbers of a simulated world. The same seed gives the same numbers on every machine, which the
// standard library's distributions do not guarantee. SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014) works for any seed, also 0, 1 and 2.
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

  // `probability` in [0, 1]. With 0 it draws no number, so that a disabled fault does not change the others.
  bool Chance(double probability) {
    return probability > 0 && static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }

 private:
  uint64_t state_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_DICE_H_
