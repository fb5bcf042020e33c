#ifndef HAWSER_TESTS_EXAMPLES_KV_NUMBERED_VALUES_H_
#define HAWSER_TESTS_EXAMPLES_KV_NUMBERED_VALUES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "examples/kv/bucket.h"

namespace kv {

// Values of which a test can say which change of a key has written them.

inline std::string Text(absl::Span<const uint8_t> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// What the `number`th change of a key is: every fourth removes it, the others put a value that is like no
// other.
inline bool IsRemove(uint64_t number) { return number % 4 == 0; }
inline std::string ValueOf(const std::string& key, uint64_t number) {
  std::mt19937_64 dice(number * 1000003 + BucketOf(key, 1 << 20));
  // In the bucket, in a block, and now and then too large for the table. Blocks are of few sizes, so that
  // they are used again for other values.
  const size_t size = number % 50 == 7 ? 70'000 : dice() % 2 == 0 ? 1000 + dice() % 2 * 2000 : dice() % 250;
  std::string value = absl::StrCat(key, " ", number, " ");
  const size_t size_at_least = std::max(size, value.size());
  while (value.size() < size_at_least) absl::StrAppend(&value, absl::Hex(dice(), absl::kZeroPad16));
  value.resize(size_at_least);
  return value;
}
// 0: the value is no such value.
inline uint64_t NumberIn(const std::string& key, const std::string& value) {
  const std::vector<std::string> words = absl::StrSplit(value, absl::MaxSplits(' ', 2));
  uint64_t number = 0;
  if (words.size() < 2 || words[0] != key || !absl::SimpleAtoi(words[1], &number)) return 0;
  return value == ValueOf(key, number) ? number : 0;
}

// Whether "there is no such key" can be right for a READ between these changes.
inline bool MayBeAbsent(uint64_t answered, uint64_t begun) {
  if (answered == 0) return true;
  for (uint64_t number = answered; number <= begun; ++number) {
    if (IsRemove(number)) return true;
  }
  return false;
}

}  // namespace kv

#endif  // HAWSER_TESTS_EXAMPLES_KV_NUMBERED_VALUES_H_
