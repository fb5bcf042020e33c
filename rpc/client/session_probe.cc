#include "hawser/rpc/client/session_probe.h"

#include "absl/strings/string_view.h"

namespace hawser::internal {
namespace {

// The server's text, without the prefix that says that it rejected a connection: a rejection is how it
// answers.
absl::string_view Answer(absl::string_view text) {
  const size_t at = text.find(transport::kRejected);
  return at == absl::string_view::npos ? text : text.substr(at + transport::kRejected.size());
}

}  // namespace

absl::Status SessionProbe::Dial(const SocketAddress& address, const transport::ConnectionOptions& options,
                                const transport::SessionToken& session, absl::Duration give_up_after,
                                const transport::Security& security) {
  poller_.AssertHeld();
  transport::ConnectionOptions smallest = options;
  smallest.slots = 1;
  smallest.receive_buffer_bytes = transport::kReceiveBufferMin;
  transport::Handshake hello;
  hello.role = transport::Role::kProbe;
  hello.session = session;
  absl::StatusOr<transport::Connection*> connection =
      transport::Connection::Dial(poller_, address, smallest, hello, give_up_after, *this, nullptr, security);
  if (!connection.ok()) return connection.status();
  connection_ = *connection;
  return absl::OkStatus();
}

void SessionProbe::Close() {
  if (connection_ != nullptr) connection_->Close();
}

// No server accepts a probe.
void SessionProbe::OnReady(const transport::Handshake&) { Close(); }

void SessionProbe::OnLost(const absl::Status& why) {
  owner_.OnProbeAnswer(absl::Status(why.code(), Answer(why.message())));
}

void SessionProbe::OnClosed(const absl::Status&) {
  connection_ = nullptr;
  owner_.OnProbeEnded();
}

}  // namespace hawser::internal
