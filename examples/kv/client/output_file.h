#ifndef EXAMPLES_KV_CLIENT_OUTPUT_FILE_H_
#define EXAMPLES_KV_CLIENT_OUTPUT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace kv {

// Makes `path` a file with these bytes, or leaves things as they were: they are written to a new file beside
// it, which then takes its name. What is there and no regular file (/dev/stdout, a pipe) is written to as it
// is. `progress` is told how many bytes are written by now. An error says which file, and that the disk is
// full if it is.
absl::Status WriteFile(
    const std::string& path, const uint8_t* data, uint64_t size_bytes,
    absl::FunctionRef<void(uint64_t done_bytes)> progress = [](uint64_t) {});

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_OUTPUT_FILE_H_
