#include "hawser/rpc/server/client_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/base/check.h"
#include "hawser/transport/connection/receive_ring.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/log/log.h"

namespace hawser::internal {
namespace {

// A session is busy if its poller has been held for longer than this. For less, no ping is delayed
// noticeably.
constexpr int64_t kBusyNs = 1'000'000;

// How many calls one line of the log names.
constexpr size_t kLoggedCallsMax = 10;

}  // namespace

ClientTable::ClientTable(const ServerOptions& options, transport::Environment& environment,
                         std::shared_ptr<const Serving> serving)
    : options_(options),
      environment_(environment),
      serving_(std::move(serving)),
      regions_(std::make_shared<SharedRegions>(environment)),
      admission_(options) {}

// ---- The end

void ClientTable::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

bool ClientTable::AwaitNoConnections(absl::Time deadline) {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return NoConnections(); };
  absl::MutexLock lock(&mutex_);
  return environment_.Await(mutex_, ended_, none, deadline);
}

bool ClientTable::AwaitNoSessions(absl::Time deadline) {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return sessions_.empty(); };
  absl::MutexLock lock(&mutex_);
  return environment_.Await(mutex_, ended_, none, deadline);
}

void ClientTable::OnceEmpty(absl::AnyInvocable<void()> then) {
  absl::MutexLock lock(&mutex_);
  if (!sessions_.empty()) once_empty_ = std::move(then);
}

void ClientTable::ForEach(const std::vector<ServingPoller*>& pollers,
                          absl::FunctionRef<void(Session&)> function) {
  const auto on = [&](transport::Poller& poller) {
    std::vector<transport::SessionToken> tokens;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [token, session] : sessions_) {
        if (&session->poller() == &poller) tokens.push_back(token);
      }
    }
    for (const transport::SessionToken& token : tokens) {
      // The end of another session may have ended it.
      if (Session* const session = SessionHere(token); session != nullptr) function(*session);
    }
  };
  // On all at once: a handler that holds one poller must not keep the others waiting.
  std::vector<std::shared_ptr<transport::WaitEvent>> done;
  for (ServingPoller* const serving : pollers) {
    done.push_back(std::make_shared<transport::WaitEvent>());
    serving->poller().Run([&on, &poller = serving->poller(), done = done.back()] {
      on(poller);
      done->Set();
    });
  }
  for (size_t i = 0; i < pollers.size(); ++i) pollers[i]->poller().WaitFor(*done[i]);
}

void ClientTable::LogUnfinishedCalls(const std::vector<ServingPoller*>& pollers, absl::string_view what,
                                     HandlerStage stage) {
  absl::Mutex mutex;
  std::vector<std::string> calls;
  ForEach(pollers, [&](Session& session) {
    std::vector<std::string> of_session = session.DescribeCalls(stage);
    absl::MutexLock lock(&mutex);
    for (std::string& call : of_session) calls.push_back(std::move(call));
  });
  if (calls.empty()) return;
  const size_t count = calls.size();
  calls.resize(std::min(count, kLoggedCallsMax));
  transport::Log(LogSeverity::kWarning,
                 absl::StrCat("the end of a Server ", what, " (", count, "): ", absl::StrJoin(calls, "; "),
                              count > calls.size() ? "; ..." : ""));
}

uint64_t ClientTable::open() const {
  absl::MutexLock lock(&mutex_);
  return admission_.open();
}

// ---- Whom to accept, and where: on the front desk

void ClientTable::OnPeer(PollerGroup& group, transport::PeerRequest request) {
  switch (request.hello().role) {
    case transport::Role::kProbe:
      return request.Reject(AnswerProbe(group, request));
    case transport::Role::kReverse:
    case transport::Role::kLane:
      return AssignFurther(group, std::move(request));
    default:
      return AssignClient(group, std::move(request));
  }
}

