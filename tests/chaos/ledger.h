#ifndef HAWSER_TESTS_CHAOS_LEDGER_H_
#define HAWSER_TESTS_CHAOS_LEDGER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

// What the processes of a run share. It is in a file that all of them map. When a client is killed, its
// successor finds there what the client knew of its keys.
namespace hawser::chaos {

// What the one writer of a key knows of it. Only one call at a time concerns the key, so one thread of one
// process changes the record. Each step is one store, because the process may be killed after any of them.
//
// An epoch is the life of one server: even while one may be running, odd while it is being killed. What a
// server held is gone with it. A call that began and ended in one even epoch was answered by its server.
class KeyRecord {
 public:
  // The number of the put that is about to be sent.
  uint64_t Issue(uint64_t epoch);
  // The put was answered in the epoch in which it was issued. Returns what is wrong with that; empty:
  // nothing.
  std::string Acknowledged(uint64_t sequence, uint64_t revision);
  // A get that began and ended in `epoch` has found this. Returns what is wrong with that; empty: nothing.
  std::string Found(uint64_t epoch, uint64_t sequence, uint64_t revision);
  std::string NotFound(uint64_t epoch);

 private:
  // Puts whose revision is remembered.
  static constexpr size_t kRemembered = 64;

  void Enter(uint64_t epoch);
  std::atomic<uint64_t>& revision(uint64_t sequence) { return revisions_[sequence % kRemembered]; }
  // A put has one revision: it ran once. What is wrong; empty: nothing.
  std::string RanAs(uint64_t sequence, uint64_t revision);

  std::atomic<uint64_t> epoch_;
  std::atomic<uint64_t> first_;                   // The first put that may have run in this epoch.
  std::atomic<uint64_t> issued_;                  // The last one sent.
  std::atomic<uint64_t> known_;                   // The last one known to have run in this epoch; 0: none.
  std::atomic<uint64_t> revisions_[kRemembered];  // For those known to have run in this epoch; 0: not known.
};

struct ClientRecord {
  static constexpr size_t kKeysMax = 128;

  std::atomic<uint64_t> stops;  // Odd while the process is stopped, or about to be.
  std::atomic<uint64_t> calls;
  std::atomic<uint64_t> answered;
  std::atomic<uint64_t> abandoned;
  std::atomic<uint64_t> late_us_max;  // Behind its deadline.
  std::atomic<uint64_t> violations;
  KeyRecord keys[kKeysMax];
};

struct Ledger {
  static constexpr size_t kClients = 3;

  std::atomic<uint64_t> epoch;
  ClientRecord clients[kClients];

  // All zero is a beginning, so a file of zeros is a ledger. Mapped until the process ends.
  static absl::StatusOr<Ledger*> Create(const std::string& path);
  static absl::StatusOr<Ledger*> Open(const std::string& path);
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_LEDGER_H_
