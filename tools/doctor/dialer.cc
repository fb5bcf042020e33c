#include "hawser/tools/doctor/dialer.h"

#include "hawser/transport/wire/options.h"

namespace hawser::doctor {

absl::StatusOr<transport::Handshake> Dialer::Dial(const std::shared_ptr<transport::Runtime>& runtime,
                                                  const SocketAddress& address, absl::Duration timeout) {
  Dialer dialer;
  transport::Poller& poller = runtime->poller(0);
  poller.Run([&] {
    transport::ConnectionObserver& observer = dialer;
    transport::Handshake hello;
    hello.role = transport::Role::kForward;
    absl::StatusOr<transport::Connection*> connection =
        transport::Connection::Dial(poller, address, {}, hello, timeout, observer, /*handler=*/nullptr);
    if (connection.ok()) {
      dialer.connection_ = *connection;
      return;
    }
    dialer.agreed_ = connection.status();
    dialer.over_.Notify();
  });
  // The connection ends by itself: at the timeout, if not before. It is worth the wait that it is closed as
  // well, and the peer notified: the next address begins with nothing in flight.
  dialer.over_.WaitForNotification();
  return dialer.agreed_;
}

void Dialer::OnReady(const transport::Handshake&) {
  ready_ = true;
  agreed_ = connection_->agreed();
  connection_->Close();
}

void Dialer::OnClosed(const absl::Status& why) {
  if (!ready_) agreed_ = why;
  over_.Notify();
}

}  // namespace hawser::doctor
