#ifndef HAWSER_TRANSPORT_CONNECTION_PROVER_H_
#define HAWSER_TRANSPORT_CONNECTION_PROVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {

// The client's TLS connection over TCP that gives the proof for one connection over RDMA. Where that fabric
// takes its ports from TCP (fabric::Fabric::takes_ports_of_tcp()), it first asks the server, over that
// fabric, for the TCP port. The first port that it gets counts, and no later answer leads it elsewhere. It
// asks twice at most, within the timeout: a rejection may be lost. The TLS connection
// stays up until Abandon(): the proof is good that long. If it is lost before, the server refuses the
// connection over RDMA, and says why.
// Thread:   on `home`, the poller of the RDMA connection; the TLS connection has a poller of another runtime.
// Lifetime: shared with the TLS connection. Its owner calls Abandon(), at the latest when `home` is
//           destroyed.
class Prover final : public std::enable_shared_from_this<Prover> {
 public:
  struct Result {
    Proof proof;
    std::shared_ptr<const PeerIdentity> server;
  };
  class Client {
   public:
    // Once, perhaps inside Start(). Unauthenticated: one side does not trust the other, or the server would
    // not bind the proof to where it was dialed although it was asked for the port, or names no port.
    // InvalidArgument: it has named an impossible one. Other errors: as of connecting over TCP.
    virtual void OnProof(absl::StatusOr<Result> result) = 0;

   protected:
    ~Client() = default;
  };

  // `security` has prove_over and runtime. `hello` is of the RDMA connection: its role and session are
  // proved.
  Prover(Poller& home, const SocketAddress& address, const SocketAddress& local_address,
         const Handshake& hello, const Security& security, Client& client);
  // `timeout`: after which the TLS connection ends by itself, whatever becomes of the owner.
  void Start(absl::Duration timeout);

  // Ends the TLS connection, and does not call the client any more. Idempotent.
  void Abandon();

 private:
  class Dialing;
  class Asking;

  // Asks for the port.
  void Ask();
  bool MayAskAgain() const { return asks_left_ > 0 && home_.now_ns() < asks_until_ns_; }
  // The port that the server has named, or why there is none.
  void OnPort(absl::StatusOr<uint16_t> port);
  // On the poller of the TLS connection.
  void Dial();
  std::string DescribePlace() const;
  void Notify(absl::StatusOr<Result> result);

  Poller& home_;
  Poller& poller_;  // That of the TLS connection.
  const SocketAddress address_;
  const SocketAddress local_address_;
  const Role role_;
  const SessionToken session_;
  // These three are constant once the TLS connection is dialed.
  absl::Duration timeout_;
  SocketAddress tls_address_;
  bool asked_ = false;         // The server has named the port of `tls_address_`, and has to bind the proof.
  const Security security_;    // With its runtimes, whose pollers are used here.
  int64_t asks_until_ns_ = 0;  // On `home_`, as the next three.
  // Linux's siw may reset the connection of a rejection as it closes it. Then the connect fails without one.
  int asks_left_ = 2;
  Asking* asking_ = nullptr;
  Client* client_;              // Null: it is not called any more.
  Dialing* dialing_ = nullptr;  // On `poller_`.
  bool abandoned_ = false;      // On `poller_`.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_PROVER_H_
