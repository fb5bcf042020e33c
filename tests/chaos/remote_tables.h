#ifndef HAWSER_TESTS_CHAOS_REMOTE_TABLES_H_
#define HAWSER_TESTS_CHAOS_REMOTE_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/tests/chaos/history.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/testing/proxy.h"

namespace hawser::chaos {

// A hash table that clients READ by themselves: table_server, and two table_clients, one of them by way of a
// proxy. They come to harm like the others, and check what they find.
// Thread: one, which starts all processes.
class RemoteTables {
 public:
  // `history` outlives it.
  RemoteTables(std::string folder, std::string listen, uint64_t seed, History* history);
  ~RemoteTables();

  // The clients work.
  void Run();
  // Does harm when it is time for that. Called again and again while harm is done.
  void Harm();
  // No harm is done any more.
  void Heal();
  // After Heal(): each thread of each client has put and found all its keys. False: something is wrong.
  bool Settle();
  // Records as wrong each process that has ended by itself, and what a client has found wrong.
  void Look();

 private:
  static constexpr size_t kClients = 2;

  struct Actor {
    std::string name;
    std::shared_ptr<Process> process;           // Null: it was killed.
    absl::Time again = absl::InfiniteFuture();  // When it is started, or continued.
  };

  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  absl::Duration Ms(uint64_t from, uint64_t to) { return absl::Milliseconds(from + Below(to - from)); }
  void StartServer();
  void StartClient(size_t i);
  void Stop(Actor& actor);
  void Kill(Actor& actor);
  // Those whose time has come by `now`.
  void Restore(absl::Time now);
  std::string Log(absl::string_view name);
  bool Await(const std::shared_ptr<Process>& process, absl::string_view text, size_t from,
             absl::string_view what);

  const std::string folder_;
  std::string uri_;
  std::mt19937_64 random_;
  History* const history_;
  int logs_ = 0;
  std::unique_ptr<Proxy> proxy_;
  Actor server_;
  Actor clients_[kClients];
  absl::Time next_harm_ = absl::InfinitePast();
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_REMOTE_TABLES_H_
