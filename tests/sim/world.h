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
  int steps = 200;             // Steps of the workload; each is a request, a fault, or time that passes.
  History* history = nullptr;  // Outlives the world.
};

struct WorldResult {
  std::vector<std::string> broken_rules;  // Empty: all is well.
  uint64_t calls = 0;                     // Calls, or requests of transport/.
  uint64_t answered = 0;
  uint64_t landed = 0;  // Of these, with a segment in memory of the program's own.
  int64_t simulated_ns = 0;
};

// The base of all worlds: hosts, a network with faults, one clock, random numbers, and one thread that runs
// what is due. A derived world defines what its hosts do, and which rules must hold.
class World {
 public:
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // ---- For its parts

  static constexpr int kServer = 1;

  int64_t now_ns() { return network_.NowNs(); }
  // Runs `what` at `when_ns`, on no poller.
  void At(int64_t when_ns, std::function<void()> what) { AtOn(0, when_ns, std::move(what)); }
  // Runs `what` as another thread of the process on `host`. If the process is stalled then, it runs later.
  void AtOn(int host, int64_t when_ns, std::function<void()> what);
  void Broken(absl::string_view rule);
  void Note(int host, absl::string_view what);
  bool stalled(int host) const { return stalled_.count(host) != 0; }
  // No host could keep a deadline before this time, because the clock jumped over it.
  int64_t excused_until_ns() const { return jumped_at_ns_; }
  // The same for the process on `host`, which may have been stalled, too.
  int64_t excused_until_ns(int host) const;
  // See Network::on_peer_access.
  void OnPeerAccess(std::function<void(const uint8_t* address, size_t length_bytes, bool writes)> callback) {
    network_.on_peer_access = std::move(callback);
  }

 protected:
  // Makes host 1, the server, and up to `clients_max` others. Half of the worlds have each fault, because
  // quiet worlds find other bugs than loud ones.
  World(const WorldOptions& options, int clients_max);
  virtual ~World();

  // ---- Chance

  Dice& dice() { return dice_; }
  int AnyHost() { return static_cast<int>(dice_.Between(kServer, hosts_)); }
  int AnyClient() { return static_cast<int>(dice_.Between(kServer + 1, hosts_)); }
  // Few slots or a dozen, small buffers or larger ones; a silent peer is detected within two seconds.
  transport::ConnectionOptions AnyConnectionOptions();
  // Returns an element of `all`, which must not be empty.
  template <typename Container>
  auto& AnyOf(Container& all) {
    return all[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(all.size()) - 1))];
  }

  // ---- Hosts, 1 to host_count(): the processes on them

  int host_count() const { return hosts_; }
  Network& network() { return network_; }
  // From now on each runtime has another one beside it, over which it proves with credentials who connects,
  // by what looks like TLS.
  void ProveIdentities() { proves_ = true; }
  // From now on the runtimes of clients have so many pollers.
  void SetClientPollers(int count) { client_pollers_ = count; }
  // Makes a runtime for `host`, if it has none. False: a fault prevents the start; try later.
  bool StartRuntime(int host);
  // nullptr: there is none.
  std::shared_ptr<transport::Runtime> runtime(int host) const;
  // The world polls the runtime until it is the only owner, and then destroys it.
  void DropRuntime(int host);

  // ---- Bad peers, as the seed's faults choose them

  // The faults of this seed, before there was peace.
  const Faults& chosen_faults() const { return chosen_faults_; }
  // Whether this step does something of that kind. Draws no number if the seed has no such fault, so that
  // those worlds do not change.
  bool StallsNow() { return bad_dice_.Chance(network_.faults().stalls); }
  bool TricklesNow() { return bad_dice_.Chance(network_.faults().trickles); }
  bool HoardsNow() { return bad_dice_.Chance(network_.faults().hoards); }
  // Stops the process: the world does not poll it, and runs no thread of it.
  void Stall(int host);
  void Resume(int host);
  void Trickle(int host);
  void StopServingReads(int host);

  // ---- Time

  void RunFor(int64_t ns);
  // Moves the clock far ahead, so that every host is late.
  void JumpClock();

  // ---- Rules

  bool well() const { return result_.broken_rules.empty(); }
  WorldResult& result() { return result_; }
  // Called after each turn in which the world has run what is due at one point in time.
  virtual void CheckTurn() {}
  // Checks for every runtime that nothing is leased, connected or timed any more, and that the fabric owns no
  // memory.
  void CheckNothingIsLeft();

  // Ends all faults and heals all links.
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

  // How long a bad peer misbehaves.
  int64_t AnyBadTime();
  void ServeReadsAgainLater(int host);
  void ResumeWhoseTimeHasCome();
  // Runs all that is due now. False: nothing was due.
  bool Turns();
  // Runs all that is due now. If nothing is due, moves the clock to the next event, or to `until_ns` if that
  // is earlier. False: the clock is at `until_ns`, and nothing is due.
  bool StepTo(int64_t until_ns);
  void DestroyForgottenRuntimes();

  Dice dice_;
  // The random numbers of bad peers, so that they do not change worlds without bad peers.
  Dice bad_dice_;
  Network network_;
  const Faults chosen_faults_;
  const int hosts_;
  bool proves_ = false;
  int client_pollers_ = 1;
  std::map<int, std::shared_ptr<SimFabric>> fabrics_;
  std::map<int, std::shared_ptr<SimFabric>> tls_fabrics_;
  std::vector<Process> processes_;  // At most one for each host, and behind it the one that proves.
  std::vector<Process> forgotten_;
  std::multimap<int64_t, Due> agenda_;
  int64_t jumped_at_ns_ = 0;
  std::map<int, int64_t> stalled_;         // For each stalled host: until when.
  std::map<int, int64_t> resumed_ns_;      // For each host: when it last resumed.
  std::map<int, uint64_t> read_services_;  // For each host: how often its ReadService was changed.
  WorldResult result_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_WORLD_H_
