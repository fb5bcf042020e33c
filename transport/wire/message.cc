#include "hawser/transport/wire/message.h"

#include <capnp/any.h>
#include <capnp/message.h>
#include <string.h>

#include <algorithm>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/memcheck.h"
#include "hawser/base/mutex.h"
#include "hawser/transport/memory/retired_memory.h"

namespace hawser::transport {
namespace {

// Up to here each new segment doubles the message.
constexpr size_t kDoublingMax = 1 << 20;

// Message objects of each kind that are kept for reuse: enough for the calls in flight on a few connections.
constexpr size_t kKeptMax = 256;

}  // namespace

// ---- OutgoingMessage

class OutgoingMessage::Builder final : public capnp::MessageBuilder {
 public:
  explicit Builder(OutgoingMessage* message) : message_(message) {}
  kj::ArrayPtr<capnp::word> allocateSegment(uint minimum_words) override {
    return message_->AllocateSegment(minimum_words);
  }

 private:
  OutgoingMessage* const message_;
};

OutgoingMessage::OutgoingMessage(MessagePool* pool, Lease head) : pool_(pool), head_(std::move(head)) {
  if (head_) memset(head_.data(), 0, kSmallBufferBytes);
  MakeBuilder();
}

OutgoingMessage::~OutgoingMessage() { builder_->~MessageBuilder(); }

void OutgoingMessage::MakeBuilder() {
  static_assert(sizeof(Builder) <= sizeof(builder_space_));
  builder_ = new (builder_space_) Builder(this);
  first_taken_ = false;
  allocated_bytes_ = 0;
  keeps_builder_ = head_ && pool_->knows_layout_;
  if (keeps_builder_) MakeArena();
}

void OutgoingMessage::MakeArena() { builder_->getRoot<capnp::AnyPointer>(); }

// What few messages have.
void OutgoingMessage::ResetRest() {
  leases_.clear();
  attached_.clear();
  if (status_.ok()) return;
  unregistered_.clear();
  status_ = absl::OkStatus();
}

[[gnu::always_inline]] inline void OutgoingMessage::Reset() {
  // The first segment must be zeros when it is used again. Only the bytes that were used are cleared. Their
  // number is read again here, because building may continue after Finish().
  const uint64_t words = keeps_builder_ ? capnp_layout::WordsInUse(*builder_, first_segment()) : 0;
  if (words != 0) [[likely]] {
    memset(body(), 0, words * sizeof(capnp::word));
    capnp_layout::Restart(*builder_, first_segment());
  } else {
    if (first_taken_) {
      const kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> parts = builder_->getSegmentsForOutput();
      if (parts.size() != 0 && reinterpret_cast<const uint8_t*>(parts[0].begin()) == body()) {
        memset(body(), 0, parts[0].size() * sizeof(capnp::word));
      }
    }
    builder_->~MessageBuilder();
    MakeBuilder();
  }
  is_begun_ = false;
  envelope_size_ = 0;
  segments_.clear();
  if (!leases_.empty() || !attached_.empty() || !status_.ok()) [[unlikely]]
    ResetRest();
}

[[gnu::always_inline]] inline void OutgoingMessage::Retire() {
  if (!head_) return;
  if constexpr (kOverwritesRetiredMemory) {
    // Revive() overwrites the bytes that Reset() failed to clear; other builds would hand them out.
    static constexpr uint8_t kZeros[kFirstSegmentBytes] = {};
    HAWSER_CHECK(memcmp(body(), kZeros, sizeof(kZeros)) == 0,
                 "an ended message left bytes in its first segment, of ", sizeof(kZeros),
                 " that have to be 0");
  }
  RetireMemory(head_.data(), kSmallBufferBytes);
}

void OutgoingMessage::Revive() {
  ReviveMemory(head_.data(), kSmallBufferBytes);
  if constexpr (kOverwritesRetiredMemory) memset(head_.data(), 0, kSmallBufferBytes);
  MarkInitialized(body(), kFirstSegmentBytes);  // Reset() has cleared it.
  if constexpr (kOverwritesRetiredMemory) {
    if (!keeps_builder_) return;
    const uint64_t words = capnp_layout::WordsInUse(*builder_, first_segment());
    HAWSER_CHECK(words == 1,
                 "an Orphanage, Orphan or Builder was used after its message had ended: there are ", words,
                 " words (0: and more segments) where the next message begins");
  }
}

kj::ArrayPtr<capnp::word> OutgoingMessage::AllocateSegment(uint32_t minimum_words) {
  const size_t minimum_bytes = size_t{minimum_words} * sizeof(capnp::word);
  uint8_t* memory = nullptr;
  size_t size_bytes = 0;
  if (!first_taken_ && head_) {
    first_taken_ = true;
    if (minimum_bytes <= kFirstSegmentBytes) {
      allocated_bytes_ += kFirstSegmentBytes;
      return {reinterpret_cast<capnp::word*>(body()), kFirstSegmentBytes / sizeof(capnp::word)};
    }
  }
  // The first segments each double the message, later ones add a quarter. So a message of any size has few
  // segments, and few bytes are cleared without need.
  size_bytes =
      std::max(minimum_bytes,
               std::min<size_t>(allocated_bytes_, std::max<size_t>(kDoublingMax, allocated_bytes_ / 4 & ~7)));
  absl::StatusOr<Lease> lease = pool_->buffers().Acquire(size_bytes);
  if (lease.ok()) {
    memory = lease->data();
    memset(memory, 0, size_bytes);
    leases_.push_back(*std::move(lease));
  } else {
    if (status_.ok()) status_ = lease.status();
    unregistered_.push_back(std::make_unique<uint64_t[]>(size_bytes / sizeof(uint64_t)));
    memory = reinterpret_cast<uint8_t*>(unregistered_.back().get());
  }
  allocated_bytes_ += size_bytes;
  return {reinterpret_cast<capnp::word*>(memory), size_bytes / sizeof(capnp::word)};
}

capnp::Orphan<capnp::Data> OutgoingMessage::Attach(capnp::Data::Reader bytes,
                                                   std::shared_ptr<const void> owner) {
  if (bytes.size() > kDataBytesMax) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("a value of ", bytes.size(), " bytes was attached, a Data of Cap'n Proto has at most ",
                       kDataBytesMax, " (512 MiB - 1); divide it among several fields or calls"));
    }
    return {};
  }
  const size_t padded = (bytes.size() + 7) & ~size_t{7};
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.begin()) % sizeof(capnp::word) == 0;
  if (bytes.size() == 0 || !aligned || pool_->buffers().FindRegion(bytes.begin(), padded) == 0 ||
      !std::all_of(bytes.end(), bytes.begin() + padded, [](uint8_t byte) { return byte == 0; })) {
    HAWSER_CHECK(bytes.begin() != nullptr || bytes.size() == 0, "Attach() of ", bytes.size(),
                 " bytes at a null pointer");
    return builder().getOrphanage().newOrphanCopy(bytes);
  }
  attached_.push_back({std::move(owner), padded});
  return builder().getOrphanage().referenceExternalData(bytes);
}

