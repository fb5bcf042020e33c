#include "hawser/rpc/server/listeners.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/log/log.h"

namespace hawser::internal {
namespace {

// A port that is free at one address may be in use at another: how often to try another port.
constexpr int kPortTries = 8;

// Each connection to `address` is one to `all`.
bool Covers(const SocketAddress& all, const SocketAddress& address) {
  return all.port() == address.port() &&
         ((all.is_unspecified() && (all.family() == AF_INET6 || address.family() == AF_INET)) ||
          all.ToString() == address.ToString());
}

// A connection to an address of one is also a connection to an address of the other.
bool Collide(const SocketAddress& a, const SocketAddress& b) { return Covers(a, b) || Covers(b, a); }

// A lookup may return the same address twice.
std::vector<SocketAddress> WithoutRepeats(const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> result;
  for (const SocketAddress& address : addresses) {
    const auto same = [&](const SocketAddress& each) { return each.ToString() == address.ToString(); };
    if (std::none_of(result.begin(), result.end(), same)) result.push_back(address);
  }
  return result;
}

}  // namespace

absl::StatusOr<transport::Uri> Listeners::Listen(transport::Uri uri) {
  if (uri.scheme == transport::kAutoScheme) return ListenOnAuto(uri);
  if (uri.scheme == transport::kProvenScheme && owner_.has_credentials()) return ListenOnRdmaWithProofs(uri);
  absl::StatusOr<std::vector<Listening>> listening = ListenOnUri(uri);
  if (!listening.ok()) return listening.status();
  if (absl::Status status = Keep(uri, *std::move(listening)); !status.ok()) return status;
  return uri;
}

void Listeners::Stop() {
  std::vector<Listening> listening;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    listening.swap(listening_);
  }
  StopListening(std::move(listening));
}

bool Listeners::empty() const {
  absl::MutexLock lock(&mutex_);
  return listening_.empty();
}

bool Listeners::ListensOn(const transport::Poller& poller) const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(listening_.begin(), listening_.end(),
                     [&](const Listening& each) { return each.poller == &poller; });
}

std::vector<std::string> Listeners::addresses() const {
  absl::MutexLock lock(&mutex_);
  return addresses_;
}

std::vector<SocketAddress> Listeners::socket_addresses() const {
  absl::MutexLock lock(&mutex_);
  std::vector<SocketAddress> all;
  for (const Listening& each : listening_) {
    if (each.what == OverTcp::kAll) all.push_back(each.address);
  }
  return all;
}

std::optional<transport::Uri> Listeners::FirstBeyondLoopback() const {
  absl::MutexLock lock(&mutex_);
  for (const Listening& each : listening_) {
    if (!each.address.is_loopback()) return each.uri;
  }
  return std::nullopt;
}

std::string Listeners::why_not_rdma() const {
  absl::MutexLock lock(&mutex_);
  return why_not_rdma_;
}

Listeners::Both Listeners::ListenOnBoth(const transport::Uri& uri, OverTcp what) {
  Both both;
  std::vector<Listening> in_vain;  // Kept open, so that each try gets another port.
  for (int tries = uri.port == 0 ? kPortTries : 1; tries > 0; --tries) {
    both.tcp = both.rdma = uri;
    both.tcp.scheme = std::string(transport::kFallbackScheme);
    both.rdma.scheme = std::string(transport::kPreferredScheme);
    both.over_tcp = ListenOnUri(both.tcp, what);
    if (!both.over_tcp.ok()) break;
    both.rdma.port = both.tcp.port;
    both.over_rdma = ListenOnUri(both.rdma);
    if (!absl::IsAlreadyExists(both.over_rdma.status()) || tries == 1) break;
    for (Listening& each : *both.over_tcp) in_vain.push_back(std::move(each));
  }
  StopListening(std::move(in_vain));
  return both;
}

// TCP on every machine; on one with RDMA devices also RDMA.
absl::StatusOr<transport::Uri> Listeners::ListenOnAuto(const transport::Uri& uri) {
  Both both = ListenOnBoth(uri, OverTcp::kAll);
  if (!both.over_tcp.ok()) return both.over_tcp.status();
  if (!both.over_rdma.ok()) {
    absl::MutexLock lock(&mutex_);
    why_not_rdma_ = std::string(both.over_rdma.status().message());
  }
  if (absl::Status kept = KeepBoth(both); !kept.ok()) return kept;
  both.tcp.scheme = transport::kAutoScheme;
  return both.tcp;
}

