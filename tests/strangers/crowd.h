#ifndef HAWSER_TESTS_STRANGERS_CROWD_H_
#define HAWSER_TESTS_STRANGERS_CROWD_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/tests/strangers/stranger.h"

// Up to a thousand strangers: connections to one server that each misbehave in one way. Tests measure how
// they affect its honest clients. Over TCP only.
namespace hawser::strangers {

// The source addresses of strangers. An honest client comes from 127.0.0.1.
enum class From {
  kSame,  // All from 127.0.0.1, too.
  kOne,   // All from 127.0.0.2.
  kEach,  // Each from an address of its own.
};

struct CrowdOptions {
  Target target;
  struct Group {
    const StrangerKind* kind;
    int count;
  };
  std::vector<Group> groups;
  From from = From::kEach;
  // The first dials are spread evenly over this time.
  absl::Duration arrival = absl::Milliseconds(200);
  // Priority of the thread that drives them: absolute, as setpriority(2). The thread is never raised above
  // the program's own priority. Beside other programs that never rest the default gets a hundredth of a core;
  // what waits for the strangers takes 0.
  int nice = 19;
};

// The sums over all strangers.
struct CrowdCounts {
  uint64_t strangers = 0;
  uint64_t at_work = 0;
  uint64_t turned_away = 0;  // Not at work, and rejected at least once.
  uint64_t dials = 0;
  uint64_t accepted = 0;
  uint64_t rejected = 0;
};

// One thread that drives all strangers. It has the lowest priority unless CrowdOptions::nice says otherwise,
// so that an honest client on the same processor runs first.
// Thread: any.
class Crowd {
 public:
  explicit Crowd(const CrowdOptions& options);
  // Ends all connections.
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Waits until each stranger is at work or has been turned away. False: this takes longer than `patience`.
  bool WaitUntilAtWork(absl::Duration patience);

  // At most 100 ms old.
  CrowdCounts counts() const;

 private:
  void Run();
  void Watch(Stranger& stranger);
  void Count();

  std::vector<std::unique_ptr<Stranger>> strangers_;
  const int nice_;
  const int epoll_;
  std::atomic<bool> stopping_{false};
  mutable absl::Mutex mutex_;
  CrowdCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace hawser::strangers

#endif  // HAWSER_TESTS_STRANGERS_CROWD_H_
