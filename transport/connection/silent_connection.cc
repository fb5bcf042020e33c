#include "hawser/transport/connection/silent_connection.h"

#include <utility>

#include "absl/status/statusor.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

Handshake SilentConnection::Hello(Role role) {
  Handshake hello;
  hello.role = role;
  hello.slots = 1;
  hello.receive_buffer_bytes = kReceiveBufferMin;
  return hello;
}

absl::Status SilentConnection::Create(absl::Duration timeout, fabric::QueuePairOptions options) {
  options.send_depth = options.receive_depth = options.read_depth = 1;
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> queue_pair =
      poller_.fabric().CreateQueuePair(poller_.completion_queue(), options, *this);
  if (!queue_pair.ok()) return queue_pair.status();
  queue_pair_ = *std::move(queue_pair);
  poller_.timers().Set(timer_, After(poller_.environment().NowNs(), timeout));
  return absl::OkStatus();
}

void SilentConnection::End() {
  if (std::exchange(ended_, true)) return;
  OnEnd();
  poller_.timers().Cancel(timer_);
  Disconnect();
  poller_.MarkClosed(this);
}

void SilentConnection::Disconnect() {
  if (queue_pair_ != nullptr) queue_pair_->Disconnect();
}

}  // namespace hawser::transport
