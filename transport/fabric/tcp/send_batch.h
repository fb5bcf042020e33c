#ifndef HAWSER_TRANSPORT_FABRIC_TCP_SEND_BATCH_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_SEND_BATCH_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/atomic.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {

// The frames of one sendmsg(2): headers and small payloads are copied next to each other, like the inline
// data of a NIC; large segments are sent from where they are. All queue pairs of a completion queue share
// one: it is filled, sent and cleared within one call.
class SendBatch {
 public:
  // The owner of the frame, and the owner's cursor before it: to go back if the socket accepts less.
  enum class Owner : uint8_t { kRequester, kReadAnswer, kAck, kNak };
  struct Frame {
    Owner owner;
    size_t bytes;
    const uint8_t* header;  // In this batch. Null: the rest of a frame whose front is on the wire.
    uint32_t cursor[2];
  };

  void Clear() {
    staged_ = 0;
    segments_ = 0;
    ends_staged_ = false;
    frames_ = 0;
    bytes_ = 0;
  }

  // One more frame fits, of any kind. A batch is bounded so that one system call does not take too long.
  bool HasRoom() const {
    return frames_ < kFramesMax && segments_ + 2 * (kSgeMax + 1) <= kSegmentsMax &&
           staged_ + sizeof(FrameHeader) + kSgeMax * kCopyMax <= kStagingBytes && bytes_ < kBytesMax;
  }

  // One more frame fits whose payload of `length_bytes` is copied, whatever its size.
  bool HasRoomForCopy(size_t length_bytes) const {
    return HasRoom() && staged_ + sizeof(FrameHeader) + length_bytes <= kStagingBytes;
  }

  void BeginFrame(Owner owner, uint32_t cursor0, uint32_t cursor1) {
    Frame& frame = frame_[frames_];
    frame.owner = owner;
    frame.bytes = bytes_;  // The start, until EndFrame().
    frame.header = nullptr;
    frame.cursor[0] = cursor0;
    frame.cursor[1] = cursor1;
  }
  void EndFrame() {
    frame_[frames_].bytes = bytes_ - frame_[frames_].bytes;
    ++frames_;
  }

  void AppendHeader(const FrameHeader& header) {
    frame_[frames_].header = staging_.data() + staged_;
    AppendCopy(reinterpret_cast<const uint8_t*>(&header), sizeof(header));
  }

  void Append(const uint8_t* data, size_t length_bytes) {
    if (length_bytes <= kCopyMax) {
      AppendCopy(data, length_bytes);
    } else {
      segment_[segments_++] = {const_cast<uint8_t*>(data), length_bytes};
      ends_staged_ = false;
      bytes_ += length_bytes;
    }
  }

  // At most kCopyMax bytes.
  void AppendCopy(const uint8_t* data, size_t length_bytes) {
    std::memcpy(staging_.data() + staged_, data, length_bytes);
    AppendStaged(length_bytes);
  }
  // As CopyWords(), if HasRoomForCopy().
  void AppendWords(const uint8_t* data, size_t length_bytes) {
    CopyWords(staging_.data() + staged_, data, length_bytes);
    AppendStaged(length_bytes);
  }
  // These bytes are already behind what was copied last.
  void AppendStaged(size_t length_bytes) {
    uint8_t* const end = staging_.data() + staged_;
    if (ends_staged_) {
      segment_[segments_ - 1].iov_len += length_bytes;
    } else {
      segment_[segments_++] = {end, length_bytes};
      ends_staged_ = true;
    }
    staged_ += length_bytes;
    bytes_ += length_bytes;
  }

  // A frame with a payload of one range, of at most kCopyMax bytes: the usual one, in one go.
  void AppendSmallFrame(Owner owner, uint32_t cursor0, uint32_t cursor1, const FrameHeader& header,
                        const uint8_t* data) {
    uint8_t* const at = staging_.data() + staged_;
    const size_t bytes = sizeof(header) + header.length_bytes;
    std::memcpy(at, &header, sizeof(header));
    std::memcpy(at + sizeof(header), data, header.length_bytes);
    frame_[frames_++] = {owner, bytes, at, {cursor0, cursor1}};
    if (ends_staged_) {
      segment_[segments_ - 1].iov_len += bytes;
    } else {
      segment_[segments_++] = {at, bytes};
      ends_staged_ = true;
    }
    staged_ += bytes;
    bytes_ += bytes;
  }

  bool empty() const { return frames_ == 0; }
  size_t bytes() const { return bytes_; }
  iovec* segments() { return segment_.data(); }
  size_t segment_count() const { return segments_; }
  const Frame& frame(size_t i) const { return frame_[i]; }
  // The first byte that was copied: of the first frame, if that begins with one.
  const uint8_t* staging() const { return staging_.data(); }
  size_t frame_count() const { return frames_; }

  static constexpr size_t kCopyMax = 512;  // From here on a segment of its own costs less than copying.

 private:
  static constexpr size_t kStagingBytes = 64 * 1024;
  static constexpr size_t kSegmentsMax = 512;  // The kernel takes 1,024 (IOV_MAX).
  static constexpr size_t kFramesMax = 256;
  static constexpr size_t kBytesMax = 1024 * 1024;

  size_t staged_ = 0;
  size_t segments_ = 0;
  bool ends_staged_ = false;  // The last segment is of staging_, whose next bytes follow it.
  size_t frames_ = 0;
  size_t bytes_ = 0;
  std::array<uint8_t, kStagingBytes> staging_;
  std::array<iovec, kSegmentsMax> segment_;
  std::array<Frame, kFramesMax> frame_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_SEND_BATCH_H_
