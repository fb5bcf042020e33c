#ifndef HAWSER_TRANSPORT_WIRE_MESSAGE_H_
#define HAWSER_TRANSPORT_WIRE_MESSAGE_H_

#include <capnp/message.h>
#include <string.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/memory/buffer_cache.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/wire/capnp_layout.h"

// The two messages of an exchange, as memory: one is built and then sent, the other is received and then
// read.
namespace hawser::transport {

class MessageCache;
class MessagePool;
struct OutgoingMessageDeleter;

// What a message's sender adds to its body, such as the method: at most these bytes, a multiple of 8. Opaque
// to transport/ but for the first byte of a response's: see MayReturnRequest().
inline constexpr size_t kEnvelopeMax = 32;

// Other than 0: the peer answers without the result that was asked for, and may not have run the request. The
// requester offers it back then (ResponseHandler::WantsRequestBackAfter()).
inline bool MayReturnRequest(absl::Span<const uint8_t> envelope) {
  return !envelope.empty() && envelope[0] != 0;
}

// Most segments of one message. A builder's segments grow, so about 40 reach 512 MiB; the rest is for
// payloads that are referred to in place.
inline constexpr size_t kSegmentsMax = 120;

// Room in front of the first segment for all that precedes it in a SEND of up to kHeadroomSegments segments
// (wire.h), so that a message of one segment is one contiguous range.
inline constexpr size_t kHeadroom = 192;
inline constexpr size_t kHeadroomSegments = 8;

// The largest Data of Cap'n Proto, whose lists count 29 bits of elements: 512 MiB - 1.
inline constexpr size_t kDataBytesMax = (size_t{1} << 29) - 1;

// A buffer of kSmallBufferBytes holds the header and the first segment of every outgoing message.
inline constexpr size_t kSmallBufferBytes = 4096;
inline constexpr size_t kFirstSegmentBytes = kSmallBufferBytes - kHeadroom;
inline constexpr size_t kFirstSegmentWords = kFirstSegmentBytes / sizeof(capnp::word);

// A message to send: Cap'n Proto segments built in registered memory, their owners, and an envelope.
// Thread:   one at a time.
// Lifetime: owned by its builder, then by an Outbound until neither the fabric nor the peer uses its memory.
class OutgoingMessage {
 public:
  ~OutgoingMessage();
  OutgoingMessage(const OutgoingMessage&) = delete;
  OutgoingMessage& operator=(const OutgoingMessage&) = delete;

  // Allocates from the pool as it grows. When the pool is at its limit the message continues in plain memory,
  // so that building never fails half-way. It cannot be sent then: see status(). From now on the message has
  // a root, which is null until it is made.
  capnp::MessageBuilder& builder() {
    is_begun_ = true;
    if (!keeps_builder_) [[unlikely]]
      MakeArena();
    return *builder_;
  }
  // builder().initRoot<T>() for a T of `size`, which is the first that is made of the message.
  capnp::_::StructBuilder InitRootStruct(capnp::_::StructSize size) {
    const size_t words = size_t{size.data} + size.pointers;
    if (!keeps_builder_ || is_begun_ || words == 0 || words >= kFirstSegmentWords) [[unlikely]]
      return InitRootOutside(size);
    is_begun_ = true;
    return capnp_layout::InitRootStruct(*builder_, first_segment(), size);
  }

  // At most kEnvelopeMax bytes, a multiple of 8; copied to where it is sent from, in front of the first
  // segment. Without effect on a message that cannot be sent.
  void SetEnvelope(absl::Span<const uint8_t> envelope) {
    envelope_size_ = head_ ? std::min(envelope.size(), kEnvelopeMax) : 0;
    if (envelope_size_ != 0) memcpy(body() - envelope_size_, envelope.data(), envelope_size_);
  }
  absl::Span<const uint8_t> envelope() const {
    if (envelope_size_ == 0) return {};
    return {body() - envelope_size_, envelope_size_};
  }

  // An orphan of `bytes`, for the message to adopt. Refers to them in place if they are in the pool's memory
  // and aligned to 8 bytes, and the rest of their last word is in that memory and 0: the peer gets whole
  // words. Otherwise copies them. `owner` lives until the message has been sent and is no longer needed,
  // whatever the result. Until then nothing may write to `bytes`, or to that rest. More than kDataBytesMax:
  // the orphan is empty and the message cannot be sent (see status()).
  capnp::Orphan<capnp::Data> Attach(capnp::Data::Reader bytes, std::shared_ptr<const void> owner);

