#ifndef HAWSER_TESTS_CHAOS_ACTORS_H_
#define HAWSER_TESTS_CHAOS_ACTORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/tests/chaos/history.h"
#include "hawser/tests/chaos/ledger.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/chaos/watch_check.h"

namespace hawser::chaos {

// The processes that take part: a kv_server, clients that call it, and `kv watch`, which gets the changes.
// Thread: one at a time.
class Actors {
 public:
  static constexpr size_t kWatchers = 2;
  // The longest wait for a condition while no harm is done. A busy machine is slow, and kv_server's keepalive
  // detects a dead connection only after 15 s.
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  struct Actor {
    std::string name;
    std::shared_ptr<Process> process;  // nullptr: it has been ended.
    std::atomic<uint64_t>* stops = nullptr;
    bool stopped = false;
  };
  struct Watcher : Actor {
    absl::Mutex mutex;
    std::shared_ptr<WatchCheck> check ABSL_GUARDED_BY(mutex);
    bool watching = false;
  };

  // `history` and `ledger` outlive it. The ledger's file is `folder`/ledger; the logs are beside it.
  Actors(std::string folder, std::string listen, size_t large_max, History* history, Ledger* ledger);
  ~Actors();

  // Waits for `condition`. False if it does not come true, which is recorded as wrong.
  bool Await(const std::function<bool()>& condition, const std::function<std::string()>& what);

  // The server listens when it has returned, unless something is wrong. Started again it has the same URI.
  void StartServer();
  const std::string& uri() const { return uri_; }
  // URIs of the server, for processes that start from now on; the last one leads straight to it.
  void set_targets(std::vector<std::string> targets) { targets_ = std::move(targets); }
  void StartClient(size_t slot, uint64_t seed);
  void StartWatcher(size_t i);
  void AwaitWatcher(size_t i);
  // Records as wrong each process that ended without being killed, and everything that a client found wrong.
  void Look();

  // `actor` runs and is not stopped.
  void Stop(Actor& actor);
  void Continue(Actor& actor);
  void Kill(Actor& actor);
  // False: there is no server.
  bool EndServer(bool kill);

  Actor& server() { return server_; }
  Actor& client(size_t slot) { return clients_[slot]; }
  Watcher& watcher(size_t i) { return watchers_[i]; }

 private:
  std::vector<Actor*> All();
  std::string Log(absl::string_view name);
  void TendWatcher(size_t i);

  const std::string folder_;
  const size_t large_max_;
  History* const history_;
  Ledger* const ledger_;
  std::string uri_;
  std::vector<std::string> targets_;
  int logs_ = 0;
  Actor server_;
  Actor clients_[Ledger::kClients];
  Watcher watchers_[kWatchers];
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_ACTORS_H_
