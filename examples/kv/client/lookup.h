#ifndef EXAMPLES_KV_CLIENT_LOOKUP_H_
#define EXAMPLES_KV_CLIENT_LOOKUP_H_

#include <capnp/common.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "examples/kv/kv.rpc.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"

namespace kv {

// Where things are in the memory that a server shares (kv.capnp, Table).
struct TableLayout {
  uint64_t buckets = 0;
  uint64_t bucket_bytes = 0;
};

// A get() by READs alone: one of the bucket of the key, and one of its block if the value is not in the
// bucket. It says what to READ, and its caller waits for that as it likes:
//
//   Lookup lookup(table->layout(), "tow");
//   while (!lookup.done()) lookup.OnRead(table->Read(lookup).Wait());   // In a coroutine: co_await.
//
// What changes while it is read is read again.
// Thread: one at a time.
class Lookup {
 public:
  Lookup(const TableLayout& layout, absl::string_view key);

  bool done() const { return done_; }
  // What to READ next, unless it is done: cell().size() bytes at offset(). They stay where they are until
  // OnRead().
  uint64_t offset() const;
  absl::Span<uint8_t> cell() { return absl::MakeSpan(cell_); }
  // The READ has ended so.
  void OnRead(const absl::Status& read);

  // When it is done. OK: there is a value, of that revision. NotFound: there is no such key. Otherwise:
  const absl::Status& status() const { return status_; }
  // Another table has to be asked for: the connection or the server is not the same any more. TableLookup
  // does so.
  bool is_stale() const;
  // Only a call gets it: it is not in the table, or it changed each time that it was read.
  bool is_elsewhere() const { return is_elsewhere_; }
  absl::Span<const uint8_t> value() const { return value_; }
  uint64_t revision() const { return revision_; }
  int reads() const { return reads_; }

  static constexpr int kReadsMax = 200;  // Then it gives up a key that changes all the time.

 private:
  struct Block {
    uint64_t offset;
    uint64_t version;
  };

  void WantBucket();
  void TakeBucket();
  void TakeBlock();
  void End(absl::Status status);

  const TableLayout layout_;
  const std::string key_;
  int reads_ = 0;
  std::vector<uint8_t> cell_;        // What is READ.
  std::vector<capnp::word> bucket_;  // The message in the cell of a bucket.
  std::optional<Block> block_;       // To be READ next; the value has its size.
  bool done_ = false;
  bool is_elsewhere_ = false;
  absl::Status status_;
  std::vector<uint8_t> value_;
  uint64_t revision_ = 0;
};

// The memory in which a server has its values, by the answer to share().
// Thread: any.
class RemoteTable {
 public:
  // `shared`: the answer, and its error, if it is one. DataLoss: there can be no such table.
  static absl::StatusOr<std::shared_ptr<RemoteTable>> Create(
      std::shared_ptr<hawser::Channel> channel, const absl::StatusOr<hawser::Reply<KeyValue::Table>>& shared);

  const TableLayout& layout() const { return layout_; }
  // READs what `lookup` wants next. That outlives the operation.
  hawser::RemoteOperation Read(Lookup& lookup) { return memory_.Read(lookup.offset(), lookup.cell()); }

 private:
  RemoteTable(hawser::RemoteMemory memory, const TableLayout& layout)
      : memory_(std::move(memory)), layout_(layout) {}

  hawser::RemoteMemory memory_;
  const TableLayout layout_;
};

// A Lookup of a client that has no table yet, or one that may be stale. It says whether to ask for one, or
// what to READ:
//
//   TableLookup lookup("tow", table);
//   while (!lookup.done()) {   // In a coroutine: co_await.
//     if (lookup.needs_table()) {
//       lookup.OnTable(RemoteTable::Create(kv.channel(), kv.Share().Send().Wait()));
//     } else {
//       lookup.OnRead(lookup.Read().Wait());
//     }
//   }
//
// Thread: one at a time.
class TableLookup {
 public:
  // `table` may be null. It is set to the one that was used last, and outlives the lookup.
  TableLookup(absl::string_view key, std::shared_ptr<RemoteTable>& table);

  bool done() const { return done_; }
  // Ask for a table next, unless it is done; otherwise Read().
  bool needs_table() const { return table_ == nullptr; }
  void OnTable(absl::StatusOr<std::shared_ptr<RemoteTable>> table);
  hawser::RemoteOperation Read() { return table_->Read(*lookup_); }
  // The READ has ended so.
  void OnRead(const absl::Status& read);

  // When it is done, once. An error: the server gives no table. A Lookup that is_stale(): neither does the
  // last table work.
  absl::StatusOr<Lookup> Result() &&;

  static constexpr int kTablesMax = 3;  // It asks for no more of them.

 private:
  void Start();

  const std::string key_;
  std::shared_ptr<RemoteTable>& table_;
  int asked_ = 0;
  std::optional<Lookup> lookup_;  // In that table.
  absl::Status status_;           // The server's answer, if it is an error.
  bool done_ = false;
};

// Looks `key` up, and blocks until that is done. A table that is null, or stale, is asked for and set. An
// error: the server gives none.
absl::StatusOr<Lookup> LookUp(const KeyValueStub& kv, absl::string_view key,
                              std::shared_ptr<RemoteTable>& table);

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_LOOKUP_H_
