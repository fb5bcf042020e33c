#include "hawser/transport/connection/proof_desk.h"

#include <optional>
#include <utility>

#include "hawser/transport/connection/silent_connection.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {
namespace {

// What a client may take from here to its connect over RDMA: as long as an accepted peer may take to finish
// the handshake.
constexpr absl::Duration kProofTimeout = absl::Seconds(5);

}  // namespace

class ProofDesk::Held final : public SilentConnection {
 public:
  Held(ProofDesk& desk, std::shared_ptr<ProofTable> proofs, const SessionToken& number)
      : SilentConnection(desk.poller_), desk_(desk), proofs_(std::move(proofs)), number_(number) {}
  ~Held() override { Release(); }

  absl::Status Accept(fabric::ConnectRequest& request, const Handshake& hello) {
    if (absl::Status made = Create(kProofTimeout); !made.ok()) return made;
    Handshake answer = Hello(hello.role);
    answer.features = hello.features & kFeatureBoundProof;
    return queue_pair().Accept(request, Encode(answer));
  }

 private:
  void Release() {
    if (std::exchange(released_, true)) return;
    proofs_->Remove(number_);
  }
  void OnTimeout() override { End(); }
  void OnEnd() override {
    Release();
    desk_.held_.erase(this);
  }

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view) override {}
  void OnConnectFailed(const absl::Status&, absl::string_view) override { End(); }
  void OnDisconnected(const absl::Status&) override { End(); }

  ProofDesk& desk_;  // Not after End().
  const std::shared_ptr<ProofTable> proofs_;
  const SessionToken number_;
  bool released_ = false;
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
  auto owned = std::make_unique<Held>(*this, std::move(proofs), proof->number);
  Held& held = *owned;
  held_.insert(&held);
  poller_.Adopt(std::move(owned));
  const absl::Status accepted = held.Accept(*request.request_, hello);
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
