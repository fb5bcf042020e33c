#ifndef IMAGES_WATCHERS_H_
#define IMAGES_WATCHERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/channel.h"

namespace images {

// Pushes changes to the clients that watch. Each watcher has at most one push in flight. Changes made
// meanwhile wait in its own list, whose length is bounded. So a slow watcher slows no other watcher, and no
// writer.
// Thread:   any; nothing blocks.
// Lifetime: owned by a shared_ptr. A callback after its end does nothing.
class Watchers : public std::enable_shared_from_this<Watchers> {
 public:
  // A change starts all of its pushes in one turn of a poller. To start so many takes some 0.1 ms (one to two
  // microseconds each; Hawser's docs/guide.md, "Push"). With more watchers, start some in each turn, as the
  // hub of examples/kv does.
  static constexpr size_t kWatchersMax = 64;
  static constexpr size_t kUntoldMax = 64;  // Images whose change is still to be pushed to one watcher.

  // From now on pushes changes to the ImageWatcher of `client`, until that channel is closed. OK if it
  // watches already. ResourceExhausted: there are kWatchersMax watchers.
  absl::Status Add(std::shared_ptr<hawser::Channel> client);

  // Call this in the order of the versions.
  void Changed(absl::string_view name, uint64_t version);

  size_t size() const;

 private:
  using Client = std::shared_ptr<hawser::Channel>;
  struct Watcher {
    std::map<uint64_t, std::string> untold;  // The latest change of each image; the key is the version.
    bool push_in_flight = false;             // The first of `untold` is in flight.
  };

  void Push(const Client& client, Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pushed(const Client& client, uint64_t version, bool received, bool timed_out);
  void Remove(const Client& client);

  mutable absl::Mutex mutex_;
  std::map<Client, Watcher> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace images

#endif  // IMAGES_WATCHERS_H_
