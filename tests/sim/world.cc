#include "hawser/tests/sim/world.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::sim {
namespace {

constexpr int kTurnsMax = 10'000;  // The most turns at one point in time.
constexpr size_t kPoolBytes = 64 << 20;
constexpr double kBadStep = 0.02;
constexpr uint64_t kBadSeed = 0xbad;
constexpr uint64_t kPushSeed = 0x9054;
constexpr uint64_t kWaitingSeed = 0xa17;
constexpr uint64_t kEndingSeed = 0xe4d;
constexpr uint64_t kInlineSeed = 0x1417e;
constexpr uint64_t kOfferSeed = 0x6f66666572;

Faults FaultsOf(Dice& dice, Dice& bad_dice) {
  const auto often = [&](double probability) { return dice.Chance(0.5) ? probability : 0; };
  Faults faults;
  if (dice.Chance(0.5)) faults.fetch = {0, dice.Between(1, 100'000)};
  if (dice.Chance(0.5)) faults.latency = {1'000, dice.Between(1'000, 2 * kMs)};
  if (dice.Chance(0.5)) faults.completion = {0, dice.Between(1, 3 * kMs)};
  if (dice.Chance(0.5)) faults.flush = {0, dice.Between(1, 20 * kMs)};
  if (dice.Chance(0.5)) faults.event = {1'000, dice.Between(1'000, 10 * kMs)};
  if (dice.Chance(0.5)) faults.revocation = {0, dice.Between(1, 5 * kMs)};
  faults.read_chunk_bytes = static_cast<uint32_t>(dice.Between(1'000, 100'000));
  faults.read_chunk_ns = dice.Between(0, dice.Chance(0.5) ? 5'000 : kMs);
  faults.request_fails = often(0.003);
  faults.connect_request_lost = often(0.1);
  faults.accept_lost = often(0.1);
  faults.goodbye_lost = often(0.3);
  faults.queue_pair_fails = often(0.05);
  faults.registration_fails = often(0.02);
  faults.error_on_goodbye = often(0.5);
  faults.stalls = bad_dice.Chance(0.3) ? kBadStep : 0;
  faults.trickles = bad_dice.Chance(0.3) ? kBadStep : 0;
  faults.hoards = bad_dice.Chance(0.3) ? kBadStep : 0;
  return faults;
}

NetworkOptions NetworkOf(Dice& dice, Dice& bad_dice) {
  NetworkOptions options;
  options.seed = dice.Next();
  options.faults = FaultsOf(dice, bad_dice);
  options.strict_destruction = true;
  options.strict_receives = options.faults.registration_fails == 0;
  Dice push_dice(options.seed ^ kPushSeed);  // Separate, so that it does not change a seed's other faults.
  if (push_dice.Chance(0.5)) {
    options.push_bytes_max =
        static_cast<uint32_t>(push_dice.Chance(0.5) ? 0 : push_dice.Between(100, 20'000));
  }
  // Use separate dice, so that these choices do not change a seed's other numbers.
  options.sends_can_wait = Dice(options.seed ^ kWaitingSeed).Chance(0.5);
  options.sends_end_grants = Dice(options.seed ^ kEndingSeed).Chance(0.5);
  Dice inline_dice(options.seed ^ kInlineSeed);
  if (inline_dice.Chance(0.5)) {
    options.inline_bytes_max =
        static_cast<uint32_t>(inline_dice.Chance(0.5) ? 0 : inline_dice.Between(40, 4096));
  }
  Dice offer_dice(options.seed ^ kOfferSeed);
  if (offer_dice.Chance(0.7)) options.offered = offer_dice.Chance(0.5) ? 1 : 0.5;
  options.strict_endings = true;
  return options;
}

}  // namespace

World::World(const WorldOptions& options, int clients_max)
    : dice_(options.seed),
      bad_dice_(options.seed ^ kBadSeed),
      network_(NetworkOf(dice_, bad_dice_)),
      chosen_faults_(network_.faults()),
      hosts_(static_cast<int>(kServer + dice_.Between(1, clients_max))) {
  network_.history = options.history;
  network_.step = [this](int64_t until_ns) { StepTo(until_ns); };
}

World::~World() = default;

transport::ConnectionOptions World::AnyConnectionOptions() {
  transport::ConnectionOptions options;
  options.slots = static_cast<uint32_t>(dice_.Between(1, 12));
  options.receive_buffer_bytes = dice_.Chance(0.5) ? 4096 : 1024;
  options.keepalive_interval = absl::Seconds(1);
  options.keepalive_timeout = absl::Milliseconds(500);
  return options;
}

// ---- Hosts

bool World::StartRuntime(int host) {
  if (runtime(host) != nullptr) return true;
  std::shared_ptr<SimFabric>& fabric = fabrics_[host];
  if (fabric == nullptr) fabric = std::make_shared<SimFabric>(network_, host);
  transport::RuntimeOptions options;
  options.pool.limit_bytes = kPoolBytes;
  options.pollers = host == kServer ? 1 : client_pollers_;
  auto made = transport::Runtime::CreateOn(fabric, options, /*start_threads=*/false, network_);
  if (!made.ok()) return false;
  std::shared_ptr<transport::Runtime> proves;
  if (proves_) {
    std::shared_ptr<SimFabric>& tls_fabric = tls_fabrics_[host];
    if (tls_fabric == nullptr)
      tls_fabric = std::make_shared<SimFabric>(network_, host, SimFabric::Kind::kTcp);
    auto made_too = transport::Runtime::CreateOn(tls_fabric, options, /*start_threads=*/false, network_);
    if (!made_too.ok()) return false;
    proves = *std::move(made_too);
    (*made)->set_prove_over(proves);
  }
  processes_.push_back({host, *std::move(made)});
  if (proves != nullptr) processes_.push_back({host, std::move(proves)});
  return true;
}

std::shared_ptr<transport::Runtime> World::runtime(int host) const {
  for (const Process& process : processes_) {
    if (process.host == host) return process.runtime;
  }
  return nullptr;
}

void World::DropRuntime(int host) {
  Resume(host);
  const auto is_on_host = [host](const Process& each) { return each.host == host; };
  const auto gone = std::stable_partition(processes_.begin(), processes_.end(), std::not_fn(is_on_host));
  std::move(gone, processes_.end(), std::back_inserter(forgotten_));
  processes_.erase(gone, processes_.end());
  DestroyForgottenRuntimes();
}

void World::DestroyForgottenRuntimes() {
  forgotten_.erase(std::remove_if(forgotten_.begin(), forgotten_.end(),
                                  [](const Process& process) { return process.runtime.use_count() == 1; }),
                   forgotten_.end());
}

// ---- Bad peers

int64_t World::AnyBadTime() {
  if (bad_dice_.Chance(0.2)) return transport::kNever - now_ns();
  return bad_dice_.Between(0, bad_dice_.Chance(0.5) ? 20 * kMs : 4 * kSecond);
}

void World::Stall(int host) {
  stalled_[host] = now_ns() + AnyBadTime();
  Note(host, absl::StrCat("stands still until ", stalled_[host], " ns"));
}

void World::Resume(int host) {
  if (stalled_.erase(host) == 0) return;
  Note(host, "goes on");
  resumed_ns_[host] = now_ns();
  // Runs now what its threads should have done meanwhile.
  for (auto it = agenda_.lower_bound(transport::kNever); it != agenda_.end();) {
    const auto next = std::next(it);
    if (it->second.host == host) {
      auto due = agenda_.extract(it);
      due.key() = now_ns();
      agenda_.insert(std::move(due));
    }
    it = next;
  }
}

void World::ResumeWhoseTimeHasCome() {
  for (auto it = stalled_.begin(); it != stalled_.end();) {
    const auto [host, until_ns] = *it++;
    if (until_ns <= now_ns()) Resume(host);
  }
}

int64_t World::excused_until_ns(int host) const {
  if (stalled(host)) return transport::kNever - kSecond;
  const auto resumed = resumed_ns_.find(host);
  return std::max(jumped_at_ns_, resumed == resumed_ns_.end() ? 0 : resumed->second);
}

void World::Trickle(int host) {
  const ReadService service = {static_cast<uint32_t>(bad_dice_.Between(1, 2'000)),
                               bad_dice_.Between(kMs, 500 * kMs)};
  Note(host, absl::StrCat("serves ", service.chunk_bytes, " bytes of a READ every ", service.gap_ns, " ns"));
  network_.SetReadService(host, service);
  ServeReadsAgainLater(host);
}

void World::StopServingReads(int host) {
  Note(host, "serves no READs");
  network_.SetReadService(host, ReadService());
  ServeReadsAgainLater(host);
}

void World::ServeReadsAgainLater(int host) {
  const int64_t bad_ns = AnyBadTime();
  if (bad_ns >= transport::kNever - now_ns()) return;
  At(now_ns() + bad_ns, [this, host, change = ++read_services_[host]] {
    if (read_services_[host] != change) return;
    Note(host, "serves READs again");
    network_.SetReadService(host, std::nullopt);
  });
}

// ---- Time

void World::AtOn(int host, int64_t when_ns, std::function<void()> what) {
  agenda_.emplace(when_ns, Due{host, std::move(what)});
}

bool World::Turns() {
  int turns = 0;
  for (bool work = true; work;) {
    work = false;
    ResumeWhoseTimeHasCome();
    if (++turns == kTurnsMax) {
      Broken("time stands still: there is always something more to do");
      return true;
    }
    for (const std::vector<Process>* processes : {&processes_, &forgotten_}) {
      for (size_t i = 0; i < processes->size(); ++i) {  // A turn may start and end processes.
        if (processes == &processes_ && stalled((*processes)[i].host)) continue;
        const std::shared_ptr<transport::Runtime> runtime = (*processes)[i].runtime;
        for (size_t number = 0; number < runtime->poller_count(); ++number) {
          if (runtime->poller(number).PollOnce() != 0) work = true;
        }
      }
    }
    while (!agenda_.empty() && agenda_.begin()->first <= now_ns()) {
      const Due due = std::move(agenda_.begin()->second);
      agenda_.erase(agenda_.begin());
      ResumeWhoseTimeHasCome();  // The clock may have jumped.
      if (const auto stands = stalled_.find(due.host); stands != stalled_.end()) {
        agenda_.emplace(stands->second, due);
        continue;
      }
      due.what();
      work = true;
    }
  }
  DestroyForgottenRuntimes();
  CheckTurn();
  for (const std::string& violation : network_.TakeViolations()) Broken(violation);
  return turns > 1;
}

bool World::StepTo(int64_t until_ns) {
  if (Turns()) return true;
  int64_t next_ns = network_.next_ns();
  for (const std::vector<Process>* processes : {&processes_, &forgotten_}) {
    for (const Process& process : *processes) {
      if (processes == &processes_ && stalled(process.host)) continue;
      for (size_t number = 0; number < process.runtime->poller_count(); ++number) {
        next_ns = std::min(next_ns, process.runtime->poller(number).timers().next_ns());
      }
    }
  }
  for (const auto& [host, resumes_ns] : stalled_) next_ns = std::min(next_ns, resumes_ns);
  if (!agenda_.empty()) next_ns = std::min(next_ns, agenda_.begin()->first);
  const bool there = next_ns > until_ns;
  network_.AdvanceTo(std::max(std::min(next_ns, until_ns), now_ns()));
  return !there;
}

void World::RunFor(int64_t ns) {
  const int64_t end_ns = now_ns() + ns;
  while (well() && StepTo(end_ns)) {
  }
}

void World::JumpClock() {
  jumped_at_ns_ = now_ns() + dice_.Between(0, 2 * kSecond);
  Note(0, absl::StrCat("the clock jumps by ", jumped_at_ns_ - now_ns(), " ns"));
  network_.AdvanceTo(jumped_at_ns_);
}

// ---- Rules

void World::Broken(absl::string_view rule) {
  Note(0, absl::StrCat("BROKEN: ", rule));
  result_.broken_rules.push_back(absl::StrCat("at ", now_ns(), " ns: ", rule));
}

void World::Note(int host, absl::string_view what) {
  if (network_.history != nullptr) network_.history->Happened(now_ns(), host, what);
}

void World::CheckNothingIsLeft() {
  if (!forgotten_.empty()) {
    Broken(absl::StrCat("a runtime of host ", forgotten_[0].host, ", which was let go, is still owned ",
                        forgotten_[0].runtime.use_count() - 1, " times"));
  }
  for (const Process& process : processes_) {
    const std::string host = absl::StrCat("host ", process.host, " still ");
    for (size_t number = 0; number < process.runtime->poller_count(); ++number) {
      transport::Poller& poller = process.runtime->poller(number);
      poller.Run([&] { poller.messages().Trim(); });
      if (poller.connection_count() != 0) Broken(absl::StrCat(host, "has connections"));
      if (const uint64_t bytes = poller.read_budget().taken_bytes(); bytes != 0) {
        Broken(absl::StrCat(host, "counts ", bytes, " bytes of READs"));
      }
      if (poller.timers().next_ns() != transport::kNever) Broken(absl::StrCat(host, "has a timer set"));
    }
    const transport::BufferPoolStats stats = process.runtime->buffers().stats();
    if (stats.leases != 0) Broken(absl::StrCat(host, "leases ", stats.leases, " buffers"));
  }
  if (const size_t count = network_.memory_guard().count(); count != 0) {
    Broken(absl::StrCat("the fabric still owns ", count, " ranges of memory"));
  }
}

void World::MakePeace() {
  network_.SetFaults(Faults());
  for (int host = kServer; host <= hosts_; ++host) {
    Resume(host);
    network_.SetReadService(host, std::nullopt);
    network_.Heal(kServer, host);
    network_.SwitchOn(host);
  }
}

}  // namespace hawser::sim
