#include "examples/kv/client/lookup.h"

#include <capnp/serialize.h>
#include <kj/exception.h>

#include "absl/strings/str_cat.h"
#include "examples/kv/bucket.h"
#include "hawser/rpc/versioned_cell.h"

namespace kv {

using hawser::VersionedCell;

absl::StatusOr<std::shared_ptr<RemoteTable>> RemoteTable::Create(
    std::shared_ptr<hawser::Channel> channel, const absl::StatusOr<hawser::Reply<KeyValue::Table>>& shared) {
  if (!shared.ok()) return shared.status();
  const KeyValue::Table::Reader table = **shared;
  hawser::RemoteMemory memory(std::move(channel), table.getMemory());
  const uint64_t buckets = table.getBuckets();
  const uint64_t bucket_bytes = table.getBucketBytes();
  if (buckets == 0 || bucket_bytes == 0 || bucket_bytes > TABLE_BYTES_MAX ||
      buckets > memory.size_bytes() / bucket_bytes) {
    return absl::DataLossError(absl::StrCat("the server's table is malformed: ", buckets, " buckets of ",
                                            bucket_bytes, " bytes in a memory of ", memory.size_bytes()));
  }
  return std::shared_ptr<RemoteTable>(new RemoteTable(std::move(memory), buckets, bucket_bytes));
}

Lookup::Lookup(std::shared_ptr<RemoteTable> table, absl::string_view key)
    : table_(std::move(table)),
      key_(key),
      bucket_(VersionedCell::ValueBytes(table_->bucket_bytes()) / sizeof(capnp::word)) {}

hawser::RemoteOperation Lookup::Read() {
  ++reads_;
  if (block_.has_value()) {
    cell_.resize(VersionedCell::CellBytes(value_.size()));
    return table_->memory().Read(block_->offset, absl::MakeSpan(cell_));
  }
  cell_.resize(table_->bucket_bytes());
  return table_->memory().Read(BucketOf(key_, table_->buckets()) * cell_.size(), absl::MakeSpan(cell_));
}

void Lookup::OnRead(const absl::Status& read) {
  if (!read.ok()) return End(read);
  if (block_.has_value()) {
    TakeBlock();
  } else {
    try {
      TakeBucket();
    } catch (const kj::Exception& exception) {
      End(absl::DataLossError(absl::StrCat("a bucket of the server's table is malformed: ",
                                           absl::string_view(exception.getDescription().cStr()))));
    }
  }
  if (done_ || reads_ < kReadsMax) return;
  is_elsewhere_ = true;
  End(absl::AbortedError(absl::StrCat("\"", key_, "\" has changed each time that it was read")));
}

void Lookup::TakeBucket() {
  const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(bucket_.data()),
                                  bucket_.size() * sizeof(capnp::word));
  if (!VersionedCell::Decode(cell_, bytes).has_value()) return;  // It is READ again.

  capnp::FlatArrayMessageReader message({bucket_.data(), bucket_.size()});
  const Bucket::Reader bucket = message.getRoot<Bucket>();
  for (const Bucket::Entry::Reader entry : bucket.getEntries()) {
    if (absl::string_view(entry.getKey().begin(), entry.getKey().size()) != key_) continue;
    revision_ = entry.getRevision();
    if (entry.isValue()) {
      value_.assign(entry.getValue().begin(), entry.getValue().end());
      return End(absl::OkStatus());
    }
    const auto block = entry.getBlock();
    if (block.getSize() > TABLE_BYTES_MAX) {
      return End(
          absl::DataLossError(absl::StrCat("the server's table has a block of ", block.getSize(), " bytes")));
    }
    value_.resize(block.getSize());
    block_ = {block.getOffset(), block.getVersion()};
    return;
  }
  is_elsewhere_ = bucket.getElsewhere() > 0;
  End(absl::NotFoundError(is_elsewhere_
                              ? absl::StrCat("\"", key_, "\" is not in the memory that the server shares")
                              : absl::StrCat("no key \"", key_, "\"")));
}

void Lookup::TakeBlock() {
  const std::optional<uint64_t> version = VersionedCell::Decode(cell_, absl::MakeSpan(value_));
  const bool is_the_one = version == block_->version;
  block_.reset();  // If it has another value by now, so has the bucket.
  if (is_the_one) End(absl::OkStatus());
}

void Lookup::End(absl::Status status) {
  status_ = std::move(status);
  done_ = true;
}

bool Lookup::is_stale() const {
  return absl::IsFailedPrecondition(status_) || absl::IsPermissionDenied(status_) ||
         absl::IsUnavailable(status_);
}

absl::StatusOr<Lookup> LookUp(const KeyValueStub& kv, absl::string_view key,
                              std::shared_ptr<RemoteTable>& table) {
  for (int asked = 0;; ++asked) {
    if (table == nullptr) {
      auto next = RemoteTable::Create(kv.channel(), kv.Share().Send().Wait());
      if (!next.ok()) return next.status();
      table = *std::move(next);
    }
    Lookup lookup(table, key);
    while (!lookup.done()) lookup.OnRead(lookup.Read().Wait());
    if (!lookup.is_stale() || asked == Lookup::kTablesMax) return lookup;
    table = nullptr;
  }
}

}  // namespace kv
