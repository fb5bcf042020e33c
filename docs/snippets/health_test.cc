// Snippets of docs/guide.md: health and reflection.

#include <memory>
#include <string>

#include "docs/snippets/page_store.h"
#include "hawser/health.rpc.h"

namespace pages {
namespace {

// snippet: health_watcher
class Watcher : public hawser::health::HealthWatcherService {
 public:
  absl::Status Changed(hawser::ServerContext&, hawser::health::HealthWatcher::ChangedParams::Reader request,
                       hawser::health::HealthWatcher::ChangedResults::Builder) override {
    absl::MutexLock lock(&mutex_);
    serves_ = request.getStatus() == hawser::health::ServingStatus::SERVING;
    return absl::OkStatus();
  }

  bool serves() {
    absl::MutexLock lock(&mutex_);
    return serves_;
  }

 private:
  absl::Mutex mutex_;
  bool serves_ ABSL_GUARDED_BY(mutex_) = false;
};
// end of snippet

absl::Status Watch(const std::shared_ptr<hawser::Channel>& channel) {
  // snippet: health_watch
  auto watch = hawser::health::HealthStub(channel).Watch();
  watch.request().setService("pages.capnp:Pages");
  return watch.Send().Wait().status();
  // end of snippet
}

TEST(HealthTest, AWatcherHearsWhatTheServerSaysOfItself) {
  PlainPages store;
  Watcher watcher;
  hawser::Server server;
  hawser::ChannelOptions options;
  options.services = {&watcher};
  const auto channel = Connect(Serve(server, store), std::move(options));
  // The reverse connection comes after the first one.
  ASSERT_TRUE(Eventually([&] { return Watch(channel).ok(); }));
  EXPECT_TRUE(Eventually([&] { return watcher.serves(); }));
  // snippet: set_health
  server.SetHealth("pages.capnp:Pages", false);  // The disk is gone; other services of the server go on.
  // end of snippet
  EXPECT_TRUE(Eventually([&] { return !watcher.serves(); }));
}

}  // namespace
}  // namespace pages