uint16_t OutgoingMessage::AddSegment(absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) return 0;
  const size_t padded = (bytes.size() + 7) & ~size_t{7};
  absl::StatusOr<Lease> lease = pool_->buffers().Acquire(padded);
  if (!lease.ok()) {
    Refuse(lease.status());
    return 0;
  }
  memset(lease->data() + padded - 8, 0, 8);
  memcpy(lease->data(), bytes.data(), bytes.size());
  // Nothing adopts the orphan; its memory, which is no builder's, stays a segment all the same.
  builder().getOrphanage().referenceExternalData({lease->data(), bytes.size()});
  leases_.push_back(*std::move(lease));
  return static_cast<uint16_t>(builder_->getSegmentsForOutput().size() - 1);
}

absl::Span<const OutgoingMessage::Segment> OutgoingMessage::Finish() {
  segments_.clear();
  body_bytes_ = 0;
  if (!is_begun_) [[unlikely]]
    return {};
  if (const uint64_t words = keeps_builder_ ? capnp_layout::WordsInUse(*builder_, first_segment()) : 0;
      words != 0) [[likely]] {
    body_bytes_ = words * sizeof(capnp::word);
    segments_.push_back({body(), static_cast<uint32_t>(body_bytes_), head_.lkey()});
    return segments_;
  }
  const kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> parts = builder_->getSegmentsForOutput();
  for (const kj::ArrayPtr<const capnp::word>& part : parts) {
    auto* address = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(part.begin()));
    const size_t length = part.size() * sizeof(capnp::word);
    uint32_t lkey = 0;
    if (head_ && address == body()) {
      lkey = head_.lkey();
    } else {
      for (const Lease& lease : leases_) {
        if (address == lease.data()) lkey = lease.lkey();
      }
      if (lkey == 0) lkey = pool_->buffers().FindRegion(address, length);
    }
    segments_.push_back({address, static_cast<uint32_t>(length), lkey});
    body_bytes_ += length;
  }
  return segments_;
}