  // Adds a copy of `bytes`, filled up with zeros to whole words, as a segment of its own that the body does
  // not refer to. Returns its number, which stays the same and is not 0; 0: there are no bytes, or no memory,
  // see status().
  uint16_t AddSegment(absl::Span<const uint8_t> bytes);

  // The message cannot be sent, because of this. Without effect if it could not before.
  void Refuse(absl::Status why) {
    if (status_.ok()) status_ = std::move(why);
  }

  // Releases `owner` when the message ends, whatever the result.
  void Own(std::shared_ptr<const void> owner) { attached_.push_back({std::move(owner), 0}); }

  // Not OK: this message cannot be sent. ResourceExhausted: there was no registered memory for all of it.
  // InvalidArgument: what was attached is larger than a Data can be. Or what Refuse() was given.
  const absl::Status& status() const { return status_; }

  // ---- For the connection.

  // Ends the building: collects the segments. The first begins kHeadroom bytes into a buffer that starts at
  // head().
  struct Segment {
    uint8_t* address;
    uint32_t length_bytes;  // A multiple of 8.
    uint32_t lkey;
  };
  absl::Span<const Segment> Finish();
  absl::Span<const Segment> segments() const { return segments_; }
  // Likewise, of the usual message: it can be sent, has one segment, in its head, and nothing attached.
  // Returns body_bytes(); segments() are not set. 0: it is another one, for Finish().
  uint32_t FinishUsual() {
    if (!keeps_builder_ || !is_begun_ || !attached_.empty() || !status_.ok()) [[unlikely]]
      return FinishUsualOutside();
    body_bytes_ = capnp_layout::WordsInUse(*builder_, first_segment()) * sizeof(capnp::word);
    return static_cast<uint32_t>(body_bytes_);
  }
  uint64_t body_bytes() const { return body_bytes_; }  // After Finish(), or FinishUsual().
  const Lease& head() const { return head_; }
  // The first segment, with the envelope right before it. The message has a head.
  uint8_t* body() const { return head_.data() + kHeadroom; }
  // `segment` is the first one, behind its envelope.
  bool is_in_head(const Segment& segment) const { return head_ && segment.address == body(); }
  // It holds memory of the application.
  bool has_attached() const { return !attached_.empty(); }
  // About the memory that would be free if the message ended now. What is attached counts if only this
  // message refers to its owner: a value that the application keeps would not be free. The application may
  // release it at any time, on any thread.
  uint64_t held_bytes() const;
  // Receives a message, in place of its pool, when its last owner releases it.
  class Taker {
   public:
    virtual void OnRequestReturned(std::unique_ptr<OutgoingMessage, OutgoingMessageDeleter> message) = 0;

   protected:
    ~Taker() = default;
  };
  void ReturnTo(Taker* taker) { taker_ = taker; }
  // A buffer that lives as long as the message; for a header that does not fit the headroom.
  absl::StatusOr<uint8_t*> AllocateHeader(size_t size_bytes, uint32_t* lkey);

 private:
  friend class MessageCache;
  friend class MessagePool;
  friend struct OutgoingMessageDeleter;
  class Builder;
  OutgoingMessage(MessagePool* pool, Lease head);
  void Reset();  // Back to an empty message with a first segment of zeros.
  [[gnu::noinline]] void ResetRest();
  void MakeBuilder();
  void MakeArena();  // With the first segment and a root of null; without effect if it is there.
  [[gnu::noinline]] capnp::_::StructBuilder InitRootOutside(capnp::_::StructSize size);
  [[gnu::noinline]] uint32_t FinishUsualOutside();
  capnp::word* first_segment() const { return reinterpret_cast<capnp::word*>(body()); }
  void Retire();  // Nothing uses its memory before Revive(). After Reset().
  void Revive();
  kj::ArrayPtr<capnp::word> AllocateSegment(uint32_t minimum_words);
  struct Attached {
    std::shared_ptr<const void> owner;
    uint64_t bytes;  // What the message refers to.
  };
  // Not only this message refers to its owner.
  bool IsKept(const Attached& attached) const;

