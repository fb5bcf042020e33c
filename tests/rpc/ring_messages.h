#ifndef HAWSER_TESTS_RPC_RING_MESSAGES_H_
#define HAWSER_TESTS_RPC_RING_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "hawser/rpc/message_ring.h"
#include "hawser/tests/sim/dice.h"

namespace hawser {

// What messages and heads of a ring are, for tests. Bytes that are like those of no other message.
inline std::string MessageOf(uint64_t number, size_t bytes) {
  sim::Dice dice(number);
  std::string message(bytes, '\0');
  for (char& each : message) each = static_cast<char>(dice.Next() >> 32);
  return message;
}

inline std::vector<uint8_t> BytesOf(const RingLayout::Head& head) {
  const std::array<uint64_t, 3> words = RingLayout::EncodeHead(head);
  std::vector<uint8_t> bytes(RingLayout::kHeadBytes);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_RING_MESSAGES_H_
