#ifndef HAWSER_RPC_WIRE_MESSAGE_METADATA_H_
#define HAWSER_RPC_WIRE_MESSAGE_METADATA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/rpc/metadata.h"
#include "hawser/transport/wire/message.h"

// Metadata in messages: a segment that the envelope names.
namespace hawser::internal {

// Adds `metadata` to `message` and returns the number of its segment; 0: there is none, or the message cannot
// be sent (OutgoingMessage::status()).
uint16_t AddMetadata(const Metadata& metadata, transport::OutgoingMessage& message);

// The metadata of `message`, whose envelope says that it is in `segment`; empty if that is 0.
// InvalidArgument: malformed.
absl::StatusOr<MetadataView> MetadataIn(const transport::IncomingMessage& message, uint16_t segment);

// The same of a message in which it was found well-formed.
MetadataView MetadataOfRequest(const transport::IncomingMessage& request);
MetadataView MetadataOfResponse(const transport::IncomingMessage& response);

// Makes MetadataOf(status) return a copy of `metadata`.
void SetMetadata(absl::Status& status, MetadataView metadata);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_MESSAGE_METADATA_H_
