#include "hawser/transport/wire/proof.h"

#include <netinet/in.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/endian.h"
#include "hawser/base/violation.h"

namespace hawser::transport {
namespace {

// As many as newcomers (rpc/server/admission.cc): a proof lives for the round trips of one connect.
constexpr size_t kProofsMax = 4096;
constexpr size_t kProofsPerHostMax = 1024;

// 96 bits, as RFC 4868 and RFC 2404 cut theirs: a wrong one is tried once for each TLS session.
constexpr size_t kConnectCodeBytes = 12;
constexpr size_t kProvenConnectBytes = kHandshakeBytes + kConnectCodeBytes;
static_assert(kProvenConnectBytes <= fabric::kConnectPrivateDataMax);

constexpr size_t kAcceptCodeBytes = 32;
constexpr size_t kProvenAcceptBytes = kHandshakeBytes + kAcceptCodeBytes;
static_assert(kProvenAcceptBytes <= fabric::kAcceptPrivateDataMax);

constexpr size_t kLengthAt = 4;  // Where the length of the handshake is.

template <typename End>
absl::StatusOr<Proof> Export(End& end) {
  const absl::StatusOr<tls::Secret> number = end.ExportSecret("EXPORTER-hawser-rdma-number");
  if (!number.ok()) return number.status();
  const absl::StatusOr<tls::Secret> key = end.ExportSecret("EXPORTER-hawser-rdma-key");
  if (!key.ok()) return key.status();
  Proof proof{.key = *key};
  std::copy_n(number->begin(), proof.number.size(), proof.number.begin());
  return proof;
}

absl::string_view View(const tls::Secret& code, size_t bytes) {
  return {reinterpret_cast<const char*>(code.data()), bytes};
}

// 16 bytes of an IPv6 address (of IPv4 the mapped one), 2 of the port. Without the scope of a link-local
// address, which is a number of one host.
std::string AddressBytes(const SocketAddress& address) {
  std::array<uint8_t, 18> out = {};
  if (address.family() == AF_INET6) {
    std::memcpy(out.data(), &reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr, 16);
  } else if (address.family() == AF_INET) {
    out[10] = out[11] = 0xff;
    std::memcpy(out.data() + 12, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  }
  StoreLittle16(out.data() + 16, address.port());
  return std::string(reinterpret_cast<const char*>(out.data()), out.size());
}

// Over what the handshake says; each use has a name of its own, so that none can stand for another.
tls::Secret ConnectCode(const tls::Secret& key, absl::string_view handshake,
                        const std::optional<Dialed>& bound_to) {
  if (!bound_to.has_value()) return tls::HmacSha256(key, absl::StrCat("connect", handshake));
  return tls::HmacSha256(
      key, absl::StrCat("bound", AddressBytes(bound_to->connection), AddressBytes(bound_to->tls), handshake));
}
tls::Secret AcceptCode(const tls::Secret& key, absl::string_view connect, absl::string_view handshake) {
  return tls::HmacSha256(key, absl::StrCat("accept", connect, handshake));
}

// Hides a session from the network, and its own inverse: the key is used for one session.
SessionToken Hide(SessionToken session, const tls::Secret& key) {
  const tls::Secret pad = tls::HmacSha256(key, "session");
  for (size_t i = 0; i < session.size(); ++i) session[i] ^= pad[i];
  return session;
}

std::string EncodeWithLength(const Handshake& handshake, size_t length) {
  std::string out = Encode(handshake);
  out[kLengthAt] = static_cast<char>(length);
  return out;
}

absl::Status Attack(absl::string_view what) {
  absl::Status status = absl::UnauthenticatedError(what);
  SetViolation(status, Violation::kTls);
  return status;
}

}  // namespace

absl::StatusOr<Proof> ProofOf(fabric::ConnectRequest& request) { return Export(request); }
absl::StatusOr<Proof> ProofOf(fabric::QueuePair& queue_pair) { return Export(queue_pair); }

std::string EncodeConnect(const Handshake& hello, const Proof& proof) {
  Handshake offer = hello;
  offer.features |= kFeatureProof;
  offer.session = proof.number;
  const std::string out = EncodeWithLength(offer, kProvenConnectBytes);
  return absl::StrCat(out, View(ConnectCode(proof.key, out, proof.bound_to), kConnectCodeBytes));
}

std::string EncodeAccept(const Handshake& answer, const tls::Secret& key, absl::string_view connect) {
  Handshake hidden = answer;
  hidden.features |= kFeatureProof;
  hidden.session = Hide(answer.session, key);
  const std::string out = EncodeWithLength(hidden, kProvenAcceptBytes);
  return absl::StrCat(out, View(AcceptCode(key, connect, out), kAcceptCodeBytes));
}

absl::StatusOr<Handshake> DecodeAccept(absl::string_view data, Role role, const tls::Secret& key,
                                       absl::string_view connect) {
  absl::StatusOr<Handshake> answer = DecodeAccept(data, role);
  if (!answer.ok()) return answer;
  const bool has_code =
      (answer->features & kFeatureProof) != 0 && static_cast<uint8_t>(data[kLengthAt]) >= kProvenAcceptBytes;
  if (!has_code || !tls::EqualSecretly(
                       data.substr(kHandshakeBytes, kAcceptCodeBytes),
                       View(AcceptCode(key, connect, data.substr(0, kHandshakeBytes)), kAcceptCodeBytes))) {
    return absl::UnauthenticatedError(
        "what accepted the connection over RDMA is not the server that TLS over TCP has reached: it does not "
        "have the key of that session. Does another process listen on this address over RDMA, or does the "
        "network change what crosses?");
  }
  answer->session = Hide(answer->session, key);
  return answer;
}

// ---- The table

std::shared_ptr<ProofTable> ProofTable::Create() {
  rlimit files;
  const bool known = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
  const size_t all = known ? std::clamp<size_t>(files.rlim_cur / 8, 1, kProofsMax) : kProofsMax;
  return std::make_shared<ProofTable>(all, std::clamp<size_t>(all / 2, 1, kProofsPerHostMax));
}

absl::Status ProofTable::Add(const SessionToken& number, Claim claim) {
  const PeerHost host(claim.peer);
  MutexLock lock(mutex_);
  if (entries_.contains(number)) return absl::AlreadyExistsError("the proof is there already");
  if (entries_.size() >= proofs_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server has ", entries_.size(), " clients that are about to connect over RDMA"));
  }
  size_t& of_host = by_host_[host];
  if (of_host >= proofs_per_host_max_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the server has ", of_host, " clients of this host that are about to connect over RDMA"));
  }
  ++of_host;
  entries_.emplace(number, Entry{std::move(claim)});
  return absl::OkStatus();
}

void ProofTable::Remove(const SessionToken& number) {
  Entry gone;  // Destroyed after the lock is released.
  MutexLock lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  const auto of_host = by_host_.find(PeerHost(found->second.claim.peer));
  HAWSER_CHECK(of_host != by_host_.end(), "a proof of ", found->second.claim.peer.ToString(),
               ", which counts for none");
  if (--of_host->second == 0) by_host_.erase(of_host);
  gone = std::move(found->second);
  entries_.erase(found);
}

absl::StatusOr<Proven> ProofTable::Use(const Handshake& hello, absl::string_view data,
                                       const SocketAddress& peer, const SocketAddress& local) {
  if ((hello.features & kFeatureProof) == 0) {
    return Attack("this server requires credentials: set ChannelOptions::credentials");
  }
  if (static_cast<uint8_t>(data[kLengthAt]) < kProvenConnectBytes) {
    return Attack("the proof of who connects was cut short");
  }
  Claim claim;
  {
    MutexLock lock(mutex_);
    const auto found = entries_.find(hello.session);
    if (found == entries_.end()) {
      // An honest client of a network that fails comes here, too, and all it has to do is to try again.
      return absl::UnavailableError(
          "the proof's TLS session is not there: it ended, took too long, or is another server's; connect "
          "again");
    }
    if (std::exchange(found->second.used, true)) {
      return Attack("the proof of who connects was used before: each is for one connection");
    }
    claim = found->second.claim;
  }
  std::optional<Dialed> here;
  if (claim.bound_to.has_value()) here = Dialed{local, *claim.bound_to};
  const tls::Secret code = ConnectCode(claim.key, data.substr(0, kHandshakeBytes), here);
  if (!tls::EqualSecretly(data.substr(kHandshakeBytes, kConnectCodeBytes), View(code, kConnectCodeBytes))) {
    if (!here.has_value()) {
      return Attack("the proof of who connects is wrong: it was not made with the key of its TLS session");
    }
    return Attack(
        "the proof of who connects is wrong, or is for another address or port. "
        "Is it passed on, or are addresses translated (NAT)?");
  }
  if (claim.role != hello.role) {
    return Attack(absl::StrCat("the proof of who connects is for role ", static_cast<int>(claim.role),
                               ", and the connection has role ", static_cast<int>(hello.role)));
  }
  if (PeerHost(claim.peer) != PeerHost(peer)) {
    return absl::UnauthenticatedError(
        "TLS and RDMA came from different hosts; set ConnectionOptions::local_address to one that both can "
        "use");
  }
  Proven proven{.hello = hello, .identity = std::move(claim.identity), .key = claim.key, .connect = {}};
  proven.hello.session = claim.session;
  proven.connect = std::string(data.substr(0, kProvenConnectBytes));
  return proven;
}

size_t ProofTable::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace hawser::transport
