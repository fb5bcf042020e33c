#ifndef HAWSER_RPC_CLIENT_CALL_ERRORS_H_
#define HAWSER_RPC_CLIENT_CALL_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/status.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// The errors that this side ends a call with. Their texts name its method and peer, and they say whether it
// was sent (WasSent()).
// Lifetime: made where an error is, while the call exists.
struct CallErrors {
  absl::Status Error(absl::StatusCode code, absl::string_view why) const;
  absl::Status Cancelled() const;
  // The deadline passed before it was sent. `why_late`: see Poller::WhyLate().
  [[gnu::cold]] absl::Status TooLate(absl::string_view why_late) const;
  // The request has `status`, and cannot be sent.
  absl::Status BadRequest(const absl::Status& status) const;
  // This process is a fork()ed child of the one that created the channel.
  absl::Status InChild() const;
  // `why`, which says that the call was not sent.
  static absl::Status NotSent(absl::Status why);

  // That in a response, which may be malformed; OK: there is none. Sets `not_run` if the server says that.
  // If it says that the server refused the call, and no other may have run it, WasSent() of it is false.
  absl::Status InResponse(transport::IncomingMessage& response, bool sent_before, bool& not_run) const;

  // "a call of METHOD to PEER"
  std::string Describe() const;

  const char* method;
  const std::string& peer_address;
  Sent sent;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_ERRORS_H_