  MessagePool* const pool_;
  Lease head_;
  alignas(8) uint8_t builder_space_[sizeof(void*) * 64];
  capnp::MessageBuilder* builder_ = nullptr;
  // The builder serves one message after another, and has its arena (capnp_layout.h).
  bool keeps_builder_ = false;
  bool is_begun_ = false;  // builder() was asked for. Without that a message has no segments.
  bool first_taken_ = false;
  size_t envelope_size_ = 0;
  uint64_t allocated_bytes_ = 0;
  absl::InlinedVector<Lease, 2> leases_;
  absl::InlinedVector<std::unique_ptr<uint64_t[]>, 1> unregistered_;
  absl::InlinedVector<Attached, 1> attached_;
  absl::InlinedVector<Segment, 4> segments_;
  uint64_t body_bytes_ = 0;
  absl::Status status_;
  // A thread on the poller took it. If another thread took it, the poller's cache would keep it unused, and
  // that thread's next call would make another.
  bool goes_to_cache_ = false;
  // Its head belongs to the pool's reserve, which needs it back: the message is not kept for reuse.
  bool reserved_ = false;
  OutgoingMessage* next_free_ = nullptr;
  Taker* taker_ = nullptr;
};

// Returns the message to its pool.
struct OutgoingMessageDeleter {
  void operator()(OutgoingMessage* message) const;
};
using OutgoingMessagePtr = std::unique_ptr<OutgoingMessage, OutgoingMessageDeleter>;

// Memory of the program that a large response may be READ into, in place of memory of the pool. It is
// registered with the fabric of the connection, and aligned to 8 bytes.
struct Landing {
  uint8_t* address = nullptr;
  uint64_t length_bytes = 0;
  uint32_t lkey = 0;
  bool cpu_visible = true;  // False: the processor must not access it.
};

// The largest SEND that is copied into the object of its message, so that its receive is posted again at
// once. Copying more costs more than a buffer of the pool.
inline constexpr size_t kCopiedMax = 512;

// A received message: envelope and segments, read in place where the fabric put them, or, of a small one, in
// the object itself, which only this process writes.
// Thread:   one at a time.
// Lifetime: its one owner keeps it as long as it likes; the memory is its own, not the ring's.
class IncomingMessage {
 public:
  ~IncomingMessage();
  IncomingMessage(const IncomingMessage&) = delete;
  IncomingMessage& operator=(const IncomingMessage&) = delete;

  absl::Span<const uint8_t> envelope() const { return envelope_; }
  uint64_t body_bytes() const { return body_bytes_; }
  size_t segments() const { return segments_.size(); }
  // Empty: there are fewer, or it is.
  absl::Span<const uint8_t> segment(size_t number) const {
    if (number >= segments_.size()) return {};
    return {segments_[number].address, segments_[number].length_bytes};
  }

  // Validates as it reads, and throws kj::Exception on malformed data. The first call fixes the limits.
  capnp::MessageReader& reader(const capnp::ReaderOptions& options) {
    if (!is_read_) BeginToRead(options);
    return *reader_;
  }
  // reader(options).getRoot<T>() for a T that is a struct.
  capnp::_::StructReader ReadRootStruct(const capnp::ReaderOptions& options);

