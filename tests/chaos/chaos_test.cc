// A kv_server and its clients, each a process of its own, to which harm is done; README.md says what must
// hold all the same.
//
//   chaos_test [--seconds=6] [--seed=N] [--listen=tcp://127.0.0.1:0]
//
// Prints what was done. With the same seed the same is done again, but real processes do not repeat what they
// did.

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
#include "hawser/tests/chaos/errands.h"
#include "hawser/tests/chaos/history.h"
#include "hawser/tests/chaos/ledger.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/chaos/watch_check.h"
#include "hawser/tests/testing/proxy.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::chaos {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWatchers = 2;
constexpr size_t kErrands = 2;
// Of what is waited for when all is well: a machine that does other things may take its time. kv_server's
// keepalive finds a connection dead after 15 s.
constexpr absl::Duration kPatience = absl::Seconds(60);

struct Options {
  absl::Duration duration = absl::Seconds(6);
  uint64_t seed = 0;
  std::string listen = TestUri();
};

// The server as it stands when nobody calls it, and the client that is never killed.
struct Stillness {
  std::map<std::string, uint64_t> stats;  // Of `kv stats`.
  int server_files = 0, client_files = 0;
  double server_mib = 0, client_mib = 0;
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
  }

  ~Chaos() {
    errands_.clear();
    for (Actor* actor : Actors()) actor->process.reset();
    fs::remove_all(folder_);
  }

  bool Run() {
    history_.Note(absl::StrFormat("seed %d, %s, %s", options_.seed, absl::FormatDuration(options_.duration),
                                  options_.listen));
    uri_ = options_.listen;
    StartServer();
    if (history_.wrong()) return false;
    if (Tcp()) {
      for (int i = 0; i < 2; ++i) {
        proxies_.push_back(std::make_unique<Proxy>(uri_));
        targets_.push_back(proxies_.back()->uri());
      }
    }
    targets_.push_back(uri_);
    for (size_t i = 0; i < kErrands; ++i) {
      errands_.push_back(
          std::make_unique<Errands>(Errands::Options{.name = absl::StrCat("errand", i),
                                                     .folder = absl::StrCat(folder_, "/errand", i),
                                                     .targets = targets_,
                                                     .seed = options_.seed * 100 + i,
                                                     .file_bytes_max = large_max_},
                                    &history_, ledger_));
    }
    for (size_t i = 0; i < kWatchers; ++i) StartWatcher(i);
    for (size_t i = 0; i < kWatchers; ++i) AwaitWatcher(i);
    for (size_t i = 0; i < Ledger::kClients; ++i) StartClient(i);
    StartErrands();

    // The server that is there when the first half ends lives until the second does, so both halves have
    // somebody to be compared with what he was before.
    std::optional<Stillness> before, between, after;
    const auto half = [&](bool with_server) {
      Resume();
      Disturb(options_.duration / 2, with_server);
      return !history_.wrong();
    };
    // In an emulated machine everything takes its time, so it is left at the second comparison.
    if (Tcp() && (!Work() || !(before = Settle()))) return false;
    if (!half(true) || !Work() || !(between = Settle())) return false;
    if (before) CompareClient(*before, *between);
    if (!half(false) || !Work() || !(after = Settle())) return false;
    CompareClient(*between, *after);
    CompareServer(*between, *after);
    Report();
    return !history_.wrong();
  }

 private:
  struct Actor {
    std::string name;
    std::shared_ptr<Process> process;
    std::atomic<uint64_t>* stops = nullptr;
    bool stopped = false;
  };
  struct Watcher : Actor {
    absl::Mutex mutex;
    std::shared_ptr<WatchCheck> check ABSL_GUARDED_BY(mutex);
    bool watching = false;
  };

  bool Tcp() const { return absl::StartsWith(options_.listen, "tcp:"); }
  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  absl::Duration Ms(uint64_t from, uint64_t to) { return absl::Milliseconds(from + Below(to - from)); }
  std::string Log(absl::string_view name) { return absl::StrCat(folder_, "/", name, ".", ++logs_); }

  std::vector<Actor*> Actors() {
    std::vector<Actor*> actors = {&server_};
    for (Actor& client : clients_) actors.push_back(&client);
    for (Watcher& watcher : watchers_) actors.push_back(&watcher);
    return actors;
  }

  // False, and wrong, if that does not come true.
  bool Await(const std::function<bool()>& condition, const std::function<std::string()>& what) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (!condition()) {
      if (history_.wrong()) return false;
      if (absl::Now() > give_up) {
        history_.Wrong(absl::StrCat("not within ", absl::FormatDuration(kPatience), ": ", what()));
        return false;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }

  // ---- Who takes part.

  void StartServer() {
    server_.name = "server";
    server_.process = std::make_shared<Process>(
        "server",
        std::vector<std::string>{"examples/kv/kv_server", "--listen=" + uri_, "--memory=1GiB",
                                 // A few hundred changes: watchers that are stopped lose some.
                                 "--watch_log=64KiB"},
        Log("server"));
    constexpr absl::string_view kListening = "listening on ";
    const auto listens = [&] { return absl::StrContains(server_.process->output(), "\n"); };
    if (!Await([&] { return listens() || server_.process->Wait(absl::ZeroDuration()); },
               [] { return "the server listens"; })) {
      return;
    }
    if (!listens())
      return history_.Wrong(absl::StrCat("the server did not start: ", server_.process->errors()));
    const std::string line = server_.process->output();
    uri_ = line.substr(kListening.size(), line.find('\n') - kListening.size());
    history_.Event("start", absl::StrCat("server, process ", server_.process->pid(), ", ", uri_));
  }

  void StartClient(size_t slot) {
    Actor& client = clients_[slot];
    client.name = absl::StrCat("client ", slot);
    client.stops = &ledger_->clients[slot].stops;
    std::vector<std::string> command = {
        "tests/chaos/client", absl::StrCat("--ledger=", folder_, "/ledger"), absl::StrCat("--slot=", slot),
        absl::StrCat("--seed=", Below(1'000'000)), absl::StrCat("--large_max=", large_max_)};
    for (const std::string& target : targets_) command.push_back("--target=" + target);
    client.process = std::make_shared<Process>(client.name, command, Log(client.name));
    client.process->Say("run");
    history_.Event("start", absl::StrCat(client.name, ", process ", client.process->pid()));
  }

  void StartWatcher(size_t i) {
    Watcher& watcher = watchers_[i];
    watcher.name = absl::StrCat("watcher ", i);
    watcher.watching = false;
    auto check = std::make_shared<WatchCheck>();
    {
      absl::MutexLock lock(&watcher.mutex);
      watcher.check = check;
    }
    // The first one by way of a proxy.
    const std::string& target = i == 0 ? targets_.front() : targets_.back();
    watcher.process = std::make_shared<Process>(
        watcher.name, std::vector<std::string>{"examples/kv/client/kv", "--target=" + target, "watch", ""},
        Log(watcher.name), [this, &watcher, check](const std::string& line) {
          absl::MutexLock lock(&watcher.mutex);
          const std::string wrong = check->Take(line);
          if (!wrong.empty()) history_.Wrong(absl::StrCat(watcher.name, ": ", wrong));
        });
    history_.Event("start", absl::StrCat(watcher.name, ", process ", watcher.process->pid()));
  }

  // A `kv watch` that finds nobody when it starts ends; so it is started again.
  void TendWatcher(size_t i) {
    Watcher& watcher = watchers_[i];
    if (watcher.watching) return;
    watcher.watching = absl::StrContains(watcher.process->errors(), "watching");
    if (watcher.watching || watcher.stopped || !watcher.process->Wait(absl::ZeroDuration())) return;
    const std::string errors = watcher.process->errors();
    if (!absl::StrContains(errors, "UNAVAILABLE")) {
      history_.Wrong(absl::StrCat(watcher.name, " ended: ", errors));
    }
    StartWatcher(i);
  }

  void AwaitWatcher(size_t i) {
    Await(
        [&] {
          TendWatcher(i);
          return watchers_[i].watching;
        },
        [&] { return absl::StrCat(watchers_[i].name, " watches: ", watchers_[i].process->errors()); });
  }

  // Whoever has ended, and was not killed, is wrong; and whatever a client has found to be wrong.
  void Look() {
    for (size_t i = 0; i < kWatchers; ++i) TendWatcher(i);
    for (Actor* actor : Actors()) {
      if (actor->process == nullptr) continue;
      const std::optional<int> status = actor->process->Wait(absl::ZeroDuration());
      if (!status) continue;
      if (actor->name == watchers_[1].name && !watchers_[1].watching) continue;
      history_.Wrong(absl::StrCat(actor->name, " ended with ", *status, ": ", actor->process->errors()));
    }
    for (size_t i = 0; i < Ledger::kClients; ++i) {
      if (ledger_->clients[i].violations == 0 || history_.wrong()) continue;
      history_.Wrong(absl::StrCat(clients_[i].name, ": ", clients_[i].process->errors()));
    }
  }

  // ---- Harm.

  void Later(absl::Duration delay, std::function<void()> action) {
    agenda_.emplace(absl::Now() + delay, std::move(action));
  }

  void Stop(Actor& actor, absl::Duration duration) {
    if (actor.stopped || actor.process == nullptr) return;
    history_.Event("stop", absl::StrCat(actor.name, " for ", absl::FormatDuration(duration)));
    if (actor.stops != nullptr) ++*actor.stops;
    actor.stopped = true;
    actor.process->Signal(SIGSTOP);
    Later(duration, [this, &actor, process = actor.process] {
      if (actor.process == process) Continue(actor);
    });
  }

  void Continue(Actor& actor) {
    if (!actor.stopped) return;
    actor.process->Signal(SIGCONT);
    if (actor.stops != nullptr) ++*actor.stops;
    actor.stopped = false;
  }

  void Kill(Actor& actor) {
    history_.Event("kill", actor.name);
    actor.process->Signal(SIGKILL);
    const std::optional<int> status = actor.process->Wait(kPatience);
    if (status != 128 + SIGKILL) {
      history_.Wrong(
          absl::StrCat(actor.name, " ended with ", status.value_or(-1), ": ", actor.process->errors()));
    }
    if (actor.stopped && actor.stops != nullptr) ++*actor.stops;
    actor.stopped = false;
    actor.process = nullptr;
  }

  void EndServer(bool kill) {
    if (server_.process == nullptr) return;
    ++ledger_->epoch;
    if (kill) {
      Kill(server_);
    } else {
      Continue(server_);
      history_.Event("terminate", server_.name);
      server_.process->Signal(SIGTERM);
      const std::optional<int> status = server_.process->Wait(kPatience);
      if (status != 0) {
        history_.Wrong(absl::StrCat("the server that was told to end: ", status.value_or(-1), ", ",
                                    server_.process->errors()));
      }
      server_.process = nullptr;
    }
    ++ledger_->epoch;
    Later(Ms(0, 600), [this] { StartServer(); });
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
      Stop(server_, stop);
    } else if (dice < 65) {
      Stop(clients_[Below(Ledger::kClients)], stop);
    } else if (dice < 72) {
      Stop(watchers_[Below(kWatchers)], stop);
    } else if (dice < 80) {
      HarmErrand();
    } else if (dice < 87) {
      const size_t slot = 1 + Below(Ledger::kClients - 1);
      Kill(clients_[slot]);
      StartClient(slot);
    } else if (dice < 91) {
      Kill(watchers_[1]);
      StartWatcher(1);
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
      Look();
      const absl::Time wake = agenda_.empty() ? next : std::min(next, agenda_.begin()->first);
      absl::SleepFor(std::min(wake - absl::Now(), absl::Milliseconds(20)));
    }
    history_.Note("all is well again");
    while (!agenda_.empty()) {
      const auto action = std::move(agenda_.begin()->second);
      agenda_.erase(agenda_.begin());
      action();
    }
  }

  // ---- Quiet times.

  // Not over RDMA: in an emulated machine a process takes seconds to open the device.
  void StartErrands() {
    if (!Tcp()) return;
    for (auto& errands : errands_) errands->Start();
  }

  void Resume() {
    for (Actor& client : clients_) client.process->Say("run");
    StartErrands();
  }

  // With nobody doing harm everybody gets on: each client and errand with so many more calls. This is also
  // how they come to the memory that they need at most.
  bool Work() {
    std::vector<std::pair<std::string, std::function<uint64_t()>>> counts;
    for (size_t i = 0; i < Ledger::kClients; ++i) {
      counts.emplace_back(clients_[i].name, [this, i] { return ledger_->clients[i].answered.load(); });
    }
    std::vector<uint64_t> wanted;
    for (const auto& [name, count] : counts) wanted.push_back(count() + (Tcp() ? 500 : 50));
    for (size_t i = 0; i < counts.size(); ++i) {
      if (!Await([&] { return Look(), counts[i].second() >= wanted[i]; },
                 [&] { return absl::StrCat(wanted[i], " calls by ", counts[i].first); })) {
        return false;
      }
    }
    return true;
  }

  std::optional<Stillness> Settle() {
    history_.Note("everybody has worked");
    for (auto& errands : errands_) errands->Stop();
    std::vector<size_t> said;
    for (Actor& client : clients_) {
      said.push_back(client.process->output().size());
      client.process->Say("settle");
    }
    for (size_t i = 0; i < Ledger::kClients; ++i) {
      if (!Await([&] { return Look(), clients_[i].process->output().size() > said[i]; },
                 [&] { return clients_[i].name + " succeeds with all its keys"; })) {
        return std::nullopt;
      }
    }
    history_.Note("settled");
    for (size_t i = 0; i < kWatchers; ++i) AwaitWatcher(i);
    if (Tcp()) {
      for (auto& errands : errands_) errands->VerifyAndClean();
      errands_[0]->FillPages(/*quiet=*/true);
    }
    if (history_.wrong()) return std::nullopt;

    history_.Note("files are there");
    // The answers that clients have READ are let go of soon after; connections that were lost, too.
    Stillness still = Measure();
    absl::Time since = absl::Now();
    if (!Await(
            [&] {
              Stillness now = Measure();
              if (now.stats != still.stats || now.server_files != still.server_files) since = absl::Now();
              still = std::move(now);
              return still.stats["calls_running"] == 1 && absl::Now() - since > absl::Seconds(1);
            },
            [&] { return absl::StrCat("the server is at rest; at last it said\n", Text(still)); })) {
      return std::nullopt;
    }
    history_.Note(absl::StrCat("at rest: ", Text(still)));
    CheckWatchers(still.stats["revision"]);
    return still;
  }

  Stillness Measure() {
    Stillness still;
    const Errands::Result stats = errands_[0]->Kv(uri_, {"stats"});
    if (stats.status != 0) history_.Wrong(absl::StrCat("kv stats when all is well: ", stats.errors));
    for (absl::string_view line : absl::StrSplit(stats.output, '\n', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> entry = absl::StrSplit(line, '\t');
      if (entry.first == "calls_total") continue;  // One more each time.
      if (!absl::SimpleAtoi(entry.second, &still.stats[entry.first])) history_.Wrong(stats.output);
    }
    still.server_files = server_.process->open_files();
    still.client_files = clients_[0].process->open_files();
    still.server_mib = server_.process->resident_mib();
    still.client_mib = clients_[0].process->resident_mib();
    return still;
  }

  static std::string Text(const Stillness& still) {
    std::string text;
    for (const auto& [name, value] : still.stats) absl::StrAppend(&text, name, " ", value, ", ");
    absl::StrAppendFormat(&text, "server: %d files, %.1f MiB; client 0: %d files, %.1f MiB",
                          still.server_files, still.server_mib, still.client_files, still.client_mib);
    return text;
  }

  // Watchers know every change by now, and what is there.
  void CheckWatchers(uint64_t revision) {
    for (Watcher& watcher : watchers_) {
      const auto now = [&] {
        absl::MutexLock lock(&watcher.mutex);
        return *watcher.check;
      };
      if (!Await([&] { return Look(), now().revision() == revision; },
                 [&] {
                   return absl::StrCat(watcher.name, " is told of revision ", revision, "; it knows ",
                                       now().revision());
                 })) {
        return;
      }
      history_.Note(absl::StrCat(watcher.name, ": ", now().changes(), " changes, lost ", now().losses()));
    }
    // The first one was there from the beginning.
    const Errands::Result list = errands_[0]->Kv(uri_, {"list"});
    std::map<std::string, WatchCheck::Entry> there;
    for (absl::string_view line : absl::StrSplit(list.output, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(line, '\t');
      WatchCheck::Entry& entry = there[fields[0]];
      if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &entry.size) ||
          !absl::SimpleAtoi(fields[2], &entry.revision)) {
        history_.Wrong(absl::StrCat("not a line of kv list: ", line));
      }
    }
    absl::MutexLock lock(&watchers_[0].mutex);
    const auto& known = watchers_[0].check->entries();
    for (const auto& [key, entry] : there) {
      const auto found = known.find(key);
      if (found != known.end() && found->second == entry) continue;
      history_.Wrong(absl::StrCat("watcher 0 knows not of ", key, ", revision ", entry.revision));
    }
    for (const auto& [key, entry] : known) {
      if (!there.contains(key)) history_.Wrong(absl::StrCat("watcher 0 still knows of ", key));
    }
  }

  void CompareClient(const Stillness& before, const Stillness& after) {
    Compare("open files of client 0", before.client_files, after.client_files, 0);
    Compare("MiB of client 0", before.client_mib, after.client_mib, kClientMibMore);
  }

  void CompareServer(Stillness before, Stillness after) {
    Compare("open files of the server", before.server_files, after.server_files, 0);
    Compare("MiB of the server", before.server_mib, after.server_mib, kServerMibMore);
    for (const char* what : {"keys", "connections", "watches", "calls_running"}) {
      Compare(absl::StrCat(what, " of the server"), static_cast<double>(before.stats[what]),
              static_cast<double>(after.stats[what]), 0);
    }
    Compare("value KiB of the server", static_cast<double>(before.stats["value_bytes"]) / 1024,
            static_cast<double>(after.stats["value_bytes"]) / 1024, kValueKibMore);
    Compare("leased MiB of the server", static_cast<double>(before.stats["leased_bytes"]) / (1 << 20),
            static_cast<double>(after.stats["leased_bytes"]) / (1 << 20), kLeasedMibMore);
  }

  void Compare(absl::string_view what, double before, double after, double more_max) {
    if (after <= before + more_max) return;
    history_.Wrong(absl::StrFormat("%s: %g before, %g after", what, before, after));
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

  // What is registered once is kept for later, so what counts is the most that was needed at once, and the
  // first comparison comes before there was any harm. In a client that is a value of 512 KiB at most for each
  // of 12 workers' requests and answers, and as much again for connections that are lost and not yet flushed;
  // in the server the requests of 36 workers, and the values that they replace.
  static constexpr double kClientMibMore = 24;
  static constexpr double kServerMibMore = 36;
  // The last put of each key has one of 64 sizes; memory for it comes in steps of a quarter more.
  static constexpr double kValueKibMore = Ledger::kClients * ClientRecord::kKeysMax * 64 * 1.25 / 1024;
  // Messages that are kept for the next call hold 4 KiB each, 256 of them in either of two places.
  static constexpr double kLeasedMibMore = 2;

  const Options options_;
  std::mt19937_64 random_;
  std::string folder_;
  Ledger* ledger_ = nullptr;
  size_t large_max_ = 0;
  std::string uri_;
  std::vector<std::string> targets_;
  int logs_ = 0;
  History history_;
  std::vector<std::unique_ptr<Proxy>> proxies_;
  std::multimap<absl::Time, std::function<void()>> agenda_;
  Actor server_;
  Actor clients_[Ledger::kClients];
  Watcher watchers_[kWatchers];
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
