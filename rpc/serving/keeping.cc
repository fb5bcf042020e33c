#include "hawser/rpc/serving/keeping.h"

#include <capnp/list.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "hawser/base/check.h"
#include "hawser/rpc/wire/exceptions.h"

namespace hawser::internal {
namespace {

using capnp::AnyList;
using capnp::AnyPointer;
using capnp::AnyStruct;
using capnp::word;

// What is kept beyond 1.25 times the value's bytes. A buffer of the pool takes no more
// (transport/memory/size_class.h).
constexpr uint64_t kKeptBeside = 512;
// A smaller copy would not fill the smallest buffer of the pool.
constexpr size_t kRegisteredCopyMin = 1024;

// What a std::shared_ptr allocates beside the object, and malloc() beside that.
constexpr uint64_t kSharing = 40;

uint64_t MemoryMaxOf(uint64_t bytes) { return bytes + bytes / 4 + kKeptBeside; }

// ---- Copies

struct Memory {
  uint8_t* begin;
  std::shared_ptr<const void> owner;
  uint64_t memory_bytes;  // That it takes.
};

// For a copy of `bytes`, a multiple of 8, that may take `memory_max`, which is no less. It holds anything.
Memory MemoryForCopy(transport::BufferPool& pool, size_t bytes, uint64_t memory_max) {
  if (bytes >= kRegisteredCopyMin) {
    transport::Shortage why;
    // Never registers a large buffer on this thread.
    transport::Lease lease = pool.TryAcquire(bytes, why);
    if (lease && lease.size_bytes() <= memory_max) {
      auto owner = std::make_shared<const transport::Lease>(std::move(lease));
      return {owner->data(), owner, owner->size_bytes()};
    }
  }
  auto words = std::make_shared_for_overwrite<uint64_t[]>(bytes / sizeof(uint64_t));
  return {reinterpret_cast<uint8_t*>(words.get()), words, bytes};
}

// The library has checked all that is copied, and wrote it into one segment, each object once for each
// pointer that leads to it. So its Reader needs no arena, checks no bounds and counts nothing.
KeptStruct CopyOf(transport::BufferPool& pool, AnyStruct::Reader value, uint64_t bytes, uint64_t memory_max) {
  const size_t words = bytes / sizeof(word) + 1;  // With the pointer to it.
  Memory memory = MemoryForCopy(pool, words * sizeof(word), memory_max - kSharing);
  memset(memory.begin, 0, words * sizeof(word));
  const kj::ArrayPtr<word> copy(reinterpret_cast<word*>(memory.begin), words);
  capnp::copyToUnchecked(value, copy);
  return {capnp::readMessageUnchecked<AnyStruct>(copy.begin()), std::move(memory.owner),
          memory.memory_bytes + kSharing};
}

// ---- In place

// All of a request, and an arena of its own: that of the call ends with it, and counts what is read.
class WholeRequest final : public capnp::MessageReader {
 public:
  // Without limits: KeepInPlace() finds out what a look at all that is kept costs.
  explicit WholeRequest(transport::IncomingMessage& request)
      : MessageReader({.traversalLimitInWords = std::numeric_limits<uint64_t>::max(),
                       .nestingLimit = std::numeric_limits<int>::max()}) {
    segments_.reserve(request.segments());
    for (size_t i = 0; i < request.segments(); ++i) segments_.push_back(request.segment(i));
    memory_ = request.ShareMemory();
    if (memory_ == nullptr) CopySegments(request.body_bytes());
  }

  // What takes the place of the struct at `data`, which is in `request`.
  const uint8_t* PlaceOf(const transport::IncomingMessage& request, const uint8_t* data) const {
    for (size_t i = 0; i < segments_.size(); ++i) {
      const absl::Span<const uint8_t> segment = request.segment(i);
      if (data >= segment.begin() && data < segment.end())
        return segments_[i].begin() + (data - segment.begin());
    }
    return nullptr;
  }

  kj::ArrayPtr<const word> getSegment(unsigned id) override {
    if (id >= segments_.size()) return nullptr;
    return {reinterpret_cast<const word*>(segments_[id].data()), segments_[id].size() / sizeof(word)};
  }

