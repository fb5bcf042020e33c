#ifndef HAWSER_TLS_SESSION_ERROR_H_
#define HAWSER_TLS_SESSION_ERROR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// Why a session has failed, in words of ours and, where there is one, with what to do about it. Each text
// begins with "TLS: ". What a peer of ours does not do carries Violation::kTls.
namespace hawser::tls {

// What a session knows of its failure, beside what OpenSSL says.
struct SessionFailure {
  bool is_done = false;            // The handshake is.
  absl::string_view refused;       // Why this side has refused the peer. Empty: it has not.
  bool hello_is_too_long = false;  // A client's ClientHello is.
  absl::string_view not_tls;       // The first bytes of a peer that does not speak TLS. Empty: it does.
  bool could_not_answer = false;   // The peer asks for a new key of this side, whose kernel sends.
  int socket_errno = 0;            // 0: the socket is fine, and the peer may have closed it.
};
// Takes what OpenSSL has queued of errors on this thread. Unauthenticated: the handshake has failed;
// DataLoss: a record after it is malformed; Unavailable: the connection is lost, or its keys cannot be
// changed.
absl::Status SessionError(const SessionFailure& failure);

// This side does not go on with the peer. Unauthenticated if the handshake is not done, otherwise DataLoss.
absl::Status RefusalError(bool is_done, absl::string_view why);
// The peer has ended the connection with that alert (RFC 8446, 6.2). Unauthenticated.
absl::Status AlertError(int alert);
// After the handshake: `why` says what is wrong with a record. DataLoss.
absl::Status MalformedError(absl::string_view why);

// The kernel has the keys, and cannot change them: the peer does, or the key of this side has protected as
// many `records` as it may. Unavailable.
absl::Status KeyChangeError();
absl::Status WornKeyError(uint64_t records);

}  // namespace hawser::tls

#endif  // HAWSER_TLS_SESSION_ERROR_H_