uint32_t OutgoingMessage::FinishUsualOutside() {
  if (has_attached() || !status_.ok() || Finish().size() != 1 || !is_in_head(segments_.front())) return 0;
  return segments_.front().length_bytes;
}

capnp::_::StructBuilder OutgoingMessage::InitRootOutside(capnp::_::StructSize size) {
  return capnp::_::PointerHelpers<capnp::AnyPointer>::getInternalBuilder(
             builder().getRoot<capnp::AnyPointer>())
      .initStruct(size);
}

bool OutgoingMessage::IsKept(const Attached& attached) const {
  // Several values may have one owner.
  const auto own = std::count_if(attached_.begin(), attached_.end(), [&](const Attached& each) {
    return !each.owner.owner_before(attached.owner) && !attached.owner.owner_before(each.owner);
  });
  return attached.owner.use_count() != own;
}

uint64_t OutgoingMessage::held_bytes() const {
  uint64_t held = head_ ? head_.size_bytes() : 0;
  for (const Lease& lease : leases_) held += lease.size_bytes();
  for (const Attached& attached : attached_) {
    if (attached.bytes != 0 && !IsKept(attached)) held += attached.bytes;
  }
  return held;
}

absl::StatusOr<uint8_t*> OutgoingMessage::AllocateHeader(size_t size_bytes, uint32_t* lkey) {
  absl::StatusOr<Lease> lease = pool_->buffers().Acquire(size_bytes);
  if (!lease.ok()) return std::move(lease).status();
  *lkey = lease->lkey();
  leases_.push_back(*std::move(lease));
  return leases_.back().data();
}

// ---- IncomingMessage

class IncomingMessage::Reader final : public capnp::MessageReader {
 public:
  Reader(const IncomingMessage* message, const capnp::ReaderOptions& limits)
      : MessageReader(limits), message_(message) {}
  kj::ArrayPtr<const capnp::word> getSegment(uint id) override { return message_->words(id); }

 private:
  const IncomingMessage* const message_;
};

[[gnu::always_inline]] inline void IncomingMessage::Reset() {
  if (is_read_ && !keeps_reader_) [[unlikely]] {
    reader_->~MessageReader();
    reader_ = nullptr;
  }
  is_read_ = false;
  if (buffer_) buffer_ = Lease();
  if (has_ != 0) DropMore();
  envelope_ = {};
  segments_.clear();
  body_bytes_ = 0;
}

IncomingMessage::~IncomingMessage() {
  Reset();
  if (reader_ != nullptr) reader_->~MessageReader();
}

void IncomingMessage::SetSink(Lease sink) {
  sink_ = std::move(sink);
  has_ |= kSink;
  memcpy(kept_envelope_, envelope_.data(), envelope_.size());
  envelope_ = {kept_envelope_, envelope_.size()};
  buffer_ = Lease();
}

void IncomingMessage::DropMore() {
  sink_ = Lease();
  shared_.reset();
  has_ = 0;
}

std::shared_ptr<const Lease> IncomingMessage::ShareMemory() {
  if (Lease& memory = has_sink() ? sink_ : buffer_; shared_ == nullptr && memory) {
    shared_ = std::make_shared<const Lease>(std::move(memory));
    has_ |= kShared;
  }
  return shared_;
}

[[gnu::always_inline]] inline kj::ArrayPtr<const capnp::word> IncomingMessage::OnlySegment() const {
  if (segments_.size() != 1) return nullptr;
  const Segment& only = segments_.front();
  // A misaligned one is an error, and the library says which.
  if (reinterpret_cast<uintptr_t>(only.address) % sizeof(capnp::word) != 0) return nullptr;
  return {reinterpret_cast<const capnp::word*>(only.address), only.length_bytes / sizeof(capnp::word)};
}

