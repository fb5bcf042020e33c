// Does harm to a kv_server and its clients, each a process of its own. README.md says what must hold even so.
//
//   chaos_test [--seconds=6] [--seed=N] [--listen=tcp://127.0.0.1:0]
//
// Prints what was done. The same seed does the same harm again, but real processes do not behave the same
// twice.

#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "hawser/tests/chaos/actors.h"
#include "hawser/tests/chaos/errands.h"
#include "hawser/tests/chaos/history.h"
#include "hawser/tests/chaos/ledger.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/chaos/remote_tables.h"
#include "hawser/tests/chaos/stillness.h"
#include "hawser/tests/chaos/watch_check.h"
#include "hawser/tests/testing/proxy.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::chaos {
namespace {

namespace fs = std::filesystem;

constexpr size_t kErrands = 2;
// BufferPoolOptions::idle over TCP and half as long again, and some. Over RDMA it is longer than a run: there
// both halves of the run are measured with what the pools keep.
constexpr absl::Duration kPoolsKeep = absl::Seconds(8);
struct Options {
  absl::Duration duration = absl::Seconds(6);
  uint64_t seed = 0;
  std::string listen = TestUri();
};

class Chaos {
 public:
  explicit Chaos(const Options& options) : options_(options), random_(options.seed) {
    const char* const tmp = getenv("TEST_TMPDIR");
    std::string folder = absl::StrCat(tmp != nullptr ? tmp : "/tmp", "/chaos.XXXXXX");
    if (mkdtemp(folder.data()) == nullptr) {
      std::cerr << "chaos_test: no folder " << folder << std::endl;
      exit(1);
    }
    folder_ = folder;
    const auto ledger = Ledger::Create(folder_ + "/ledger");
    if (!ledger.ok()) {
      std::cerr << "chaos_test: " << ledger.status() << std::endl;
      exit(1);
    }
    ledger_ = *ledger;
    large_max_ = Tcp() ? 512 << 10 : 128 << 10;
    actors_ = std::make_unique<Actors>(folder_, options_.listen, large_max_, &history_, ledger_);
  }

  ~Chaos() {
    tables_.reset();
    errands_.clear();
    actors_.reset();
    fs::remove_all(folder_);
  }

  bool Run() {
    history_.Note(absl::StrFormat("seed %d, %s, %s", options_.seed, absl::FormatDuration(options_.duration),
                                  options_.listen));
    actors_->StartServer();
    if (history_.wrong()) return false;
    if (Tcp()) {
      for (int i = 0; i < 2; ++i) {
        proxies_.push_back(std::make_unique<Proxy>(actors_->uri()));
        targets_.push_back(proxies_.back()->uri());
      }
    }
    targets_.push_back(actors_->uri());
    actors_->set_targets(targets_);
    for (size_t i = 0; i < kErrands; ++i) {
      errands_.push_back(
          std::make_unique<Errands>(Errands::Options{.name = absl::StrCat("errand", i),
                                                     .folder = absl::StrCat(folder_, "/errand", i),
                                                     .targets = targets_,
                                                     .seed = options_.seed * 100 + i,
                                                     .file_bytes_max = large_max_},
                                    &history_, ledger_));
    }
    if (Tcp()) {
      tables_ = std::make_unique<RemoteTables>(folder_, options_.listen, options_.seed * 7 + 3, &history_);
      if (history_.wrong()) return false;
    }
    for (size_t i = 0; i < Actors::kWatchers; ++i) actors_->StartWatcher(i);
    for (size_t i = 0; i < Actors::kWatchers; ++i) actors_->AwaitWatcher(i);
    for (size_t i = 0; i < Ledger::kClients; ++i) StartClient(i);
    StartErrands();

    // The server that runs when the first half ends lives until the second half ends. Both halves can thus
    // compare a process with its earlier state.
    std::optional<Stillness> before, between, after;
    const auto half = [&](bool with_server) {
      Resume();
      Disturb(options_.duration / 2, with_server);
      return !history_.wrong();
    };
    // In an emulated machine everything takes its time, so it is left at the second comparison.
    if (Tcp() && (!Work() || !(before = Settle()))) return false;
    if (!half(true) || !Work() || !(between = Settle(before))) return false;
    if (before) CompareClient(*before, *between, history_);
    if (!half(false) || !Work() || !(after = Settle(between))) return false;
    CompareClient(*between, *after, history_);
    CompareServer(*between, *after, history_);
    Report();
    return !history_.wrong();
  }

