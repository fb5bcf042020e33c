#include "examples/kv/shared_table.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <bit>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "examples/kv/bucket.h"
#include "hawser/rpc/versioned_cell.h"

namespace kv {
namespace {

using hawser::VersionedCell;

constexpr size_t kMessageWords = VersionedCell::ValueBytes(SharedTable::kBucketBytes) / sizeof(capnp::word);

// False: the message does not fit into the cell.
bool WriteMessage(absl::Span<uint8_t> cell, capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  return VersionedCell(cell).Write({words.asBytes().begin(), words.asBytes().size()}).ok();
}

// The power of two of a block for such a value.
size_t PowerFor(size_t value_bytes) {
  return static_cast<size_t>(std::bit_width(VersionedCell::CellBytes(value_bytes) - 1));
}

// Whether the entry has a block that such a value may take.
bool IsBlockFor(const std::optional<Bucket::Entry::Reader>& entry, size_t value_bytes) {
  return value_bytes <= SharedTable::kBlockMax && entry.has_value() && entry->isBlock() &&
         PowerFor(entry->getBlock().getSize()) == PowerFor(value_bytes);
}

}  // namespace

// A bucket that loses the entry of a key, and gets another one for it.
class SharedTable::Change {
 public:
  Change(absl::Span<uint8_t> cell, absl::string_view key, bool has_key) : cell_(cell), message_(Words()) {
    const Bucket::Reader bucket = message_.getRoot<Bucket>();
    for (const Bucket::Entry::Reader entry : bucket.getEntries()) {
      if (absl::string_view(entry.getKey().begin(), entry.getKey().size()) == key) {
        old_ = entry;
      } else {
        others_.push_back(entry);
      }
    }
    elsewhere_ = bucket.getElsewhere() - (has_key && !old_.has_value() ? 1 : 0);
  }

  // What the bucket loses.
  const std::optional<Bucket::Entry::Reader>& old() const { return old_; }

  // Writes the bucket with the entry that `fill_in` makes. False: it has no room for that, and is as it was.
  bool WriteWith(absl::FunctionRef<void(Bucket::Entry::Builder)> fill_in) const {
    capnp::MallocMessageBuilder message;
    auto entries = InitEntries(message, others_.size() + 1);
    fill_in(entries[entries.size() - 1]);
    return WriteMessage(cell_, message);
  }

  // Writes the bucket without an entry for the key.
  void WriteWithout(bool is_elsewhere) const {
    capnp::MallocMessageBuilder message;
    InitEntries(message, others_.size());
    message.getRoot<Bucket>().setElsewhere(elsewhere_ + (is_elsewhere ? 1 : 0));
    WriteMessage(cell_, message);  // Each of its entries has been there before.
  }

 private:
  kj::ArrayPtr<const capnp::word> Words() {
    // No other thread writes, so this is one version.
    (void)VersionedCell(cell_).Read({reinterpret_cast<uint8_t*>(words_.data()), sizeof(words_)});
    return {words_.data(), words_.size()};
  }

  capnp::List<Bucket::Entry>::Builder InitEntries(capnp::MessageBuilder& message, size_t count) const {
    auto bucket = message.initRoot<Bucket>();
    bucket.setElsewhere(elsewhere_);
    auto entries = bucket.initEntries(static_cast<unsigned>(count));
    for (unsigned i = 0; i < others_.size(); ++i) entries.setWithCaveats(i, others_[i]);
    return entries;
  }

  const absl::Span<uint8_t> cell_;
  std::array<capnp::word, kMessageWords> words_;  // The message in the bucket as it was.
  capnp::FlatArrayMessageReader message_;
  std::vector<Bucket::Entry::Reader> others_;
  std::optional<Bucket::Entry::Reader> old_;
  uint32_t elsewhere_;  // Without this key.
};

SharedTable::SharedTable(absl::Span<uint8_t> memory)
    : memory_(memory), buckets_(memory.size() / 4 / kBucketBytes), unused_(buckets_ * kBucketBytes) {
  capnp::MallocMessageBuilder empty;
  empty.initRoot<Bucket>();
  for (uint64_t i = 0; i < buckets_; ++i)
    WriteMessage(memory_.subspan(i * kBucketBytes, kBucketBytes), empty);
}

void SharedTable::Put(absl::string_view key, capnp::Data::Reader value, uint64_t revision, bool replaces) {
  const Change change(CellOf(key), key, replaces);
  const auto name = [&](Bucket::Entry::Builder entry) {
    entry.setKey({key.data(), key.size()});
    entry.setRevision(revision);
  };
  bool has_entry = value.size() <= kSmallMax && change.WriteWith([&](Bucket::Entry::Builder entry) {
    name(entry);
    entry.setValue(value);
  });
  bool has_old = true;
  if (!has_entry) {
    std::optional<uint64_t> offset = NewBlock(value.size());
    if (!offset.has_value() && IsBlockFor(change.old(), value.size())) {
      // The value takes the block of the old one. Until it is there, a client that wants it has to call.
      change.WriteWithout(/*is_elsewhere=*/true);
      has_old = false;
      offset = change.old()->getBlock().getOffset();
      Clear(*offset, change.old()->getBlock().getSize());
    }
    if (offset.has_value()) {
      VersionedCell cell(memory_.subspan(*offset, VersionedCell::CellBytes(value.size())));
      const absl::StatusOr<uint64_t> version = cell.Write({value.begin(), value.size()});
      has_entry = version.ok() && change.WriteWith([&](Bucket::Entry::Builder entry) {
        name(entry);
        auto block = entry.initBlock();
        block.setOffset(*offset);
        block.setSize(static_cast<uint32_t>(value.size()));
        block.setVersion(*version);
      });
      if (!has_entry) FreeBlock(*offset, value.size());
    }
  }
  if (!has_entry) change.WriteWithout(/*is_elsewhere=*/true);
  if (has_old) FreeBlockOf(change.old());
}

void SharedTable::Remove(absl::string_view key) {
  const Change change(CellOf(key), key, true);
  change.WriteWithout(/*is_elsewhere=*/false);
  FreeBlockOf(change.old());
}

absl::Span<uint8_t> SharedTable::CellOf(absl::string_view key) const {
  return memory_.subspan(BucketOf(key, buckets_) * kBucketBytes, kBucketBytes);
}

std::optional<uint64_t> SharedTable::NewBlock(size_t value_bytes) {
  if (value_bytes > kBlockMax) return std::nullopt;
  const size_t power = PowerFor(value_bytes);
  if (!free_[power].empty()) {
    const uint64_t offset = free_[power].back();
    free_[power].pop_back();
    return offset;
  }
  if (memory_.size() - unused_ < size_t{1} << power) return std::nullopt;
  return std::exchange(unused_, unused_ + (uint64_t{1} << power));
}

void SharedTable::Clear(uint64_t offset, size_t value_bytes) {
  // An empty value fits each cell.
  VersionedCell(memory_.subspan(offset, VersionedCell::CellBytes(value_bytes))).Write({}).IgnoreError();
}

void SharedTable::FreeBlock(uint64_t offset, size_t value_bytes) {
  Clear(offset, value_bytes);
  free_[PowerFor(value_bytes)].push_back(offset);
}

void SharedTable::FreeBlockOf(const std::optional<Bucket::Entry::Reader>& entry) {
  if (entry.has_value() && entry->isBlock()) {
    FreeBlock(entry->getBlock().getOffset(), entry->getBlock().getSize());
  }
}

}  // namespace kv
