#include "hawser/tests/chaos/remote_tables.h"

#include <signal.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace hawser::chaos {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
// While it waits, it looks whether a process has ended that should not.
constexpr absl::Duration kLookEvery = absl::Milliseconds(20);

}  // namespace

RemoteTables::RemoteTables(std::string folder, std::string listen, uint64_t seed, History* history)
    : folder_(std::move(folder)), uri_(std::move(listen)), random_(seed), history_(history) {
  server_.name = "table server";
  StartServer();
  if (history_->wrong()) return;
  proxy_ = std::make_unique<Proxy>(uri_);
  for (size_t i = 0; i < kClients; ++i) {
    clients_[i].name = absl::StrCat("table client ", i);
    StartClient(i);
  }
}

RemoteTables::~RemoteTables() {
  for (Actor& client : clients_) client.process.reset();
}

std::string RemoteTables::Log(absl::string_view name) {
  return absl::StrCat(folder_, "/", name, ".", ++logs_);
}

bool RemoteTables::Await(const std::shared_ptr<Process>& process, absl::string_view text, size_t from,
                         absl::string_view what) {
  const absl::Time give_up = absl::Now() + kPatience;
  while (!process->AwaitOutput(text, from, kLookEvery)) {
    Look();
    if (history_->wrong()) return false;
    if (absl::Now() > give_up) {
      history_->Wrong(absl::StrCat("not within ", absl::FormatDuration(kPatience), ": ", what));
      return false;
    }
  }
  return true;
}

void RemoteTables::StartServer() {
  server_.process = std::make_shared<Process>(
      "table server", std::vector<std::string>{"tests/chaos/table_server", "--listen=" + uri_}, Log("table"));
  server_.again = absl::InfiniteFuture();
  if (!Await(server_.process, "\n", 0, "the table server listens")) return;
  constexpr absl::string_view kListening = "listening on ";
  const std::string line = server_.process->output();
  uri_ = line.substr(kListening.size(), line.find('\n') - kListening.size());
  history_->Event("start", absl::StrCat("table server, process ", server_.process->pid()));
}

void RemoteTables::StartClient(size_t i) {
  Actor& client = clients_[i];
  client.process = std::make_shared<Process>(
      client.name,
      std::vector<std::string>{"tests/chaos/table_client", "--target=" + (i == 0 ? proxy_->uri() : uri_),
                               absl::StrCat("--slot=", i), absl::StrCat("--seed=", Below(1'000'000))},
      Log("table_client"));
  client.again = absl::InfiniteFuture();
  client.process->Say("run");
  history_->Event("start", absl::StrCat(client.name, ", process ", client.process->pid()));
}

void RemoteTables::Run() {
  for (Actor& client : clients_) client.process->Say("run");
}

void RemoteTables::Look() {
  std::vector<Actor*> all = {&server_};
  for (Actor& client : clients_) all.push_back(&client);
  for (Actor* actor : all) {
    if (actor->process == nullptr || history_->wrong()) continue;
    const std::string output = actor->process->output();
    if (const size_t wrong = output.find("WRONG"); wrong != std::string::npos) {
      history_->Wrong(absl::StrCat(actor->name, ": ", output.substr(wrong, 1000)));
    } else if (const std::optional<int> status = actor->process->Wait(absl::ZeroDuration())) {
      history_->Wrong(absl::StrCat(actor->name, " ended with ", *status, ": ", actor->process->errors()));
    }
  }
}

void RemoteTables::Stop(Actor& actor) {
  if (actor.process == nullptr || actor.again != absl::InfiniteFuture()) return;
  const absl::Duration time = Below(4) != 0 ? Ms(5, 300) : Ms(300, 1000);
  history_->Event("stop", absl::StrCat(actor.name, " for ", absl::FormatDuration(time)));
  actor.process->Signal(SIGSTOP);
  actor.again = absl::Now() + time;
}

void RemoteTables::Kill(Actor& actor) {
  if (actor.process == nullptr) return;
  Look();  // While its output is there.
  history_->Event("kill", actor.name);
  actor.process->Signal(SIGKILL);
  if (actor.process->Wait(kPatience) != 128 + SIGKILL) {
    history_->Wrong(absl::StrCat(actor.name, " ended by itself: ", actor.process->errors()));
  }
  actor.process = nullptr;
  actor.again = absl::Now() + Ms(0, 400);
}

void RemoteTables::Restore(absl::Time now) {
  const auto is_due = [now](const Actor& actor) { return actor.again <= now; };
  const auto go_on = [](Actor& actor) {
    actor.again = absl::InfiniteFuture();
    actor.process->Signal(SIGCONT);
  };
  if (is_due(server_)) server_.process == nullptr ? StartServer() : go_on(server_);
  for (size_t i = 0; i < kClients; ++i) {
    if (is_due(clients_[i])) clients_[i].process == nullptr ? StartClient(i) : go_on(clients_[i]);
  }
}

void RemoteTables::Harm() {
  const absl::Time now = absl::Now();
  Restore(now);
  Look();
  if (now < next_harm_ || history_->wrong()) return;
  next_harm_ = now + Ms(50, 400);
  const uint64_t dice = Below(100);
  if (dice < 35) {
    Stop(server_);
  } else if (dice < 55) {
    history_->Event("cut", "table proxy");
    proxy_->Cut();
  } else if (dice < 70) {
    Stop(clients_[Below(kClients)]);
  } else if (dice < 85) {
    Kill(clients_[Below(kClients)]);
  } else {
    Kill(server_);
  }
}

void RemoteTables::Heal() { Restore(absl::Now() + absl::Hours(1)); }

bool RemoteTables::Settle() {
  size_t said[kClients];
  for (size_t i = 0; i < kClients; ++i) {
    said[i] = clients_[i].process->output().size();
    clients_[i].process->Say("settle");
  }
  for (size_t i = 0; i < kClients; ++i) {
    if (!Await(clients_[i].process, "settled", said[i], clients_[i].name + " finds all its keys"))
      return false;
    history_->Note(absl::StrCat(clients_[i].name, " ", clients_[i].process->output().substr(said[i])));
  }
  return true;
}

}  // namespace hawser::chaos
