// Snippets of docs/guide.md: the server calls its clients.

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "docs/snippets/page_store.h"

namespace pages {
namespace {

class PublishedPages : public PlainPages {
 public:
  // snippet: subscribe
  absl::Status Subscribe(hawser::ServerContext& context, Pages::SubscribeParams::Reader,
                         Pages::SubscribeResults::Builder) override {
    std::shared_ptr<hawser::Channel> peer = context.peer();
    if (peer == nullptr) return absl::FailedPreconditionError("offer a Subscriber: ChannelOptions::services");
    absl::MutexLock lock(&mutex_);
    if (!subscribers_.emplace(peer.get(), peer).second) return absl::OkStatus();  // Already subscribed.
    peer->OnClosed([this, name = peer.get()] { Forget(name); });
    return absl::OkStatus();
  }
  // end of snippet

  void Forget(const hawser::Channel* name) {
    absl::MutexLock lock(&mutex_);
    subscribers_.erase(name);
  }

  void Notify(uint64_t number) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, peer] : subscribers_) {
      auto call = SubscriberStub(peer).Changed({.timeout = absl::Seconds(5)});
      call.request().setNumber(number);
      call.Send().Then([](absl::StatusOr<hawser::Reply<Subscriber::ChangedResults>>) {});
    }
  }

  size_t subscribers() const {
    absl::MutexLock lock(&mutex_);
    return subscribers_.size();
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<const hawser::Channel*, std::shared_ptr<hawser::Channel>> subscribers_ ABSL_GUARDED_BY(mutex_);
};

class Cache {
 public:
  void Remove(uint64_t number) {
    removed = number;
    changed.Notify();
  }
  std::atomic<uint64_t> removed{0};
  absl::Notification changed;
};

class Invalidations : public SubscriberService {
 public:
  explicit Invalidations(Cache* cache) : cache_(cache) {}

  absl::Status Changed(hawser::ServerContext&, Subscriber::ChangedParams::Reader request,
                       Subscriber::ChangedResults::Builder) override {
    cache_->Remove(request.getNumber());  // Short: it runs on the poller of the channel.
    return absl::OkStatus();
  }

 private:
  Cache* const cache_;
};

absl::Status Follow(const std::string& uri, Cache& cache, PublishedPages& store) {
  // snippet: offer_connect
  Invalidations invalidations(&cache);  // Outlives the channel.
  hawser::ChannelOptions options;
  options.services = {&invalidations};
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(uri, options);
  if (!channel.ok()) return channel.status();
  PagesStub pages(*channel);
  absl::Status subscribed = pages.Subscribe().Send().Wait().status();
  // end of snippet
  if (!subscribed.ok()) return subscribed;
  store.Notify(7);
  cache.changed.WaitForNotification();
  EXPECT_EQ(store.subscribers(), 1u);
  return absl::OkStatus();
}

TEST(PushTest, ASubscriberIsToldUntilItIsGone) {
  Cache cache;
  PublishedPages store;
  hawser::Server server;
  const std::string uri = Serve(server, store);
  const absl::Status followed = Follow(uri, cache, store);
  EXPECT_TRUE(followed.ok()) << followed;
  EXPECT_EQ(cache.removed, 7u);
  EXPECT_TRUE(Eventually([&] { return store.subscribers() == 0; }));
  EXPECT_EQ(PagesStub(Connect(uri)).Subscribe().Send().Wait().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace pages