  // What it takes, beside the memory of `request`. An arena makes an object for each segment but the first.
  static uint64_t BytesBeside(const transport::IncomingMessage& request) {
    constexpr uint64_t kSegment = 160;
    return sizeof(WholeRequest) + 2 * kSharing + kSegment * (std::max<uint64_t>(request.segments(), 1) - 1);
  }

 private:
  // Those of a small request are in an object that serves the next one.
  void CopySegments(size_t bytes) {
    auto copy = std::make_shared_for_overwrite<uint64_t[]>((bytes + 7) / sizeof(uint64_t));
    auto* to = reinterpret_cast<uint8_t*>(copy.get());
    for (absl::Span<const uint8_t>& segment : segments_) {
      memcpy(to, segment.data(), segment.size());
      segment = {to, segment.size()};
      to += segment.size();
    }
    memory_ = std::move(copy);
  }

  std::shared_ptr<const void> memory_;
  absl::InlinedVector<absl::Span<const uint8_t>, 2> segments_;
};

// Where a struct is.
struct Place {
  const uint8_t* data = nullptr;  // Null: nowhere.
  size_t data_bytes = 0;
  uint32_t pointers = 0;

  friend bool operator==(const Place&, const Place&) = default;
};
Place PlaceOf(AnyStruct::Reader value) {
  const kj::ArrayPtr<const uint8_t> data = value.getDataSection();
  return {data.begin(), data.size(), value.getPointerSection().size()};
}

// Follows pointers in an arena that has no limits, as far as `limits` allow: as deep, and, with what `steps`
// says that the call has taken before, as many steps as they have words. An honest message leads to each
// object once, so it takes fewer steps than it has words.
class Walk {
 public:
  // Ends at the struct at `wanted`.
  Walk(const capnp::ReaderOptions& limits, uint64_t& steps, const Place& wanted)
      : wanted_(wanted),
        steps_(steps),
        steps_max_(limits.traversalLimitInWords),
        depth_max_(limits.nestingLimit) {}

  // Both return whether `wanted` was found. They throw what the library throws if the message is malformed,
  // or costs more than the limits.
  bool Follow(AnyPointer::Reader pointer, int depth = 1) {
    if (depth > depth_max_) return false;  // No Reader of the request gets there.
    switch (pointer.getPointerType()) {
      case capnp::PointerType::STRUCT:
        return Visit(pointer.getAs<AnyStruct>(), depth);
      case capnp::PointerType::LIST:
        return Visit(pointer.getAs<AnyList>(), depth);
      default:
        return false;
    }
  }
  bool Visit(AnyStruct::Reader value, int depth = 1) {
    const auto pointers = value.getPointerSection();
    Step(std::max(pointers.size(), 1u));
    if (wanted_.data != nullptr && PlaceOf(value) == wanted_) {
      found_ = value;
      return true;
    }
    for (const AnyPointer::Reader pointer : pointers) {
      if (Follow(pointer, depth + 1)) return true;
    }
    return false;
  }
  AnyStruct::Reader found() const { return found_; }

 private:
  bool Visit(AnyList::Reader list, int depth) {
    switch (list.getElementSize()) {
      case capnp::ElementSize::VOID:
        Step(list.size());  // As many as the sender likes, in no words.
        return false;
      // A list of pointers is one of structs, too, if the schema has changed since it was sent.
      case capnp::ElementSize::POINTER:
      case capnp::ElementSize::INLINE_COMPOSITE:
        break;
      default:
        return false;
    }
    const auto structs = list.as<capnp::List<AnyStruct>>();
    if (structs.size() == 0) return false;
    if (const AnyStruct::Reader first = structs[0]; first.getPointerSection().size() == 0) {
      if (first.getDataSection().size() == 0) Step(list.size());  // Likewise.
      if (first.getDataSection().size() == 0 || wanted_.data == nullptr) return false;
    }
    for (const AnyStruct::Reader each : structs) {
      if (Visit(each, depth)) return true;
    }
    return false;
  }
  void Step(uint64_t count) {
    if (count > steps_max_ - steps_) {
      steps_ = steps_max_;
      ThrowTraversalLimit();
    }
    steps_ += count;
  }

