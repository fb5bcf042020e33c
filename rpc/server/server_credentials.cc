#include "hawser/rpc/server/server_credentials.h"

#include <utility>

#include "absl/status/statusor.h"
#include "hawser/rpc/wire/credentials.h"

namespace hawser::internal {

absl::Status ServerCredentials::Load() {
  if (!given() || tls() != nullptr) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<tls::Context>> tls =
      LoadCredentials(*options_.credentials, "ServerOptions::credentials", tls::Side::kServer);
  if (!tls.ok()) return tls.status();
  std::shared_ptr<tls::Context> before;  // Freed without the lock.
  absl::MutexLock lock(&mutex_);
  before = std::exchange(tls_, *std::move(tls));
  return absl::OkStatus();
}

void ServerCredentials::Unload() {
  std::shared_ptr<tls::Context> before;  // Freed without the lock.
  absl::MutexLock lock(&mutex_);
  before = std::exchange(tls_, nullptr);
}

std::shared_ptr<tls::Context> ServerCredentials::tls() const {
  absl::MutexLock lock(&mutex_);
  return tls_;
}

std::shared_ptr<transport::ProofTable> ServerCredentials::ProofsToListenWith() {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<transport::ProofTable> proofs = proofs_.lock();
  if (proofs == nullptr) proofs = transport::ProofTable::Create();
  proofs_ = proofs;
  return proofs;
}

// On the front desk, which no handler holds. A proof is no connection: it ends within seconds, and its table
// has bounds. A server that does not listen over RDMA takes none.
void ServerCredentials::AcceptProof(transport::ProofDesk* desk, transport::PeerRequest request) {
  if (desk == nullptr) {
    return request.Refuse(absl::UnauthenticatedError("this server takes no proofs of who connects"));
  }
  if (options_.credentials->require_encryption) {
    return request.Refuse(absl::FailedPreconditionError(
        "this server takes no connections over RDMA (TlsCredentials::require_encryption); use tcp://"));
  }
  std::shared_ptr<transport::ProofTable> proofs;
  {
    absl::MutexLock lock(&mutex_);
    proofs = proofs_.lock();
  }
  if (proofs == nullptr) {
    return request.Refuse(
        absl::UnavailableError("this server does not listen over RDMA; connect to it with tcp://"));
  }
  desk->Accept(std::move(request), std::move(proofs));
}

void ServerCredentials::FillIn(observe::wire::Tls::Builder out) const {
  const std::shared_ptr<tls::Context> tls = this->tls();
  if (tls == nullptr) return;
  const tls::Context::Handshakes handshakes = tls->handshakes(tls::Side::kServer);
  out.setFull(handshakes.full);
  out.setResumed(handshakes.resumed);
  out.setFailed(handshakes.failed);
}

}  // namespace hawser::internal
