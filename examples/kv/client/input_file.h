#ifndef EXAMPLES_KV_CLIENT_INPUT_FILE_H_
#define EXAMPLES_KV_CLIENT_INPUT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kv {

// A regular file that is read completely, straight into the caller's memory.
// Thread: one at a time.
class InputFile {
 public:
  // NotFound, PermissionDenied, ...: it cannot be opened. FailedPrecondition: it is no regular file. The
  // error names the file.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  InputFile(InputFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_bytes_(other.size_bytes_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  uint64_t size_bytes() const { return size_bytes_; }

  // Fills `data` with all size_bytes() of the file. Call it once. It calls `progress` with the number of
  // bytes read so far. Aborted: the file has become shorter or longer meanwhile.
  absl::Status ReadAll(
      uint8_t* data, absl::FunctionRef<void(uint64_t done_bytes)> progress = [](uint64_t) {});

 private:
  InputFile(std::string path, int fd, uint64_t size_bytes)
      : path_(std::move(path)), fd_(fd), size_bytes_(size_bytes) {}

  std::string path_;
  int fd_;
  uint64_t size_bytes_;
};

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_INPUT_FILE_H_