absl::StatusOr<transport::Uri> Listeners::ListenOnRdmaWithProofs(const transport::Uri& uri) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses = transport::Resolve(uri);
  if (!addresses.ok()) return addresses.status();
  const absl::StatusOr<Desk> desk = owner_.DeskFor(uri.scheme, addresses->front());
  if (!desk.ok()) return desk.status();
  if (desk->poller->fabric().takes_ports_of_tcp()) return ListenOnRdmaWithProofsApart(uri, *addresses);
  if (HasTcpFor(*addresses)) {
    transport::Uri rdma = uri;
    absl::StatusOr<std::vector<Listening>> listening = ListenOnUri(rdma);
    if (!listening.ok()) return listening.status();
    if (absl::Status kept = Keep(rdma, *std::move(listening)); !kept.ok()) return kept;
    return rdma;
  }
  Both both = ListenOnBoth(uri, OverTcp::kProofs);
  if (!both.over_tcp.ok()) {
    return absl::Status(
        both.over_tcp.status().code(),
        absl::StrCat("credentials are shown by TLS over TCP, so that rdma:// takes the same port "
                     "over TCP, too: ",
                     absl::string_view(both.over_tcp.status().message())));
  }
  if (!both.over_rdma.ok()) {
    StopListening(*std::move(both.over_tcp));
    if (!absl::IsAlreadyExists(both.over_rdma.status())) return both.over_rdma.status();
    return absl::AlreadyExistsError(absl::StrCat(absl::string_view(both.over_rdma.status().message()),
                                                 "; with credentials the server listens on that port over "
                                                 "TCP, too. If an iWARP device is beside the one that the "
                                                 "server uses, it takes that port from TCP: listen on an "
                                                 "address of one device"));
  }
  if (absl::Status kept = KeepBoth(both, OverTcp::kProofs); !kept.ok()) return kept;
  return both.rdma;
}

absl::Status Listeners::KeepBoth(Both& both, OverTcp what) {
  absl::Status kept = Keep(both.tcp, *std::move(both.over_tcp), what);
  if (!both.over_rdma.ok()) return kept;
  if (absl::Status of_rdma = Keep(both.rdma, *std::move(both.over_rdma)); kept.ok()) kept = of_rdma;
  return kept;
}

Listeners::Both Listeners::ListenOnBothApart(const transport::Uri& uri,
                                             const std::vector<SocketAddress>& addresses) {
  Both both;
  std::vector<Listening> in_vain;  // Kept open, so that each try gets another port.
  for (int tries = kPortTries; tries > 0; --tries) {
    both.tcp = both.rdma = uri;
    both.tcp.scheme = std::string(transport::kProvingScheme);
    both.over_tcp = ListenForProofsApart(uri.port, addresses, both.tcp);
    if (!both.over_tcp.ok()) break;
    both.over_rdma = ListenAt(both.rdma, addresses, OverTcp::kAll, both.tcp.port);
    // Some devices take a port from TCP and do not reserve it in the kernel, so that both get it. Then no
    // proof arrives at the kernel.
    const bool same = both.rdma.port == both.tcp.port &&
                      (both.over_rdma.ok() || absl::IsAlreadyExists(both.over_rdma.status()));
    if (!same) break;
    const absl::Status why = absl::AlreadyExistsError(
        absl::StrCat("port ", both.tcp.port, " is the one of rdma:// and the one for proofs"));
    absl::StatusOr<std::vector<Listening>>& any_port = uri.port == 0 ? both.over_rdma : both.over_tcp;
    absl::StatusOr<std::vector<Listening>>& other = uri.port == 0 ? both.over_tcp : both.over_rdma;
    if (any_port.ok()) {
      for (Listening& each : *any_port) in_vain.push_back(std::move(each));
    }
    if (other.ok()) StopListening(*std::move(other));
    both.over_tcp = why;
  }
  StopListening(std::move(in_vain));
  return both;
}

