#ifndef HAWSER_TOOLS_DOCTOR_DIALER_H_
#define HAWSER_TOOLS_DOCTOR_DIALER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/runtime.h"

namespace hawser::doctor {

// Dials one address as a channel does, and hangs up as soon as the handshake is done. A channel itself does
// not say what was agreed, nor how each of several addresses failed.
class Dialer final : transport::ConnectionObserver {
 public:
  // What both sides agreed on: the fabric's and the handshake's errors are returned as they are.
  static absl::StatusOr<transport::Handshake> Dial(const std::shared_ptr<transport::Runtime>& runtime,
                                                   const SocketAddress& address, absl::Duration timeout);

 private:
  void OnReady(const transport::Handshake& peer) override;
  void OnClosed(const absl::Status& why) override;

  transport::Connection* connection_ = nullptr;  // On the poller.
  absl::StatusOr<transport::Handshake> agreed_ = absl::UnknownError("not closed");
  bool ready_ = false;
  absl::Notification over_;
};

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_DIALER_H_
