#ifndef HAWSER_TRANSPORT_FABRIC_TCP_GRANTS_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_GRANTS_H_

#include <cstdint>
#include <vector>

#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

// What one peer may do with our memory over one queue pair. It grows with what is granted at once: a message
// that was built in large pieces, or refers to many payloads, needs a grant for each, and every slot may hold
// one.
// Thread:   that of the queue pair.
class GrantTable {
 public:
  static constexpr uint32_t kGrantsMax = 0xffff;  // An rkey has 16 bits for the place in the table.
  // How many times its size a grant may be READ in all. An honest peer READs each byte once; the rest is for
  // one that starts again. Without a bound, 24 bytes ask for the whole range, again and again.
  static constexpr uint32_t kReadsOfEachByteMax = 4;

  // `salt` makes the rkeys of different queue pairs differ, so that one that went astray is refused.
  explicit GrantTable(uint32_t salt) : salt_(static_cast<uint16_t>(salt)) {}

  // Returns the rkey; 0: there are kGrantsMax.
  uint32_t Add(const Sge& range, QueuePair::Access access);
  // False if there is no such grant.
  bool Remove(uint32_t rkey);

  // Whether the peer may touch all of [address, address + length_bytes). All three come from the peer.
  bool Allows(uint32_t rkey, uint64_t address, uint64_t length_bytes, QueuePair::Access access) const;

  // Counts a READ that Allows() has allowed. False: with it, the peer has READ the range more than
  // kReadsOfEachByteMax times over.
  bool CountRead(uint32_t rkey, uint32_t length_bytes);

 private:
  static constexpr uint16_t kNone = kGrantsMax;

  struct Grant {
    uint64_t address = 0;
    uint64_t readable_bytes = 0;  // Until it was READ too often.
    uint32_t length_bytes = 0;
    uint16_t generation = 0;
    uint16_t next_free = kNone;
    QueuePair::Access access = QueuePair::Access::kRead;
    bool active = false;
  };

  const Grant* Find(uint32_t rkey) const;

  const uint16_t salt_;
  uint16_t first_free_ = kNone;
  std::vector<Grant> grants_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_GRANTS_H_
