#include "hawser/rpc/client/call_errors.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/message_metadata.h"

namespace hawser::internal {

absl::Status CallErrors::Error(absl::StatusCode code, absl::string_view why) const {
  return CallError(code, method, peer_address, why, sent);
}

absl::Status CallErrors::Cancelled() const {
  return Error(absl::StatusCode::kCancelled, "cancelled by the caller");
}

absl::Status CallErrors::TooLate(absl::string_view why_late) const {
  return Error(absl::StatusCode::kDeadlineExceeded,
               absl::StrCat("the deadline had passed when it was to be sent", why_late));
}

absl::Status CallErrors::BadRequest(const absl::Status& status) const {
  const char* const what = absl::IsResourceExhausted(status) ? "no registered memory for the request: "
                                                             : "the request cannot be sent: ";
  return Error(status.code(), absl::StrCat(what, absl::string_view(status.message())));
}

absl::Status CallErrors::InChild() const {
  return Error(absl::StatusCode::kFailedPrecondition,
               "this process is a child made by fork() after the channel was; its connections and threads "
               "are the parent's. Make channels after fork(), or call exec()");
}

absl::Status CallErrors::NotSent(absl::Status why) {
  SetWasSent(why, Sent::kNo);
  return why;
}

absl::Status CallErrors::InResponse(transport::IncomingMessage& response, bool sent_before,
                                    bool& not_run) const {
  const absl::StatusOr<ResponseEnvelope> envelope = DecodeResponseEnvelope(response.envelope());
  if (!envelope.ok()) return Error(envelope.status().code(), envelope.status().message());
  const absl::StatusOr<MetadataView> metadata = MetadataIn(response, envelope->metadata_segment);
  if (!metadata.ok()) return Error(absl::StatusCode::kDataLoss, metadata.status().message());
  if (envelope->code == absl::StatusCode::kOk) return absl::OkStatus();
  not_run = envelope->not_run;
  bool refused = false;
  absl::Status error = DecodeStatus(envelope->code, response, &refused);
  if (not_run) return error;
  SetMetadata(error, *metadata);
  error = NameUnserved(std::move(error), method, peer_address);
  return refused && !sent_before ? NotSent(std::move(error)) : error;
}

std::string CallErrors::Describe() const { return absl::StrCat("a call of ", method, " to ", peer_address); }

}  // namespace hawser::internal
