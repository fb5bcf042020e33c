#ifndef HAWSER_RPC_SERVER_SERVER_CREDENTIALS_H_
#define HAWSER_RPC_SERVER_SERVER_CREDENTIALS_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/options.h"
#include "hawser/tls/context.h"
#include "hawser/transport/connection/proof_desk.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::internal {

// What a server proves itself with, and checks its peers against: the TLS context of
// ServerOptions::credentials, and the proofs of clients that connect over RDMA.
// Thread:   any.
// Lifetime: owned by ServerCore, and outlives its pollers.
// Locks:    its mutex is the last one: it calls nothing that takes another.
class ServerCredentials {
 public:
  // `options` outlives this.
  explicit ServerCredentials(const ServerOptions& options) : options_(options) {}
  ServerCredentials(const ServerCredentials&) = delete;
  ServerCredentials& operator=(const ServerCredentials&) = delete;

  bool given() const { return options_.credentials.has_value(); }
  // Reads their files, if there are any and it has not. Blocks. Not OK: a file is missing or wrong.
  absl::Status Load();
  // A later Load() reads them again: the files may change until a Listen() succeeds.
  void Unload();
  // Null: without credentials, or before Load().
  std::shared_ptr<tls::Context> tls() const;

  // The table for an address over RDMA. Owned by what listens there, and by each proof.
  std::shared_ptr<transport::ProofTable> ProofsToListenWith();
  // Takes the proof that `request` brings, to be checked by `desk`, on whose poller this is. Null: the
  // pollers take no proofs. Refuses it unless the server listens over RDMA.
  void AcceptProof(transport::ProofDesk* desk, transport::PeerRequest request);

  void FillIn(observe::wire::Tls::Builder out) const;

 private:
  const ServerOptions& options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<tls::Context> tls_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<transport::ProofTable> proofs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVER_CREDENTIALS_H_