  // ---- For the connection.
  struct Segment {
    const uint8_t* address;
    uint32_t length_bytes;
  };
  // `buffer` holds the SEND of `length_bytes`, and `envelope` in it.
  void SetReceived(Lease&& buffer, uint32_t length_bytes, absl::Span<const uint8_t> envelope) {
    buffer_ = std::move(buffer);
    length_bytes_ = length_bytes;
    envelope_ = envelope;
  }
  // Copies the SEND at `data`, of at most kCopiedMax bytes. Returns the copy, aligned to 8, for SetCopied().
  const uint8_t* Copy(const uint8_t* data, size_t length_bytes) {
    memcpy(copied_, data, length_bytes);
    return copied_;
  }
  // It is `envelope` and one segment, both in the copy.
  void SetCopied(absl::Span<const uint8_t> envelope, const uint8_t* segment, uint32_t segment_bytes) {
    envelope_ = envelope;
    AddSegment(segment, segment_bytes);
  }
  // The SEND, from SetReceived() until SetSink() or ShareMemory(). Otherwise empty.
  absl::Span<const uint8_t> received() const {
    if (!buffer_) return {};
    return {buffer_.data(), length_bytes_};
  }
  void AddSegment(const uint8_t* address, uint32_t length_bytes) {
    segments_.push_back({address, length_bytes});
    body_bytes_ += length_bytes;
  }
  // Likewise; it is all of `landed`, which is the program's. If the processor does not see that, the segment
  // is empty for those that read the message.
  void AddLanded(const Landing& landed) {
    has_ |= kLanding;
    landed_bytes_ = landed.length_bytes;
    landing_ = landed;
    segments_.push_back({landed.cpu_visible ? landed.address : nullptr,
                         landed.cpu_visible ? static_cast<uint32_t>(landed.length_bytes) : 0});
    body_bytes_ += landed.length_bytes;
  }
  // `landing` was there for it, whether something landed or not.
  void SetLanding(const Landing& landing) {
    if ((has_ & kLanding) == 0) landed_bytes_ = 0;
    has_ |= kLanding;
    landing_ = landing;
  }
  // What was to be there; of length 0: nothing was.
  Landing landing() const { return (has_ & kLanding) != 0 ? landing_ : Landing{}; }
  // The beginning of landing() that was READ. Empty: nothing was.
  absl::Span<const uint8_t> landed() const {
    if ((has_ & kLanding) == 0 || landed_bytes_ == 0) return {};
    return {landing_.address, landed_bytes_};
  }
  // All segments are in `sink`, or will be READ into it. Keeps the envelope, and returns the receive buffer
  // to the pool: a message that is kept takes no more than it has.
  void SetSink(Lease sink);
  // All of its sink; empty: it has none.
  absl::Span<const uint8_t> sink_bytes() const {
    if (!has_sink()) return {};
    return {sink().data(), sink().size_bytes()};
  }
  const Lease& sink() const { return shared_ != nullptr ? *shared_ : sink_; }
  // Shared ownership of the memory that all segments are in: the sink or, without one, the receive buffer. It
  // may outlive the message. Null: the message was copied into this object.
  std::shared_ptr<const Lease> ShareMemory();
  // That memory, by capacity. 0: there is none.
  uint64_t shareable_bytes() const {
    if ((has_ & (kSink | kShared)) != 0) return sink().size_bytes();
    return buffer_ ? buffer_.size_bytes() : 0;
  }
  // The memory that it keeps from others: the same or, if it was copied, this object, which is on the heap.
  uint64_t memory_bytes() const {
    const uint64_t shareable = shareable_bytes();
    return shareable != 0 ? shareable : sizeof(IncomingMessage);
  }

 private:
  friend class MessageCache;
  friend class MessagePool;
  friend struct IncomingMessageDeleter;
  class Reader;
  explicit IncomingMessage(MessagePool* pool) : pool_(pool) {}
  void Reset();
  [[gnu::noinline]] void DropMore();
  bool has_sink() const { return (has_ & kSink) != 0; }
  void BeginToRead(const capnp::ReaderOptions& options);
  [[gnu::noinline]] capnp::_::StructReader ReadRootOutside(const capnp::ReaderOptions& options);
  // The segment, if the message has one only and it is not empty and aligned; otherwise null.
  kj::ArrayPtr<const capnp::word> OnlySegment() const;
  kj::ArrayPtr<const capnp::word> words(size_t number) const {
    if (number >= segments_.size()) return nullptr;
    const Segment& segment = segments_[number];
    return {reinterpret_cast<const capnp::word*>(segment.address),
            segment.length_bytes / sizeof(capnp::word)};
  }

  MessagePool* const pool_;
  Lease buffer_;
  uint32_t length_bytes_ = 0;
  // What few messages have, behind one test.
  static constexpr uint8_t kSink = 1, kLanding = 2, kShared = 4;
  uint8_t has_ = 0;
  Lease sink_;                           // kSink, without kShared.
  std::shared_ptr<const Lease> shared_;  // kShared: the sink or, without kSink, the receive buffer.
  Landing landing_;                      // kLanding.
  uint64_t landed_bytes_ = 0;
  absl::Span<const uint8_t> envelope_;
  uint8_t kept_envelope_[kEnvelopeMax];  // Where a message with a sink keeps it.
  absl::InlinedVector<Segment, 4> segments_;
  uint64_t body_bytes_ = 0;
  alignas(8) uint8_t reader_space_[sizeof(void*) * 40];
  capnp::MessageReader* reader_ = nullptr;
  bool is_read_ = false;                // reader_ is that of this message, else of one before.
  bool keeps_reader_ = false;           // reader_ can serve another message (capnp_layout.h).
  const void* capabilities_ = nullptr;  // That the roots of a kept reader have.
  IncomingMessage* next_free_ = nullptr;
  alignas(8) uint8_t copied_[kCopiedMax];
};

struct IncomingMessageDeleter {
  void operator()(IncomingMessage* message) const;
};
using IncomingMessagePtr = std::unique_ptr<IncomingMessage, IncomingMessageDeleter>;

// Makes messages, and keeps the objects of ended ones for the next, so that a call in steady state allocates
// nothing.
// Thread:   any.
// Lifetime: use Create(); ends when its handle and all its messages are destroyed.
class MessagePool {
 public:
  // Never null. If there was no memory, its status() says so.
  OutgoingMessagePtr NewOutgoing();
  // For an error, which must be sent whatever the pool has: its first segment, with the header, is from the
  // pool's reserve if there is no other memory.
  OutgoingMessagePtr NewReserved();
  IncomingMessagePtr NewIncoming();
  BufferPool& buffers() { return *buffers_; }
  // Returns the memory of kept messages to the buffer pool, including those in the calling thread's
  // MessageCache.
  void Trim();

