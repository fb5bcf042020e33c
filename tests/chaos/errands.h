#ifndef HAWSER_TESTS_CHAOS_ERRANDS_H_
#define HAWSER_TESTS_CHAOS_ERRANDS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "hawser/tests/chaos/history.h"
#include "hawser/tests/chaos/ledger.h"
#include "hawser/tests/chaos/process.h"

namespace hawser::chaos {

// One `kv` process after the other: loads files, gets them back, removes them. A file that was loaded is
// there, byte for byte, as long as the server that said so lives.
// Thread:   any, except where it says so.
class Errands {
 public:
  struct Options {
    std::string name;  // Its keys begin with "f/NAME/".
    std::string folder;
    std::vector<std::string> targets;  // URIs of the server; the last one leads straight to it.
    uint64_t seed;
    size_t file_bytes_max;
  };
  // `history` and `ledger` outlive it.
  Errands(Options options, History* history, const Ledger* ledger);
  ~Errands() { Stop(); }

  void Start();
  // Returns when the process that is under way has ended.
  void Stop();
  // After Stop(), while no harm is done: checks that every file that must be there is, then removes them all.
  void VerifyAndClean();

  // Thousands of small values that are not checked: more keys than a page of a list has.
  void FillPages(bool quiet);

  // Does harm to the process that is under way, if there is one: its name, or "".
  std::string Signal(int signal);

  struct Result {
    int status = 0;
    std::string output, errors;
    bool harmed = false;   // By Signal().
    bool certain = false;  // All of it in one epoch in which a server lived.
    uint64_t epoch = 0;
  };
  // Runs `kv` with these words to its end.
  Result Kv(const std::string& target, const std::vector<std::string>& words);
  // How many processes have succeeded.
  uint64_t done() const { return done_; }

 private:
  struct Loaded {
    std::string key;
    uint64_t epoch;
  };

  void Run();
  void Load();
  // It is wrong if the file must be there and is not found, or has other bytes. `quiet`: any failure is
  // wrong.
  void Get(const Loaded& loaded, bool quiet);
  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  const std::string& AnyTarget() { return options_.targets[Below(options_.targets.size())]; }
  // Checks that kv reported a failure that harm may cause.
  void Judge(const Result& result, const std::string& what);

  const Options options_;
  History* const history_;
  const Ledger* const ledger_;
  std::mt19937_64 random_;
  std::deque<Loaded> loaded_;
  uint64_t number_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> done_{0};
  absl::Mutex mutex_;
  std::shared_ptr<Process> current_ ABSL_GUARDED_BY(mutex_);
  bool harmed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_ERRANDS_H_
