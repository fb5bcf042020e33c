#include "examples/kv/client/lookup.h"

#include <capnp/serialize.h>
#include <kj/exception.h>

#include "absl/strings/str_cat.h"
#include "examples/kv/bucket.h"
#include "hawser/rpc/versioned_cell.h"

namespace kv {

using hawser::VersionedCell;

namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the table that the server shares is malformed: ", what));
}

}  // namespace

absl::StatusOr<std::shared_ptr<RemoteTable>> RemoteTable::Create(
    std::shared_ptr<hawser::Channel> channel, const absl::StatusOr<hawser::Reply<KeyValue::Table>>& shared) {
  if (!shared.ok()) return shared.status();
  try {
    const KeyValue::Table::Reader table = **shared;
    hawser::RemoteMemory memory(std::move(channel), table.getMemory());
    const TableLayout layout = {table.getBuckets(), table.getBucketBytes()};
    if (layout.buckets == 0 || layout.bucket_bytes == 0 || layout.bucket_bytes > TABLE_BYTES_MAX ||
        layout.buckets > memory.size_bytes() / layout.bucket_bytes) {
      return Malformed(absl::StrCat(layout.buckets, " buckets of ", layout.bucket_bytes,
                                    " bytes in a memory of ", memory.size_bytes()));
    }
    return std::shared_ptr<RemoteTable>(new RemoteTable(std::move(memory), layout));
  } catch (const kj::Exception& exception) {
    return Malformed(exception.getDescription().cStr());
  }
}

Lookup::Lookup(const TableLayout& layout, absl::string_view key)
    : layout_(layout),
      key_(key),
      bucket_(VersionedCell::ValueBytes(layout.bucket_bytes) / sizeof(capnp::word)) {
  WantBucket();
}

void Lookup::WantBucket() {
  block_.reset();
  cell_.resize(layout_.bucket_bytes);
}

uint64_t Lookup::offset() const {
  return block_.has_value() ? block_->offset : BucketOf(key_, layout_.buckets) * layout_.bucket_bytes;
}

void Lookup::OnRead(const absl::Status& read) {
  ++reads_;
  if (!read.ok()) return End(read);
  if (block_.has_value()) {
    TakeBlock();
  } else {
    try {
      TakeBucket();
    } catch (const kj::Exception& exception) {
      End(Malformed(exception.getDescription().cStr()));
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
      return End(Malformed(absl::StrCat("a block of ", block.getSize(), " bytes")));
    }
    value_.resize(block.getSize());
    cell_.resize(VersionedCell::CellBytes(block.getSize()));
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
  if (version == block_->version) return End(absl::OkStatus());
  WantBucket();  // It does not name this block any more, or not with this version.
}

void Lookup::End(absl::Status status) {
  status_ = std::move(status);
  done_ = true;
}

bool Lookup::is_stale() const { return absl::IsFailedPrecondition(status_) || absl::IsUnavailable(status_); }

TableLookup::TableLookup(absl::string_view key, std::shared_ptr<RemoteTable>& table)
    : key_(key), table_(table) {
  if (table_ != nullptr) Start();
}

void TableLookup::Start() { lookup_.emplace(table_->layout(), key_); }

void TableLookup::OnTable(absl::StatusOr<std::shared_ptr<RemoteTable>> table) {
  ++asked_;
  if (!table.ok()) {
    status_ = table.status();
    done_ = true;
    return;
  }
  table_ = *std::move(table);
  Start();
}

void TableLookup::OnRead(const absl::Status& read) {
  lookup_->OnRead(read);
  if (!lookup_->done()) return;
  if (lookup_->is_stale() && asked_ < kTablesMax) {
    table_ = nullptr;
  } else {
    done_ = true;
  }
}

absl::StatusOr<Lookup> TableLookup::Result() && {
  if (!status_.ok()) return status_;
  return *std::move(lookup_);
}

absl::StatusOr<Lookup> LookUp(const KeyValueStub& kv, absl::string_view key,
                              std::shared_ptr<RemoteTable>& table) {
  TableLookup lookup(key, table);
  while (!lookup.done()) {
    if (lookup.needs_table()) {
      lookup.OnTable(RemoteTable::Create(kv.channel(), kv.Share().Send().Wait()));
    } else {
      lookup.OnRead(lookup.Read().Wait());
    }
  }
  return std::move(lookup).Result();
}

}  // namespace kv
