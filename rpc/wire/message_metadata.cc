#include "hawser/rpc/wire/message_metadata.h"

#include "absl/strings/cord.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/envelope.h"

namespace hawser::internal {

uint16_t AddMetadata(const Metadata& metadata, transport::OutgoingMessage& message) {
  if (!metadata.status().ok()) {
    message.Refuse(metadata.status());
    return 0;
  }
  const absl::string_view bytes = metadata.view().bytes();
  return message.AddSegment({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

absl::StatusOr<MetadataView> MetadataIn(const transport::IncomingMessage& message, uint16_t segment) {
  if (segment == 0) return MetadataView();
  const absl::Span<const uint8_t> bytes = message.segment(segment);
  if (bytes.empty()) {
    return absl::InvalidArgumentError(
        "the metadata is malformed: the envelope names a segment that is empty, or not there");
  }
  return MetadataView::Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

MetadataView MetadataOfRequest(const transport::IncomingMessage& request) {
  const absl::StatusOr<RequestEnvelope> envelope = DecodeRequestEnvelope(request.envelope());
  return envelope.ok() ? MetadataIn(request, envelope->metadata_segment).value_or(MetadataView())
                       : MetadataView();
}

MetadataView MetadataOfResponse(const transport::IncomingMessage& response) {
  const absl::StatusOr<ResponseEnvelope> envelope = DecodeResponseEnvelope(response.envelope());
  return envelope.ok() ? MetadataIn(response, envelope->metadata_segment).value_or(MetadataView())
                       : MetadataView();
}

void SetMetadata(absl::Status& status, MetadataView metadata) {
  if (!metadata.empty()) status.SetPayload(kMetadataUrl, absl::Cord(metadata.bytes()));
}

}  // namespace hawser::internal