 private:
  bool Tcp() const { return absl::StartsWith(options_.listen, "tcp:"); }
  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  absl::Duration Ms(uint64_t from, uint64_t to) { return absl::Milliseconds(from + Below(to - from)); }

  // ---- Harm.

  void Later(absl::Duration delay, std::function<void()> action) {
    agenda_.emplace(absl::Now() + delay, std::move(action));
  }

  void StartClient(size_t slot) { actors_->StartClient(slot, Below(1'000'000)); }

  void Stop(Actors::Actor& actor, absl::Duration duration) {
    if (actor.stopped || actor.process == nullptr) return;
    history_.Event("stop", absl::StrCat(actor.name, " for ", absl::FormatDuration(duration)));
    actors_->Stop(actor);
    Later(duration, [this, &actor, process = actor.process] {
      if (actor.process == process) actors_->Continue(actor);
    });
  }

  void EndServer(bool kill) {
    if (actors_->EndServer(kill)) Later(Ms(0, 600), [this] { actors_->StartServer(); });
  }

  void HarmErrand() {
    Errands& errands = *errands_[Below(kErrands)];
    if (Below(2) == 0) {
      if (const std::string name = errands.Signal(SIGKILL); !name.empty()) history_.Event("kill", name);
      return;
    }
    const std::string name = errands.Signal(SIGSTOP);
    if (name.empty()) return;
    history_.Event("stop", name);
    Later(Ms(10, 2000), [&errands] { errands.Signal(SIGCONT); });
  }

  void HarmProxy() {
    const size_t i = Below(proxies_.size());
    Proxy& proxy = *proxies_[i];
    const std::string name = absl::StrCat("proxy ", i);
    const uint64_t dice = Below(10);
    if (dice < 6) {
      history_.Event("cut", name);
      proxy.Cut();
    } else if (dice < 9) {
      const uint64_t delay_ms = 1 + Below(200);
      history_.Event("delay", absl::StrCat(name, " by ", delay_ms, " ms"));
      proxy.Delay(std::chrono::milliseconds(delay_ms));
      Later(Ms(200, 2000), [&proxy] { proxy.Delay(std::chrono::milliseconds(0)); });
    } else {
      history_.Event("refuse", name);
      proxy.Pass(false);
      proxy.Cut();
      Later(Ms(50, 2000), [&proxy] { proxy.Pass(true); });
    }
  }

  void Harm(bool with_server) {
    const uint64_t dice = Below(100);
    // Most stops are short; some outlast the clients' keepalive (4 s) if there is time for that.
    absl::Duration stop = Below(4) != 0 ? Ms(5, 300) : Ms(300, 2000);
    if (options_.duration > absl::Minutes(1) && Below(40) == 0) stop = absl::Seconds(5);
    if (dice < 40 && !proxies_.empty()) {
      HarmProxy();
    } else if (dice < 55) {
      Stop(actors_->server(), stop);
    } else if (dice < 65) {
      Stop(actors_->client(Below(Ledger::kClients)), stop);
    } else if (dice < 72) {
      Stop(actors_->watcher(Below(Actors::kWatchers)), stop);
    } else if (dice < 80) {
      HarmErrand();
    } else if (dice < 87) {
      const size_t slot = 1 + Below(Ledger::kClients - 1);
      actors_->Kill(actors_->client(slot));
      StartClient(slot);
    } else if (dice < 91) {
      actors_->Kill(actors_->watcher(1));
      actors_->StartWatcher(1);
    } else if (with_server) {
      EndServer(Below(3) != 0);
    }
  }

  void Disturb(absl::Duration duration, bool with_server) {
    const absl::Time end = absl::Now() + duration;
    absl::Time next = absl::Now();
    while (absl::Now() < end && !history_.wrong()) {
      while (!agenda_.empty() && agenda_.begin()->first <= absl::Now()) {
        const auto action = std::move(agenda_.begin()->second);
        agenda_.erase(agenda_.begin());
        action();
      }
      if (absl::Now() >= next) {
        Harm(with_server);
        next = absl::Now() + Ms(20, 300);
      }
      actors_->Look();
      if (tables_ != nullptr) tables_->Harm();
      const absl::Time wake = agenda_.empty() ? next : std::min(next, agenda_.begin()->first);
      absl::SleepFor(std::min(wake - absl::Now(), absl::Milliseconds(20)));
    }
    history_.Note("all is well again");
    while (!agenda_.empty()) {
      const auto action = std::move(agenda_.begin()->second);
      agenda_.erase(agenda_.begin());
      action();
    }
    if (tables_ != nullptr) tables_->Heal();
  }

