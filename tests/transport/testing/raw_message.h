#ifndef HAWSER_TESTS_TRANSPORT_TESTING_RAW_MESSAGE_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_RAW_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hawser/transport/wire/wire.h"

// Messages for peers that write the protocol by hand.
namespace hawser::transport {

// A message as it is on the wire. Its parts may contradict each other.
struct RawMessage {
  Header header;
  std::vector<TableEntry> table;
  std::string envelope;
  std::string inline_bytes;

  std::string Encode() const;
};

// A request or response with so many inline bytes (0: without a segment).
RawMessage RawRequest(uint16_t slot, uint32_t generation, size_t body_bytes = 0);
RawMessage RawResponse(uint16_t slot, uint32_t generation, size_t body_bytes = 0);
std::string RawControl(uint32_t generation, const std::vector<ControlOp>& ops);
std::string RawControlAck(uint32_t generation);

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_RAW_MESSAGE_H_
