#ifndef HAWSER_TRANSPORT_WIRE_PROOF_H_
#define HAWSER_TRANSPORT_WIRE_PROOF_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/base/mutex.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/socket_address.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/tls/secret.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/handshake.h"

// Authenticates connections over a fabric without TLS (RDMA), with credentials. A TLS session over TCP to the
// same address gives both sides a proof: a number and a key. The connect over RDMA carries the number and a
// code made with the key; the accept carries a code as well. rpc/PROTOCOL.md, "Over RDMA with credentials",
// has the bytes.
namespace hawser::transport {

// Where a client has dialed: a proof is bound to it, so that a program at another address or port that the
// client dials cannot pass the proof on to the server. The server takes its own two ends for it.
// rpc/PROTOCOL.md says what that is good for.
struct Dialed {
  SocketAddress connection;  // Over the fabric without TLS.
  SocketAddress tls;
};

struct Proof {
  SessionToken number = {};
  tls::Secret key = {};
  // nullopt: the server is older and binds no proofs (kFeatureBoundProof).
  std::optional<Dialed> bound_to = std::nullopt;
};

// The proof that the TLS session of this connection gives, the same at both ends. FailedPrecondition: it has
// no TLS.
absl::StatusOr<Proof> ProofOf(fabric::ConnectRequest& request);
absl::StatusOr<Proof> ProofOf(fabric::QueuePair& queue_pair);

// The handshake of a connect, and the proof. `hello.session` does not cross: the server has it from the TLS
// session.
std::string EncodeConnect(const Handshake& hello, const Proof& proof);
// The answer to `connect`. `answer.session` crosses so that only the peer can read it.
std::string EncodeAccept(const Handshake& answer, const tls::Secret& key, absl::string_view connect);
// As DecodeAccept(), of a peer that knows `key`, too. Unauthenticated: it does not.
absl::StatusOr<Handshake> DecodeAccept(absl::string_view data, Role role, const tls::Secret& key,
                                       absl::string_view connect);

// A connect that has been proved.
struct Proven {
  Handshake hello;  // With the session that the TLS session named.
  std::shared_ptr<const PeerIdentity> identity;
  tls::Secret key;
  std::string connect;  // For EncodeAccept().
};

// The proofs that the clients of one server may use: each once, for one connection, while the TLS session
// lives that gave it.
// Thread:   any.
class ProofTable {
 public:
  ProofTable(size_t proofs_max, size_t proofs_per_host_max)
      : proofs_max_(proofs_max), proofs_per_host_max_(proofs_per_host_max) {}
  // Within the file descriptors of this process: each TLS session takes one.
  static std::shared_ptr<ProofTable> Create();

  // What the TLS session that gives a proof says.
  struct Claim {
    tls::Secret key;
    std::shared_ptr<const PeerIdentity> identity;
    Role role = Role::kForward;  // The role of the connection that is proved.
    SessionToken session = {};
    SocketAddress peer;
    // This side's end of the TLS session, if the proof is bound: it is good only for a connect that was
    // dialed where it arrives, by a client that has dialed this for TLS. nullopt: the client is older.
    std::optional<SocketAddress> bound_to = std::nullopt;
  };

  // ResourceExhausted: there are too many, in all or from the host of the peer. AlreadyExists: the number is
  // taken.
  absl::Status Add(const SessionToken& number, Claim claim);
  // The TLS session has ended.
  void Remove(const SessionToken& number);

  // Uses up the proof of a connect: its `hello`, decoded from `data`, from `peer`, which has arrived at
  // `local`. Right or wrong, no other connect can use it afterwards. Unauthenticated: it has none, or a wrong
  // one; with Violation::kTls, if no client of ours would say that. Unavailable: there is no such proof (any
  // more). The text says what to do, and fits into a rejection.
  absl::StatusOr<Proven> Use(const Handshake& hello, absl::string_view data, const SocketAddress& peer,
                             const SocketAddress& local);

  size_t size() const;

 private:
  struct Entry {
    Claim claim;
    bool used = false;
  };

  const size_t proofs_max_;
  const size_t proofs_per_host_max_;
  mutable Mutex mutex_;
  absl::flat_hash_map<SessionToken, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<PeerHost, size_t> by_host_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_WIRE_PROOF_H_
