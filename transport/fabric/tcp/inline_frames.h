#ifndef HAWSER_TRANSPORT_FABRIC_TCP_INLINE_FRAMES_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_INLINE_FRAMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {

// The frames of SENDs that were copied when they were posted (QueuePair::PostInline()), until the socket has
// taken them. A queue pair takes one from the stock of its completion queue for the first such SEND of a
// batch, and returns it when the batch is on the wire: so an idle queue pair has none.
//
//   Add() ... Add() -> Stamp() -> unsent(), Advance() ... until empty() -> Add() ...
//
// Thread:   that of the queue pair.
class InlineFrames {
 public:
  bool empty() const { return begin_ == end_; }
  // The first frame is on the wire in part, or frames before it are.
  bool is_begun() const { return begin_ != 0; }
  uint32_t frames() const { return frames_; }

  // False: there is no room.
  bool Add(absl::Span<const uint8_t> message) {
    if (sizeof(bytes_) - end_ < sizeof(FrameHeader) + message.size()) return false;
    const FrameHeader header = {.kind = FrameKind::kSend,
                                .length_bytes = static_cast<uint32_t>(message.size())};
    std::memcpy(bytes_ + end_, &header, sizeof(header));
    std::memcpy(bytes_ + end_ + sizeof(header), message.data(), message.size());
    end_ += static_cast<uint32_t>(sizeof(header) + message.size());
    ++frames_;
    return true;
  }

  // Sets FrameHeader::acknowledged of all frames, of which none is on the wire. Frames that other calls send
  // between Add() and Stamp() may acknowledge more than there was to acknowledge at Add(), and a count never
  // falls.
  void Stamp(uint32_t acknowledged) {
    uint8_t* at = bytes_;
    for (uint32_t left = frames_; left != 0; --left) {
      std::memcpy(at + offsetof(FrameHeader, acknowledged), &acknowledged, sizeof(acknowledged));
      uint32_t length_bytes;
      std::memcpy(&length_bytes, at + offsetof(FrameHeader, length_bytes), sizeof(length_bytes));
      at += sizeof(FrameHeader) + length_bytes;
    }
  }

  absl::Span<uint8_t> unsent() { return {bytes_ + begin_, end_ - begin_}; }
  // These bytes of it are on the wire.
  void Advance(size_t length_bytes) {
    begin_ += static_cast<uint32_t>(length_bytes);
    if (begin_ == end_) Clear();
  }
  void Clear() { begin_ = end_ = frames_ = 0; }

 private:
  uint32_t begin_ = 0;
  uint32_t end_ = 0;
  uint32_t frames_ = 0;
  uint8_t bytes_[16 * 1024 - 16];  // More than 100 calls of 64 bytes.
};

// Those that no queue pair uses. A queue pair has one for as long as a batch of its SENDs has not left, so a
// few serve any number of queue pairs whose peers read.
class InlineFramesStock {
 public:
  std::unique_ptr<InlineFrames> Take() {
    if (count_ == 0) return std::unique_ptr<InlineFrames>(new InlineFrames);
    return std::move(free_[--count_]);
  }
  // It is empty(). Takes it out of `frames`.
  void Return(std::unique_ptr<InlineFrames>& frames) {
    if (count_ == kKeptMax) return frames.reset();
    free_[count_++].swap(frames);
  }

 private:
  static constexpr size_t kKeptMax = 8;
  size_t count_ = 0;
  std::array<std::unique_ptr<InlineFrames>, kKeptMax> free_;  // The first count_; the others are null.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_INLINE_FRAMES_H_
