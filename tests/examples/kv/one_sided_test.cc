// The table of a server that clients READ: what they find there, and what they make of one that is wrong.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "capnp/message.h"
#include "capnp/serialize.h"
#include "examples/kv/bucket.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/kv_service.h"
#include "examples/kv/shared_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/versioned_cell.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/examples/kv/numbered_values.h"
#include "tests/examples/kv/one_sided_host.h"
#include "tests/examples/kv/unimplemented_kv.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;
using ::testing::HasSubstr;

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
  // While nothing listened, the channel may have tried in vain, and wait for its next attempt.
  auto get = kv.Get({.wait_for_ready = true});
  get.request().setKey("key");
  ASSERT_THAT(get.Send().Wait(), IsOk());
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
    EXPECT_THAT(hawser::VersionedCell(memory_->bytes().first(bucket_bytes)).Write(bytes), IsOk());
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

}  // namespace
}  // namespace kv
