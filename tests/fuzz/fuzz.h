#ifndef HAWSER_TESTS_FUZZ_FUZZ_H_
#define HAWSER_TESTS_FUZZ_FUZZ_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// What the fuzzers have in common. Each is LLVMFuzzerTestOneInput() and Seeds(), in a file of its own;
// --config=fuzz links libFuzzer to them, everything else replay.cc.

// One input; must not change anything that the next one could see.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace hawser::fuzz {

// Inputs to begin with, whole ones, which fuzzing would take long to come upon. By what they are.
std::vector<std::pair<std::string, std::string>> Seeds();

// Ends the process, with what was broken: for libFuzzer and for replay.cc that is a finding.
[[noreturn]] inline void Broken(const char* file, int line, absl::string_view what) {
  fprintf(stderr, "%s:%d: %.*s\n", file, line, static_cast<int>(what.size()), what.data());
  abort();
}

// `rule` must hold. Further arguments are for absl::StrCat(): the values.
#define FUZZ_EXPECT(rule, ...)                                                                 \
  do {                                                                                         \
    if (!(rule)) {                                                                             \
      ::hawser::fuzz::Broken(__FILE__, __LINE__,                                               \
                             ::absl::StrCat("broken: " #rule " " __VA_OPT__(, ) __VA_ARGS__)); \
    }                                                                                          \
  } while (false)

// An input as a list of numbers, taken from the front; zeros when it is used up, so that any input is a whole
// one.
class Script {
 public:
  Script(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  size_t left() const { return size_; }

  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  uint16_t U16() { return static_cast<uint16_t>(Byte() | Byte() << 8); }
  uint32_t U32() { return static_cast<uint32_t>(U16()) | static_cast<uint32_t>(U16()) << 16; }
  uint64_t U64() { return U32() | static_cast<uint64_t>(U32()) << 32; }
  // Less than `bound`, which is at most 256.
  uint32_t Below(uint32_t bound) { return Byte() % bound; }
  absl::string_view Bytes(size_t count) {
    count = std::min(count, size_);
    const absl::string_view bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }
  absl::string_view Rest() { return Bytes(size_); }

 private:
  const uint8_t* data_;
  size_t size_;
};

// A copy at the end of which a sanitizer sees every byte too many, aligned to 8 as a received message is.
class ExactCopy {
 public:
  explicit ExactCopy(absl::string_view bytes)
      : memory_(static_cast<uint8_t*>(malloc(std::max<size_t>(bytes.size(), 1)))), size_(bytes.size()) {
    if (size_ != 0) memcpy(memory_.get(), bytes.data(), size_);
  }
  uint8_t* data() { return memory_.get(); }
  const uint8_t* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  absl::string_view view() const { return {reinterpret_cast<const char*>(memory_.get()), size_}; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const { free(memory); }
  };
  std::unique_ptr<uint8_t, Free> memory_;
  size_t size_;
};

inline absl::string_view View(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_FUZZ_H_