  // ---- Quiet times.

  // Not over RDMA: in an emulated machine a process takes seconds to open the device.
  void StartErrands() {
    if (!Tcp()) return;
    for (auto& errands : errands_) errands->Start();
  }

  void Resume() {
    for (size_t i = 0; i < Ledger::kClients; ++i) actors_->client(i).process->Say("run");
    if (tables_ != nullptr) tables_->Run();
    StartErrands();
  }

  // While no harm is done, each client and errand completes this many more calls. This is also
  // how they come to the memory that they need at most.
  bool Work() {
    std::vector<std::pair<std::string, std::function<uint64_t()>>> counts;
    for (size_t i = 0; i < Ledger::kClients; ++i) {
      counts.emplace_back(actors_->client(i).name, [this, i] { return ledger_->clients[i].answered.load(); });
    }
    std::vector<uint64_t> wanted;
    for (const auto& [name, count] : counts) wanted.push_back(count() + (Tcp() ? 500 : 50));
    for (size_t i = 0; i < counts.size(); ++i) {
      if (!actors_->Await([&] { return actors_->Look(), counts[i].second() >= wanted[i]; },
                          [&] { return absl::StrCat(wanted[i], " calls by ", counts[i].first); })) {
        return false;
      }
    }
    return true;
  }

  // With `before`, also until no process has much more memory than then, for as long as pools may keep what
  // nothing uses.
  std::optional<Stillness> Settle(const std::optional<Stillness>& before = std::nullopt) {
    history_.Note("everybody has worked");
    if (tables_ != nullptr && !tables_->Settle()) return std::nullopt;
    for (auto& errands : errands_) errands->Stop();
    std::vector<size_t> said;
    for (size_t i = 0; i < Ledger::kClients; ++i) {
      Process& client = *actors_->client(i).process;
      said.push_back(client.output().size());
      client.Say("settle");
    }
    for (size_t i = 0; i < Ledger::kClients; ++i) {
      if (!actors_->Await(
              [&] { return actors_->Look(), actors_->client(i).process->output().size() > said[i]; },
              [&] { return actors_->client(i).name + " succeeds with all its keys"; })) {
        return std::nullopt;
      }
    }
    history_.Note("settled");
    for (size_t i = 0; i < Actors::kWatchers; ++i) actors_->AwaitWatcher(i);
    if (Tcp()) {
      for (auto& errands : errands_) errands->VerifyAndClean();
      errands_[0]->FillPages(/*quiet=*/true);
    }
    if (history_.wrong()) return std::nullopt;

    history_.Note("files are there");
    // The server releases answers soon after clients have READ them, and lost connections, too.
    Stillness still = Measure();
    absl::Time since = absl::Now();
    if (!actors_->Await(
            [&] {
              Stillness now = Measure();
              if (now.stats != still.stats || now.server_files != still.server_files) since = absl::Now();
              still = std::move(now);
              const absl::Duration quiet = absl::Now() - since;
              // A watcher that knows all changes may have lost its connection since.
              return still.stats["watches"] == Actors::kWatchers && still.stats["calls_running"] == 1 &&
                     quiet > absl::Seconds(1) &&
                     (!before || MemoryIsBack(*before, still) || quiet > kPoolsKeep);
            },
            [&] { return absl::StrCat("the server is at rest; at last it said\n", ToString(still)); })) {
      return std::nullopt;
    }
    history_.Note(absl::StrCat("at rest: ", ToString(still)));
    CheckWatchers(still.stats["revision"]);
    return still;
  }

