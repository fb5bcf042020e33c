// Store, gateway and clients in one process, over real connections.

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "hawser/rpc/server.h"
#include "images/memory_store.h"
#include "images/scaling_gateway.h"

namespace images {
namespace {

using ChannelPtr = std::shared_ptr<hawser::Channel>;
using Change = std::pair<std::string, uint64_t>;  // Name, version.

constexpr absl::Duration kPatience = absl::Seconds(30);

// Records the changes that it receives. A held watcher answers only when it is released. `answer`: with what
// the others answer.
class TestWatcher : public ImageWatcherService {
 public:
  explicit TestWatcher(bool held = false, absl::Status answer = absl::OkStatus())
      : answer_(std::move(answer)), held_(held) {}

  absl::Status Changed(hawser::ServerContext& context, ImageWatcher::ChangedParams::Reader request,
                       ImageWatcher::ChangedResults::Builder) override {
    absl::MutexLock lock(&mutex_);
    changes_.emplace_back(request.getName().cStr(), request.getVersion());
    if (!held_) return answer_;
    unanswered_.push_back(context.Defer());
    return absl::OkStatus();
  }

  void Release() {
    absl::MutexLock lock(&mutex_);
    held_ = false;
    for (hawser::DeferredCall& call : unanswered_) call.Finish();
    unanswered_.clear();
  }

  size_t untaken() {
    absl::MutexLock lock(&mutex_);
    return changes_.size();
  }

  // The next change; nullopt if none arrives in time.
  std::optional<Change> Take() {
    const auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !changes_.empty(); };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&any), kPatience)) return std::nullopt;
    Change first = std::move(changes_.front());
    changes_.pop_front();
    return first;
  }

 private:
  const absl::Status answer_;
  absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_);
  std::deque<Change> changes_ ABSL_GUARDED_BY(mutex_);
  std::vector<hawser::DeferredCall> unanswered_ ABSL_GUARDED_BY(mutex_);
};

class ImagesTest : public testing::Test {
 protected:
  static constexpr uint64_t kMemoryBytes = 8 << 20;

  void SetUp() override {
    store_uri_ = Serve(store_server_, store_);
    to_store_ = Connect(store_uri_);
    auto shared = hawser::Channel::Connect(store_uri_, {.server = &gateway_server_});
    ASSERT_TRUE(shared.ok()) << shared.status();
    gateway_.emplace(*shared, /*threads=*/2);
    to_gateway_ = Connect(Serve(gateway_server_, *gateway_));
  }

  static std::string Serve(hawser::Server& server, hawser::Service& service) {
    const absl::Status added = server.AddService(&service);
    EXPECT_TRUE(added.ok()) << added;
    absl::StatusOr<std::string> uri = server.Listen("tcp://127.0.0.1:0");
    EXPECT_TRUE(uri.ok()) << uri.status();
    return uri.value_or("");
  }

  static ChannelPtr Connect(const std::string& uri, hawser::ChannelOptions options = {}) {
    absl::StatusOr<ChannelPtr> channel = hawser::Channel::Connect(uri, std::move(options));
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.value_or(nullptr);
  }

  ChannelPtr ConnectAndWatch(TestWatcher& watcher) {
    hawser::ChannelOptions options;
    options.services = {&watcher};
    ChannelPtr channel = Connect(store_uri_, std::move(options));
    const absl::Status watching = ImageStoreStub(channel).Watch().Send().Wait().status();
    EXPECT_TRUE(watching.ok()) << watching;
    return channel;
  }

  absl::Status Put(const std::string& name, uint32_t width, uint32_t height, const std::string& pixels) {
    auto call = ImageStoreStub(to_store_).Put();
    call.request().setName(name);
    Bitmap::Builder image = call.request().initImage();
    image.setWidth(width);
    image.setHeight(height);
    image.setPixels({reinterpret_cast<const uint8_t*>(pixels.data()), pixels.size()});
    return call.Send().Wait().status();
  }
  absl::Status PutDot(const std::string& name) { return Put(name, 1, 1, "rgb"); }

  auto Image(const std::string& name) {
    auto call = GatewayStub(to_gateway_).Image();
    call.request().setName(name);
    return call.Send().Wait();
  }

  auto Thumbnail(const std::string& name, uint32_t width) {
    auto call = GatewayStub(to_gateway_).Thumbnail();
    call.request().setName(name);
    call.request().setWidth(width);
    return call.Send().Wait();
  }

