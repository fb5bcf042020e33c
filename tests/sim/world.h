#ifndef HAWSER_TESTS_SIM_WORLD_H_
#define HAWSER_TESTS_SIM_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/sim/history.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/runtime.h"

namespace hawser::sim {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000 * kMs;

struct WorldOptions {
  uint64_t seed = 1;
  int steps = 200;  // Of the workload, each something that is asked for, a fault, or time that passes.
  History* history = nullptr;  // Outlives the world.
};

struct WorldResult {
  std::vector<std::string> broken_rules;  // Empty: all is well.
  uint64_t calls = 0;                     // Or requests.
  uint64_t answered = 0;
  int64_t simulated_ns = 0;
};

// What all worlds have: hosts, a network with faults, one clock, one pair of dice, and one thread that does
// what is due. A world says what its hosts do, and which rules must hold.
class World {
 public:
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // ---- For its parts

  static constexpr int kServer = 1;

  int64_t now_ns() { return network_.NowNs(); }
  // Runs `what`, on no poller, when it is time.
  void At(int64_t when_ns, std::function<void()> what) { AtOn(0, when_ns, std::move(what)); }
  // Likewise, as another thread of the process on `host`: later, if that stands still then.
  void AtOn(int host, int64_t when_ns, std::function<void()> what);
  void Broken(absl::string_view rule);
  void Note(int host, absl::string_view what);

 protected:
  // Host 1, the server, and `clients` others. Each fault is there in half of the worlds: quiet ones find
  // other bugs than loud ones.
  World(const WorldOptions& options, int clients_max);
  virtual ~World();

  // ---- Chance

  Dice& dice() { return dice_; }
  int AnyHost() { return static_cast<int>(dice_.Between(kServer, hosts_)); }
  int AnyClient() { return static_cast<int>(dice_.Between(kServer + 1, hosts_)); }
  // Few slots or a dozen, small buffers or larger ones; a peer that is silent is noticed within two seconds.
  transport::ConnectionOptions AnyConnectionOptions();
  // Of a container that is not empty.
  template <typename Container>
  auto& AnyOf(Container& all) {
    return all[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(all.size()) - 1))];
  }

  // ---- Hosts, 1 to host_count(): the processes on them

  int host_count() const { return hosts_; }
  Network& network() { return network_; }
  // Makes a runtime for `host`, if it has none. False: a fault keeps it from starting; try later.
  bool StartRuntime(int host);
  // nullptr: there is none.
  std::shared_ptr<transport::Runtime> runtime(int host) const;
  // The world polls the runtime until it is the only owner, and then destroys it.
  void LetGoOfRuntime(int host);

  // ---- Bad peers, as the seed's faults choose them

  // Those of this seed, before there was peace.
  const Faults& chosen_faults() const { return chosen_faults_; }
  // Whether something of that kind is done in this step. Throws nothing where the faults want none, so that
  // those worlds are what they were.
  bool StallsNow() { return bad_dice_.Chance(network_.faults().stalls); }
  bool TricklesNow() { return bad_dice_.Chance(network_.faults().trickles); }
  bool HoardsNow() { return bad_dice_.Chance(network_.faults().hoards); }
  // The process does nothing: it is not polled, and no thread of it runs.
  void Stall(int host);
  bool stalled(int host) const { return stalled_.count(host) != 0; }
  void Resume(int host);
  void Trickle(int host);
  void StopServingReads(int host);

  // ---- Time

  void RunFor(int64_t ns);
  // Moves the clock far ahead, so that every host is late.
  void JumpClock();
  // No host could keep a deadline before this time: the clock jumped over it.
  int64_t excused_until_ns() const { return jumped_at_ns_; }
  // Nor a process that stood still.
  int64_t excused_until_ns(int host) const;

  // ---- Rules

  bool well() const { return result_.broken_rules.empty(); }
  WorldResult& result() { return result_; }
  // Called after each turn of all that is due at one point in time.
  virtual void CheckTurn() {}
  // Of every runtime: nothing is leased, connected or timed any more; and the fabric owns no memory.
  void CheckNothingIsLeft();

  // From now on all goes well: no faults, no cut links.
  void MakePeace();

 private:
  struct Process {
    int host;
    std::shared_ptr<transport::Runtime> runtime;
  };

  struct Due {
    int host;  // 0: none.
    std::function<void()> what;
  };

  // How long a bad peer is bad.
  int64_t AnyBadTime();
  void ServeReadsAgainLater(int host);
  void ResumeWhoseTimeHasCome();
  // Does all that is due now. False: that was nothing.
  bool Turns();
  // Does all that is due now or, if that is nothing, goes on to when something is, `until_ns` at the latest.
  // False: it is then, and nothing is due.
  bool StepTo(int64_t until_ns);
  void DestroyForgottenRuntimes();

  Dice dice_;
  // Of bad peers: a world that has none is what it was before there were any.
  Dice bad_dice_;
  Network network_;
  const Faults chosen_faults_;
  const int hosts_;
  std::map<int, std::shared_ptr<SimFabric>> fabrics_;
  std::vector<Process> processes_;  // At most one of a host is not let go.
  std::vector<Process> forgotten_;
  std::multimap<int64_t, Due> agenda_;
  int64_t jumped_at_ns_ = 0;
  std::map<int, int64_t> stalled_;         // Until when.
  std::map<int, int64_t> resumed_ns_;      // When one last stood still.
  std::map<int, uint64_t> read_services_;  // How often each was changed.
  WorldResult result_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_WORLD_H_
