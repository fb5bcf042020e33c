#include "examples/kv/client/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace kv {
namespace {

constexpr uint64_t kPieceBytes = 4 << 20;

absl::Status SystemError(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int fd, const std::string& path, const uint8_t* data, uint64_t size_bytes,
                      absl::FunctionRef<void(uint64_t done_bytes)> progress) {
  for (uint64_t done = 0; done < size_bytes;) {
    const ssize_t put = write(fd, data + done, std::min(size_bytes - done, kPieceBytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return SystemError("write", path);
    done += static_cast<uint64_t>(put);
    progress(done);
  }
  return absl::OkStatus();
}

// Closes the file, too, because on a network file system only close(2) reports a full disk.
absl::Status WriteAndClose(int fd, const std::string& path, const uint8_t* data, uint64_t size_bytes,
                           absl::FunctionRef<void(uint64_t done_bytes)> progress) {
  absl::Status status = WriteAll(fd, path, data, size_bytes, progress);
  if (close(fd) != 0 && status.ok()) status = SystemError("write", path);
  return status;
}

bool IsOtherThanRegular(const std::string& path) {
  struct stat about;
  return stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

}  // namespace

absl::Status WriteFile(const std::string& path, const uint8_t* data, uint64_t size_bytes,
                       absl::FunctionRef<void(uint64_t done_bytes)> progress) {
  if (IsOtherThanRegular(path)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return SystemError("open", path);
    return WriteAndClose(fd, path, data, size_bytes, progress);
  }
  // Uses the same folder, because a file cannot be renamed into another file system. O_EXCL: the file must be
  // new.
  const std::string part = absl::StrCat(path, ".part-", getpid());
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError("create", part);
  absl::Status status = WriteAndClose(fd, path, data, size_bytes, progress);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) status = SystemError("replace", path);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

}  // namespace kv