  Stillness Measure() {
    Stillness still;
    const Errands::Result stats = errands_[0]->Kv(actors_->uri(), {"stats"});
    if (stats.status != 0) history_.Wrong(absl::StrCat("kv stats when all is well: ", stats.errors));
    for (absl::string_view line : absl::StrSplit(stats.output, '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> entry = absl::StrSplit(line, '\t');
      if (entry.first == "calls_total") continue;  // One more each time.
      if (!absl::SimpleAtoi(entry.second, &still.stats[entry.first])) history_.Wrong(stats.output);
    }
    still.server_files = actors_->server().process->open_files();
    still.client_files = actors_->client(0).process->open_files();
    still.server_mib = actors_->server().process->resident_mib();
    still.client_mib = actors_->client(0).process->resident_mib();
    return still;
  }

  // Watchers know every change by now, and what is there.
  void CheckWatchers(uint64_t revision) {
    for (size_t i = 0; i < Actors::kWatchers; ++i) {
      Actors::Watcher& watcher = actors_->watcher(i);
      const auto now = [&] {
        absl::MutexLock lock(&watcher.mutex);
        return *watcher.check;
      };
      if (!actors_->Await([&] { return actors_->Look(), now().revision() == revision; },
                          [&] {
                            return absl::StrCat(watcher.name, " is told of revision ", revision,
                                                "; it knows ", now().revision());
                          })) {
        return;
      }
      history_.Note(absl::StrCat(watcher.name, ": ", now().changes(), " changes, lost ", now().losses()));
    }
    // The first one was there from the beginning.
    const Errands::Result list = errands_[0]->Kv(actors_->uri(), {"list"});
    std::map<std::string, WatchCheck::Entry> there;
    for (absl::string_view line : absl::StrSplit(list.output, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(line, '\t');
      WatchCheck::Entry& entry = there[fields[0]];
      if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &entry.size) ||
          !absl::SimpleAtoi(fields[2], &entry.revision)) {
        history_.Wrong(absl::StrCat("not a line of kv list: ", line));
      }
    }
    Actors::Watcher& watcher = actors_->watcher(0);
    absl::MutexLock lock(&watcher.mutex);
    const auto& known = watcher.check->entries();
    for (const auto& [key, entry] : there) {
      const auto found = known.find(key);
      if (found != known.end() && found->second == entry) continue;
      history_.Wrong(absl::StrCat("watcher 0 knows not of ", key, ", revision ", entry.revision));
    }
    for (const auto& [key, entry] : known) {
      if (!there.contains(key)) history_.Wrong(absl::StrCat("watcher 0 still knows of ", key));
    }
  }

  void Report() {
    uint64_t calls = 0, answered = 0, abandoned = 0, late_us = 0;
    for (const ClientRecord& client : ledger_->clients) {
      calls += client.calls;
      answered += client.answered;
      abandoned += client.abandoned;
      late_us = std::max<uint64_t>(late_us, client.late_us_max);
    }
    uint64_t errands = 0;
    for (const auto& one : errands_) errands += one->done();
    history_.Note(absl::StrCat("done: ", history_.Counts()));
    history_.Note(
        absl::StrFormat("calls: %d, of which %d answered; %d more abandoned; at most %.1f ms after the "
                        "deadline; %d kv processes",
                        calls, answered, abandoned, static_cast<double>(late_us) / 1000, errands));
  }

  const Options options_;
  std::mt19937_64 random_;
  std::string folder_;
  Ledger* ledger_ = nullptr;
  size_t large_max_ = 0;
  std::vector<std::string> targets_;
  History history_;
  std::vector<std::unique_ptr<Proxy>> proxies_;
  std::multimap<absl::Time, std::function<void()>> agenda_;
  std::unique_ptr<Actors> actors_;
  std::unique_ptr<RemoteTables> tables_;
  std::vector<std::unique_ptr<Errands>> errands_;
};

int Main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  Options options;
  uint64_t seconds = absl::ToInt64Seconds(options.duration);
  options.seed = std::random_device()() % 1'000'000;
  examples::FlagSet flags;
  flags.Number("seconds", 1, 1'000'000, &seconds).Number("seed", 0, 1'000'000'000, &options.seed);
  flags.Text("listen", &options.listen);
  const auto line = examples::CommandLine::Split({argv + 1, argv + argc});
  if (const absl::Status status = flags.Apply(line); !status.ok()) {
    return examples::WrongUsage("chaos_test", status.message(),
                                "chaos_test [--seconds=6] [--seed=N] [--listen=URI]");
  }
  options.duration = absl::Seconds(seconds);
  const bool passed = Chaos(options).Run();
  std::cout << (passed ? "passed" : "FAILED") << ": --seconds=" << seconds << " --seed=" << options.seed
            << std::endl;
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace hawser::chaos

int main(int argc, char** argv) { return hawser::chaos::Main(argc, argv); }
