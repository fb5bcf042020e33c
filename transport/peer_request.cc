#include "hawser/transport/peer_request.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::transport {

void PeerRequest::Reject(const absl::Status& why) { request_->Reject(EncodeRejection(why)); }

void PeerRequest::Refuse(const absl::Status& why) {
  Reject(why);
  const SocketAddress peer = peer_address();
  PeerLog::Process().Line(LogSeverity::kWarning, peer,
                          absl::StrCat("the connection of ", peer.ToString(),
                                       " was refused: ", absl::string_view(why.message())));
}

}  // namespace hawser::transport
