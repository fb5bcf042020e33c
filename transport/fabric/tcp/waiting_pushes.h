#ifndef HAWSER_TRANSPORT_FABRIC_TCP_WAITING_PUSHES_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_WAITING_PUSHES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::fabric {

// The pushes of the peer that were not taken with their SENDs, until the Poll() after that which has returned
// these.
// Thread:   that of the queue pair.
class WaitingPushes {
 public:
  // Up to this length the rest of a push is waited for here. The rest of a longer one is worth a Poll() of
  // its own.
  static constexpr size_t kShortMax = 17 * 1024;  // 16 KiB and the bytes around them.

  struct Push {
    FrameHeader header;
    std::unique_ptr<uint8_t[]> bytes;  // All of them, or, of the last push, those that have come.
    bool is_taken = false;
  };

  bool empty() const { return pushes_.empty(); }
  // Oldest first.
  absl::Span<Push> all() { return absl::MakeSpan(pushes_); }
  Push& last() { return pushes_.back(); }
  // The sum of all of them, taken or not, and of their entries.
  size_t bytes() const { return bytes_; }

  // Adds the one of `header`, of which `here` bytes have come. Returns where its rest goes, if it is short;
  // null: to the memory that it is taken into.
  uint8_t* Add(const FrameHeader& header, const uint8_t* payload, size_t here) {
    const bool is_short = header.length_bytes <= kShortMax;
    Push& push = pushes_.emplace_back();
    push.header = header;
    push.bytes.reset(new uint8_t[is_short ? header.length_bytes : here]);
    std::memcpy(push.bytes.get(), payload, here);
    bytes_ += sizeof(Push) + header.length_bytes;
    return is_short ? push.bytes.get() + here : nullptr;
  }

  // Moves what has come of it to `sink`, once. Returns how many bytes that are; `missing` have not come.
  static size_t Take(Push& push, uint8_t* sink, size_t missing) {
    const size_t here = push.header.length_bytes - missing;
    std::memcpy(sink, push.bytes.get(), here);
    push.bytes.reset();
    push.is_taken = true;
    return here;
  }

  // Drops those that were not taken.
  void Clear() {
    pushes_ = std::vector<Push>();
    bytes_ = 0;
  }

 private:
  std::vector<Push> pushes_;
  size_t bytes_ = 0;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_WAITING_PUSHES_H_
