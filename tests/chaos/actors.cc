#include "hawser/tests/chaos/actors.h"

#include <signal.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace hawser::chaos {

Actors::Actors(std::string folder, std::string listen, size_t large_max, History* history, Ledger* ledger)
    : folder_(std::move(folder)),
      large_max_(large_max),
      history_(history),
      ledger_(ledger),
      uri_(std::move(listen)) {}

Actors::~Actors() {
  for (Actor* actor : All()) actor->process.reset();
}

std::vector<Actors::Actor*> Actors::All() {
  std::vector<Actor*> actors = {&server_};
  for (Actor& client : clients_) actors.push_back(&client);
  for (Watcher& watcher : watchers_) actors.push_back(&watcher);
  return actors;
}

std::string Actors::Log(absl::string_view name) { return absl::StrCat(folder_, "/", name, ".", ++logs_); }

bool Actors::Await(const std::function<bool()>& condition, const std::function<std::string()>& what) {
  const absl::Time give_up = absl::Now() + kPatience;
  while (!condition()) {
    if (history_->wrong()) return false;
    if (absl::Now() > give_up) {
      history_->Wrong(absl::StrCat("not within ", absl::FormatDuration(kPatience), ": ", what()));
      return false;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

// ---- Who takes part

void Actors::StartServer() {
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
    return history_->Wrong(absl::StrCat("the server did not start: ", server_.process->errors()));
  const std::string line = server_.process->output();
  uri_ = line.substr(kListening.size(), line.find('\n') - kListening.size());
  history_->Event("start", absl::StrCat("server, process ", server_.process->pid(), ", ", uri_));
}

void Actors::StartClient(size_t slot, uint64_t seed) {
  Actor& client = clients_[slot];
  client.name = absl::StrCat("client ", slot);
  client.stops = &ledger_->clients[slot].stops;
  std::vector<std::string> command = {"tests/chaos/client", absl::StrCat("--ledger=", folder_, "/ledger"),
                                      absl::StrCat("--slot=", slot), absl::StrCat("--seed=", seed),
                                      absl::StrCat("--large_max=", large_max_)};
  for (const std::string& target : targets_) command.push_back("--target=" + target);
  client.process = std::make_shared<Process>(client.name, command, Log(client.name));
  client.process->Say("run");
  history_->Event("start", absl::StrCat(client.name, ", process ", client.process->pid()));
}

void Actors::StartWatcher(size_t i) {
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
        if (!wrong.empty()) history_->Wrong(absl::StrCat(watcher.name, ": ", wrong));
      });
  history_->Event("start", absl::StrCat(watcher.name, ", process ", watcher.process->pid()));
}

// A `kv watch` that finds no server when it starts ends, so it is started again.
void Actors::TendWatcher(size_t i) {
  Watcher& watcher = watchers_[i];
  if (watcher.watching) return;
  watcher.watching = absl::StrContains(watcher.process->errors(), "watching");
  if (watcher.watching || watcher.stopped || !watcher.process->Wait(absl::ZeroDuration())) return;
  const std::string errors = watcher.process->errors();
  if (!absl::StrContains(errors, "UNAVAILABLE")) {
    history_->Wrong(absl::StrCat(watcher.name, " ended: ", errors));
  }
  StartWatcher(i);
}

void Actors::AwaitWatcher(size_t i) {
  Await(
      [&] {
        TendWatcher(i);
        return watchers_[i].watching;
      },
      [&] { return absl::StrCat(watchers_[i].name, " watches: ", watchers_[i].process->errors()); });
}

void Actors::Look() {
  for (size_t i = 0; i < kWatchers; ++i) TendWatcher(i);
  for (Actor* actor : All()) {
    if (actor->process == nullptr) continue;
    const std::optional<int> status = actor->process->Wait(absl::ZeroDuration());
    if (!status) continue;
    if (actor->name == watchers_[1].name && !watchers_[1].watching) continue;
    history_->Wrong(absl::StrCat(actor->name, " ended with ", *status, ": ", actor->process->errors()));
  }
  for (size_t i = 0; i < Ledger::kClients; ++i) {
    if (ledger_->clients[i].violations == 0 || history_->wrong()) continue;
    history_->Wrong(absl::StrCat(clients_[i].name, ": ", clients_[i].process->errors()));
  }
}

// ---- Harm

void Actors::Stop(Actor& actor) {
  if (actor.stops != nullptr) ++*actor.stops;
  actor.stopped = true;
  actor.process->Signal(SIGSTOP);
}

void Actors::Continue(Actor& actor) {
  if (!actor.stopped) return;
  actor.process->Signal(SIGCONT);
  if (actor.stops != nullptr) ++*actor.stops;
  actor.stopped = false;
}

void Actors::Kill(Actor& actor) {
  history_->Event("kill", actor.name);
  actor.process->Signal(SIGKILL);
  const std::optional<int> status = actor.process->Wait(kPatience);
  if (status != 128 + SIGKILL) {
    history_->Wrong(
        absl::StrCat(actor.name, " ended with ", status.value_or(-1), ": ", actor.process->errors()));
  }
  if (actor.stopped && actor.stops != nullptr) ++*actor.stops;
  actor.stopped = false;
  actor.process = nullptr;
}

bool Actors::EndServer(bool kill) {
  if (server_.process == nullptr) return false;
  ++ledger_->epoch;
  if (kill) {
    Kill(server_);
  } else {
    Continue(server_);
    history_->Event("terminate", server_.name);
    server_.process->Signal(SIGTERM);
    const std::optional<int> status = server_.process->Wait(kPatience);
    if (status != 0) {
      history_->Wrong(absl::StrCat("the server that was told to end: ", status.value_or(-1), ", ",
                                   server_.process->errors()));
    }
    server_.process = nullptr;
  }
  ++ledger_->epoch;
  return true;
}

}  // namespace hawser::chaos
