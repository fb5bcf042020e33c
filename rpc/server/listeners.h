#ifndef HAWSER_RPC_SERVER_LISTENERS_H_
#define HAWSER_RPC_SERVER_LISTENERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/socket_address.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

// The addresses that a server listens on.
// Thread:   any, but not on the pollers that listen.
// Lifetime: its owner calls Stop() before it destroys it.
// Locks:    apart_mutex_ is held while its owner is asked for desks, mutex_ while nothing is called.
class Listeners {
 public:
  // Accepts the connections to an address.
  struct Desk {
    transport::Poller* poller = nullptr;
    transport::Acceptor::Handler* handler = nullptr;
    std::shared_ptr<tls::Context> tls;  // Null: without TLS.
    // With credentials, and no TLS: by these each peer proves who it is. Otherwise null.
    std::shared_ptr<transport::ProofTable> proofs;
    uint16_t proof_port = 0;  // The one over TCP that peers get; 0: the port of the address.
  };
  class Owner {
   public:
    // The handler for `address`, over the network of `scheme`. It outlives the Listeners.
    virtual absl::StatusOr<Desk> DeskFor(const std::string& scheme, const SocketAddress& address) = 0;
    virtual bool has_credentials() const = 0;
    // ServerOptions::proof_ports.
    virtual PortRange proof_ports() const = 0;
    // The handler for proofs over TCP, and nothing else.
    virtual absl::StatusOr<Desk> DeskForProofs() = 0;

   protected:
    ~Owner() = default;
  };

  explicit Listeners(Owner& owner) : owner_(owner) {}
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  // Listens on every address of `uri`, whose scheme is known, until Stop(). Returns `uri` with the real port.
  // For auto://, it listens over TCP and, where this machine has RDMA, over RDMA on the same port. For
  // rdma:// with credentials it listens over TCP as well, for proofs: on the same port, or apart from it, on
  // one of Owner::proof_ports(), where the device takes the port from TCP.
  // AlreadyExists: the port is taken. FailedPrecondition: Stop() was called.
  absl::StatusOr<transport::Uri> Listen(transport::Uri uri);

  // Stops all of them.
  void Stop();

  bool empty() const;
  bool ListensOn(const transport::Poller& poller) const;
  // The URIs that Listen() has returned; two for auto:// over both networks.
  std::vector<std::string> addresses() const;
  // What it listens on for all of them, with the real ports.
  std::vector<SocketAddress> socket_addresses() const;
  // The first of them whose address is not loopback. nullopt: there is none.
  std::optional<transport::Uri> FirstBeyondLoopback() const;
  // Why the last Listen() on an auto:// does not listen over RDMA. Empty: it does.
  std::string why_not_rdma() const;

 private:
  // kProofs: on the port of rdma://. kProofsApart: on another one.
  enum class OverTcp { kAll, kProofs, kProofsApart };
  struct Listening {
    transport::Poller* poller = nullptr;
    std::unique_ptr<transport::Acceptor> acceptor;
    SocketAddress address;  // With the real port.
    transport::Uri uri;     // As Listen() returns it.
    OverTcp what = OverTcp::kAll;
  };

  // Over TCP and over RDMA on the same port.
  struct Both {
    transport::Uri tcp, rdma;
    absl::StatusOr<std::vector<Listening>> over_tcp, over_rdma;
  };
  Both ListenOnBoth(const transport::Uri& uri, OverTcp what);
  absl::StatusOr<transport::Uri> ListenOnAuto(const transport::Uri& uri);
  absl::StatusOr<transport::Uri> ListenOnRdmaWithProofs(const transport::Uri& uri);
  // `addresses` from here on: those of `uri`, with its port. A name is resolved once, since its server may be
  // slow, or answer in turns.
  absl::StatusOr<transport::Uri> ListenOnRdmaWithProofsApart(const transport::Uri& uri,
                                                             const std::vector<SocketAddress>& addresses);
  // Over RDMA, and over TCP on one of Owner::proof_ports(), which is another port. `over_tcp` is empty if
  // this listens there already.
  Both ListenOnBothApart(const transport::Uri& uri, const std::vector<SocketAddress>& addresses);
  // On the first port of Owner::proof_ports() that is free and not `rdma_port`. Gives `tcp` the port.
  absl::StatusOr<std::vector<Listening>> ListenForProofsApart(uint16_t rdma_port,
                                                              std::vector<SocketAddress> addresses,
                                                              transport::Uri& tcp);
  // One of Owner::proof_ports() on which this takes the proofs for all `addresses`, whatever their port,
  // already; 0: there is none.
  uint16_t PortForProofsOf(std::vector<SocketAddress> addresses) const;
  // Gives `uri` the real port. `proof_port`: see Desk.
  absl::StatusOr<std::vector<Listening>> ListenOnUri(transport::Uri& uri, OverTcp what = OverTcp::kAll,
                                                     uint16_t proof_port = 0);
  absl::StatusOr<std::vector<Listening>> ListenAt(transport::Uri& uri,
                                                  const std::vector<SocketAddress>& addresses, OverTcp what,
                                                  uint16_t proof_port = 0);
  // What listens over TCP on all `addresses` takes the proofs for them as well.
  bool HasTcpFor(const std::vector<SocketAddress>& addresses) const;
  // Whether those of `listening` that count get the connections to each of `addresses`.
  static bool CoverAll(const std::vector<Listening>& listening, const std::vector<SocketAddress>& addresses,
                       absl::FunctionRef<bool(const Listening&)> counts);
  // AlreadyExists: what this listens on already gets, or takes, connections to one of `addresses`. The kernel
  // refuses that, too, but does not say what is in the way.
  absl::Status CheckNotShadowed(const transport::Uri& uri, const std::vector<SocketAddress>& addresses) const;
  // Until Stop(), in both cases. FailedPrecondition: that was called. Takes the listeners out of `both`.
  absl::Status KeepBoth(Both& both, OverTcp what = OverTcp::kAll);
  absl::Status Keep(const transport::Uri& uri, std::vector<Listening> listening,
                    OverTcp what = OverTcp::kAll);
  static absl::StatusOr<std::vector<Listening>> ListenOnAll(const Desk& desk,
                                                            std::vector<SocketAddress> addresses);
  static absl::StatusOr<Listening> ListenOn(const Desk& desk, const SocketAddress& address);
  static void StopListening(std::vector<Listening> listening);

  Owner& owner_;
  // Held from the look for a shared proof port until that is in `listening_`, so that two Listen() share it.
  absl::Mutex apart_mutex_;
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Listening> listening_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  std::string why_not_rdma_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_LISTENERS_H_
