#ifndef HAWSER_TESTS_FUZZ_PEER_WORLD_H_
#define HAWSER_TESTS_FUZZ_PEER_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/fuzz/liar.h"
#include "hawser/tests/sim/history.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/options.h"

namespace hawser::fuzz {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000 * kMs;

// What the fuzzers of whole connections have in common: a victim, on which the shipping code runs, an honest
// client of it, and a liar, on simulated NICs with faults that the script chooses; one thread, one clock. A
// fuzzer says what the victim does, and which rules must hold.
class PeerWorld {
 public:
  PeerWorld(const PeerWorld&) = delete;
  PeerWorld& operator=(const PeerWorld&) = delete;

 protected:
  static constexpr int kVictim = 1;
  static constexpr int kHonest = 2;
  static constexpr int kLiar = 3;
  static constexpr uint16_t kPort = 7470;  // The victim's.

  PeerWorld(const uint8_t* data, size_t size);
  virtual ~PeerWorld();

  // The liar begins; `address`: whom it dials.
  void StartLiar(const SocketAddress& address, size_t lines_max, LiarWords* words = nullptr);
  // Does step after step until the script is at its end.
  void RunScript();

  Script& script() { return script_; }
  sim::Network& network() { return network_; }
  transport::Runtime& victim_runtime() { return *victim_.runtime; }
  const std::shared_ptr<transport::Runtime>& shared_victim_runtime() { return victim_.runtime; }
  const std::shared_ptr<transport::Runtime>& shared_honest_runtime() { return honest_.runtime; }
  transport::Poller& victim() { return victim_.runtime->poller(0); }
  transport::Poller& honest() { return honest_.runtime->poller(0); }
  Liar& liar() { return *liar_; }
  // The victim has little memory. A liar may hold some of it for as long as its connection lives, so none may
  // be left for a large message of another peer.
  bool tight() const { return tight_; }

  static transport::ConnectionOptions ConnectionOptionsOf();

  void RunFor(int64_t ns);

  // The next step of a party other than the liar. `what` is 160 or more.
  virtual void Step(uint8_t what) = 0;
  // What there is to do on no poller. False: nothing.
  virtual bool DoWork() { return false; }
  // Called after each turn of all that is due at one point in time.
  virtual void CheckTurn() = 0;

  // After every side has closed what it had: nothing is leased, connected or timed any more. Ends the liar.
  void CheckNothingIsLeft();

 private:
  struct Host {
    std::shared_ptr<sim::SimFabric> fabric;
    std::shared_ptr<transport::Runtime> runtime;
  };

  static sim::NetworkOptions NetworkOptionsOf(Script& script);
  void Start(Host& host, int number, size_t pool_bytes);
  // Does all that is due now. False: that was nothing.
  bool Turns();
  // Does all that is due now or, if that is nothing, goes on to when something is, `until_ns` at the latest.
  // False: it is then, and nothing is due.
  bool StepTo(int64_t until_ns);

  Script script_;
  sim::TextHistory history_;
  sim::Network network_;
  const bool tight_;
  Host victim_, honest_;
  std::unique_ptr<Liar> liar_;
};

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_PEER_WORLD_H_
