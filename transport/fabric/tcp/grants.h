#ifndef HAWSER_TRANSPORT_FABRIC_TCP_GRANTS_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_GRANTS_H_

#include <cstdint>
#include <vector>

#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

// The memory of this side that one peer may READ, WRITE or use atomics on, over one queue pair. It grows with
// the number of grants at once: a message of several large segments needs one for each, and every slot may
// hold such a message.
// Thread:   that of the queue pair.
class GrantTable {
 public:
  static constexpr uint32_t kGrantsMax = 0xffff;  // An rkey has 16 bits for the place in the table.
  // The peer may READ this many times the size of a grant in all. An honest peer READs each byte once; the
  // rest allows it to start again. Without a bound, each request of 24 bytes could ask for the whole range.
  static constexpr uint32_t kReadsOfEachByteMax = 4;

  // `salt` makes the rkeys of different queue pairs differ, so that a stray one is refused.
  explicit GrantTable(uint32_t salt) : salt_(static_cast<uint16_t>(salt)) {}

  // Rkey 0: there are kGrantsMax.
  Granted Add(const Sge& range, QueuePair::Access access);
  // False if there is no such grant.
  bool Remove(uint32_t rkey);

  // The memory that the peer calls [address, address + length_bytes), if it has `access` to all of it;
  // otherwise null. All three values come from the peer.
  uint8_t* Resolve(uint32_t rkey, uint64_t address, uint64_t length_bytes, QueuePair::Access access) const;

  // Counts a READ that Resolve() has allowed. False: it exceeds kReadsOfEachByteMax times the size of the
  // grant.
  bool CountRead(uint32_t rkey, uint32_t length_bytes);

 private:
  static constexpr uint16_t kNone = kGrantsMax;

  struct Grant {
    uint8_t* memory = nullptr;
    uint64_t readable_bytes = 0;  // That may still be READ. kReadRepeatedly: more than can be, in a lifetime.
    uint32_t length_bytes = 0;
    uint16_t generation = 0;
    uint16_t next_free = kNone;
    QueuePair::Access access = QueuePair::Access::kRead;
    bool active = false;
  };

  // The address at which the grant begins for the peer. It comes from the rkey alone. It is not 0, which is
  // that of an inline segment; the ranges of two grants do not overlap; and no sum with a length wraps.
  static uint64_t AddressOf(uint32_t rkey) { return uint64_t{rkey} << 32; }

  const Grant* Find(uint32_t rkey) const;

  const uint16_t salt_;
  uint16_t first_free_ = kNone;
  std::vector<Grant> grants_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_GRANTS_H_
