#ifndef HAWSER_TESTS_SIM_NETWORK_H_
#define HAWSER_TESTS_SIM_NETWORK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/sim/faults.h"
#include "hawser/tests/sim/history.h"
#include "hawser/tests/sim/memory_guard.h"
#include "hawser/tls/context.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {

class SimListener;
class SimQueuePair;

struct NetworkOptions {
  uint64_t seed = 1;
  Faults faults;
  // Above 0: a Poll() that finds nothing moves the clock by this much. For tests without a world.
  int64_t idle_poll_ns = 0;
  uint32_t push_bytes_max = 132 << 10;  // For every queue pair; 0: none pushes.
  // Rules of transport/, which other users need not keep. `strict_destruction`: a queue pair is not destroyed
  // before all work requests have completed, unless its host is off. `strict_receives`: no SEND finds the
  // receive queue empty. `strict_endings`: no SEND ends what is not granted, or what the peer still READs.
  bool strict_destruction = false;
  bool strict_receives = false;
  bool strict_endings = false;
  // A SEND may wait for a receive (QueuePairOptions::sends_wait), and receives can be withdrawn, as over TCP.
  bool sends_can_wait = false;
  // A SEND may end a grant of the peer's (Fabric::sends_end_grants()), as over verbs with memory windows.
  bool sends_end_grants = false;
  // What atomics are atomic with. kNic: they read and write the memory at different times.
  fabric::Atomics atomics = fabric::Atomics::kNic;
  // The most bytes of a SEND that is copied (QueuePair::PostInline()); 0: none is, as on a NIC without inline
  // data.
  uint32_t inline_bytes_max = 512;
  // How often a SEND is offered to the handler of the connection (ConnectionHandler::TakeSend()), from 0, as
  // on a NIC, to 1.
  double offered = 0;
};

// The network between the simulated NICs of all hosts: the only clock, the only dice, and everything in
// flight.
//
// Everything happens inside AdvanceTo(). Events run in the order of their times; events with the same time
// run in the order of their posts.
// Thread:   any; one lock for the whole network, which callers hold for the functions marked "locked".
class Network final : public transport::Environment {
 public:
  explicit Network(const NetworkOptions& options);
  ~Network() override;

  // Environment. The wall clock shows the same time.
  int64_t NowNs() override { return now_ns_.load(std::memory_order_relaxed); }
  absl::Time Now() override { return absl::FromUnixNanos(NowNs()); }
  void FillRandom(absl::Span<uint8_t> bytes) override;
  // Lets time pass by `step`, which must be set.
  bool Await(absl::Mutex& mutex, absl::CondVar& changed, absl::FunctionRef<bool()> condition,
             absl::Time deadline) override;

  // Runs all events that are due until `now_ns`, and sets the clock to it. Clocks may jump.
  void AdvanceTo(int64_t now_ns);
  // The time of the next event; transport::kNever: there is none.
  int64_t next_ns();

  // ---- Faults at the world's command.

  // A host that is off loses what is sent to it, and announces nothing. After SwitchOn() it is another host
  // at the same address, which does not know the old queue pairs.
  void SwitchOff(int host);
  void SwitchOn(int host);
  // Messages sent while the link is cut arrive later, or never if the retries end.
  void Cut(int host, int other);
  void Heal(int host, int other);
  // From now on the host serves READs so; nullopt: as Faults say.
  void SetReadService(int host, std::optional<ReadService> service);
  // Every queue pair of the host is in error, with an asynchronous event: the device is gone.
  void RemoveDevice(int host);

  // Applies from now on.
  void SetFaults(const Faults& faults);

  // The identity that the credentials of `context` stand for.
  void SetIdentity(const tls::Context* context, std::shared_ptr<const PeerIdentity> identity);

  // What hosts have said lately over RDMA when connecting, as the network reads it.
  struct SeenConnect {
    std::string private_data;
    bool lost;  // The server has not got it.
  };
  std::vector<SeenConnect> SeenConnects();

  // Takes the violations that the memory guard, or the fabric itself, has found in the code above.
  std::vector<std::string> TakeViolations();

  // The driver of all hosts sets this. It runs what is due; if nothing is due, it moves the clock to the next
  // event, or to `until_ns` if that is earlier.
  std::function<void(int64_t until_ns)> step;

  // A NIC has read or written memory that is granted to a peer. Called with the lock. Empty: not reported.
  std::function<void(const uint8_t* address, size_t length_bytes, bool writes)> on_peer_access;

  // Outlives the network. nullptr: events are not reported.
  History* history = nullptr;

  // ---- For the fabric. Locked.

  std::mutex& mutex() { return mutex_; }
  Dice& dice() { return dice_; }
  const Faults& faults() const { return options_.faults; }
  ReadService ReadServiceOf(int host) const;
  // The NIC of `host` executes one atomic at a time. When the next may begin, which takes so long.
  int64_t TakeAtomicUnit(int host, int64_t duration_ns);
  const NetworkOptions& options() const { return options_; }
  MemoryGuard& memory_guard() { return memory_guard_; }

  void At(int64_t when_ns, std::function<void()> event);
  void RunDue();
  bool quiet() const { return events_.empty(); }
  bool Reachable(int host, int other) const;
  bool IsOn(int host) const { return off_.count(host) == 0; }
  void Violation(absl::string_view what);
  void Note(int host, absl::string_view what);
  void NotePeerAccess(const uint8_t* address, size_t length_bytes, bool writes) {
    if (on_peer_access) on_peer_access(address, length_bytes, writes);
  }

  uint32_t AddQueuePair(SimQueuePair* queue_pair);
  void RemoveQueuePair(uint32_t qp_num) { queue_pairs_.erase(qp_num); }
  SimQueuePair* FindQueuePair(uint32_t qp_num) const;

  void NoteConnect(const std::string& private_data, bool lost);

  // For null: null. An unknown one is authenticated without a name.
  std::shared_ptr<const PeerIdentity> IdentityOf(const tls::Context* context) const;

  // False: the address is in use. Port 0: chooses one and writes it to `*port`.
  bool AddListener(const std::string& host_address, uint16_t* port, SimListener* listener);
  void RemoveListener(SimListener* listener);
  SimListener* FindListener(const std::string& address) const;

  // Notifies waiting threads of every post and every event.
  std::condition_variable& changed() { return changed_; }

 private:
  struct Event {
    int64_t when_ns;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return when_ns != other.when_ns ? when_ns > other.when_ns : number > other.number;
    }
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  NetworkOptions options_;
  Dice dice_;
  MemoryGuard memory_guard_;
  std::atomic<int64_t> now_ns_{1'000'000'000};
  std::priority_queue<Event> events_;
  uint64_t event_count_ = 0;
  std::map<uint32_t, SimQueuePair*> queue_pairs_;
  uint32_t last_qp_num_ = 0;
  std::map<std::string, SimListener*> listeners_;  // The key is "address:port".
  uint16_t last_port_ = 40000;
  std::set<int> off_;
  std::set<std::pair<int, int>> cut_;
  std::map<int, ReadService> read_services_;
  std::map<int, int64_t> atomic_units_free_ns_;
  std::map<const tls::Context*, std::shared_ptr<const PeerIdentity>> identities_;
  std::deque<SeenConnect> seen_connects_;
  std::vector<std::string> violations_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_NETWORK_H_
