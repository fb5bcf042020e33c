// Replaces libFuzzer where the compiler has none. Runs every input of a corpus, then for a short time inputs
// that it mutates from those, always the same ones.
//
//   NAME CORPUS [--mutate_ms=N]   a folder, or single inputs
//   NAME --write_seeds=FOLDER     the inputs to begin with
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/sim/dice.h"

namespace hawser::fuzz {
namespace {

constexpr size_t kInputMax = 4096;
const std::string* running = nullptr;
char finding_path[4096];

// An input that ended the process is kept, as libFuzzer does it.
void KeepFinding(int signal_number) {
  if (running != nullptr) {
    if (FILE* const file = fopen(finding_path, "wb"); file != nullptr) {
      fwrite(running->data(), 1, running->size(), file);
      fclose(file);
      fprintf(stderr, "the input, of %zu bytes, is in %s\n", running->size(), finding_path);
    }
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void Run(const std::string& input) {
  running = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  running = nullptr;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> InputsAt(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return {ReadFile(path)};
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  std::vector<std::string> inputs;
  for (const std::string& name : names) inputs.push_back(ReadFile(path + "/" + name));
  return inputs;
}

void Mutate(std::string& input, const std::vector<std::string>& inputs, sim::Dice& dice) {
  const auto any = [&](size_t bound) {
    return static_cast<size_t>(dice.Between(0, static_cast<int64_t>(bound) - 1));
  };
  for (int64_t changes = dice.Between(1, 4); changes > 0; --changes) {
    const size_t at = any(input.size() + 1);
    switch (dice.Between(0, 5)) {
      case 0:
        input.insert(at, 1, static_cast<char>(dice.Next()));
        break;
      case 1:
        input.erase(at, any(4) + 1);
        break;
      case 2:
        if (at < input.size()) input[at] ^= static_cast<char>(1 << any(8));
        break;
      case 3:
        if (at < input.size()) input[at] = static_cast<char>(dice.Next());
        break;
      case 4:
        input.insert(at, input.substr(any(input.size() + 1), any(32)));
        break;
      default: {  // The front of one and the back of another.
        const std::string& other = inputs[any(inputs.size())];
        input = input.substr(0, at) + other.substr(any(other.size() + 1));
      }
    }
  }
  if (input.size() > kInputMax) input.resize(kInputMax);
}

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

int Main(int argc, char** argv) {
  const char* const outputs = getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  snprintf(finding_path, sizeof(finding_path), "%s/finding", outputs != nullptr ? outputs : "/tmp");
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) signal(number, KeepFinding);

  std::vector<std::string> inputs;
  int64_t mutate_ms = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--mutate_ms=", 0) == 0) {
      mutate_ms = atoll(argument.c_str() + strlen("--mutate_ms="));
    } else if (argument.rfind("--write_seeds=", 0) == 0) {
      const std::string folder = argument.substr(strlen("--write_seeds="));
      for (const auto& [name, input] : Seeds()) {
        std::ofstream(folder + "/" + name, std::ios::binary) << input;
      }
      return 0;
    } else {
      for (std::string& input : InputsAt(argument)) inputs.push_back(std::move(input));
    }
  }
  if (inputs.empty()) {
    fprintf(stderr, "no inputs: %s CORPUS\n", argv[0]);
    return 2;
  }
  for (auto& [name, input] : Seeds()) inputs.push_back(input);
  for (const std::string& input : inputs) {
    alarm(60);  // One that does not end is a finding.
    Run(input);
  }
  sim::Dice dice(1);
  uint64_t mutations = 0;
  for (const int64_t end_ms = NowMs() + mutate_ms; NowMs() < end_ms; ++mutations) {
    std::string input = inputs[static_cast<size_t>(dice.Next() % inputs.size())];
    Mutate(input, inputs, dice);
    alarm(60);
    Run(input);
  }
  alarm(0);
  printf("%zu inputs and %lu made from them\n", inputs.size(), mutations);
  return 0;
}

}  // namespace
}  // namespace hawser::fuzz

int main(int argc, char** argv) { return hawser::fuzz::Main(argc, argv); }