absl::StatusOr<transport::Uri> Listeners::ListenOnRdmaWithProofsApart(
    const transport::Uri& uri, const std::vector<SocketAddress>& addresses) {
  absl::MutexLock lock(&apart_mutex_);
  Both both = ListenOnBothApart(uri, addresses);
  if (!both.over_tcp.ok()) {
    return absl::Status(
        both.over_tcp.status().code(),
        absl::StrCat("credentials are shown by TLS over TCP, and the RDMA device takes its own "
                     "port from TCP, so that rdma:// takes another TCP port, too: ",
                     absl::string_view(both.over_tcp.status().message())));
  }
  if (!both.over_rdma.ok()) {
    StopListening(*std::move(both.over_tcp));
    if (!absl::IsAlreadyExists(both.over_rdma.status())) return both.over_rdma.status();
    return absl::AlreadyExistsError(
        absl::StrCat(absl::string_view(both.over_rdma.status().message()),
                     "; the RDMA device takes its port from TCP, so nothing may listen there over TCP"));
  }
  if (absl::Status kept = KeepBoth(both, OverTcp::kProofsApart); !kept.ok()) return kept;
  // Nothing else on this side names the port, which a firewall has to let pass.
  transport::Log(LogSeverity::kInfo, absl::StrCat(both.rdma.ToString(), " takes credentials at TCP port ",
                                                  both.tcp.port, " (ServerOptions::proof_ports)"));
  return both.rdma;
}

absl::StatusOr<std::vector<Listeners::Listening>> Listeners::ListenForProofsApart(
    uint16_t rdma_port, std::vector<SocketAddress> addresses, transport::Uri& tcp) {
  const PortRange ports = owner_.proof_ports();
  tcp.port = PortForProofsOf(addresses);
  if (tcp.port != 0) return std::vector<Listening>();
  if (ports.first == 0) {
    for (SocketAddress& address : addresses) address.set_port(0);
    return ListenAt(tcp, addresses, OverTcp::kProofsApart);
  }
  absl::Status last = absl::AlreadyExistsError("rdma:// itself takes it");
  // Wider than a port, so that 65535 ends it.
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    if (port == rdma_port) continue;
    transport::Uri at = tcp;
    at.port = static_cast<uint16_t>(port);
    for (SocketAddress& address : addresses) address.set_port(at.port);
    absl::StatusOr<std::vector<Listening>> listening = ListenAt(at, addresses, OverTcp::kProofsApart);
    if (listening.ok()) tcp = at;
    if (listening.ok() || !absl::IsAlreadyExists(listening.status())) return listening;
    last = listening.status();
  }
  return absl::AlreadyExistsError(absl::StrCat("ServerOptions::proof_ports has no port that is free, of ",
                                               ports.first, " to ", ports.last, ": ",
                                               absl::string_view(last.message())));
}

uint16_t Listeners::PortForProofsOf(std::vector<SocketAddress> addresses) const {
  const PortRange ports = owner_.proof_ports();
  const bool any = ports.first == 0;
  absl::MutexLock lock(&mutex_);
  for (const Listening& candidate : listening_) {
    const uint16_t port = candidate.address.port();
    if (candidate.what != OverTcp::kProofsApart) continue;
    if (!any && (port < ports.first || port > ports.last)) continue;
    for (SocketAddress& address : addresses) address.set_port(port);
    if (CoverAll(listening_, addresses,
                 [](const Listening& each) { return each.what == OverTcp::kProofsApart; })) {
      return port;
    }
  }
  return 0;
}

bool Listeners::HasTcpFor(const std::vector<SocketAddress>& addresses) const {
  if (addresses.front().port() == 0) return false;
  absl::MutexLock lock(&mutex_);
  return CoverAll(listening_, addresses,
                  [](const Listening& each) { return each.uri.scheme == transport::kProvingScheme; });
}

bool Listeners::CoverAll(const std::vector<Listening>& listening, const std::vector<SocketAddress>& addresses,
                         absl::FunctionRef<bool(const Listening&)> counts) {
  return absl::c_all_of(addresses, [&](const SocketAddress& address) {
    return absl::c_any_of(
        listening, [&](const Listening& each) { return counts(each) && Covers(each.address, address); });
  });
}

absl::StatusOr<std::vector<Listeners::Listening>> Listeners::ListenOnUri(transport::Uri& uri, OverTcp what,
                                                                         uint16_t proof_port) {
  absl::StatusOr<std::vector<SocketAddress>> addresses = transport::Resolve(uri);
  if (!addresses.ok()) return addresses.status();
  return ListenAt(uri, *addresses, what, proof_port);
}