  const Place wanted_;
  uint64_t& steps_;  // At most steps_max_.
  const uint64_t steps_max_;
  const int depth_max_;
  AnyStruct::Reader found_;
};

// No owner: `value` is not in the request.
KeptStruct KeepInPlace(transport::IncomingMessage& request, const capnp::ReaderOptions& limits,
                       uint64_t& steps, AnyStruct::Reader value, uint64_t memory_bytes) {
  auto whole = std::make_shared<WholeRequest>(request);
  Place wanted = PlaceOf(value);
  wanted.data = whole->PlaceOf(request, wanted.data);
  if (wanted.data == nullptr) return {};
  Walk search(limits, steps, wanted);
  if (!search.Follow(whole->getRoot<AnyPointer>())) return {};
  // totalSize() has followed each pointer, but takes a list of 2^29 elements of no size for small.
  Walk(limits, steps, Place()).Visit(search.found());
  return {search.found(), std::move(whole), memory_bytes};
}

}  // namespace

KeptBytes KeepBytes(transport::IncomingMessage& request, transport::BufferPool& pool,
                    capnp::Data::Reader bytes) {
  if (bytes.size() == 0) return {};
  HAWSER_CHECK(bytes.begin() != nullptr, "KeepBytes() of ", bytes.size(), " bytes at a null pointer");
  const size_t padded = (bytes.size() + 7) & ~size_t{7};
  const uint64_t memory_max = MemoryMaxOf(bytes.size());
  const absl::Span<const uint8_t> sink = request.sink_bytes();
  const bool in_sink = bytes.begin() >= sink.data() && bytes.begin() + padded <= sink.data() + sink.size();
  // Attach() would copy other values each time.
  const auto can_be_attached = [&] {
    return reinterpret_cast<uintptr_t>(bytes.begin()) % sizeof(uint64_t) == 0 &&
           std::all_of(bytes.end(), bytes.begin() + padded, [](uint8_t byte) { return byte == 0; });
  };
  KeptBytes kept;
  if (in_sink && sink.size() <= memory_max && can_be_attached()) {
    kept.bytes = bytes;
    kept.owner = request.ShareMemory();
    kept.memory_bytes = sink.size();
    return kept;
  }
  Memory copy = MemoryForCopy(pool, padded, memory_max);
  memset(copy.begin + padded - sizeof(uint64_t), 0, sizeof(uint64_t));
  memcpy(copy.begin, bytes.begin(), bytes.size());
  kept.bytes = capnp::Data::Reader(copy.begin, bytes.size());
  kept.owner = std::move(copy.owner);
  kept.memory_bytes = copy.memory_bytes;
  return kept;
}

KeptStruct KeepStruct(transport::IncomingMessage& request, transport::BufferPool& pool,
                      const capnp::ReaderOptions& limits, uint64_t& steps, AnyStruct::Reader value) {
  const capnp::MessageSize size = value.totalSize();
  if (size.wordCount == 0) return {};
  if (size.capCount != 0) ThrowMalformed("it has capabilities, which are not kept");
  const uint64_t bytes = size.wordCount * sizeof(word);
  const uint64_t memory_max = MemoryMaxOf(bytes);
  // If totalSize() is larger than the request, because pointers lead to the same objects, it is kept in
  // place, too. A request without memory of its own is copied to be kept, so that is for those only.
  const uint64_t shareable = request.shareable_bytes();
  const uint64_t whole =
      (shareable != 0 ? shareable : request.body_bytes()) + WholeRequest::BytesBeside(request);
  if (shareable != 0 ? whole <= memory_max : whole < bytes + kSharing) {
    KeptStruct kept = KeepInPlace(request, limits, steps, value, whole);
    if (kept.owner != nullptr) return kept;
  }
  return CopyOf(pool, value, bytes, memory_max);
}

}  // namespace hawser::internal
