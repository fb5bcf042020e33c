// Values that clients find by READs, in a server's memory that changes meanwhile.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "capnp/message.h"
#include "capnp/serialize.h"
#include "examples/kv/bucket.h"
#include "examples/kv/change_log.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/kv_service.h"
#include "examples/kv/shared_table.h"
#include "examples/kv/store.h"
#include "examples/kv/watch_hub.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/versioned_cell.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/examples/kv/unimplemented_kv.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;
using ::testing::HasSubstr;

std::string Text(absl::Span<const uint8_t> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::StatusOr<uint64_t> Put(const KeyValueStub& kv, const std::string& key, const std::string& value) {
  auto call = kv.Put();
  call.request().setKey(key);
  call.request().setValue({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getRevision();
}

absl::Status Remove(const KeyValueStub& kv, const std::string& key) {
  auto call = kv.Remove();
  call.request().setKey(key);
  return call.Send().Wait().status();
}

// A server with a key-value store that shares memory.
struct Host {
  explicit Host(size_t shared_bytes, const std::string& at = hawser::TestUri()) {
    absl::StatusOr<hawser::SharedMemory> memory = server.Share(shared_bytes);
    EXPECT_THAT(memory, IsOk());
    EXPECT_THAT(service.ShareIn(*std::move(memory)), IsOk());
    EXPECT_THAT(server.AddService(&service), IsOk());
    const absl::StatusOr<std::string> listening = server.Listen(at);
    EXPECT_THAT(listening, IsOk());
    uri = *listening;
  }

  KeyValueStub Connect() const {
    const auto channel = hawser::Channel::Connect(uri);
    EXPECT_THAT(channel, IsOk());
    return KeyValueStub(*channel);
  }

  KvService service{uint64_t{1} << 30, 1 << 20, 64 << 20};
  hawser::Server server{{.pollers = 2}};
  std::string uri;
};

TEST(OneSidedTest, ASmallValueTakesOneReadAndALargerOneTwo) {
  const Host host(SharedTable::kMemoryMin);
  const KeyValueStub kv = host.Connect();
  std::shared_ptr<RemoteTable> table;
  for (const size_t size : {0, 1, 256, 257, 1000, 65536}) {
    const std::string key = absl::StrCat("key", size), value(size, 'v');
    const absl::StatusOr<uint64_t> revision = Put(kv, key, value);
    ASSERT_THAT(revision, IsOk());
    const absl::StatusOr<Lookup> found = LookUp(kv, key, table);
    ASSERT_THAT(found, IsOk());
    EXPECT_THAT(found->status(), IsOk());
    EXPECT_EQ(Text(found->value()), value);
    EXPECT_EQ(found->revision(), *revision);
    EXPECT_EQ(found->reads(), size <= SharedTable::kSmallMax ? 1 : 2) << size;
  }
}

TEST(OneSidedTest, TheTableHasWhatWasPutAndRemovedLast) {
  const Host host(SharedTable::kMemoryMin);
  const KeyValueStub kv = host.Connect();
  std::shared_ptr<RemoteTable> table;
  for (const size_t size : {10, 3000, 20, 70000, 40000, 70000, 30}) {
    ASSERT_THAT(Put(kv, "key", std::string(size, 'x')), IsOk());
    const absl::StatusOr<Lookup> found = LookUp(kv, "key", table);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->is_elsewhere(), size > SharedTable::kBlockMax) << size;
    EXPECT_EQ(found->value().size(), found->is_elsewhere() ? 0 : size);
  }
  ASSERT_THAT(Remove(kv, "key"), IsOk());
  const absl::StatusOr<Lookup> none = LookUp(kv, "key", table);
  ASSERT_THAT(none, IsOk());
  EXPECT_THAT(none->status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_FALSE(none->is_elsewhere());
}

// As many as no table of that size takes: each is found, or known to be elsewhere.
TEST(OneSidedTest, AFullTableHidesNoKey) {
  const Host host(SharedTable::kMemoryMin);
  const KeyValueStub kv = host.Connect();
  std::shared_ptr<RemoteTable> table;
  constexpr int kKeys = 1000;
  const auto key = [](int i) { return absl::StrCat("a key that is long enough to need some room: ", i); };
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_THAT(Put(kv, key(i), std::string(i % 2 == 0 ? 200 : 2000, 'v')), IsOk());
  }
  int elsewhere = 0;
  for (int i = 0; i < kKeys; ++i) {
    const absl::StatusOr<Lookup> found = LookUp(kv, key(i), table);
    ASSERT_THAT(found, IsOk());
    if (found->is_elsewhere()) {
      ++elsewhere;
    } else {
      EXPECT_THAT(found->status(), IsOk());
      EXPECT_EQ(found->value().size(), i % 2 == 0 ? 200u : 2000u);
    }
  }
  EXPECT_GT(elsewhere, 0);
  EXPECT_LT(elsewhere, kKeys);
  // When they are gone, there is room again.
  for (int i = 0; i < kKeys; ++i) ASSERT_THAT(Remove(kv, key(i)), IsOk());
  for (int i = 0; i < kKeys; ++i) {
    const absl::StatusOr<Lookup> none = LookUp(kv, key(i), table);
    ASSERT_THAT(none, IsOk());
    EXPECT_THAT(none->status(), HasCode(absl::StatusCode::kNotFound));
    EXPECT_FALSE(none->is_elsewhere()) << key(i);
  }
  ASSERT_THAT(Put(kv, "key", std::string(2000, 'w')), IsOk());
  const absl::StatusOr<Lookup> found = LookUp(kv, "key", table);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(Text(found->value()), std::string(2000, 'w'));
}

TEST(OneSidedTest, ATableOfAServerThatHasRestartedIsAskedForAgain) {
  std::optional<Host> host;
  host.emplace(SharedTable::kMemoryMin);
  const std::string uri = host->uri;
  const KeyValueStub kv = host->Connect();
  ASSERT_THAT(Put(kv, "key", "of the first run"), IsOk());
  std::shared_ptr<RemoteTable> table;
  const absl::StatusOr<Lookup> first = LookUp(kv, "key", table);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(Text(first->value()), "of the first run");

  host.reset();
  host.emplace(SharedTable::kMemoryMin, uri);
  ASSERT_THAT(Put(host->Connect(), "key", "of the second run"), IsOk());
  const std::shared_ptr<RemoteTable> old = table;
  const absl::StatusOr<Lookup> second = LookUp(kv, "key", table);
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(second->status(), IsOk());
  EXPECT_EQ(Text(second->value()), "of the second run");
  EXPECT_NE(table, old);
}

TEST(OneSidedTest, MemoryThatIsTooSmallForATableIsRefused) {
  hawser::Server server;
  KvService service(1 << 20, 1 << 20, 1 << 20);
  for (const size_t size : {size_t{8}, size_t{4095}, SharedTable::kMemoryMin - 1}) {
    EXPECT_THAT(service.ShareIn(*server.Share(size)), HasCode(absl::StatusCode::kInvalidArgument)) << size;
  }
  EXPECT_THAT(service.ShareIn(*server.Share(SharedTable::kMemoryMin)), IsOk());
}

TEST(OneSidedTest, AServerThatSharesNothingSaysSo) {
  KvService service(1 << 20, 1 << 20, 1 << 20);
  hawser::Server server;
  ASSERT_THAT(server.AddService(&service), IsOk());
  const auto channel = hawser::Channel::Connect(*server.Listen(hawser::TestUri()));
  ASSERT_THAT(channel, IsOk());
  std::shared_ptr<RemoteTable> table;
  const absl::StatusOr<Lookup> found = LookUp(KeyValueStub(*channel), "key", table);
  EXPECT_THAT(found.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(found.status().message(), HasSubstr("start it with --one_sided"));
}

// A server whose table is what a test writes.
class LyingKv : public UnimplementedKv {
 public:
  static constexpr size_t kBytes = 64 << 10;

  LyingKv() {
    EXPECT_THAT(server_.AddService(this), IsOk());
    const absl::StatusOr<std::string> uri = server_.Listen(hawser::TestUri());
    EXPECT_THAT(uri, IsOk());
    absl::StatusOr<hawser::SharedMemory> memory = server_.Share(kBytes);
    EXPECT_THAT(memory, IsOk());
    memory_.emplace(*std::move(memory));
    channel_ = *hawser::Channel::Connect(*uri);
  }

  absl::Status Share(hawser::ServerContext& context, KeyValue::ShareParams::Reader,
                     KeyValue::Table::Builder reply) override {
    reply.setBuckets(buckets);
    reply.setBucketBytes(bucket_bytes);
    return context.Grant(*memory_, {.access = hawser::Access::kRead}, reply.initMemory());
  }

  void WriteBucket(capnp::MessageBuilder& message) {
    const auto words = capnp::messageToFlatArray(message);
    WriteBucket({words.asBytes().begin(), words.asBytes().size()});
  }
  // As a server leaves it that was stopped while it wrote.
  void TearBucket() { memory_->bytes()[bucket_bytes - 8] ^= 1; }
  void WriteBucket(absl::Span<const uint8_t> bytes) {
    hawser::VersionedCell(memory_->bytes().first(bucket_bytes)).Write(bytes);
  }

  absl::Status LookUpKey() {
    std::shared_ptr<RemoteTable> table;
    const absl::StatusOr<Lookup> found = LookUp(KeyValueStub(channel_), "key", table);
    return found.ok() ? found->status() : found.status();
  }

  absl::StatusOr<std::shared_ptr<RemoteTable>> AskForTable() {
    return RemoteTable::Create(channel_, KeyValueStub(channel_).Share().Send().Wait());
  }

  uint64_t buckets = 1;
  uint32_t bucket_bytes = 1024;

 private:
  hawser::Server server_;
  std::optional<hawser::SharedMemory> memory_;
  std::shared_ptr<hawser::Channel> channel_;
};

TEST(LyingServerTest, TablesThatCannotBeAreRefused) {
  LyingKv kv;
  for (const auto& [buckets, bucket_bytes] : std::vector<std::pair<uint64_t, uint32_t>>{
           {0, 1024}, {1, 0}, {65, 1024}, {1, 65537}, {~uint64_t{0}, 1024}, {~uint64_t{0}, ~uint32_t{0}}}) {
    kv.buckets = buckets;
    kv.bucket_bytes = bucket_bytes;
    EXPECT_THAT(kv.LookUpKey(), HasCode(absl::StatusCode::kDataLoss)) << buckets << " " << bucket_bytes;
  }
}

TEST(LyingServerTest, BucketsThatAreMalformedAreRefused) {
  LyingKv kv;
  EXPECT_THAT(kv.LookUpKey(), HasCode(absl::StatusCode::kDataLoss));  // Zeros are no message.
  std::mt19937_64 dice(1);
  for (int i = 0; i < 100; ++i) {
    std::array<uint8_t, 700> bytes = {};
    std::generate(bytes.begin() + 4, bytes.end(), [&] { return static_cast<uint8_t>(dice() % 4); });
    bytes[4] = 87;  // Of one segment that is as long as that.
    bytes[5] = bytes[6] = bytes[7] = 0;
    kv.WriteBucket(bytes);
    EXPECT_FALSE(kv.LookUpKey().ok());
  }
}

TEST(LyingServerTest, BlocksThatCannotBeAreRefused) {
  LyingKv kv;
  for (const auto& [offset, size, code] : std::vector<std::tuple<uint64_t, uint32_t, absl::StatusCode>>{
           {0, 65537, absl::StatusCode::kDataLoss},
           {0, ~uint32_t{0}, absl::StatusCode::kDataLoss},
           {LyingKv::kBytes - 8, 1, absl::StatusCode::kOutOfRange},
           {~uint64_t{0} - 8, 1, absl::StatusCode::kOutOfRange},
           // A version that the block never has.
           {4096, 100, absl::StatusCode::kAborted}}) {
    capnp::MallocMessageBuilder message;
    auto entry = message.initRoot<Bucket>().initEntries(1)[0];
    entry.setKey("key");
    auto block = entry.initBlock();
    block.setOffset(offset);
    block.setSize(size);
    block.setVersion(7);
    kv.WriteBucket(message);
    EXPECT_THAT(kv.LookUpKey(), HasCode(code)) << offset << " " << size;
  }
}

TEST(LyingServerTest, ABucketThatIsAlwaysBeingWrittenIsGivenUp) {
  LyingKv kv;
  capnp::MallocMessageBuilder message;
  message.initRoot<Bucket>();
  kv.WriteBucket(message);
  kv.TearBucket();
  EXPECT_THAT(kv.LookUpKey(), HasCode(absl::StatusCode::kAborted));
}

TEST(LyingServerTest, TablesThatAreAlwaysStaleAreGivenUp) {
  LyingKv kv;
  for (const bool has_one : {false, true}) {
    std::shared_ptr<RemoteTable> table;
    if (has_one) table = *kv.AskForTable();
    TableLookup lookup("key", table);
    int asked = 0, reads = 0;
    while (!lookup.done()) {
      if (lookup.needs_table()) {
        ++asked;
        lookup.OnTable(kv.AskForTable());
      } else {
        ++reads;
        lookup.OnRead(absl::FailedPreconditionError("the ticket is not good"));
      }
    }
    EXPECT_EQ(asked, TableLookup::kTablesMax);
    EXPECT_EQ(reads, asked + (has_one ? 1 : 0));
    const absl::StatusOr<Lookup> found = std::move(lookup).Result();
    ASSERT_THAT(found, IsOk());
    EXPECT_TRUE(found->is_stale());
    EXPECT_EQ(found->status().message(), "the ticket is not good");
  }
}

// ---- Tables in memory of a test's

struct TableInMemory {
  absl::Span<uint8_t> bytes() {
    return {reinterpret_cast<uint8_t*>(memory.data()), memory.size() * sizeof(uint64_t)};
  }

  void Put(const std::string& key, const std::string& value, uint64_t revision, bool replaces) {
    table.Put(key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, revision, replaces);
  }

  // READs the words one after the other, beside a thread that may write them.
  Lookup LookUp(const std::string& key) {
    Lookup lookup({table.buckets(), SharedTable::kBucketBytes}, key);
    while (!lookup.done()) {
      for (size_t i = 0; i < lookup.cell().size(); i += sizeof(uint64_t)) {
        const uint64_t word = std::atomic_ref<uint64_t>(memory[(lookup.offset() + i) / sizeof(uint64_t)]);
        std::memcpy(lookup.cell().data() + i, &word, sizeof(word));
      }
      lookup.OnRead(absl::OkStatus());
    }
    return lookup;
  }

  std::vector<uint64_t> memory = std::vector<uint64_t>(SharedTable::kMemoryMin / sizeof(uint64_t));
  SharedTable table{bytes()};
};

TEST(OneSidedTest, AFullTableKeepsAKeyWhoseUpdateIsOfTheSameSize) {
  TableInMemory memory;
  constexpr size_t kSize = 50'000;
  uint64_t revision = 0;
  int keys = 0;
  const auto put = [&](int key, size_t size, bool replaces) {
    const auto fill = static_cast<char>('a' + ++revision % 26);
    memory.Put(absl::StrCat("key", key), std::string(size, fill), revision, replaces);
    return std::string(size, fill);
  };
  for (bool full = false; !full; ++keys) {
    put(keys, kSize, /*replaces=*/false);
    full = memory.LookUp(absl::StrCat("key", keys)).is_elsewhere();
  }
  ASSERT_GT(keys, 5);
  for (int key = 0; key < keys - 1; ++key) {
    for (const size_t size : {kSize, kSize, kSize + 4000}) {  // Their blocks are alike.
      const std::string value = put(key, size, /*replaces=*/true);
      const Lookup found = memory.LookUp(absl::StrCat("key", key));
      EXPECT_THAT(found.status(), IsOk());
      EXPECT_EQ(Text(found.value()), value);
      EXPECT_EQ(found.revision(), revision);
    }
  }
  // The last one is still elsewhere, and one whose value needs another block is so, too.
  EXPECT_TRUE(memory.LookUp(absl::StrCat("key", keys - 1)).is_elsewhere());
  put(0, 1000, /*replaces=*/true);
  EXPECT_TRUE(memory.LookUp("key0").is_elsewhere());
  put(keys - 1, kSize, /*replaces=*/true);  // It has the block of that one.
  EXPECT_THAT(memory.LookUp(absl::StrCat("key", keys - 1)).status(), IsOk());
}

TEST(OneSidedTest, AWatcherFindsWhatItHearsOf) {
  constexpr uint64_t kChanges = 3000;
  TableInMemory memory;
  ChangeLog log(100 << 20);
  Store store(uint64_t{1} << 30, &log);
  store.PublishIn(&memory.table);
  WatchHub hub(&log);

  absl::Mutex mutex;
  std::deque<std::pair<ChangeLog::Batch, WatchHub::PushDone>> pushes;
  const auto peer = std::make_shared<int>(1);
  hub.AddPeer(peer);
  ASSERT_THAT(hub.Watch(peer.get(), 1, "key", std::nullopt,
                        [&](const ChangeLog::Batch& batch, WatchHub::PushDone done) {
                          absl::MutexLock lock(&mutex);
                          pushes.emplace_back(batch, std::move(done));
                        }),
              IsOk());
  std::thread writer([&] {
    // It takes a while to write such a value.
    const auto bytes = std::make_shared<std::vector<uint8_t>>(SharedTable::kBlockMax - 100);
    const Value value = {{bytes->data(), bytes->size()}, bytes, bytes->size()};
    for (uint64_t i = 0; i < kChanges; ++i) {
      ASSERT_THAT(store.Put("key", value), IsOk());
      hub.Notify();
    }
  });
  uint64_t through = 0, found = 0;
  while (through < kChanges) {
    std::pair<ChangeLog::Batch, WatchHub::PushDone> push;
    {
      absl::MutexLock lock(&mutex);
      const auto has_push = [&] { return !pushes.empty(); };
      mutex.Await(absl::Condition(&has_push));
      push = std::move(pushes.front());
      pushes.pop_front();
    }
    through = push.first.through;
    const Lookup lookup = memory.LookUp("key");
    if (!lookup.is_elsewhere()) {
      ++found;
      EXPECT_THAT(lookup.status(), IsOk());
      EXPECT_GE(lookup.revision(), through);
    }
    push.second(absl::OkStatus());
  }
  writer.join();
  EXPECT_GT(found, 0u);
}

// ---- Readers beside writers

// What the `number`th change of a key is: every fourth removes it, the others put a value that is like no
// other.
bool IsRemove(uint64_t number) { return number % 4 == 0; }
std::string ValueOf(const std::string& key, uint64_t number) {
  std::mt19937_64 dice(number * 1000003 + BucketOf(key, 1 << 20));
  // In the bucket, in a block, and now and then too large for the table. Blocks are of few sizes, so that
  // they are used again for other values.
  const size_t size = number % 50 == 7 ? 70'000 : dice() % 2 == 0 ? 1000 + dice() % 2 * 2000 : dice() % 250;
  std::string value = absl::StrCat(key, " ", number, " ");
  const size_t size_at_least = std::max(size, value.size());
  while (value.size() < size_at_least) absl::StrAppend(&value, absl::Hex(dice(), absl::kZeroPad16));
  value.resize(size_at_least);
  return value;
}
// 0: the value is no such value.
uint64_t NumberIn(const std::string& key, const std::string& value) {
  const std::vector<std::string> words = absl::StrSplit(value, absl::MaxSplits(' ', 2));
  uint64_t number = 0;
  if (words.size() < 2 || words[0] != key || !absl::SimpleAtoi(words[1], &number)) return 0;
  return value == ValueOf(key, number) ? number : 0;
}

// Whether "there is no such key" can be right for a READ between these changes.
bool MayBeAbsent(uint64_t answered, uint64_t begun) {
  if (answered == 0) return true;
  for (uint64_t number = answered; number <= begun; ++number) {
    if (IsRemove(number)) return true;
  }
  return false;
}

// A table, its keys, and an owner that changes one of them when it is told.
class TableOfSeed {
 public:
  explicit TableOfSeed(uint64_t seed) : dice_(seed) {}

  void Change() {
    const size_t i = dice_() % changes_.size();
    const std::string key = KeyOf(i);
    const uint64_t number = ++changes_[i];
    ++revision_;
    if (IsRemove(number)) return table_.Remove(key);
    const std::string value = ValueOf(key, number);
    table_.Put(key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, revision_,
               number > 1 && !IsRemove(number - 1));
  }

  // A READ whose words are copied in any order, while the owner may change something.
  void Read(uint64_t offset, absl::Span<uint8_t> into) {
    std::vector<size_t> words(into.size() / 8);
    std::iota(words.begin(), words.end(), 0);
    if (dice_() % 2 == 0) std::shuffle(words.begin(), words.end(), dice_);
    const uint64_t calm = 1 + dice_() % (4 * words.size());
    for (const size_t word : words) {
      if (dice_() % calm == 0) Change();
      std::memcpy(into.data() + word * 8, bytes().data() + offset + word * 8, 8);
    }
  }

  static std::string KeyOf(size_t i) { return absl::StrCat("key", i); }
  uint64_t changes(size_t i) const { return changes_[i]; }
  uint64_t revision() const { return revision_; }
  std::mt19937_64& dice() { return dice_; }
  TableLayout layout() const { return {table_.buckets(), SharedTable::kBucketBytes}; }

 private:
  absl::Span<uint8_t> bytes() {
    return {reinterpret_cast<uint8_t*>(memory_.data()), memory_.size() * sizeof(uint64_t)};
  }

  std::mt19937_64 dice_;
  std::vector<uint64_t> memory_ = std::vector<uint64_t>(SharedTable::kMemoryMin / sizeof(uint64_t));
  SharedTable table_{bytes()};
  std::array<uint64_t, 12> changes_ = {};
  uint64_t revision_ = 0;
};

TEST(OneSidedTest, NoSeedFindsAValueThatIsTornMixedFreedOrTooOld) {
  int found = 0, again = 0, absent = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    TableOfSeed table(seed);
    std::array<uint64_t, 12> seen = {};  // The revision and the value that were found last.
    std::array<uint64_t, 12> seen_number = {};
    for (int i = 0; i < 30; ++i) table.Change();
    for (int i = 0; i < 20; ++i) {
      const size_t number = table.dice()() % 12;
      const std::string key = TableOfSeed::KeyOf(number);
      const uint64_t answered = table.changes(number);
      Lookup lookup(table.layout(), key);
      while (!lookup.done()) {
        for (uint64_t changes = table.dice()() % 10; changes > 0; --changes) table.Change();
        table.Read(lookup.offset(), lookup.cell());
        lookup.OnRead(absl::OkStatus());
      }
      if (lookup.reads() > 2) ++again;
      if (lookup.is_elsewhere()) continue;
      if (absl::IsNotFound(lookup.status())) {
        ++absent;
        EXPECT_TRUE(MayBeAbsent(answered, table.changes(number))) << "seed " << seed << ", " << key;
        continue;
      }
      ++found;
      ASSERT_THAT(lookup.status(), IsOk());
      const uint64_t got = NumberIn(key, Text(lookup.value()));
      EXPECT_GE(got, std::max<uint64_t>(answered, 1)) << "seed " << seed << ", " << key;
      EXPECT_LE(got, table.changes(number));
      EXPECT_LE(lookup.revision(), table.revision());
      EXPECT_GE(lookup.revision(), seen[number]) << "seed " << seed << ", " << key;
      EXPECT_EQ(lookup.revision() > seen[number], got > seen_number[number]);
      seen[number] = lookup.revision();
      seen_number[number] = got;
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(absent, 100);
  EXPECT_GT(again, 100);
}

TEST(OneSidedTest, ABlockThatIsUsedAgainIsNotTakenForTheValue) {
  std::vector<uint64_t> memory(SharedTable::kMemoryMin / 8);
  const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(memory.data()), SharedTable::kMemoryMin);
  SharedTable table(bytes);
  const std::string mine(1000, 'm'), other(1000, 'o');
  const auto put = [&](const std::string& key, const std::string& value, uint64_t revision) {
    table.Put(key, {reinterpret_cast<const uint8_t*>(value.data()), value.size()}, revision, false);
  };
  put("mine", mine, 1);
  Lookup lookup({table.buckets(), SharedTable::kBucketBytes}, "mine");
  const auto read = [&] {
    std::memcpy(lookup.cell().data(), bytes.data() + lookup.offset(), lookup.cell().size());
    lookup.OnRead(absl::OkStatus());
  };
  read();  // The bucket, which names a block.
  const uint64_t block = lookup.offset();
  table.Remove("mine");
  put("other", other, 3);
  read();  // That block, which the other key has.
  EXPECT_FALSE(lookup.done());
  EXPECT_NE(lookup.offset(), block);
  read();
  EXPECT_THAT(lookup.status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(lookup.reads(), 3);

  Lookup others({table.buckets(), SharedTable::kBucketBytes}, "other");
  std::memcpy(others.cell().data(), bytes.data() + others.offset(), others.cell().size());
  others.OnRead(absl::OkStatus());
  EXPECT_EQ(others.offset(), block);
}

struct Key {
  std::string name;
  std::atomic<uint64_t> begun = 0;     // Changes that were sent,
  std::atomic<uint64_t> answered = 0;  // and those of them whose answer has come.
};

TEST(OneSidedTest, ReadersBesideWritersGetWholeValuesThatAreNotTooOld) {
  constexpr int kWriters = 2, kReaders = 2;
  constexpr uint64_t kChanges = 3000, kReads = 4000;
  const Host host(SharedTable::kMemoryMin);
  std::array<Key, 20> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i].name = absl::StrCat("key", i);

  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      const KeyValueStub kv = host.Connect();
      std::mt19937_64 dice(w);
      for (uint64_t i = 0; i < kChanges; ++i) {
        Key& key = keys[dice() % (keys.size() / kWriters) * kWriters + w];  // It has one writer.
        const uint64_t number = ++key.begun;
        if (IsRemove(number)) {
          EXPECT_THAT(Remove(kv, key.name), IsOk());
        } else {
          EXPECT_THAT(Put(kv, key.name, ValueOf(key.name, number)), IsOk());
        }
        key.answered = number;
      }
    });
  }
  std::atomic<uint64_t> found = 0, absent = 0, elsewhere = 0;
  for (int r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      const KeyValueStub kv = host.Connect();
      std::shared_ptr<RemoteTable> table;
      std::mt19937_64 dice(100 + r);
      std::array<uint64_t, 20> seen = {};  // The revisions that it found last.
      for (uint64_t i = 0; i < kReads; ++i) {
        const size_t each = dice() % keys.size();
        Key& key = keys[each];
        const uint64_t answered = key.answered;
        const absl::StatusOr<Lookup> lookup = LookUp(kv, key.name, table);
        const uint64_t begun = key.begun;
        ASSERT_THAT(lookup, IsOk());
        if (lookup->is_elsewhere()) {
          ++elsewhere;
        } else if (absl::IsNotFound(lookup->status())) {
          ++absent;
          EXPECT_TRUE(MayBeAbsent(answered, begun)) << key.name << " " << answered << " " << begun;
        } else {
          ++found;
          ASSERT_THAT(lookup->status(), IsOk());
          const std::string value = Text(lookup->value());
          const uint64_t number = NumberIn(key.name, value);
          EXPECT_GE(number, std::max<uint64_t>(answered, 1)) << key.name << ": " << value.substr(0, 100);
          EXPECT_LE(number, begun);
          EXPECT_GE(lookup->revision(), seen[each]) << key.name;
          seen[each] = lookup->revision();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(found.load(), 0u);
  EXPECT_GT(absent.load(), 0u);
}

}  // namespace
}  // namespace kv
