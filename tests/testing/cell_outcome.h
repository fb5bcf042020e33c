#ifndef HAWSER_TESTS_TESTING_CELL_OUTCOME_H_
#define HAWSER_TESTS_TESTING_CELL_OUTCOME_H_

#include <cstdint>
#include <optional>

namespace hawser {

// What many READs of a cell that changes meanwhile have come to.
struct CellOutcome {
  int whole = 0;
  int refused = 0;
  int deceived = 0;  // A value was accepted that no version had.

  // One READ. `decoded`: its version; nullopt: it was refused. `newest`: the last version that was written.
  // `value_of`: what a version has.
  template <typename Value, typename ValueOf>
  void Count(const std::optional<uint64_t>& decoded, const Value& value, uint64_t newest,
             const ValueOf& value_of) {
    if (!decoded.has_value()) {
      ++refused;
    } else if (value == value_of(*decoded) && *decoded <= newest) {
      ++whole;
    } else {
      ++deceived;
    }
  }
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_CELL_OUTCOME_H_