void ClientTable::AssignClient(PollerGroup& group, transport::PeerRequest request) {
  const Admission::Place place = PlaceFor(group, request);
  if (absl::Status admitted = Admit(place); !admitted.ok()) return Refuse(std::move(request), admitted);
  // After Admit(): this may start a poller, which a peer that is refused must not cause.
  absl::StatusOr<ServingPoller*> next = group.NextPoller(place.host);
  if (!next.ok()) {
    ReleaseConnection(place);
    return Refuse(std::move(request), next.status());
  }
  ServingPoller& serving = **next;
  serving.poller().Run([this, &group, &serving, place, request = std::move(request)]() mutable {
    serving.StopWaiting(place.host);
    AcceptClient(group, serving, std::move(request), place);
  });
}

void ClientTable::AssignFurther(const PollerGroup& group, transport::PeerRequest request) {
  absl::StatusOr<transport::Poller*> poller = PollerOfSession(group, request);
  if (!poller.ok()) return request.Refuse(poller.status());
  if (request.hello().role == transport::Role::kLane && regions_->owner() == 0) {
    return request.Refuse(absl::FailedPreconditionError("the server has shared no memory"));
  }
  const Admission::Place place = PlaceFor(group, request);
  if (absl::Status admitted = Admit(place); !admitted.ok()) return Refuse(std::move(request), admitted);
  (*poller)->Run(
      [this, place, request = std::move(request)]() mutable { AcceptFurther(std::move(request), place); });
}

void ClientTable::Refuse(transport::PeerRequest request, const absl::Status& why) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  request.Refuse(why);
}

absl::Status ClientTable::AnswerProbe(const PollerGroup& group, const transport::PeerRequest& request) {
  const absl::StatusOr<transport::Poller*> poller = PollerOfSession(group, request);
  if (!poller.ok()) return poller.status();
  const auto call = (*poller)->called_out().Now();
  const int64_t held_ns = call.has_value() ? (*poller)->environment().NowNs() - call->since_ns : 0;
  if (held_ns < kBusyNs) return absl::UnavailableError("the session is open, and its poller is not busy");
  // A runtime may be shared. The client must not learn what else runs in this process.
  return absl::AbortedError(absl::StrCat(
      "its poller has been held for ", transport::RoughDuration(absl::Nanoseconds(held_ns)), " by ",
      !serving_->methods.Names(call->whose) ? "other code of its process"
      // Which methods there are is sent only to clients that may call them.
      : serving_->authorize ? "a handler"
                            : transport::Describe(*call)));
}

absl::StatusOr<transport::Poller*> ClientTable::PollerOfSession(const PollerGroup& group,
                                                                const transport::PeerRequest& request) {
  absl::MutexLock lock(&mutex_);
  Session* const session = FindSession(request.hello().session);
  if (session == nullptr) return absl::NotFoundError("no such session; its first connection is gone");
  absl::Status allowed = session->CheckFurther(
      request.hello().role == transport::Role::kLane ? "a lane" : "a reverse connection", *group.runtime(),
      request.peer_address(), *request.peer_identity());
  if (!allowed.ok()) return allowed;
  return &session->poller();
}

Admission::Place ClientTable::PlaceFor(const PollerGroup& group,
                                       const transport::PeerRequest& request) const {
  const transport::ConnectionOptions& mine = options_.connection;
  const transport::Handshake& hello = request.hello();
  if (hello.role == transport::Role::kLane) {
    return {.host = PeerHost(request.peer_address()),
            .pool = &group.runtime()->buffers(),
            .receive_bytes = transport::LaneServer::kLeasedBytes};
  }
  return {.host = PeerHost(request.peer_address()),
          .pool = &group.runtime()->buffers(),
          .receive_bytes = transport::ReceiveRing::LeasedBytes(
              std::min<uint32_t>(mine.slots, hello.slots),
              std::min(mine.receive_buffer_bytes, hello.receive_buffer_bytes))};
}

