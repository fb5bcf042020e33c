#include "hawser/transport/log/log.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/fork.h"
#include "hawser/base/peer_text.h"
#include "hawser/base/thread.h"
#include "hawser/base/write_signals.h"

namespace hawser {
namespace transport {
namespace {

// Small enough that a line with "hawser: error: " and a line feed stays below PIPE_BUF.
constexpr size_t kLineBytesMax = 2048;

// Writing a line takes microseconds, unless the kernel has preempted the thread that writes it.
constexpr int kTurnYields = 100;
constexpr int kTurnSleeps = 20;
constexpr std::chrono::microseconds kTurnSleep(100);

// The most lines that wait for the sink.
constexpr size_t kQueueMax = 256;

// A program that closes its stderr gives the number to the next file that is opened: to the connection of a
// peer, which is to read no log.
bool IsConnection(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain != AF_UNIX;
}

// A writable pipe takes PIPE_BUF (4096) bytes without blocking (pipe(7)), which is more than a line has. Two
// threads at once could write more, so they take turns. If one blocks for milliseconds, the others lose
// lines.
bool WriteToStderr(LogSeverity severity, absl::string_view text) {
  if (IsConnection(STDERR_FILENO)) return false;
  static constinit PerProcess<std::mutex> turns;
  const std::string line =
      absl::StrCat("hawser: ", severity == LogSeverity::kError ? "error: " : "", text, "\n");
  std::unique_lock<std::mutex> turn(turns.Get(), std::try_to_lock);
  for (int tries = 0; !turn.owns_lock(); ++tries) {
    if (tries == kTurnYields + kTurnSleeps) return false;
    if (tries < kTurnYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kTurnSleep);
    }
    turn.try_lock();
  }
  const WriteSignalsBlocked blocked;
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) return false;
  return write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

// The log of one process. Its thread exists while there is a sink.
class ProcessLog {
 public:
  bool Write(LogSeverity severity, std::string&& line);
  void SetSink(LogSink sink);

  std::atomic<uint64_t> lost{0};  // Since the last line of Log() that was written.

 private:
  struct Line {
    LogSeverity severity;
    std::string text;
  };

  void Deliver();
  bool StartLocked();
  void StopAndUnlock(std::unique_lock<std::mutex>& lock);

  std::mutex setting_mutex_;  // Held by a thread that sets the sink, unless it is the log's own.
  std::atomic<bool> has_sink_{false};

  std::mutex mutex_;
  std::condition_variable queued_;
  std::condition_variable delivered_;
  std::shared_ptr<const LogSink> sink_;  // Null: stderr.
  std::deque<Line> queue_;
  uint64_t queued_count_ = 0;  // Since the start of the process.
  uint64_t delivered_count_ = 0;
  uint64_t deliver_until_ = UINT64_MAX;  // Lines behind this one wait for the next sink.
  bool stopping_ = false;
  std::atomic<std::thread::id> delivering_;  // The thread in Deliver(); compared with its own only.
  std::thread thread_;
};

bool ProcessLog::Write(LogSeverity severity, std::string&& line) {
  if (has_sink_.load(std::memory_order_acquire)) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (sink_ != nullptr) {
      if (queue_.size() >= kQueueMax) return false;
      queue_.push_back({severity, std::move(line)});
      ++queued_count_;
      queued_.notify_one();
      return true;
    }
  }
  return WriteToStderr(severity, line);
}

void ProcessLog::SetSink(LogSink sink) {
  std::shared_ptr<const LogSink> next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  std::shared_ptr<const LogSink> before;  // Destroyed after the locks.
  std::unique_lock<std::mutex> lock(mutex_);
  if (delivering_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    // The thread cannot wait for itself, so it runs until another thread sets a sink.
    has_sink_.store(next != nullptr, std::memory_order_release);
    before = std::exchange(sink_, std::move(next));
    return;
  }
  lock.unlock();
  std::lock_guard<std::mutex> setting(setting_mutex_);
  lock.lock();
  deliver_until_ = queued_count_;
  delivered_.wait(lock, [&] { return delivered_count_ == deliver_until_; });
  if (next != nullptr && !thread_.joinable() && !StartLocked()) next = nullptr;
  const bool stop = next == nullptr && thread_.joinable();
  has_sink_.store(next != nullptr, std::memory_order_release);
  before = std::exchange(sink_, std::move(next));
  deliver_until_ = UINT64_MAX;
  queued_.notify_one();
  if (stop) StopAndUnlock(lock);
}

bool ProcessLog::StartLocked() {
  absl::StatusOr<std::thread> started = StartThread("hawser-log", [this] { Deliver(); });
  if (!started.ok()) {
    WriteToStderr(LogSeverity::kError,
                  absl::StrCat("the log stays on stderr: ", absl::string_view(started.status().message())));
    return false;
  }
  thread_ = *std::move(started);
  return true;
}

void ProcessLog::StopAndUnlock(std::unique_lock<std::mutex>& lock) {
  stopping_ = true;
  queued_.notify_one();
  std::thread ending = std::move(thread_);
  lock.unlock();
  ending.join();
  delivering_.store(std::thread::id(), std::memory_order_relaxed);  // The next thread may get the same id.
  lock.lock();
  stopping_ = false;
  lock.unlock();
}

void ProcessLog::Deliver() {
  delivering_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    queued_.wait(lock,
                 [this] { return stopping_ || (!queue_.empty() && delivered_count_ < deliver_until_); });
    if (queue_.empty()) return;
    const Line line = std::move(queue_.front());
    queue_.pop_front();
    std::shared_ptr<const LogSink> sink = sink_;
    lock.unlock();
    bool taken = false;
    try {
      if (sink != nullptr) {
        (*sink)(line.severity, line.text);
        taken = true;
      }
    } catch (...) {
    }
    if (!taken) WriteToStderr(line.severity, line.text);
    sink = nullptr;  // This may be the last reference to objects of the application.
    lock.lock();
    ++delivered_count_;
    delivered_.notify_all();
  }
}

