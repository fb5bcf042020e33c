#include "hawser/bench/process.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "hawser/base/cores.h"

namespace hawser::bench {

const char* Name(Pin pin) {
  switch (pin) {
    case Pin::kOneCore:
      return "one core";
    case Pin::kTwoCores:
      return "two cores";
    case Pin::kAnyCore:
      return "any core";
  }
  return "";
}

Placement ParsePlacement(const std::string& flag, const std::string& text) {
  const size_t colon = text.find(':');
  const std::string mode = text.substr(0, colon);
  const std::string cores = colon == std::string::npos ? "" : text.substr(colon + 1);
  if ((mode != "sleep" && mode != "spin" && mode != "adaptive") ||
      (cores != "1" && cores != "2" && cores != "any")) {
    fprintf(stderr, "bench: --%s: '%s' is not MODE:CORES, of sleep, spin, adaptive and 1, 2, any\n",
            flag.c_str(), text.c_str());
    exit(1);
  }
  return {mode, cores == "1" ? Pin::kOneCore : cores == "2" ? Pin::kTwoCores : Pin::kAnyCore};
}

void PinTo(Pin pin, bool server) {
  static const std::set<int> at_start = AllowedCores();
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  const bool done =
      RunOn(pin == Pin::kAnyCore ? at_start : std::set<int>{pin == Pin::kTwoCores && server ? 1 : 0});
  if (!done) fprintf(stderr, "bench: the system does not pin threads; figures are of unpinned ones\n");
}

double CpuSeconds(pid_t pid) {
  // In nanoseconds, where /proc/PID/stat counts in ticks of 10 ms.
  clockid_t clock;
  timespec used;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

uint64_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

ServerProcess::ServerProcess(const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) {
    perror("bench: pipe");
    exit(1);
  }
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), "/proc/self/exe");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(pipe_ends[1], STDOUT_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    execv(argv[0], argv.data());
    perror("bench: execv");
    _exit(1);
  }
  close(pipe_ends[1]);
  FILE* const output = fdopen(pipe_ends[0], "r");
  char line[256];
  if (pid_ < 0 || fgets(line, sizeof(line), output) == nullptr) {
    fprintf(stderr, "bench: the server process did not start\n");
    exit(1);
  }
  fclose(output);
  address_ = line;
  while (!address_.empty() && address_.back() == '\n') address_.pop_back();
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

CpuMeter::CpuMeter(pid_t server, CpuUse& use)
    : server_(server), use_(use), client_start_(CpuSeconds(getpid())), server_start_(CpuSeconds(server)) {}

CpuMeter::~CpuMeter() {
  use_.client_seconds += CpuSeconds(getpid()) - client_start_;
  use_.server_seconds += CpuSeconds(server_) - server_start_;
}

}  // namespace hawser::bench
