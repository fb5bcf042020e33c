#include "hawser/tests/transport/testing/endpoint.h"

#include <capnp/any.h>
#include <capnp/list.h>
#include <string.h>

namespace hawser::transport {
namespace {

// Messages of tests exceed the default limit of Cap'n Proto's readers.
capnp::ReaderOptions NoLimits() {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = uint64_t{1} << 40;
  return options;
}

// A message has a root pointer beside the Data, and, if the Data does not fit into the first segment, a
// pointer to the second one.
size_t DataBytes(size_t body_bytes) {
  return body_bytes - (body_bytes <= kSmallBufferBytes - kHeadroom ? 8 : 16);
}

void Fill(uint8_t* bytes, size_t count, uint32_t seed) {
  uint32_t value = seed * 2654435761u + 12345;
  for (size_t i = 0; i < count; i += 4) {
    value = value * 1664525u + 1013904223u;
    memcpy(bytes + i, &value, std::min<size_t>(4, count - i));
  }
}

std::string Filled(size_t count, uint32_t seed) {
  std::string bytes(count, '\0');
  Fill(reinterpret_cast<uint8_t*>(&bytes[0]), count, seed);
  return bytes;
}

std::string ToString(capnp::Data::Reader data) {
  return std::string(reinterpret_cast<const char*>(data.begin()), data.size());
}

}  // namespace

OutgoingMessagePtr NewMessage(MessagePool& pool, size_t body_bytes, uint32_t seed) {
  OutgoingMessagePtr message = pool.NewOutgoing();
  if (body_bytes == 0) return message;
  auto root = message->builder().getRoot<capnp::AnyPointer>();
  if (body_bytes == 8) return message;
  capnp::Data::Builder data = root.initAs<capnp::Data>(static_cast<unsigned>(DataBytes(body_bytes)));
  Fill(data.begin(), data.size(), seed);
  return message;
}

OutgoingMessagePtr NewMessageOfParts(MessagePool& pool, const std::vector<size_t>& part_bytes,
                                     uint32_t seed) {
  OutgoingMessagePtr message = pool.NewOutgoing();
  auto parts = message->builder().getRoot<capnp::AnyPointer>().initAs<capnp::List<capnp::Data>>(
      static_cast<unsigned>(part_bytes.size()));
  for (unsigned i = 0; i < part_bytes.size(); ++i) {
    capnp::Data::Builder part = parts.init(i, static_cast<unsigned>(part_bytes[i]));
    Fill(part.begin(), part.size(), seed + i);
  }
  return message;
}

OutgoingMessagePtr CopyOf(MessagePool& pool, IncomingMessage& message) {
  OutgoingMessagePtr copy = pool.NewOutgoing();
  if (message.body_bytes() != 0) {
    copy->builder().setRoot(message.reader(NoLimits()).getRoot<capnp::AnyPointer>());
  }
  copy->SetEnvelope(message.envelope());
  return copy;
}

std::string Content(IncomingMessage& message) {
  if (message.body_bytes() == 0) return "";
  return ToString(message.reader(NoLimits()).getRoot<capnp::AnyPointer>().getAs<capnp::Data>());
}

std::vector<std::string> Parts(IncomingMessage& message) {
  std::vector<std::string> parts;
  for (capnp::Data::Reader part :
       message.reader(NoLimits()).getRoot<capnp::AnyPointer>().getAs<capnp::List<capnp::Data>>()) {
    parts.push_back(ToString(part));
  }
  return parts;
}

std::string ContentOf(size_t body_bytes, uint32_t seed) {
  return body_bytes <= 8 ? "" : Filled(DataBytes(body_bytes), seed);
}

std::string PartOf(size_t part, size_t bytes, uint32_t seed) {
  return Filled(bytes, seed + static_cast<uint32_t>(part));
}

}  // namespace hawser::transport
