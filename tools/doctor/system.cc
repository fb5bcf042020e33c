#include "hawser/tools/doctor/system.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hawser::doctor {
namespace {

constexpr size_t kReadMax = 64 << 10;

// Sorts "2" before "10", and both before "eth0".
std::tuple<bool, uint64_t, std::string> SortKey(const std::string& name) {
  uint64_t number = 0;
  const bool is_number = absl::SimpleAtoi(name, &number);
  return {!is_number, is_number ? number : 0, name};
}

}  // namespace

std::string System::At(absl::string_view path) const { return absl::StrCat(root_, path); }

absl::StatusOr<std::string> System::Read(absl::string_view path) const {
  const int fd = open(At(path).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open(", path, ")"));
  std::string text(kReadMax, '\0');
  size_t size = 0;
  ssize_t got = 0;
  while (size < text.size() && (got = read(fd, text.data() + size, text.size() - size)) > 0) {
    size += static_cast<size_t>(got);
  }
  const int error = errno;
  close(fd);
  if (got < 0) return absl::ErrnoToStatus(error, absl::StrCat("read(", path, ")"));
  text.resize(size);
  return std::string(absl::StripAsciiWhitespace(text));
}

std::string System::ReadOrEmpty(absl::string_view path) const { return Read(path).value_or(""); }

std::vector<std::string> System::List(absl::string_view path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(At(path), error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return SortKey(a) < SortKey(b); });
  return names;
}

bool System::Exists(absl::string_view path) const {
  std::error_code error;
  return std::filesystem::exists(At(path), error);
}

absl::Status System::OpenDevice(const std::string& path) const {
  const int fd = open(At(path).c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "open()");
  close(fd);
  return absl::OkStatus();
}

std::string System::Environment(const std::string& name) const {
  const char* const value = getenv(name.c_str());
  return value != nullptr ? value : "";
}

}  // namespace hawser::doctor