  static std::string Pixels(Bitmap::Reader image) {
    const capnp::Data::Reader pixels = image.getPixels();
    return std::string(reinterpret_cast<const char*>(pixels.begin()), pixels.size());
  }

  // Services outlive their servers, and servers outlive the channels.
  MemoryStore store_{kMemoryBytes};
  std::optional<ScalingGateway> gateway_;
  hawser::Server store_server_;
  hawser::Server gateway_server_;
  std::string store_uri_;
  ChannelPtr to_store_;
  ChannelPtr to_gateway_;
};

TEST_F(ImagesTest, GatewayGivesWhatWasPut) {
  std::string pixels(1000 * 700 * 3, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i * 31 >> 3);
  ASSERT_TRUE(Put("sea", 1000, 700, pixels).ok());
  const auto reply = Image("sea");
  ASSERT_TRUE(reply.ok()) << reply.status();
  const Bitmap::Reader image = (*reply)->getImage();
  EXPECT_EQ(image.getWidth(), 1000u);
  EXPECT_EQ(image.getHeight(), 700u);
  EXPECT_TRUE(Pixels(image) == pixels);
}

TEST_F(ImagesTest, ThumbnailHasTheMeanOfEachBox) {
  const std::string row_of_boxes = "AAACCCabcabc";  // Two boxes, two pixels wide.
  ASSERT_TRUE(Put("tiles", 4, 2, row_of_boxes + row_of_boxes).ok());
  const auto reply = Thumbnail("tiles", 2);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ((*reply)->getImage().getWidth(), 2u);
  EXPECT_EQ((*reply)->getImage().getHeight(), 1u);
  EXPECT_EQ(Pixels((*reply)->getImage()), "BBBabc");
}

TEST_F(ImagesTest, ThumbnailIsNeverLargerThanTheImage) {
  ASSERT_TRUE(PutDot("dot").ok());
  const auto reply = Thumbnail("dot", 100);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ((*reply)->getImage().getWidth(), 1u);
  EXPECT_EQ(Pixels((*reply)->getImage()), "rgb");
}

TEST_F(ImagesTest, ManyThumbnailsAtOnceAreMadeOrRefused) {
  ASSERT_TRUE(Put("sea", 1000, 700, std::string(1000 * 700 * 3, 'x')).ok());
  std::vector<hawser::PendingCall<Gateway::ThumbnailResults>> calls;
  for (int i = 0; i < 64; ++i) {
    auto call = GatewayStub(to_gateway_).Thumbnail();
    call.request().setName("sea");
    call.request().setWidth(10);
    calls.push_back(call.Send());
  }
  int made = 0;
  for (auto& call : calls) {
    const auto reply = call.Wait();
    if (reply.ok()) {
      ++made;
      EXPECT_EQ(Pixels((*reply)->getImage()), std::string(10 * 7 * 3, 'x'));
    } else {
      EXPECT_EQ(reply.status().code(), absl::StatusCode::kResourceExhausted) << reply.status();
    }
  }
  EXPECT_GT(made, 0);
}

TEST_F(ImagesTest, UnknownNameIsNotFoundAndNamesNoAddress) {
  for (const absl::Status& status : {Image("none").status(), Thumbnail("none", 10).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "://")) << status;
  }
}

TEST_F(ImagesTest, LostStoreIsUnavailableAndNamesNoAddress) {
  const absl::Status drained = store_server_.Shutdown(absl::Now() + kPatience);
  EXPECT_TRUE(drained.ok()) << drained;
  const absl::Status status = Image("sea").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "://")) << status;
}

