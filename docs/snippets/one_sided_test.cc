// Snippets of docs/guide.md: memory that clients reach by themselves.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "docs/snippets/page_store.h"
#include "hawser/rpc/arrival_counter.h"
#include "hawser/rpc/registered_memory.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/rpc/versioned_cell.h"

namespace pages {
namespace {

class TablesImpl final : public TablesService {
 public:
  void Use(hawser::SharedMemory table) { table_.emplace(std::move(table)); }

  // snippet: grant
  absl::Status Open(hawser::ServerContext& context, Tables::OpenParams::Reader,
                    Tables::OpenResults::Builder reply) override {
    return context.Grant(*table_, {.access = hawser::Access::kRead}, reply.initTable());
  }
  // end of snippet

 private:
  std::optional<hawser::SharedMemory> table_;
};

class BlocksImpl final : public TablesService {
 public:
  void Use(hawser::SharedMemory blocks) { blocks_.emplace(std::move(blocks)); }

  // snippet: counter
  absl::Status Open(hawser::ServerContext& context, Tables::OpenParams::Reader,
                    Tables::OpenResults::Builder reply) override {
    return context.Grant(*blocks_, {.access = hawser::Access::kWrite, .counter = &arrived_},
                         reply.initTable());
  }
  void AwaitBlocks(uint64_t count) {  // Whichever come first.
    if (!arrived_.CallWhen(count, [this] { all_there_.Notify(); })) all_there_.Notify();
    all_there_.WaitForNotification();
  }
  absl::Notification all_there_;
  hawser::ArrivalCounter arrived_;  // Destroyed first: its callback uses the other.
  // end of snippet
  std::optional<hawser::SharedMemory> blocks_;
};

absl::StatusOr<std::string> ReadRow(const std::shared_ptr<hawser::Channel>& channel, uint64_t row) {
  constexpr uint64_t kRowBytes = 64;
  // snippet: reach
  auto opened = TablesStub(channel).Open().Send().Wait();
  if (!opened.ok()) return opened.status();
  hawser::RemoteMemory table(channel, (*opened)->getTable());
  absl::StatusOr<hawser::Buffer> bytes = channel->AllocateBuffer(kRowBytes);
  if (!bytes.ok()) return bytes.status();
  absl::Status read = table.Read(row * kRowBytes, {bytes->data(), kRowBytes}).Wait();
  if (!read.ok()) return read;
  // end of snippet
  return Text(bytes->reader());
}

absl::StatusOr<std::string> ReadIntoOwnMemory(const std::shared_ptr<hawser::Channel>& channel,
                                              hawser::RemoteMemory& table, uint64_t row) {
  constexpr uint64_t kRowBytes = 64;
  std::vector<uint8_t> blocks(1 << 20);
  // snippet: register
  absl::StatusOr<hawser::RegisteredMemory> cache =
      channel->Register({.address = blocks.data(), .length_bytes = blocks.size()});
  if (!cache.ok()) return cache.status();
  absl::Status read = table.Read(row * kRowBytes, cache->bytes().subspan(0, kRowBytes)).Wait();
  if (!read.ok()) return read;
  // end of snippet
  return std::string(blocks.begin(), blocks.begin() + kRowBytes);
}

// What changes while clients read it.
absl::Status Change(hawser::SharedMemory& table, capnp::Data::Reader row) {
  constexpr size_t kRowBytes = 100;
  // snippet: cell_write
  hawser::VersionedCell cell(table.bytes().first(hawser::VersionedCell::CellBytes(kRowBytes)));
  return cell.Write({row.begin(), row.size()}).status();  // InvalidArgument: it is longer.
  // end of snippet
}

absl::StatusOr<std::string> ReadChanging(hawser::RemoteMemory& table) {
  constexpr size_t kRowBytes = 100;
  // snippet: cell_read
  std::vector<uint8_t> cell(hawser::VersionedCell::CellBytes(kRowBytes));
  std::vector<uint8_t> row(kRowBytes);
  for (int reads = 0; reads < 100; ++reads) {
    absl::Status read = table.Read(0, absl::MakeSpan(cell)).Wait();
    if (!read.ok()) return read;
    if (hawser::VersionedCell::Decode(cell, absl::MakeSpan(row)).has_value()) {
      return std::string(row.begin(), row.end());
    }
  }
  return absl::AbortedError("the row has changed each time that it was read");
  // end of snippet
}

TEST(OneSidedTest, ARowThatChangesIsReadWhole) {
  TablesImpl tables;
  hawser::Server server;
  const auto channel = Connect(Serve(server, tables));
  absl::StatusOr<hawser::SharedMemory> shared = server.Share(64 << 10);
  ASSERT_TRUE(shared.ok()) << shared.status();
  const std::string written(100, 'r'), longer(109, 'r');
  const auto bytes_of = [](const std::string& text) {
    return capnp::Data::Reader(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const absl::Status changed = Change(*shared, bytes_of(written));
  ASSERT_TRUE(changed.ok()) << changed;
  EXPECT_EQ(Change(*shared, bytes_of(longer)).code(), absl::StatusCode::kInvalidArgument);
  tables.Use(*std::move(shared));
  const auto opened = TablesStub(channel).Open().Send().Wait();
  ASSERT_TRUE(opened.ok()) << opened.status();
  hawser::RemoteMemory table(channel, (*opened)->getTable());
  const absl::StatusOr<std::string> row = ReadChanging(table);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(*row, std::string(100, 'r'));
}

TEST(OneSidedTest, BlocksAreAwaited) {
  constexpr uint64_t kBlocks = 8, kBlockBytes = 4096;
  BlocksImpl blocks;
  hawser::Server server;
  const auto channel = Connect(Serve(server, blocks));
  absl::StatusOr<hawser::SharedMemory> shared = server.Share(kBlocks * kBlockBytes);
  ASSERT_TRUE(shared.ok()) << shared.status();
  blocks.Use(*std::move(shared));
  const auto opened = TablesStub(channel).Open().Send().Wait();
  ASSERT_TRUE(opened.ok()) << opened.status();
  hawser::RemoteMemory remote(channel, (*opened)->getTable());
  const std::vector<uint8_t> block(kBlockBytes, 'b');
  std::vector<hawser::RemoteOperation> writes;
  for (uint64_t i = 0; i < kBlocks; ++i) writes.push_back(remote.Write(i * kBlockBytes, block));
  blocks.AwaitBlocks(kBlocks);
  EXPECT_EQ(std::count(blocks.blocks_->bytes().begin(), blocks.blocks_->bytes().end(), 'b'),
            static_cast<int64_t>(kBlocks * kBlockBytes));
  for (hawser::RemoteOperation& each : writes) EXPECT_TRUE(each.Wait().ok());
}

TEST(OneSidedTest, ARowIsReadIntoMemoryOfTheProgram) {
  TablesImpl tables;
  hawser::Server server;
  const auto channel = Connect(Serve(server, tables));
  absl::StatusOr<hawser::SharedMemory> shared = server.Share(64 << 10);
  ASSERT_TRUE(shared.ok()) << shared.status();
  std::fill_n(shared->data() + 64 * 5, 64, 's');
  tables.Use(*std::move(shared));
  const auto opened = TablesStub(channel).Open().Send().Wait();
  ASSERT_TRUE(opened.ok()) << opened.status();
  hawser::RemoteMemory table(channel, (*opened)->getTable());
  const absl::StatusOr<std::string> row = ReadIntoOwnMemory(channel, table, 5);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(*row, std::string(64, 's'));
}

TEST(OneSidedTest, ARowIsReadFromMemoryOfTheServer) {
  TablesImpl tables;
  hawser::Server server;
  const auto channel = Connect(Serve(server, tables));
  absl::StatusOr<hawser::SharedMemory> shared = server.Share(64 << 10);
  ASSERT_TRUE(shared.ok()) << shared.status();
  std::fill_n(shared->data() + 64 * 3, 64, 'r');
  tables.Use(*std::move(shared));
  const absl::StatusOr<std::string> row = ReadRow(channel, 3);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(*row, std::string(64, 'r'));
  EXPECT_EQ(ReadRow(channel, 1024).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace pages
