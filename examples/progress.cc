#include "examples/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace examples {
namespace {

constexpr absl::Duration kBeforeFirst = absl::Milliseconds(500);
constexpr absl::Duration kBetween = absl::Milliseconds(100);
constexpr char kWipe[] = "\r\033[K";  // Go to the first column, and erase from there (ECMA-48: EL).

}  // namespace

std::string ReadableBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double amount = static_cast<double>(bytes) / 1024;
  for (const char* unit : {"KiB", "MiB", "GiB"}) {
    if (amount < 1024) return absl::StrFormat("%.1f %s", amount, unit);
    amount /= 1024;
  }
  return absl::StrFormat("%.1f TiB", amount);
}

Progress::Progress() : Progress(isatty(STDERR_FILENO) == 1) {}

Progress::Progress(bool shown) : started_(absl::Now()) {
  if (shown) drawer_ = std::thread([this] { Draw(); });
}

Progress::~Progress() { End(); }

void Progress::End() {
  {
    absl::MutexLock lock(&mutex_);
    over_ = true;
  }
  if (drawer_.joinable()) drawer_.join();
}

void Progress::Start(absl::string_view what, uint64_t total_bytes) {
  absl::MutexLock lock(&mutex_);
  what_ = std::string(what);
  total_bytes_ = total_bytes;
  done_bytes_ = 0;
  started_ = absl::Now();
}

void Progress::Done(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  done_bytes_ = bytes;
}

std::string Progress::Line() const {
  absl::MutexLock lock(&mutex_);
  return LineLocked();
}

std::string Progress::LineLocked() const {
  std::string line = what_;
  if (total_bytes_ > 0) {
    absl::StrAppend(&line, ": ", ReadableBytes(done_bytes_), " of ", ReadableBytes(total_bytes_), ", ",
                    std::min<uint64_t>(100, done_bytes_ * 100 / total_bytes_), " %");
  } else if (done_bytes_ > 0) {
    absl::StrAppend(&line, ": ", ReadableBytes(done_bytes_));
  }
  absl::StrAppendFormat(&line, ", %.1f s", absl::ToDoubleSeconds(absl::Now() - started_));
  return line;
}

void Progress::Draw() {
  absl::MutexLock lock(&mutex_);
  bool drawn = false;
  for (absl::Duration wait = kBeforeFirst; !mutex_.AwaitWithTimeout(absl::Condition(&over_), wait);
       wait = kBetween) {
    if (what_.empty()) continue;
    std::fprintf(stderr, "%s%s", kWipe, LineLocked().c_str());
    drawn = true;
  }
  if (drawn) std::fputs(kWipe, stderr);
}

}  // namespace examples
