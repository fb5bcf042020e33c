#include "hawser/tests/chaos/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace hawser::chaos {
namespace {

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "chaos_test: %s: %s\n", what.c_str(), strerror(errno));
  exit(1);
}

}  // namespace

Process::Process(std::string name, const std::vector<std::string>& command, const std::string& log,
                 OnLine on_line)
    : name_(std::move(name)), log_(log) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) Die("pipe");
  const int errors = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (errors < 0) Die(log);
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) Die("fork");
  if (pid_ == 0) {
    // Only what a signal handler may call, because other threads may hold any lock.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    signal(SIGPIPE, SIG_DFL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(errors);
  stdin_ = in[1];
  stdout_ = out[0];
  pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pid_fd_ < 0) Die("pidfd_open");
  reader_ = std::thread([this, on_line = std::move(on_line)] { Read(on_line); });
}

Process::~Process() {
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
  reader_.join();
  close(stdin_);
  close(stdout_);
  close(pid_fd_);
}

void Process::Read(const OnLine& on_line) {
  std::string rest;
  char bytes[4096];
  for (ssize_t count; (count = read(stdout_, bytes, sizeof(bytes))) > 0;) {
    if (on_line == nullptr) {
      absl::MutexLock lock(&mutex_);
      output_.append(bytes, static_cast<size_t>(count));
      continue;
    }
    rest.append(bytes, static_cast<size_t>(count));
    size_t start = 0;
    for (size_t end; (end = rest.find('\n', start)) != rest.npos; start = end + 1) {
      on_line(rest.substr(start, end - start));
    }
    rest.erase(0, start);
  }
  read_all_.Notify();
}

void Process::Say(const std::string& line) {
  const std::string text = line + "\n";
  // Short enough for the pipe. EPIPE: it has ended, as the caller that waits for its answer will see.
  if (write(stdin_, text.data(), text.size()) < 0 && errno != EPIPE) Die("write to " + name_);
}

void Process::Signal(int signal) { syscall(SYS_pidfd_send_signal, pid_fd_, signal, nullptr, 0); }

std::optional<int> Process::Wait(absl::Duration timeout) {
  pollfd ended = {pid_fd_, POLLIN, 0};
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    const absl::Duration left = std::max(absl::ZeroDuration(), deadline - absl::Now());
    const int ms =
        left == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(left) + 1);
    const int ready = poll(&ended, 1, ms);
    if (ready > 0) break;
    if (ready == 0) return std::nullopt;
    if (errno != EINTR) Die("poll");
  }
  read_all_.WaitForNotification();
  absl::MutexLock lock(&mutex_);
  if (!status_) {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) Die("waitpid " + name_);
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return status_;
}

bool Process::AwaitOutput(absl::string_view text, size_t from, absl::Duration timeout) const {
  const auto has_come = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::string_view(output_).find(text, from) != absl::string_view::npos;
  };
  const absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&has_come), timeout);
}

std::string Process::output() const {
  absl::MutexLock lock(&mutex_);
  return output_;
}

std::string Process::errors() const {
  std::ifstream file(log_);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.substr(all.size() - std::min<size_t>(all.size(), 2000));
}

int Process::open_files() const {
  DIR* const folder = opendir(absl::StrCat("/proc/", pid_, "/fd").c_str());
  if (folder == nullptr) return -1;
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

double Process::resident_mib() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/statm"));
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace hawser::chaos