  // How Cap'n Proto's readers and builders are made: both ways read and make the same bytes.
  enum class CapnpRoad {
    kPublic,  // By its public interface, for each message.
    kFast,    // Once for many messages, if capnp_layout::Known(). Otherwise as kPublic.
  };
  static std::shared_ptr<MessagePool> Create(std::shared_ptr<BufferPool> buffers,
                                             CapnpRoad road = CapnpRoad::kFast);

 private:
  friend class OutgoingMessage;
  friend class IncomingMessage;
  friend struct OutgoingMessageDeleter;
  friend struct IncomingMessageDeleter;
  friend class MessageCache;
  MessagePool(std::shared_ptr<BufferPool> buffers, CapnpRoad road);
  ~MessagePool();
  void Unref();
  // Keeps an ended message of the pool for reuse, unless there are enough.
  void Keep(OutgoingMessage* message);
  void Keep(IncomingMessage* message);

  std::shared_ptr<BufferPool> buffers_;
  const bool knows_layout_;
  struct State;
  std::unique_ptr<State> state_;
};

// Ended messages, and free buffers, of one pool that one thread at a time keeps for itself, so that a call
// needs no lock for them. A poller has one, for the thread that is on it. Outlives no message pool.
class MessageCache {
 public:
  explicit MessageCache(MessagePool& pool) : pool_(pool), buffers_(pool.buffers()) {}
  ~MessageCache() { Flush(); }
  MessageCache(const MessageCache&) = delete;
  MessageCache& operator=(const MessageCache&) = delete;

  // This thread uses the cache until Leave(): it keeps and reuses the messages that end on this thread. A
  // cache that the thread entered before keeps none meanwhile.
  void Enter() {
    outer_ = std::exchange(current_, this);
    BufferCache::current_ = &buffers_;
  }
  void Leave() {
    if (buffers_.FlushIfWanted()) [[unlikely]]
      GiveBack();
    current_ = outer_;
    BufferCache::current_ = outer_ != nullptr ? &outer_->buffers_ : nullptr;
  }

  // As of the pool, on the thread that uses the cache.
  OutgoingMessagePtr NewOutgoing() {
    OutgoingMessage* const message = outgoing_;
    if (message == nullptr) [[unlikely]]
      return pool_.NewOutgoing();
    outgoing_ = message->next_free_;
    --outgoing_kept_;
    message->Revive();
    return OutgoingMessagePtr(message);
  }
  IncomingMessagePtr NewIncoming() {
    IncomingMessage* const message = incoming_;
    if (message == nullptr) [[unlikely]]
      return pool_.NewIncoming();
    incoming_ = message->next_free_;
    --incoming_kept_;
    return IncomingMessagePtr(message);
  }

  // See BufferCache.
  void SetWake(std::function<void()> wake) { buffers_.SetWake(std::move(wake)); }

 private:
  friend class MessagePool;
  friend struct OutgoingMessageDeleter;
  friend struct IncomingMessageDeleter;
  static constexpr uint32_t kKeptMax = 64;  // For each kind.

  static MessageCache* Of(const MessagePool* pool) {
    return current_ != nullptr && &current_->pool_ == pool ? current_ : nullptr;
  }
  void Flush();
  void GiveBack();

  [[gnu::tls_model("initial-exec")]] inline static constinit thread_local MessageCache* current_ = nullptr;
  MessagePool& pool_;
  BufferCache buffers_;
  MessageCache* outer_ = nullptr;
  OutgoingMessage* outgoing_ = nullptr;
  IncomingMessage* incoming_ = nullptr;
  uint32_t outgoing_kept_ = 0;
  uint32_t incoming_kept_ = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WIRE_MESSAGE_H_
