#include "hawser/transport/connection/proof_desk.h"

#include <optional>
#include <utility>

#include "hawser/transport/clock/timer.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {
namespace {

// What a client may take from here to its connect over RDMA: as long as an accepted peer may take to finish
// the handshake.
constexpr absl::Duration kProofTimeout = absl::Seconds(5);

}  // namespace

class ProofDesk::Held final : public PollerClient, public fabric::ConnectionHandler {
 public:
  Held(ProofDesk& desk, std::shared_ptr<ProofTable> proofs, const SessionToken& number)
      : desk_(desk), poller_(desk.poller_), proofs_(std::move(proofs)), number_(number), timer_([this] {
          End();
        }) {}
  ~Held() override {
    poller_.timers().Cancel(timer_);
    Release();
  }

  absl::Status Accept(fabric::ConnectRequest& request, const Handshake& answer) {
    // No messages cross.
    const fabric::QueuePairOptions smallest = {.send_depth = 1, .receive_depth = 1, .read_depth = 1};
    absl::StatusOr<std::unique_ptr<fabric::QueuePair>> queue_pair =
        poller_.fabric().CreateQueuePair(poller_.completion_queue(), smallest, *this);
    if (!queue_pair.ok()) return queue_pair.status();
    queue_pair_ = *std::move(queue_pair);
    poller_.timers().Set(timer_, After(poller_.environment().NowNs(), kProofTimeout));
    return queue_pair_->Accept(request, Encode(answer));
  }

  void End() {
    if (std::exchange(ended_, true)) return;
    Release();
    desk_.held_.erase(this);
    poller_.timers().Cancel(timer_);
    Disconnect();
    poller_.MarkClosed(this);
  }

 private:
  void Release() {
    if (std::exchange(released_, true)) return;
    proofs_->Remove(number_);
  }

  // PollerClient
  void OnCompletion(const WorkId&, const fabric::Completion&) override {}
  void Flush() override {}
  void FlushIfLong() override {}
  void Disconnect() override {
    if (queue_pair_ != nullptr) queue_pair_->Disconnect();
  }

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view) override {}
  void OnConnectFailed(const absl::Status&, absl::string_view) override { End(); }
  void OnDisconnected(const absl::Status&) override { End(); }

  ProofDesk& desk_;  // Not after End().
  Poller& poller_;
  const std::shared_ptr<ProofTable> proofs_;
  const SessionToken number_;
  bool ended_ = false;
  bool released_ = false;
  Timer timer_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
};

void ProofDesk::Accept(PeerRequest request, std::shared_ptr<ProofTable> proofs) {
  poller_.AssertHeld();
  if (closed_) return request.Refuse(absl::UnavailableError("the server is shutting down"));
  const Handshake& hello = request.hello();
  const absl::StatusOr<Proof> proof = ProofOf(*request.request_);
  if (!proof.ok()) return request.Refuse(proof.status());
  std::optional<SocketAddress> bound_to;
  if ((hello.features & kFeatureBoundProof) != 0) bound_to = request.request_->local_address();
  // Before the accept: the client's connect over RDMA may come before that returns.
  const absl::Status added = proofs->Add(proof->number, {.key = proof->key,
                                                         .identity = request.peer_identity(),
                                                         .role = ProvenBy(hello.role),
                                                         .session = hello.session,
                                                         .peer = request.peer_address(),
                                                         .bound_to = bound_to});
  if (!added.ok()) return request.Refuse(added);
  Handshake answer;
  answer.role = hello.role;
  answer.features = hello.features & kFeatureBoundProof;
  answer.slots = 1;
  answer.receive_buffer_bytes = kReceiveBufferMin;
  auto owned = std::make_unique<Held>(*this, std::move(proofs), proof->number);
  Held& held = *owned;
  held_.insert(&held);
  poller_.Adopt(std::move(owned));
  const absl::Status accepted = held.Accept(*request.request_, answer);
  if (accepted.ok()) return;
  request.Refuse(accepted);
  held.End();
}

void ProofDesk::Close() {
  poller_.AssertHeld();
  closed_ = true;
  while (!held_.empty()) (*held_.begin())->End();
}

}  // namespace hawser::transport
