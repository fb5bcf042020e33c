#ifndef HAWSER_TESTS_FUZZ_BUSY_SERVICE_H_
#define HAWSER_TESTS_FUZZ_BUSY_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server_context.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::fuzz {

// An application that does all that a handler can, as the id of the request says: answers at once, little and
// much; later, after a call to its caller, with an error, with an exception, twice or never. Offered by
// servers (Ledger) and by clients (Watcher).
class BusyService final : public sim::ledger::LedgerService, public sim::ledger::WatcherService {
 public:
  // Ids of that are answered at once, with as many bytes as were asked for, each the id's second byte.
  static constexpr uint64_t kAtOnce = 16;

  // Who asked for a watch.
  struct Client {
    std::shared_ptr<Channel> peer;  // nullptr: let go.
    uint64_t revision = 0;          // Last pushed.
    int closings = 0;
  };

  // Where large answers are built; may fail.
  std::function<absl::StatusOr<Buffer>(size_t)> allocate;
  // From now on nothing is deferred.
  bool stopping = false;

  std::deque<Client>& clients() { return clients_; }
  // Deferred, and not answered.
  size_t running() const;
  // Ends one of those that run: answered, failed or dropped.
  void FinishOne(uint8_t which, uint8_t how);
  void FinishAll();
  // Every caller of those that run is gone, so each must know.
  void ExpectAllCancelled() const;
  void ForgetRequests() { kept_requests_.clear(); }

  void AddMethods(MethodTable& table) override;
  absl::Status Add(ServerContext& context, sim::ledger::Entry::Reader request,
                   sim::ledger::Entry::Builder reply) override;
  absl::Status Look(ServerContext& context, sim::ledger::Entry::Reader request,
                    sim::ledger::Entry::Builder reply) override;
  absl::Status Watch(ServerContext& context, sim::ledger::Ledger::WatchParams::Reader request,
                     sim::ledger::Ledger::WatchResults::Builder reply) override;
  absl::Status Changed(ServerContext& context, sim::ledger::Watcher::ChangedParams::Reader request,
                       sim::ledger::Watcher::ChangedResults::Builder reply) override;

 private:
  struct Run {
    DeferredCall deferred;
    int cancels = 0;
    bool answered = false;  // By an error that was returned beside.
  };

  void Defer(ServerContext& context, bool finish_when_cancelled);
  void Finish(uint64_t number, absl::Status status);
  absl::Status CallBack(ServerContext& context, uint64_t id);

  std::map<uint64_t, Run> runs_;
  uint64_t last_run_ = 0;
  std::deque<Client> clients_;
  std::deque<Kept<sim::ledger::Entry>> kept_requests_;
};

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_BUSY_SERVICE_H_
