#ifndef EXAMPLES_KV_CLIENT_OUTPUT_FILE_H_
#define EXAMPLES_KV_CLIENT_OUTPUT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace kv {

// Makes `path` a file with these bytes, or changes nothing: it writes a new file in the same folder and
// renames it. If `path` exists and is no regular file (/dev/stdout, a pipe), it writes to it directly. It
// calls `progress` with the number of bytes written so far. The error names the file, and says whether the
// disk is full.
absl::Status WriteFile(
    const std::string& path, const uint8_t* data, uint64_t size_bytes,
    absl::FunctionRef<void(uint64_t done_bytes)> progress = [](uint64_t) {});

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_OUTPUT_FILE_H_
