// The key-value service through a server and channels, in one process.

#include "examples/kv/kv_service.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "examples/kv/watch_hub.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;

class KvServiceTest : public testing::Test {
 protected:
  KvServiceTest() {
    service_.ReportOn(&server_);
    EXPECT_THAT(server_.AddService(&service_), IsOk());
    absl::StatusOr<std::string> uri = server_.Listen(hawser::TestUri());
    EXPECT_THAT(uri, IsOk());
    uri_ = *uri;
  }

  KeyValueStub Connect(hawser::ChannelOptions options = {}) const {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel =
        hawser::Channel::Connect(uri_, std::move(options));
    EXPECT_THAT(channel, IsOk());
    return KeyValueStub(*channel);
  }

  // A value that is one byte over and over.
  static absl::Status Put(const KeyValueStub& kv, const std::string& key, size_t size_bytes, uint8_t fill) {
    auto call = kv.Put();
    call.request().setKey(key);
    absl::StatusOr<hawser::Buffer> value = kv.channel()->AllocateBuffer(size_bytes);
    if (!value.ok()) return value.status();
    std::fill_n(value->data(), size_bytes, fill);
    call.request().adoptValue(call.Attach(*std::move(value)));
    return call.Send().Wait().status();
  }

  static absl::Status Remove(const KeyValueStub& kv, const std::string& key) {
    auto call = kv.Remove();
    call.request().setKey(key);
    return call.Send().Wait().status();
  }

  KvService service_{uint64_t{1} << 30, 1 << 20, 64 << 20};
  hawser::Server server_{{.pollers = 2}};
  std::string uri_;
};

// Whether all its bytes are the same.
bool IsWhole(capnp::Data::Reader value) {
  return std::all_of(value.begin(), value.end(), [&](uint8_t byte) { return byte == value[0]; });
}

TEST_F(KvServiceTest, AReaderSeesOneValueWholeWhileItIsOverwrittenAndRemoved) {
  static constexpr size_t kSize = 2 << 20;
  constexpr int kReaders = 3, kReads = 60;
  const KeyValueStub writer = Connect();
  ASSERT_THAT(Put(writer, "key", kSize, 0), IsOk());
  std::atomic<int> reading = kReaders;
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([this, &reading] {
      const KeyValueStub kv = Connect();
      for (int found = 0; found < kReads;) {
        auto call = kv.Get();
        call.request().setKey("key");
        auto reply = call.Send().Wait();
        if (absl::IsNotFound(reply.status())) continue;
        EXPECT_THAT(reply, IsOk());
        if (!reply.ok()) break;
        EXPECT_EQ((*reply)->getValue().size(), kSize);
        EXPECT_TRUE(IsWhole((*reply)->getValue()));
        ++found;
      }
      --reading;
    });
  }
  for (uint8_t fill = 1; reading > 0; ++fill) {
    if (fill % 4 == 0) {
      EXPECT_THAT(Remove(writer, "key"), IsOk());
    }
    EXPECT_THAT(Put(writer, "key", kSize, fill), IsOk());
  }
  for (std::thread& reader : readers) reader.join();
}

TEST_F(KvServiceTest, AReplyOutlivesItsKey) {
  const KeyValueStub kv = Connect();
  ASSERT_THAT(Put(kv, "key", 1 << 20, 1), IsOk());
  auto call = kv.Get();
  call.request().setKey("key");
  auto reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  ASSERT_THAT(Remove(kv, "key"), IsOk());
  ASSERT_THAT(Put(kv, "other", 1 << 20, 2), IsOk());
  EXPECT_TRUE(IsWhole((*reply)->getValue()));
  EXPECT_EQ((*reply)->getValue()[0], 1);
}

TEST_F(KvServiceTest, LargeValuesAreNotCopiedIntoFurtherMemory) {
  constexpr uint64_t kSize = 32 << 20;
  const KeyValueStub kv = Connect();
  ASSERT_THAT(Put(kv, "key", kSize, 1), IsOk());
  const uint64_t before = server_.stats().leased_bytes;
  auto call = kv.Get();
  call.request().setKey("key");
  auto reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  EXPECT_GE(before, kSize);
  EXPECT_LT(server_.stats().leased_bytes, before + kSize);
}

TEST_F(KvServiceTest, MemoryComesBackWhenAKeyIsRemoved) {
  constexpr uint64_t kSize = 32 << 20;
  const KeyValueStub kv = Connect();
  ASSERT_THAT(Put(kv, "key", kSize, 1), IsOk());
  ASSERT_THAT(Remove(kv, "key"), IsOk());
  // The request's own memory is given back when its slot is used again, which may be a moment after the
  // answer.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (server_.stats().leased_bytes >= kSize && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_LT(server_.stats().leased_bytes, kSize);
}

