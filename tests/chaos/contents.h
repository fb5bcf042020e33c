#ifndef HAWSER_TESTS_CHAOS_CONTENTS_H_
#define HAWSER_TESTS_CHAOS_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// Values that can be checked: every byte follows from the key, the number of the put and the size. A reader
// thus detects bytes of another key, bytes of two puts, and bytes that no put has written.
namespace hawser::chaos {

inline constexpr size_t kContentsBytesMin = 32;

// `sequence`: of the puts of this key, from 1. `size_bytes`: at least kContentsBytesMin.
void FillContents(absl::string_view key, uint64_t sequence, uint8_t* bytes, size_t size_bytes);

// The sequence number of a value of that key; 0: the bytes are no such value, and `why` says why.
uint64_t CheckContents(absl::string_view key, const uint8_t* bytes, size_t size_bytes, std::string* why);

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_CONTENTS_H_