void IncomingMessage::BeginToRead(const capnp::ReaderOptions& options) {
  static_assert(sizeof(Reader) <= sizeof(reader_space_));
  is_read_ = true;
  const kj::ArrayPtr<const capnp::word> only = OnlySegment();
  if (reader_ != nullptr) {
    if (only != nullptr) {
      return capnp_layout::Restart(*reader_, only, options, options.traversalLimitInWords);
    }
    reader_->~MessageReader();
  }
  keeps_reader_ = pool_->knows_layout_ && only != nullptr;
  // One that is kept makes its arena here, whatever the limits are.
  reader_ = new (reader_space_) Reader(this, keeps_reader_ ? capnp::ReaderOptions() : options);
  if (!keeps_reader_) return;
  capabilities_ =
      capnp::_::PointerHelpers<capnp::AnyPointer>::getInternalReader(reader_->getRoot<capnp::AnyPointer>())
          .getCapTable();
  capnp_layout::Restart(*reader_, only, options, options.traversalLimitInWords);
}

capnp::_::StructReader IncomingMessage::ReadRootStruct(const capnp::ReaderOptions& options) {
  capnp::_::StructReader root;
  const kj::ArrayPtr<const capnp::word> only = OnlySegment();
  if (is_read_ || reader_ == nullptr || only == nullptr ||
      !capnp_layout::RestartAtRootStruct(*reader_, only, options, capabilities_, root)) [[unlikely]] {
    root = ReadRootOutside(options);
    return root;
  }
  is_read_ = true;
  return root;
}

capnp::_::StructReader IncomingMessage::ReadRootOutside(const capnp::ReaderOptions& options) {
  return capnp::_::PointerHelpers<capnp::AnyPointer>::getInternalReader(
             reader(options).getRoot<capnp::AnyPointer>())
      .getStruct(nullptr);
}

// ---- MessagePool

struct MessagePool::State {
  std::atomic<uint64_t> references{1};  // The handle, and each message that is in use.
  Mutex mutex;
  OutgoingMessage* outgoing ABSL_GUARDED_BY(mutex) = nullptr;
  IncomingMessage* incoming ABSL_GUARDED_BY(mutex) = nullptr;
  size_t outgoing_kept ABSL_GUARDED_BY(mutex) = 0;
  size_t incoming_kept ABSL_GUARDED_BY(mutex) = 0;
};

MessagePool::MessagePool(std::shared_ptr<BufferPool> buffers, CapnpRoad road)
    : buffers_(std::move(buffers)),
      knows_layout_(road == CapnpRoad::kFast && capnp_layout::Known()),
      state_(std::make_unique<State>()) {}

MessagePool::~MessagePool() { Trim(); }

void MessagePool::Trim() {
  if (MessageCache* cache = MessageCache::Of(this); cache != nullptr) cache->Flush();
  MutexLock lock(state_->mutex);
  while (OutgoingMessage* message = state_->outgoing) {
    state_->outgoing = message->next_free_;
    delete message;
  }
  while (IncomingMessage* message = state_->incoming) {
    state_->incoming = message->next_free_;
    delete message;
  }
  state_->outgoing_kept = state_->incoming_kept = 0;
}

std::shared_ptr<MessagePool> MessagePool::Create(std::shared_ptr<BufferPool> buffers, CapnpRoad road) {
  return std::shared_ptr<MessagePool>(new MessagePool(std::move(buffers), road),
                                      [](MessagePool* pool) { pool->Unref(); });
}

