#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_COPIED_SENDS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_COPIED_SENDS_H_

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace hawser::fabric {

// The SENDs of QueuePair::PostInline() that wait for the doorbell, and how many the device may have at once.
//
// The device copies them once more when they are posted (IBV_SEND_INLINE), so their bytes are kept until then
// only. In the queue of the ibv_qp each has an entry. It is one of those for the caller's work requests, of
// which a caller that copies what is small leaves most free; if the caller wants all of them, its work
// requests wait until the device has done with the copies.
// Thread:   that of the queue pair.
class VerbsCopiedSends {
 public:
  // `depth`: of the caller's send queue. `copies`: see PostsInline(); otherwise none are possible.
  VerbsCopiedSends(uint32_t depth, bool copies)
      : most_(copies ? std::clamp<uint32_t>(depth / 2, 1, 32) : 0) {}

  // Posted, and waiting for the doorbell, together: at most this.
  uint32_t most() const { return most_; }
  // After so many without one, a work request has to be signaled, so that the device's entries are free
  // again. Few enough that some are free while the completion is on its way.
  uint32_t signal_interval() const { return std::max<uint32_t>(most_ / 2, 1); }

  uint32_t count() const { return static_cast<uint32_t>(waiting_.size()); }
  bool empty() const { return waiting_.empty(); }

  void Add(absl::Span<const uint8_t> message) {
    waiting_.push_back({bytes_.size(), message.size()});
    bytes_.insert(bytes_.end(), message.begin(), message.end());
  }
  // Fills in the SEND at `index`, but for its wr_id and next. Both are valid until the next Add() or Clear().
  void Fill(size_t index, ibv_send_wr& wr, ibv_sge& sge) {
    const Copy& copy = waiting_[index];
    sge = {.addr = reinterpret_cast<uint64_t>(bytes_.data() + copy.offset),
           .length = static_cast<uint32_t>(copy.length),
           .lkey = 0};  // IBV_SEND_INLINE: it is not looked at.
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags |= IBV_SEND_INLINE;
  }
  void Clear() {
    waiting_.clear();
    bytes_.clear();
  }

 private:
  struct Copy {
    size_t offset;  // In bytes_.
    size_t length;
  };

  const uint32_t most_;
  std::vector<Copy> waiting_;
  std::vector<uint8_t> bytes_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_COPIED_SENDS_H_