TEST_F(KvServiceTest, AValueWithSomethingElseBehindItInItsLastWordIsRefused) {
  const KeyValueStub kv = Connect();
  for (const unsigned bytes : {13u, 5001u, 1000001u}) {
    auto call = kv.Put();
    call.request().setKey("key");
    capnp::Data::Builder value = call.request().initValue(bytes);
    *value.end() = 1;  // No Hawser client leaves anything there.
    auto reply = call.Send().Wait();
    EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST_F(KvServiceTest, AWatchWithoutAWatcherIsRefused) {
  absl::StatusOr<hawser::Reply<KeyValue::WatchResults>> reply = Connect().Watch().Send().Wait();
  EXPECT_THAT(reply.status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(KvServiceTest, ThousandsOfKeysAreListedWithTheirValues) {
  const KeyValueStub kv = Connect();
  for (int i = 0; i < 2500; ++i) ASSERT_THAT(Put(kv, absl::StrCat(10000 + i), i % 3000 + 1, 7), IsOk());
  int listed = 0;
  std::string start;
  do {
    auto call = kv.List();
    call.request().setStart(start);
    call.request().setValues(true);
    auto page = call.Send().Wait();
    ASSERT_THAT(page, IsOk());
    for (KeyValue::Entry::Reader entry : (*page)->getEntries()) {
      EXPECT_EQ(std::string(entry.getKey()), absl::StrCat(10000 + listed));
      EXPECT_EQ(entry.getValue().size(), entry.getSize());
      EXPECT_TRUE(IsWhole(entry.getValue()));
      ++listed;
    }
    start = (*page)->getNext();
  } while (!start.empty());
  EXPECT_EQ(listed, 2500);
}

// Pushes of the server, as its client gets them.
class RecordingWatcher : public WatcherService {
 public:
  absl::Status Push(hawser::ServerContext&, Watcher::PushParams::Reader request,
                    Watcher::PushResults::Builder) override {
    absl::MutexLock lock(&mutex_);
    for (Watcher::Event::Reader event : request.getEvents()) revisions_.push_back(event.getRevision());
    return absl::OkStatus();
  }
  std::vector<uint64_t> WaitFor(size_t count) {
    const auto there = [&] { return revisions_.size() >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
    return revisions_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<uint64_t> revisions_;
};

TEST_F(KvServiceTest, AWatcherIsForgottenWhenItsChannelIsClosed) {
  RecordingWatcher watcher;
  hawser::ChannelOptions options;
  options.services = {&watcher};
  const KeyValueStub watching = Connect(options);
  auto call = watching.Watch();
  call.request().setPrefix("p/");
  auto started = call.Send().Wait();
  ASSERT_THAT(started, IsOk());
  const KeyValueStub kv = Connect();
  ASSERT_THAT(Put(kv, "p/1", 10, 1), IsOk());
  ASSERT_THAT(Put(kv, "q/1", 10, 1), IsOk());
  ASSERT_THAT(Put(kv, "p/2", 10, 1), IsOk());
  EXPECT_THAT(watcher.WaitFor(2), testing::ElementsAre(1, 3));

  const auto watches = [&] {
    const auto reply = kv.Stats().Send().Wait();
    return (*reply)->getWatches();
  };
  EXPECT_EQ(watches(), 1u);
  watching.channel()->Close();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (watches() > 0 && absl::Now() < deadline) continue;
  EXPECT_EQ(watches(), 0u);
}

TEST_F(KvServiceTest, EachOfManyWatchesHearsOfAChange) {
  RecordingWatcher watcher;
  hawser::ChannelOptions options;
  options.services = {&watcher};
  const KeyValueStub watching = Connect(options);
  for (size_t number = 0; number < WatchHub::kWatchesMax; ++number) {
    auto call = watching.Watch();
    call.request().setWatch(number);
    ASSERT_THAT(call.Send().Wait(), IsOk());
  }
  ASSERT_THAT(Put(watching, "a", 10, 1), IsOk());
  EXPECT_EQ(watcher.WaitFor(WatchHub::kWatchesMax), std::vector<uint64_t>(WatchHub::kWatchesMax, 1));
  ASSERT_THAT(Put(watching, "b", 10, 1), IsOk());
  std::vector<uint64_t> both(WatchHub::kWatchesMax, 1);
  both.resize(2 * WatchHub::kWatchesMax, 2);
  EXPECT_THAT(watcher.WaitFor(both.size()), testing::UnorderedElementsAreArray(both));
}

// Another code than that of a watch that it does not know: the server must not take it for a timeout of its
// own, and repeat the push at once.
class FailingWatcher : public WatcherService {
 public:
  absl::Status Push(hawser::ServerContext&, Watcher::PushParams::Reader,
                    Watcher::PushResults::Builder) override {
    ++pushes_;
    return absl::DeadlineExceededError("says the watcher");
  }
  int pushes() const { return pushes_; }

 private:
  std::atomic<int> pushes_ = 0;
};

TEST_F(KvServiceTest, AWatcherThatAnswersDeadlineExceededIsNotPushedForEver) {
  FailingWatcher watcher;
  hawser::ChannelOptions options;
  options.services = {&watcher};
  const KeyValueStub watching = Connect(options);
  ASSERT_THAT(watching.Watch().Send().Wait(), IsOk());
  ASSERT_THAT(Put(watching, "a", 10, 1), IsOk());
  const auto watches = [&] {
    const auto reply = watching.Stats().Send().Wait();
    return (*reply)->getWatches();
  };
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (watches() > 0 && absl::Now() < deadline) continue;
  EXPECT_EQ(watches(), 0u);
  EXPECT_EQ(watcher.pushes(), 1);
}

TEST_F(KvServiceTest, TheClientsOfOneHostCannotHaveAllWatches) {
  RecordingWatcher watcher;
  hawser::ChannelOptions options;
  options.services = {&watcher};
  std::vector<KeyValueStub> clients;
  absl::Status refused;
  size_t watches = 0;
  while (refused.ok() && watches < WatchHub::kAllWatchesMax) {
    clients.push_back(Connect(options));
    for (size_t number = 0; number < WatchHub::kWatchesMax && refused.ok(); ++number) {
      auto call = clients.back().Watch();
      call.request().setWatch(number);
      refused = call.Send().Wait().status();
      if (refused.ok()) ++watches;
    }
  }
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(watches, WatchHub::kHostWatchesMax);
}

// The value is a small part of its message: the rest is a segment that nothing points to.
TEST_F(KvServiceTest, ASmallValueInALargeMessageHoldsNoMoreThanItself) {
  const KeyValueStub kv = Connect();
  const uint64_t before = server_.stats().leased_bytes;
  for (int i = 0; i < 8; ++i) {
    auto call = kv.Put();
    call.request().setKey(absl::StrCat("key ", i));
    absl::StatusOr<hawser::Buffer> ballast = kv.channel()->AllocateBuffer(8 << 20);
    ASSERT_THAT(ballast, IsOk());
    capnp::Orphan<capnp::Data> unused = call.Attach(*std::move(ballast));  // Sent, and not pointed to.
    const std::string value(3000, 'v');
    call.request().setValue(
        capnp::Data::Reader(reinterpret_cast<const uint8_t*>(value.data()), value.size()));
    ASSERT_THAT(call.Send().Wait(), IsOk());
  }
  EXPECT_LT(server_.stats().leased_bytes, before + (8 << 20));
  auto stats = kv.Stats().Send().Wait();
  ASSERT_THAT(stats, IsOk());
  EXPECT_GT((*stats)->getMemoryBytes(), 8u * 3000);
  EXPECT_LT((*stats)->getMemoryBytes(), 8u * 4000);
}

TEST_F(KvServiceTest, AKeptValueCountsTheMemoryThatItHolds) {
  const KeyValueStub kv = Connect();
  const uint64_t before = server_.stats().leased_bytes;
  ASSERT_THAT(Put(kv, "key", 3 << 20, 1), IsOk());
  auto stats = kv.Stats().Send().Wait();
  ASSERT_THAT(stats, IsOk());
  EXPECT_EQ((*stats)->getValueBytes(), 3u << 20);
  // Beside it the connection leases receives, more of them once something was READ.
  EXPECT_GE((*stats)->getMemoryBytes() + (256 << 10), server_.stats().leased_bytes - before);
}

TEST_F(KvServiceTest, AnEmptyValueIsAValue) {
  const KeyValueStub kv = Connect();
  auto put = kv.Put();
  put.request().setKey("empty");  // The value is a null pointer in the message.
  ASSERT_THAT(put.Send().Wait(), IsOk());
  auto get = kv.Get();
  get.request().setKey("empty");
  auto got = get.Send().Wait();
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ((*got)->getValue().size(), 0u);
}

TEST_F(KvServiceTest, APrefixLongerThanAKeyIsRefused) {
  const KeyValueStub kv = Connect();
  const std::string longer(KEY_BYTES_MAX + 1, 'k');
  auto list = kv.List();
  list.request().setPrefix(longer);
  EXPECT_THAT(list.Send().Wait().status(), HasCode(absl::StatusCode::kInvalidArgument));
  auto watch = kv.Watch();
  watch.request().setPrefix(longer);
  EXPECT_THAT(watch.Send().Wait().status(), HasCode(absl::StatusCode::kInvalidArgument));
  auto get = kv.Get();
  get.request().setKey(longer);
  const absl::Status refused = get.Send().Wait().status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_LT(refused.message().size(), 200u);  // The key is not sent back.
}

TEST_F(KvServiceTest, APageOfLongKeysIsBoundedInBytes) {
  const KeyValueStub kv = Connect();
  for (int i = 100; i < 150; ++i) {
    ASSERT_THAT(Put(kv, absl::StrCat(i, std::string(KEY_BYTES_MAX - 3, 'k')), 1, 1), IsOk());
  }
  auto page = kv.List().Send().Wait();
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ((*page)->getEntries().size(), 16u);  // 4 KiB each: 64 KiB.
  EXPECT_GT((*page)->getNext().size(), 0u);
}

}  // namespace
}  // namespace kv
