#include "examples/kv/client/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace kv {
namespace {

constexpr uint64_t kPieceBytes = 4 << 20;

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

ssize_t ReadSome(int fd, uint8_t* data, uint64_t size_bytes) {
  ssize_t got;
  do {
    got = read(fd, data, size_bytes);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError("open", path);
  InputFile file(path, fd, 0);
  struct stat about;
  if (fstat(fd, &about) != 0) return SystemError("look at", path);
  if (!S_ISREG(about.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  file.size_bytes_ = static_cast<uint64_t>(about.st_size);
  return file;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status InputFile::ReadAll(uint8_t* data, absl::FunctionRef<void(uint64_t done_bytes)> progress) {
  for (uint64_t done = 0; done < size_bytes_;) {
    const ssize_t got = ReadSome(fd_, data + done, std::min(size_bytes_ - done, kPieceBytes));
    if (got < 0) return SystemError("read", path_);
    if (got == 0) return absl::AbortedError(absl::StrCat(path_, " has become shorter while it was read"));
    done += static_cast<uint64_t>(got);
    progress(done);
  }
  uint8_t beyond;
  if (ReadSome(fd_, &beyond, 1) > 0) {
    return absl::AbortedError(absl::StrCat(path_, " has become longer while it was read"));
  }
  return absl::OkStatus();
}

}  // namespace kv