TEST_F(ImagesTest, ImageThatContradictsItselfIsRefused) {
  EXPECT_EQ(Put("sea", 2, 2, "rgb").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put("sea", 0, 0, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put("", 1, 1, "rgb").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ImagesTest, FullStoreRefusesAnImageAndKeepsTheOthers) {
  const std::string half(1024 * 1024 * 3, 'x');  // More than a third of the memory, with its overhead.
  ASSERT_TRUE(Put("one", 1024, 1024, half).ok());
  ASSERT_TRUE(Put("two", 1024, 1024, half).ok());
  EXPECT_EQ(Put("three", 1024, 1024, half).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Put("two", 1024, 1024, half).ok()) << "it replaces one";
  EXPECT_TRUE(Image("one").ok());
  EXPECT_EQ(Image("three").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ImagesTest, ListGoesOnBehindThePageBefore) {
  for (const char* name : {"b", "c", "a"}) ASSERT_TRUE(PutDot(name).ok());
  std::vector<std::string> names;
  for (bool more = true; more;) {
    auto call = ImageStoreStub(to_store_).List();
    call.request().setLimit(2);
    if (!names.empty()) call.request().setAfter(names.back());
    const auto page = call.Send().Wait();
    ASSERT_TRUE(page.ok()) << page.status();
    ASSERT_GT((*page)->getNames().size(), 0u);
    for (capnp::Text::Reader name : (*page)->getNames()) names.push_back(name.cStr());
    more = (*page)->getMore();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(ImagesTest, WatcherHearsOfPutAndRemove) {
  TestWatcher watcher;
  const ChannelPtr channel = ConnectAndWatch(watcher);
  ASSERT_TRUE(PutDot("dot").ok());
  EXPECT_EQ(watcher.Take(), Change("dot", 1));
  auto call = ImageStoreStub(to_store_).Remove();
  call.request().setName("dot");
  EXPECT_TRUE(call.Send().Wait().ok());
  EXPECT_EQ(watcher.Take(), Change("dot", 2));
}

TEST_F(ImagesTest, WatcherThatOffersNothingIsToldSo) {
  EXPECT_EQ(ImageStoreStub(to_store_).Watch().Send().Wait().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ImagesTest, SlowWatcherHoldsNoOther) {
  TestWatcher slow(/*held=*/true), quick;
  const ChannelPtr to_slow = ConnectAndWatch(slow), to_quick = ConnectAndWatch(quick);
  for (uint64_t version = 1; version <= 3; ++version) {
    ASSERT_TRUE(PutDot("dot").ok());
    EXPECT_EQ(quick.Take(), Change("dot", version));
  }
  EXPECT_EQ(slow.Take(), Change("dot", 1));
  slow.Release();
  EXPECT_EQ(slow.Take(), Change("dot", 3)) << "the changes meanwhile have become one";
}

TEST_F(ImagesTest, WatcherThatIsFarBehindIsToldToList) {
  TestWatcher slow(/*held=*/true);
  const ChannelPtr channel = ConnectAndWatch(slow);
  for (size_t i = 0; i <= Watchers::kUntoldMax; ++i) ASSERT_TRUE(PutDot(std::to_string(i)).ok());
  EXPECT_EQ(slow.Take(), Change("0", 1));
  slow.Release();
  EXPECT_EQ(slow.Take(), Change("", Watchers::kUntoldMax + 1));
}

TEST_F(ImagesTest, WatcherThatAnswersDeadlineExceededHearsOfAChangeOnce) {
  TestWatcher failing(/*held=*/false, absl::DeadlineExceededError("says the watcher"));
  const ChannelPtr channel = ConnectAndWatch(failing);
  ASSERT_TRUE(PutDot("dot").ok());
  EXPECT_EQ(failing.Take(), Change("dot", 1));
  // Each is answered by the poller that would push once more.
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(ImageStoreStub(channel).Watch().Send().Wait().ok());
  EXPECT_EQ(failing.untaken(), 0u);
  ASSERT_TRUE(PutDot("dot").ok());
  EXPECT_EQ(failing.Take(), Change("dot", 2));
}

// One change holds the poller for the pushes to all of them.
TEST_F(ImagesTest, WatchersAreSixtyFourAtMost) {
  TestWatcher watcher;
  std::vector<ChannelPtr> channels;
  for (int i = 0; i < 64; ++i) channels.push_back(ConnectAndWatch(watcher));
  hawser::ChannelOptions options;
  options.services = {&watcher};
  const ChannelPtr other = Connect(store_uri_, std::move(options));
  EXPECT_EQ(ImageStoreStub(other).Watch().Send().Wait().status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(PutDot("dot").ok());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(watcher.Take(), Change("dot", 1));
}

TEST_F(ImagesTest, WatcherThatIsGoneIsForgotten) {
  TestWatcher watcher;
  ConnectAndWatch(watcher).reset();
  const absl::Time deadline = absl::Now() + kPatience;
  while (store_.watchers() > 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(store_.watchers(), 0u);
}

}  // namespace
}  // namespace images
