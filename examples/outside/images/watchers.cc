#include "images/watchers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "images/images.rpc.h"

namespace images {
namespace {

// If a watcher has not answered for this time, the store repeats the push, because the answer may be lost.
constexpr absl::Duration kPushTimeout = absl::Seconds(30);

}  // namespace

absl::Status Watchers::Add(Client client) {
  {
    absl::MutexLock lock(&mutex_);
    if (watchers_.contains(client)) return absl::OkStatus();
    if (watchers_.size() == kWatchersMax) {
      return absl::ResourceExhaustedError(absl::StrCat("the store has ", kWatchersMax, " watchers already"));
    }
    watchers_.try_emplace(client);
  }
  // The callback also runs if the client has already disconnected. It has a weak pointer to the client: the
  // channel keeps its callbacks, so a strong pointer would keep the channel forever.
  client->OnClosed([self = weak_from_this(), watching = std::weak_ptr<hawser::Channel>(client)] {
    if (auto watchers = self.lock()) watchers->Remove(watching.lock());
  });
  return absl::OkStatus();
}

void Watchers::Changed(absl::string_view name, uint64_t version) {
  absl::MutexLock lock(&mutex_);
  for (auto& [client, watcher] : watchers_) {
    std::erase_if(watcher.untold, [&](const auto& change) { return change.second == name; });
    watcher.untold.emplace(version, name);
    if (watcher.untold.size() > kUntoldMax) watcher.untold = {{version, ""}};
    if (!watcher.push_in_flight) Push(client, watcher);
  }
}

// Callers may hold the lock, because Send() and Then() never run a callback.
void Watchers::Push(const Client& client, Watcher& watcher) {
  const auto& [version, name] = *watcher.untold.begin();
  auto call = ImageWatcherStub(client).Changed({.timeout = kPushTimeout});
  call.request().setName(name);
  call.request().setVersion(version);
  call.Send().Then([self = weak_from_this(), client, version = version](const auto& reply) {
    if (auto watchers = self.lock()) watchers->Pushed(client, version, reply.status());
  });
  watcher.push_in_flight = true;
}

void Watchers::Pushed(const Client& client, uint64_t version, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  const auto found = watchers_.find(client);
  if (found == watchers_.end()) return;
  Watcher& watcher = found->second;
  watcher.push_in_flight = false;
  if (status.ok()) watcher.untold.erase(version);
  // Any other failure would occur again at once: the connection is lost, or there is no memory. The next
  // change tries again, unless OnClosed() has removed the watcher by then.
  const bool goes_on = status.ok() || absl::IsDeadlineExceeded(status);
  if (goes_on && !watcher.untold.empty()) Push(client, watcher);
}

void Watchers::Remove(const Client& client) {
  absl::MutexLock lock(&mutex_);
  watchers_.erase(client);
}

size_t Watchers::size() const {
  absl::MutexLock lock(&mutex_);
  return watchers_.size();
}

}  // namespace images
