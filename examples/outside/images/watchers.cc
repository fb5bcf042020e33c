#include "images/watchers.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "images/images.rpc.h"

namespace images {
namespace {

// If a watcher has not answered for this time, the store repeats the push, because the answer may be lost.
constexpr absl::Duration kPushTimeout = absl::Seconds(30);

using Clock = std::chrono::steady_clock;

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
  call.Send().Then(
      [self = weak_from_this(), client, version = version, sent_at = Clock::now()](const auto& reply) {
        // The watcher chooses the code of its answer, DeadlineExceeded, too. So the clock says whether the
        // time of the push is over, give or take what the two sides differ.
        const bool is_over = absl::FromChrono(Clock::now() - sent_at) >= kPushTimeout / 2;
        const bool timed_out = is_over && absl::IsDeadlineExceeded(reply.status());
        if (auto watchers = self.lock()) watchers->Pushed(client, version, reply.ok(), timed_out);
      });
  watcher.push_in_flight = true;
}

void Watchers::Pushed(const Client& client, uint64_t version, bool received, bool timed_out) {
  absl::MutexLock lock(&mutex_);
  const auto found = watchers_.find(client);
  if (found == watchers_.end()) return;
  Watcher& watcher = found->second;
  watcher.push_in_flight = false;
  if (received) watcher.untold.erase(version);
  // Any other failure would occur again at once: the connection is lost, there is no memory, or the watcher
  // has answered with an error. The next change tries again, unless OnClosed() has removed the watcher by
  // then.
  const bool goes_on = received || timed_out;
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
