#include "hawser/tests/fuzz/peer_world.h"

#include <stdlib.h>

#include <algorithm>
#include <string>

#include "absl/time/time.h"

namespace hawser::fuzz {
namespace {

constexpr int kTurnsMax = 10'000;  // At one point in time.
constexpr int kStepsMax = 300;
constexpr uint8_t kLiarsSteps = 160;  // Those below are the liar's.
constexpr size_t kPoolBytes = 64 << 20;
constexpr size_t kTightPoolBytes = 8 << 20;

}  // namespace

PeerWorld::PeerWorld(const uint8_t* data, size_t size)
    : script_(data, size), network_(NetworkOptionsOf(script_)), tight_(script_.Byte() % 4 == 0) {
  if (getenv("HAWSER_FUZZ_TRACE") != nullptr) network_.history = &history_;
  network_.step = [this](int64_t until_ns) { StepTo(until_ns); };
  Start(victim_, kVictim, tight_ ? kTightPoolBytes : kPoolBytes);
  Start(honest_, kHonest, kPoolBytes);
}

PeerWorld::~PeerWorld() = default;

sim::NetworkOptions PeerWorld::NetworkOptionsOf(Script& script) {
  sim::NetworkOptions options;
  options.strict_destruction = true;
  options.seed = script.Byte();
  sim::Faults& faults = options.faults;
  if (options.seed % 4 == 1) faults.completion = {0, 3 * kMs};
  if (options.seed % 4 == 2) faults.fetch = {0, 100'000};
  if (options.seed % 4 == 3) faults.revocation = {0, 5 * kMs};
  if (options.seed % 8 >= 4) faults.flush = {0, 20 * kMs};
  faults.goodbye_lost = options.seed >= 192 ? 1 : 0;
  return options;
}

transport::ConnectionOptions PeerWorld::ConnectionOptionsOf() {
  transport::ConnectionOptions options;
  options.slots = 4;
  options.receive_buffer_bytes = 1024;
  options.message_bytes_max = 4 << 20;
  options.keepalive_interval = absl::Seconds(1);
  options.keepalive_timeout = absl::Milliseconds(500);
  return options;
}

void PeerWorld::Start(Host& host, int number, size_t pool_bytes) {
  host.fabric = std::make_shared<sim::SimFabric>(network_, number);
  transport::RuntimeOptions options;
  options.pool.limit_bytes = pool_bytes;
  host.runtime = *transport::Runtime::CreateOn(host.fabric, options, /*start_threads=*/false, network_);
}

void PeerWorld::StartLiar(const SocketAddress& address, size_t lines_max, LiarWords* words) {
  liar_ = std::make_unique<Liar>(network_, kLiar, address, lines_max, words);
}

void PeerWorld::RunScript() {
  for (int i = 0; i < kStepsMax && !script_.empty(); ++i) {
    const uint8_t what = script_.Byte();
    what < kLiarsSteps ? liar_->Step(what, script_) : Step(what);
    RunFor(2'000);
  }
}

// ---- Time

bool PeerWorld::Turns() {
  int turns = 0;
  for (bool work = true; work;) {
    FUZZ_EXPECT(++turns < kTurnsMax, "time stands still: there is always something more to do");
    work = victim().PollOnce() != 0;
    if (honest().PollOnce() != 0) work = true;
    if (liar_ != nullptr && liar_->Turn() != 0) work = true;
    if (DoWork()) work = true;
  }
  CheckTurn();
  for (const std::string& violation : network_.TakeViolations()) {
    // The liar may do anything to its own memory. A liar that asks for several control answers at once may
    // get one of them twice.
    if (violation.find("host 3") == 0) continue;
    if (liar_ != nullptr && liar_->flooded_control() &&
        violation.find("into 16 bytes that the fabric was sending from") != std::string::npos) {
      continue;
    }
    FUZZ_EXPECT(false, violation);
  }
  const transport::BufferPoolStats stats = victim_.runtime->buffers().stats();
  FUZZ_EXPECT(stats.mapped_bytes <= stats.limit_bytes);
  return turns > 1;
}

bool PeerWorld::StepTo(int64_t until_ns) {
  if (Turns()) return true;
  const int64_t next_ns =
      std::min({network_.next_ns(), victim().timers().next_ns(), honest().timers().next_ns()});
  const bool there = next_ns > until_ns;
  network_.AdvanceTo(std::max(std::min(next_ns, until_ns), network_.NowNs()));
  return !there;
}

void PeerWorld::RunFor(int64_t ns) {
  const int64_t end_ns = network_.NowNs() + ns;
  while (StepTo(end_ns)) {
  }
}

// ---- The end

void PeerWorld::CheckNothingIsLeft() {
  for (transport::Poller* poller : {&victim(), &honest()}) {
    poller->Run([poller] { poller->messages().Trim(); });
  }
  FUZZ_EXPECT(victim().connection_count() == 0, victim().connection_count());
  FUZZ_EXPECT(victim().timers().next_ns() == transport::kNever, "a timer is set");
  FUZZ_EXPECT(victim().read_budget().taken_bytes() == 0, victim().read_budget().taken_bytes());
  for (const Host* host : {&victim_, &honest_}) {
    const transport::BufferPoolStats stats = host->runtime->buffers().stats();
    FUZZ_EXPECT(stats.leases == 0, stats.leases, " buffers did not come home");
  }
  liar_.reset();
  FUZZ_EXPECT(network_.memory_guard().count() == 0, network_.memory_guard().count());
}

}  // namespace hawser::fuzz