ProcessLog& TheLog() {
  static constinit PerProcess<ProcessLog> log;
  return log.Get();
}

// If the text becomes too long, cuts a part before its last words, and keeps `behind`.
std::string Escaped(absl::string_view text, absl::string_view behind = "") {
  constexpr size_t kEnd = 128;
  std::string escaped = EscapePeerText(text);
  if (escaped.size() + behind.size() > kLineBytesMax) {
    const absl::string_view all = escaped;
    // Escapes again, because the cut may be inside a character.
    escaped = EscapePeerText(absl::StrCat(all.substr(0, kLineBytesMax - 2 * kEnd - behind.size()), " ... ",
                                          all.substr(all.size() - kEnd)));
  }
  return absl::StrCat(escaped, behind);
}

}  // namespace

bool TryLog(LogSeverity severity, absl::string_view text) {
  return severity < LogLevel() || TheLog().Write(severity, Escaped(text));
}

void Log(LogSeverity severity, absl::string_view text) {
  if (severity < LogLevel()) return;
  ProcessLog& log = TheLog();
  const uint64_t lost = log.lost.exchange(0, std::memory_order_relaxed);
  const std::string count = lost != 0 ? absl::StrCat(" (", lost, " lines before this are lost)") : "";
  if (!log.Write(severity, Escaped(text, count))) log.lost.fetch_add(lost + 1, std::memory_order_relaxed);
}

}  // namespace transport

void SetLogSink(LogSink sink) { transport::TheLog().SetSink(std::move(sink)); }

namespace {

constexpr int kNotRead = -1;
std::atomic<int> log_level{kNotRead};

LogSeverity LevelOfEnvironment() {
  const char* const text = getenv("HAWSER_LOG_LEVEL");
  if (text == nullptr) return LogSeverity::kInfo;
  constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (absl::EqualsIgnoreCase(text, kNames[i])) return static_cast<LogSeverity>(i);
  }
  transport::WriteToStderr(LogSeverity::kWarning,
                           absl::StrCat("HAWSER_LOG_LEVEL is \"", EscapePeerText(text),
                                        "\", and not debug, info, warning or error; info is used"));
  return LogSeverity::kInfo;
}

}  // namespace

void SetLogLevel(LogSeverity least) { log_level.store(static_cast<int>(least), std::memory_order_relaxed); }

LogSeverity LogLevel() {
  const int level = log_level.load(std::memory_order_relaxed);
  if (level != kNotRead) [[likely]]
    return static_cast<LogSeverity>(level);
  // If another thread has set a level meanwhile, that one stays.
  int expected = kNotRead;
  log_level.compare_exchange_strong(expected, static_cast<int>(LevelOfEnvironment()),
                                    std::memory_order_relaxed);
  return static_cast<LogSeverity>(log_level.load(std::memory_order_relaxed));
}

}  // namespace hawser
