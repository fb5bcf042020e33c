// How a ServerCore meets clients: admits and assigns their connections, finds their sessions, and hears of
// their ends.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/server/server_core.h"
#include "hawser/transport/connection/receive_ring.h"

namespace hawser::internal {
namespace {

// A session is busy if its poller has been held for longer than this. For less, no ping is delayed
// noticeably.
constexpr int64_t kBusyNs = 1'000'000;

// New connections that may wait for one poller, which a handler may hold. Each takes a file descriptor. A
// host with more of them than its share would have those of all others refused.
constexpr uint32_t kWaitingMax = 256;
constexpr uint32_t kWaitingOfHostMax = 192;

}  // namespace

void ServerCore::Pollers::OnPeer(transport::PeerRequest request) { core.OnPeer(*this, std::move(request)); }

void ServerCore::Pollers::ProofsOnly::OnPeer(transport::PeerRequest request) {
  if (transport::IsProof(request.hello().role)) return pollers.OnPeer(std::move(request));
  request.Refuse(absl::FailedPreconditionError(
      "over TCP this port only proves who connects over RDMA; connect to it with rdma://"));
}

void ServerCore::OnPeer(Pollers& pollers, transport::PeerRequest request) {
  const transport::Role role = request.hello().role;
  if (transport::IsProof(role)) return AcceptProof(pollers, std::move(request));
  if (role == transport::Role::kProbe) return request.Reject(AnswerProbe(pollers, request));
  const bool reverse = role == transport::Role::kReverse;
  ServingPoller* serving = nullptr;
  absl::StatusOr<transport::Poller*> poller;
  if (reverse) {
    poller = PollerOfSession(pollers, request);
    if (!poller.ok()) return request.Refuse(poller.status());
  }
  const Admission::Place place = PlaceFor(pollers, request);
  if (absl::Status admitted = Admit(place); !admitted.ok()) {
    refused_connections_.fetch_add(1, std::memory_order_relaxed);
    return request.Refuse(admitted);
  }
  if (!reverse) {
    // After Admit(): this may start a poller, which a peer that is refused must not cause.
    absl::StatusOr<ServingPoller*> next = NextPoller(pollers, place.host);
    if (!next.ok()) {
      refused_connections_.fetch_add(1, std::memory_order_relaxed);
      ReleaseConnection(place);
      return request.Refuse(next.status());
    }
    serving = *next;
    poller = &serving->poller;
  }
  (*poller)->Run([this, &pollers, serving, place, request = std::move(request)]() mutable {
    if (serving == nullptr) return AcceptReverse(std::move(request), place);
    StopWaiting(*serving, place.host);
    AcceptClient(pollers, *serving, std::move(request), place);
  });
}

// On the front desk, which no handler holds. A proof is no connection: it ends within seconds, and its table
// has bounds. A server that does not listen over RDMA takes none.
void ServerCore::AcceptProof(const Pollers& pollers, transport::PeerRequest request) {
  if (pollers.proof_desk == nullptr) {
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
  pollers.proof_desk->Accept(std::move(request), std::move(proofs));
}

absl::StatusOr<ServerCore::ServingPoller*> ServerCore::NextPoller(Pollers& pollers, const PeerHost& host) {
  bool has_share = false;
  for (size_t tries = pollers.runtime->poller_limit(); tries > 0; --tries) {
    ServingPoller& serving = ServingOn(pollers, pollers.runtime->NextPoller());
    absl::MutexLock lock(&mutex_);
    if (serving.waiting >= kWaitingMax) continue;
    const auto found = serving.waiting_of_host.find(host);
    const uint32_t of_host = found == serving.waiting_of_host.end() ? 0 : found->second;
    if (of_host >= kWaitingOfHostMax) {
      has_share = true;
      continue;
    }
    ++serving.waiting;
    serving.waiting_of_host[host] = of_host + 1;
    return &serving;
  }
  return absl::ResourceExhaustedError(
      has_share ? absl::StrCat("each poller of the server has ", kWaitingOfHostMax,
                               " new connections of this host that it does not come to; do handlers hold it?")
                : absl::StrCat("each poller of the server has ", kWaitingMax,
                               " new connections that it does not come to; do handlers hold it?"));
}

void ServerCore::StopWaiting(ServingPoller& serving, const PeerHost& host) {
  absl::MutexLock lock(&mutex_);
  --serving.waiting;
  const auto found = serving.waiting_of_host.find(host);
  if (--found->second == 0) serving.waiting_of_host.erase(found);
}

ServerCore::ServingPoller& ServerCore::ServingOn(Pollers& pollers, transport::Poller& poller) {
  for (const auto& serving : pollers.serving) {
    if (&serving->poller == &poller) return *serving;
  }
  absl::MutexLock lock(&mutex_);
  return *pollers.serving.emplace_back(std::make_unique<ServingPoller>(poller, serving_->methods.size()));
}

absl::Status ServerCore::AnswerProbe(const Pollers& pollers, const transport::PeerRequest& request) {
  const absl::StatusOr<transport::Poller*> poller = PollerOfSession(pollers, request);
  if (!poller.ok()) return poller.status();
  const auto call = (*poller)->called_out().Now();
  const int64_t held_ns = call.has_value() ? (*poller)->environment().NowNs() - call->since_ns : 0;
  if (held_ns < kBusyNs) return absl::UnavailableError("the session is open, and its poller is not busy");
  // A runtime may be shared. The client must not learn what else runs in this process.
  return absl::AbortedError(absl::StrCat(
      "its poller has been held for ", transport::RoughDuration(absl::Nanoseconds(held_ns)), " by ",
      !serving_->methods.Names(call->whose) ? "other code of its process"
      // Which methods there are is told only to clients that may call them.
      : serving_->authorize ? "a handler"
                            : transport::Describe(*call)));
}

absl::StatusOr<transport::Poller*> ServerCore::PollerOfSession(const Pollers& pollers,
                                                               const transport::PeerRequest& request) {
  absl::MutexLock lock(&mutex_);
  Session* const session = FindSession(request.hello().session);
  if (session == nullptr) return absl::NotFoundError("no such session; its first connection is gone");
  absl::Status allowed =
      session->CheckReverse(*pollers.runtime, request.peer_address(), *request.peer_identity());
  if (!allowed.ok()) return allowed;
  return &session->poller();
}

Admission::Place ServerCore::PlaceFor(const Pollers& pollers, const transport::PeerRequest& request) const {
  const transport::ConnectionOptions& mine = options_.connection;
  const transport::Handshake& hello = request.hello();
  return {.host = PeerHost(request.peer_address()),
          .pool = &pollers.runtime->buffers(),
          .receive_bytes = transport::ReceiveRing::LeasedBytes(
              std::min<uint32_t>(mine.slots, hello.slots),
              std::min(mine.receive_buffer_bytes, hello.receive_buffer_bytes))};
}

// OK: `place` is taken.
absl::Status ServerCore::Admit(const Admission::Place& place) {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kServing) return absl::UnavailableError("the server is shutting down");
  return admission_.Admit(place);
}

void ServerCore::AcceptClient(const Pollers& pollers, ServingPoller& on, transport::PeerRequest request,
                              const Admission::Place& place) {
  Session::Owner& owner = *this;
  auto made =
      std::make_unique<Session>(pollers.runtime, on.poller, request.peer_address(), request.peer_identity(),
                                place, options_, serving_, on.counters, owner);
  Session& session = *made;
  on.sessions.MoveToBack(&session);
  bool serving;
  transport::Poller* excess_poller = nullptr;
  transport::SessionToken excess = {};
  {
    // In the list before anything else: either Shutdown() finds it, or this finds that Shutdown() has begun.
    absl::MutexLock lock(&mutex_);
    serving = phase_ == Phase::kServing;
    if (serving) {
      sessions_[session.token()] = std::move(made);
      if (Admission::Newcomer* newcomer = admission_.AddNewcomer(session, place); newcomer != nullptr) {
        excess_poller = &static_cast<Session*>(newcomer)->poller();
        excess = static_cast<Session*>(newcomer)->token();
      }
    }
  }
  if (excess_poller != nullptr) CloseNewcomer(*excess_poller, excess);
  if (!serving) {
    refused_connections_.fetch_add(1, std::memory_order_relaxed);
    request.Refuse(absl::UnavailableError("the server is shutting down"));
    return ReleaseConnection(place);
  }
  if (!session.Accept(std::move(request)).ok()) {
    ConnectionEnded(place);
    OnSessionEnded(session);
  }
}

void ServerCore::CloseNewcomer(transport::Poller& poller, const transport::SessionToken& token) {
  poller.Run([this, token] {
    Session* session;
    {
      absl::MutexLock lock(&mutex_);
      session = FindSession(token);  // Only this poller destroys it, so it stays valid until this returns.
    }
    if (session != nullptr) session->CloseUnlessHeard();
  });
}

void ServerCore::AcceptReverse(transport::PeerRequest request, const Admission::Place& place) {
  Session* session;
  {
    absl::MutexLock lock(&mutex_);
    session =
        FindSession(request.hello().session);  // Only this poller destroys it: valid until this returns.
  }
  if (session == nullptr) {
    request.Refuse(absl::NotFoundError("no such session; its first connection is gone"));
    return ReleaseConnection(place);
  }
  if (!session->AcceptReverse(std::move(request), place).ok()) ReleaseConnection(place);
}

Session* ServerCore::FindSession(const transport::SessionToken& token) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const auto found = sessions_.find(token);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void ServerCore::OnSessionFirstMessage(Session& session) {
  absl::MutexLock lock(&mutex_);
  admission_.RemoveNewcomer(session);
}

void ServerCore::OnSessionLost(Session& session) {
  OnSessionFirstMessage(session);  // It sends no more messages, so it is no newcomer any more.
  ConnectionEnded(session.place());
}

void ServerCore::OnReverseEnded(const Admission::Place& place) { ReleaseConnection(place); }

void ServerCore::ReleaseConnection(const Admission::Place& place) {
  ConnectionEnded(place);
  absl::MutexLock lock(&mutex_);
  admission_.Release(place);
}

void ServerCore::ConnectionEnded(const Admission::Place& place) {
  absl::MutexLock lock(&mutex_);
  admission_.Close(place);
  if (NoConnections()) ended_.SignalAll();
}

void ServerCore::OnSessionEnded(Session& session) {
  std::shared_ptr<ServerCore> self;
  std::unique_ptr<Session> gone;  // Destroyed after the lock is released.
  {
    absl::MutexLock lock(&mutex_);
    admission_.RemoveNewcomer(session);
    admission_.Release(session.place());
    const auto found = sessions_.find(session.token());
    HAWSER_CHECK(found != sessions_.end(), "a session ended twice; ", sessions_.size(), " are open");
    gone = std::move(found->second);
    sessions_.erase(found);
    if (sessions_.empty()) {
      ended_.SignalAll();
      self = std::move(self_);
    }
  }
  if (self != nullptr) DestroySoon(std::move(self));
}

}  // namespace hawser::internal