void MessagePool::Unref() {
  if (state_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

OutgoingMessagePtr MessagePool::NewOutgoing() {
  MessageCache* const cache = MessageCache::Of(this);
  if (cache != nullptr && cache->outgoing_ != nullptr) {
    OutgoingMessage* const message = cache->outgoing_;
    cache->outgoing_ = message->next_free_;
    --cache->outgoing_kept_;
    message->Revive();
    return OutgoingMessagePtr(message);
  }
  state_->references.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(state_->mutex);
    if (OutgoingMessage* message = state_->outgoing; message != nullptr) {
      state_->outgoing = message->next_free_;
      --state_->outgoing_kept;
      message->goes_to_cache_ = cache != nullptr;
      message->Revive();
      return OutgoingMessagePtr(message);
    }
  }
  absl::StatusOr<Lease> head = buffers_->Acquire(kSmallBufferBytes);
  const absl::Status status = head.status();
  auto* message = new OutgoingMessage(this, head.ok() ? *std::move(head) : Lease());
  message->goes_to_cache_ = cache != nullptr;
  message->status_ = status;
  return OutgoingMessagePtr(message);
}

OutgoingMessagePtr MessagePool::NewReserved() {
  if (MessageCache* cache = MessageCache::Of(this); cache != nullptr && cache->outgoing_ != nullptr) {
    return NewOutgoing();
  }
  Lease head = buffers_->AcquireReserved(kSmallBufferBytes);
  if (!head) return NewOutgoing();
  state_->references.fetch_add(1, std::memory_order_relaxed);
  OutgoingMessagePtr message(new OutgoingMessage(this, std::move(head)));
  message->reserved_ = true;
  return message;
}

void OutgoingMessageDeleter::operator()(OutgoingMessage* message) const {
  if (message->taker_ != nullptr) {
    return std::exchange(message->taker_, nullptr)->OnRequestReturned(OutgoingMessagePtr(message));
  }
  MessagePool* const pool = message->pool_;
  message->Reset();  // Outside of the lock: it may free what the application attached.
  message->Retire();
  if (MessageCache* cache = MessageCache::Of(pool); message->goes_to_cache_ && cache != nullptr &&
                                                    cache->outgoing_kept_ < MessageCache::kKeptMax &&
                                                    message->head_ && !message->reserved_) {
    message->next_free_ = cache->outgoing_;
    cache->outgoing_ = message;
    ++cache->outgoing_kept_;
    return;
  }
  pool->Keep(message);
}

void MessagePool::Keep(OutgoingMessage* message) {
  {
    MutexLock lock(state_->mutex);
    if (state_->outgoing_kept < kKeptMax && message->head_ && !message->reserved_) {
      message->next_free_ = state_->outgoing;
      state_->outgoing = message;
      ++state_->outgoing_kept;
      message = nullptr;
    }
  }
  delete message;
  Unref();
}

IncomingMessagePtr MessagePool::NewIncoming() {
  if (MessageCache* cache = MessageCache::Of(this); cache != nullptr && cache->incoming_ != nullptr) {
    IncomingMessage* const message = cache->incoming_;
    cache->incoming_ = message->next_free_;
    --cache->incoming_kept_;
    return IncomingMessagePtr(message);
  }
  state_->references.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(state_->mutex);
  if (IncomingMessage* message = state_->incoming; message != nullptr) {
    state_->incoming = message->next_free_;
    --state_->incoming_kept;
    return IncomingMessagePtr(message);
  }
  return IncomingMessagePtr(new IncomingMessage(this));
}

void IncomingMessageDeleter::operator()(IncomingMessage* message) const {
  MessagePool* const pool = message->pool_;
  message->Reset();
  if (MessageCache* cache = MessageCache::Of(pool);
      cache != nullptr && cache->incoming_kept_ < MessageCache::kKeptMax) {
    message->next_free_ = cache->incoming_;
    cache->incoming_ = message;
    ++cache->incoming_kept_;
    return;
  }
  pool->Keep(message);
}

void MessagePool::Keep(IncomingMessage* message) {
  {
    MutexLock lock(state_->mutex);
    if (state_->incoming_kept < kKeptMax) {
      message->next_free_ = state_->incoming;
      state_->incoming = message;
      ++state_->incoming_kept;
      message = nullptr;
    }
  }
  delete message;
  Unref();
}

void MessageCache::Flush() {
  while (OutgoingMessage* message = outgoing_) {
    outgoing_ = message->next_free_;
    pool_.Keep(message);
  }
  while (IncomingMessage* message = incoming_) {
    incoming_ = message->next_free_;
    pool_.Keep(message);
  }
  outgoing_kept_ = incoming_kept_ = 0;
  buffers_.Flush();
}

// The messages that are kept after a burst are spread over its slabs, and each keeps its slab from being
// unmapped.
void MessageCache::GiveBack() {
  pool_.Trim();
  buffers_.Flush();  // The buffers of the trimmed messages, too.
}

}  // namespace hawser::transport