absl::StatusOr<std::vector<Listeners::Listening>> Listeners::ListenAt(
    transport::Uri& uri, const std::vector<SocketAddress>& addresses, OverTcp what, uint16_t proof_port) {
  if (absl::Status free = CheckNotShadowed(uri, addresses); !free.ok()) return free;
  absl::StatusOr<Desk> desk =
      what == OverTcp::kAll ? owner_.DeskFor(uri.scheme, addresses.front()) : owner_.DeskForProofs();
  if (!desk.ok()) return desk.status();
  desk->proof_port = proof_port;
  absl::StatusOr<std::vector<Listening>> listening = ListenOnAll(*desk, WithoutRepeats(addresses));
  if (!listening.ok()) {
    return absl::Status(
        listening.status().code(),
        absl::StrCat("listening on ", uri.ToString(), ": ", absl::string_view(listening.status().message())));
  }
  const SocketAddress first = listening->front().address;
  uri.port = first.port();
  // [::] on a machine without IPv6.
  if (first.is_unspecified() && first.family() != addresses.front().family()) uri.host = "0.0.0.0";
  return listening;
}

absl::Status Listeners::CheckNotShadowed(const transport::Uri& uri,
                                         const std::vector<SocketAddress>& addresses) const {
  if (uri.port == 0) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  for (const Listening& other : listening_) {
    if (other.uri.scheme != uri.scheme) continue;
    for (const SocketAddress& address : addresses) {
      if (!Collide(address, other.address)) continue;
      return absl::AlreadyExistsError(absl::StrCat(
          "listening on ", uri.ToString(), ": this server listens on ", other.uri.ToString(), " already",
          other.what == OverTcp::kProofs        ? ", for the credentials of rdma:// on that port"
          : other.what == OverTcp::kProofsApart ? ", for the credentials of rdma://"
                                                : "",
          ", and a connection to that port could be for either; take one of them, or another port",
          other.what == OverTcp::kProofs ? ", or auto://, which is both" : ""));
    }
  }
  return absl::OkStatus();
}

absl::Status Listeners::Keep(const transport::Uri& uri, std::vector<Listening> listening, OverTcp what) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopped_) {
      for (Listening& each : listening) {
        each.uri = uri;
        each.what = what;
        listening_.push_back(std::move(each));
      }
      if (what == OverTcp::kAll) addresses_.push_back(uri.ToString());
      return absl::OkStatus();
    }
  }
  StopListening(std::move(listening));
  return absl::FailedPreconditionError("the server was shut down");
}

absl::StatusOr<std::vector<Listeners::Listening>> Listeners::ListenOnAll(
    const Desk& desk, std::vector<SocketAddress> addresses) {
  const bool any_port = addresses.front().port() == 0;
  absl::Status failure;
  for (int tries = any_port ? kPortTries : 1; tries > 0; --tries) {
    std::vector<Listening> listening;
    failure = absl::OkStatus();
    for (SocketAddress address : addresses) {
      if (!listening.empty()) address.set_port(listening.front().address.port());
      absl::StatusOr<Listening> one = ListenOn(desk, address);
      if (one.ok()) {
        listening.push_back(*std::move(one));
      } else if (failure.ok()) {
        failure = one.status();
      }
      if (absl::IsAlreadyExists(failure)) break;
    }
    // Some address of a name may not be usable here (no IPv6, for example); the others suffice.
    if (!listening.empty() && !absl::IsAlreadyExists(failure)) return listening;
    StopListening(std::move(listening));
  }
  return failure;
}

absl::StatusOr<Listeners::Listening> Listeners::ListenOn(const Desk& desk, const SocketAddress& address) {
  transport::Poller& poller = *desk.poller;
  absl::StatusOr<std::unique_ptr<transport::Acceptor>> acceptor = absl::InternalError("did not run");
  SocketAddress real;
  RunAndWait(poller, [&] {
    acceptor =
        transport::Acceptor::Listen(poller, address, *desk.handler, desk.tls, desk.proofs, desk.proof_port);
    if (acceptor.ok()) real = (*acceptor)->address();
  });
  if (!acceptor.ok()) return acceptor.status();
  return Listening{&poller, *std::move(acceptor), real, {}};
}

void Listeners::StopListening(std::vector<Listening> listening) {
  for (Listening& each : listening) {
    RunAndWait(*each.poller, [&] { each.acceptor.reset(); });
  }
}

}  // namespace hawser::internal
