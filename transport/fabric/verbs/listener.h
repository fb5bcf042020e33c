#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_LISTENER_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_LISTENER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/completion_queue.h"

namespace hawser::fabric {

// An rdma_cm_id that listens. When its device is removed, it waits until the device is back, and listens
// again.
// Thread:   that of its completion queue.
class VerbsListener final : public Listener, public VerbsSource {
 public:
  static absl::StatusOr<std::unique_ptr<VerbsListener>> Create(VerbsCompletionQueue& completion_queue,
                                                               const SocketAddress& address, int backlog,
                                                               ListenHandler& handler);
  ~VerbsListener() override;

  SocketAddress address() const override { return address_; }
  absl::Status shortfall() const override { return shortfall_; }

  void OnCmEvent(VerbsCmEvent& event) override;
  void OnLost(const absl::Status& why) override;
  void OnTryAgain() override;

 private:
  VerbsListener(VerbsCompletionQueue& completion_queue, int backlog, ListenHandler& handler);
  absl::Status Listen(const SocketAddress& address);
  // `error`: the errno of rdma_listen(), if that is what has failed.
  absl::Status ListenOnFamily(const SocketAddress& address, int* error);
  absl::Status ListenOnce(const SocketAddress& address, int* error);
  void Stop();

  VerbsCompletionQueue& completion_queue_;
  ListenHandler& handler_;
  const uint32_t token_;
  const int backlog_;
  bool entered_ = false;
  rdma_cm_id* id_ = nullptr;
  SocketAddress address_;
  absl::Status shortfall_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_LISTENER_H_
