#include "hawser/rpc/client/resolver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/fork.h"
#include "hawser/rpc/wire/background.h"

namespace hawser::internal {
namespace {

constinit PerProcess<Resolver> resolver;

}  // namespace

Resolver& Resolver::Process() { return resolver.Get(); }

Resolver::~Resolver() {
  absl::MutexLock lock(&mutex_);
  while (threads_ != 0) thread_ended_.Wait(&mutex_);
}

absl::Status Resolver::Start(const transport::Uri& uri, std::weak_ptr<Client> client) {
  const std::string key = absl::StrCat(uri.host, " ", uri.port);
  absl::MutexLock lock(&mutex_);
  const auto [at, is_new] = jobs_.try_emplace(key, Job{.uri = uri, .clients = {}});
  // Lookups that were given up. A name server that never answers leaves one for each attempt.
  std::vector<std::weak_ptr<Client>>& clients = at->second.clients;
  clients.erase(
      std::remove_if(clients.begin(), clients.end(), [](const auto& each) { return each.expired(); }),
      clients.end());
  clients.push_back(std::move(client));
  if (!is_new) return absl::OkStatus();
  waiting_.push_back(key);
  if (threads_ == kThreadsMax) return absl::OkStatus();
  ++threads_;
  const absl::Status started = RunInBackground([this] { Run(); });
  if (started.ok()) return started;
  --threads_;
  if (threads_ > 0) return absl::OkStatus();  // A running thread will take it.
  waiting_.pop_back();
  jobs_.erase(at);
  return started;
}

void Resolver::Run() {
  std::string key;
  transport::Uri uri;
  while (TakeNext(&key, &uri)) {
    const Addresses addresses = look_up_(uri);
    for (const std::weak_ptr<Client>& each : TakeClients(key)) {
      if (const std::shared_ptr<Client> client = each.lock()) client->OnLookedUp(addresses);
    }
  }
}

bool Resolver::TakeNext(std::string* key, transport::Uri* uri) {
  absl::MutexLock lock(&mutex_);
  while (!waiting_.empty()) {
    *key = std::move(waiting_.front());
    waiting_.pop_front();
    const auto at = jobs_.find(*key);
    const auto& clients = at->second.clients;
    if (std::all_of(clients.begin(), clients.end(), [](const auto& each) { return each.expired(); })) {
      jobs_.erase(at);
      continue;
    }
    *uri = at->second.uri;
    return true;
  }
  HAWSER_SUBTRACT(threads_, 1);
  if (threads_ == 0) thread_ended_.SignalAll();
  return false;
}

std::vector<std::weak_ptr<Resolver::Client>> Resolver::TakeClients(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto at = jobs_.find(key);
  std::vector<std::weak_ptr<Client>> clients = std::move(at->second.clients);
  jobs_.erase(at);
  return clients;
}

}  // namespace hawser::internal