absl::Status ClientTable::Admit(const Admission::Place& place) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::UnavailableError("the server is shutting down");
  return admission_.Admit(place);
}

// ---- Accepting: on the poller that serves

void ClientTable::AcceptClient(const PollerGroup& group, ServingPoller& on, transport::PeerRequest request,
                               const Admission::Place& place) {
  Session::Owner& owner = *this;
  auto made =
      std::make_unique<Session>(group.runtime(), on.poller(), request.peer_address(), request.peer_identity(),
                                place, options_, serving_, on.counters(), owner);
  Session& session = *made;
  on.reporter().Add(session);
  bool accepts;
  transport::Poller* excess_poller = nullptr;
  transport::SessionToken excess = {};
  {
    // In the list before anything else: either the server's end finds it, or this finds that Close() was
    // called.
    absl::MutexLock lock(&mutex_);
    accepts = !closed_;
    if (accepts) {
      sessions_[session.token()] = std::move(made);
      if (Admission::Newcomer* newcomer = admission_.AddNewcomer(session, place); newcomer != nullptr) {
        excess_poller = &static_cast<Session*>(newcomer)->poller();
        excess = static_cast<Session*>(newcomer)->token();
      }
    }
  }
  if (excess_poller != nullptr) CloseNewcomer(*excess_poller, excess);
  if (!accepts) {
    Refuse(std::move(request), absl::UnavailableError("the server is shutting down"));
    return ReleaseConnection(place);
  }
  if (!session.Accept(std::move(request)).ok()) {
    ConnectionEnded(place);
    OnSessionEnded(session);
  }
}

void ClientTable::CloseNewcomer(transport::Poller& poller, const transport::SessionToken& token) {
  poller.Run([this, token] {
    if (Session* const session = SessionHere(token); session != nullptr) session->CloseIfNothingReceived();
  });
}

void ClientTable::AcceptFurther(transport::PeerRequest request, const Admission::Place& place) {
  Session* const session = SessionHere(request.hello().session);
  if (session == nullptr) {
    request.Refuse(absl::NotFoundError("no such session; its first connection is gone"));
    return ReleaseConnection(place);
  }
  const absl::Status accepted = request.hello().role == transport::Role::kLane
                                    ? session->AcceptLane(std::move(request), place)
                                    : session->AcceptReverse(std::move(request), place);
  if (!accepted.ok()) ReleaseConnection(place);
}

Session* ClientTable::FindSession(const transport::SessionToken& token) {
  const auto found = sessions_.find(token);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Session* ClientTable::SessionHere(const transport::SessionToken& token) {
  absl::MutexLock lock(&mutex_);
  return FindSession(token);
}

// ---- Their ends

void ClientTable::OnSessionFirstMessage(Session& session) {
  absl::MutexLock lock(&mutex_);
  admission_.RemoveNewcomer(session);
}

void ClientTable::OnSessionLost(Session& session) {
  OnSessionFirstMessage(session);  // It sends no more messages, so it is no newcomer any more.
  ConnectionEnded(session.place());
}

void ClientTable::OnFurtherEnded(const Admission::Place& place) { ReleaseConnection(place); }

void ClientTable::ReleaseConnection(const Admission::Place& place) {
  // In one step: a server that awaits the last connection may end after it.
  absl::MutexLock lock(&mutex_);
  admission_.Close(place);
  admission_.Release(place);
  if (NoConnections()) ended_.SignalAll();
}

void ClientTable::ConnectionEnded(const Admission::Place& place) {
  absl::MutexLock lock(&mutex_);
  admission_.Close(place);
  if (NoConnections()) ended_.SignalAll();
}

void ClientTable::OnSessionEnded(Session& session) {
  absl::AnyInvocable<void()> then;
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
      then = std::exchange(once_empty_, nullptr);
    }
  }
  if (then) then();
}

}  // namespace hawser::internal
