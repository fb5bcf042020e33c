#include "hawser/rpc/serving/serving_connection.h"

#include <cstddef>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::internal {
namespace {

// How many handlers of one slot may still run after their calls have ended. When calls expire, the client
// starts new ones in the same slots, and each handler keeps the memory of its request.
constexpr size_t kAbandonedPerSlotMax = 2;

constexpr uint64_t kMinusOne = ~uint64_t{0};

// "12 s": the time since it arrived.
std::string AgeOf(const ServerCall& call, int64_t now_ns) {
  return transport::RoughDuration(absl::Nanoseconds(now_ns - call.started_ns()));
}

// `cancelled`; DeadlineExceeded with its text if the deadline of `call` has passed: a handler that stops at
// the deadline may return Cancelled, and that answer may arrive before the caller's own timer fires.
absl::Status WhyCancelled(const ServerCall& call, int64_t now_ns, const absl::Status& cancelled) {
  if (now_ns < call.deadline_ns()) return cancelled;
  absl::Status expired(absl::StatusCode::kDeadlineExceeded, cancelled.message());
  cancelled.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { expired.SetPayload(url, payload); });
  return expired;
}

// Without what the connection adds. `handler_end_ns`: see ServerCall::TimesOf().
SlowCalls::Call SlowCallOf(const ServerCall& call, int64_t all_ns, int64_t handler_end_ns) {
  const ServerCall::Times times = call.TimesOf(all_ns, handler_end_ns);
  SlowCalls::Call slow;
  slow.method = call.method().name;
  slow.id = call.Id();
  slow.queued_ns = times.queued_ns;
  slow.handler_ns = times.handler_ns;
  slow.deferred_ns = times.deferred_ns;
  slow.all_ns = all_ns;
  return slow;
}

absl::Status TooManyAbandoned(size_t count, const ServerCall& oldest, int64_t now_ns) {
  return absl::ResourceExhaustedError(absl::StrCat(
      count, " handlers of this connection go on although their callers have stopped waiting, the oldest, ",
      oldest.method().name, ", for ", AgeOf(oldest, now_ns),
      "; handlers have to end when ServerContext::cancelled() says so"));
}

// A bug of ours: `how` one of the `slots` was used.
[[noreturn, gnu::noinline, gnu::cold]] void SlotMisused(transport::ExchangeId id, const char* how,
                                                        size_t slots, const std::string& peer) {
  HAWSER_CHECK(false, "slot ", id.slot, " of ", slots, " ", how, ", connection to ", peer);
  std::abort();
}

}  // namespace

ServingConnection::ServingConnection(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                                     std::shared_ptr<const Serving> serving, ServingCounters& counters,
                                     Owner& owner)
    : runtime_(std::move(runtime)),
      poller_(poller),
      serving_(std::move(serving)),
      counters_(counters),
      owner_(owner),
      runs_handlers_plainly_(serving_->plain && !serving_->executor),
      errors_(poller),
      cancel_timer_([this] { OnCancelTimer(); }) {}

ServingConnection::~ServingConnection() = default;

absl::Status ServingConnection::Dial(const SocketAddress& address,
                                     const transport::ConnectionOptions& options,
                                     const transport::Handshake& hello, absl::Duration connect_timeout,
                                     const transport::Security& security) {
  poller_.AssertHeld();
  return Open(
      transport::Connection::Dial(poller_, address, options, hello, connect_timeout, *this, this, security),
      options);
}

absl::Status ServingConnection::Accept(transport::PeerRequest request,
                                       const transport::ConnectionOptions& options,
                                       const transport::SessionToken& session) {
  poller_.AssertHeld();
  return Open(transport::Connection::Accept(poller_, std::move(request), options, session, *this, this),
              options);
}

absl::Status ServingConnection::Open(absl::StatusOr<transport::Connection*> connection,
                                     const transport::ConnectionOptions& options) {
  if (!connection.ok()) return connection.status();
  connection_ = *connection;
  errors_.Open(*connection_);
  number_ = connection_->number();
  peer_address_ = connection_->peer();
  peer_identity_ = connection_->peer_identity();
  by_slot_.resize(options.slots);
  return absl::OkStatus();
}

void ServingConnection::Drain() {
  poller_.AssertHeld();
  draining_ = true;
  if (connection_ != nullptr) connection_->Drain();
}

void ServingConnection::Close(const absl::Status& why) {
  poller_.AssertHeld();
  if (connection_ != nullptr) connection_->Close(why);
}

std::string ServingConnection::IdentityText() const {
  return peer_identity_ != nullptr && peer_identity_->is_authenticated ? peer_identity_->ToString() : "";
}

inline void ServingConnection::CountEnd(ServerCall& call, int64_t now_ns, uint64_t response_bytes) {
  call.counts()->response_bytes.Add(response_bytes);
  if (counters_.CountEnd(*call.counts(), absl::StatusCode::kOk, now_ns - call.started_ns(), now_ns))
      [[unlikely]]
    NoteSlow(call, absl::StatusCode::kOk, now_ns);
  counters_.handler_end_ns = now_ns;
}

void ServingConnection::CountFailure(ServerCall& call, absl::StatusCode code) {
  HAWSER_PROBE(call_failed, number_, call.id().slot, call.id().generation, call.method().name,
               static_cast<size_t>(code));
  const int64_t now_ns = poller_.NowFineNs();
  if (counters_.CountEnd(*call.counts(), code, now_ns - call.started_ns(), now_ns)) {
    NoteSlow(call, code, now_ns);
  }
  counters_.handler_end_ns = now_ns;
}

void ServingConnection::NoteSlow(const ServerCall& call, absl::StatusCode code, int64_t now_ns) {
  SlowCalls::Call slow = SlowCallOf(call, now_ns - call.started_ns(), counters_.handler_end_ns);
  slow.peer = peer_address_;
  slow.identity = IdentityText();
  slow.code = code;
  slow.ended_unix_ns = absl::ToUnixNanos(poller_.environment().Now());
  counters_.slow_calls.Add(std::move(slow), now_ns);
}

void ServingConnection::OnReady(const transport::Handshake&) {
  peer_identity_ = connection_->peer_identity();  // If it was dialed, it is known only now.
  owner_.OnServingReady();
}

void ServingConnection::OnFirstMessage() { owner_.OnServingFirstMessage(); }

void ServingConnection::OnClosed(const absl::Status& why) {
  connection_ = nullptr;
  errors_.OnClosed();
  owner_.OnServingClosed(why);
  CheckGone();
}

void ServingConnection::CheckGone() {
  if (connection_ == nullptr && busy_ == 0) [[unlikely]]
    owner_.OnServingEnded();
}

// ---- Requests.

// The road of the usual request, whole: its method is the one of the request before, its handler runs here,
// and its reply leaves. What is not usual leaves it at one of two tests, for OnRequestOf() (another method,
// metadata, an executor, the first call of a connection, one beside a handler of an abandoned call, traces,
// draining) or for ServerCall::HandlerReturnedHere() (a handler that defers or fails, a caller that has
// stopped waiting). Both roads count, check and answer alike: they are made of the same parts.
void ServingConnection::OnRequest(transport::ExchangeId id, transport::IncomingMessagePtr request,
                                  int64_t deadline_ns) {
  poller_.AssertHeld();
  counters_.calls_total.Add();
  ++requests_;
  RequestEnvelope envelope;
  if (!DecodeRequestEnvelope(request->envelope(), envelope)) [[unlikely]]
    return OnOtherRequest(id, std::move(request), deadline_ns);
  ServerCall* const call = free_;
  if (!finder_.IsLast(envelope.interface_id, envelope.ordinal) || call == nullptr ||
      !runs_handlers_plainly_ || AnyCallMayHaveTrace() || draining_ || abandoned_calls_ != 0) [[unlikely]]
    return OnRequestOf(envelope, id, std::move(request), deadline_ns, /*is_traced=*/false);
  Give(*call, finder_.last(), id, request, deadline_ns);
  call->MakeReply();
  absl::Status status = call->RunUsual();
  if (!call->is_usual() || !status.ok() || connection_ == nullptr) [[unlikely]]
    return call->HandlerReturnedHere(std::move(status));
  // It is there still: OnCancel() would have made the call an unusual one.
  by_slot_[id.slot] = nullptr;
  counters_.calls_running.Add(kMinusOne);
  SendReply(*call);
  PutBack(*call);
}

void ServingConnection::OnRequestOf(const RequestEnvelope& envelope, transport::ExchangeId id,
                                    transport::IncomingMessagePtr&& request, int64_t deadline_ns,
                                    bool is_traced) {
  if (draining_) return RefuseDraining(id);
  const ServedMethod served = finder_.Find(serving_, counters_, envelope.interface_id, envelope.ordinal);
  if (served.entry == nullptr) return RefuseUnimplemented(envelope, id);
  if (abandoned_calls_ != 0 && RefuseBesideAbandoned(id)) return;
  if (free_ == nullptr) free_ = NewCall();
  ServerCall& call = *free_;
  Give(call, served, id, request, deadline_ns);
  if (is_traced) call.NoteTrace();
  call.Start();
}

[[gnu::always_inline]] inline void ServingConnection::Give(ServerCall& call, const ServedMethod& served,
                                                           transport::ExchangeId id,
                                                           transport::IncomingMessagePtr& request,
                                                           int64_t deadline_ns) {
  free_ = call.next_free;
  ++busy_;
  if (id.slot >= by_slot_.size() || by_slot_[id.slot] != nullptr) [[unlikely]]
    SlotMisused(id, "got a second call", by_slot_.size(), peer_address_);
  by_slot_[id.slot] = &call;
  counters_.calls_running.Add();
  served.counts->request_bytes.Add(request->body_bytes());
  call.Take(id, *served.entry, *served.counts, request, deadline_ns);
}

void ServingConnection::OnOtherRequest(transport::ExchangeId id, transport::IncomingMessagePtr request,
                                       int64_t deadline_ns) {
  const absl::StatusOr<RequestEnvelope> envelope = DecodeRequestEnvelope(request->envelope());
  if (!envelope.ok()) return errors_.Send(id, envelope.status(), ErrorSender::Handler::kRefused);
  const absl::StatusOr<MetadataView> metadata = MetadataIn(*request, envelope->metadata_segment);
  if (!metadata.ok()) return errors_.Send(id, metadata.status(), ErrorSender::Handler::kRefused);
  OnRequestOf(*envelope, id, std::move(request), deadline_ns, HasTraceIn(*metadata));
}

void ServingConnection::RefuseDraining(transport::ExchangeId id) {
  errors_.Send(id, absl::UnavailableError("the server is shutting down"), ErrorSender::Handler::kNotRun);
}

void ServingConnection::RefuseUnimplemented(const RequestEnvelope& envelope, transport::ExchangeId id) {
  errors_.Send(id, MethodFinder::Unimplemented(*serving_, envelope.interface_id, envelope.ordinal),
               ErrorSender::Handler::kRefused);
}

bool ServingConnection::RefuseBesideAbandoned(transport::ExchangeId id) {
  if (abandoned_calls_ < kAbandonedPerSlotMax * connection_->agreed().slots) return false;
  const ServerCall* oldest = nullptr;
  for (const auto& each : calls_) {
    if (each->abandoned() && (oldest == nullptr || each->started_ns() < oldest->started_ns())) {
      oldest = each.get();
    }
  }
  const absl::Status refused = TooManyAbandoned(abandoned_calls_, *oldest, poller_.now_ns());
  transport::PeerLog::Process().Line(LogSeverity::kWarning, oldest->method().name,
                                     absl::StrCat("a call on connection ", number_, " of ", peer_address_,
                                                  " was refused: ", absl::string_view(refused.message())));
  errors_.Send(id, refused, ErrorSender::Handler::kRefused);
  return true;
}

ServerCall* ServingConnection::NewCall() {
  calls_.push_back(std::make_unique<ServerCall>(*this));
  return calls_.back().get();
}

void ServingConnection::OnBadRequest(transport::ExchangeId id, const absl::Status& why) {
  counters_.calls_total.Add();
  errors_.Send(id, why, ErrorSender::Handler::kRefused);
}

void ServingConnection::OnRefusedByDrain(transport::ExchangeId id) {
  counters_.calls_total.Add();
  RefuseDraining(id);
}

void ServingConnection::OnCancel(transport::ExchangeId id, const absl::Status& why) {
  poller_.AssertHeld();
  ServerCall* const call = by_slot_[id.slot];
  if (call == nullptr || call->id() != id) return;
  AnswerFor(*call, why);
  call->Cancel();
}

void ServingConnection::AnswerFor(ServerCall& call, const absl::Status& why) {
  by_slot_[call.id().slot] = nullptr;
  ++abandoned_calls_;
  call.Abandon(connection_ != nullptr ? connection_->DetachRequestMemory(call.id())
                                      : transport::HeldByHost());
  CountFailure(call, why.code());
  if (connection_ == nullptr) return;
  // The caller gets this error if it arrives before the caller's own timer fires: the two clocks differ.
  errors_.Send(
      call.id(),
      absl::Status(why.code(), absl::StrCat(call.method().name, ": ", absl::string_view(why.message()),
                                            ", and its handler has not answered")),
      ErrorSender::Handler::kUnsaid);
}

// ---- Answers.

void ServingConnection::Answer(ServerCall& call, const absl::Status& status) {
  poller_.AssertHeld();
  const transport::ExchangeId id = call.id();
  counters_.calls_running.Add(kMinusOne);
  if (call.abandoned()) return;
  if (id.slot >= by_slot_.size() || by_slot_[id.slot] != &call)
    SlotMisused(id, "was answered twice", by_slot_.size(), peer_address_);
  by_slot_[id.slot] = nullptr;
  if (connection_ == nullptr) return CountFailure(call, absl::StatusCode::kCancelled);
  if (!status.ok()) return AnswerWithError(call, status);
  SendReply(call);
}

void ServingConnection::AnswerWithError(ServerCall& call, const absl::Status& status) {
  const absl::Status why =
      absl::IsCancelled(status) ? WhyCancelled(call, poller_.environment().NowNs(), status) : status;
  CountFailure(call, why.code());
  errors_.Send(call.id(), why,
               call.was_refused() ? ErrorSender::Handler::kRefused : ErrorSender::Handler::kUnsaid,
               call.metadata_to_send());
}

void ServingConnection::AnswerUnsendable(ServerCall& call, absl::StatusCode code, const absl::Status& why) {
  CountFailure(call, code);
  call.DropReply();
  errors_.Send(call.id(),
               absl::Status(code, absl::StrCat("the reply of ", call.method().name,
                                               " cannot be sent: ", absl::string_view(why.message()))),
               ErrorSender::Handler::kUnsaid);
}

[[gnu::always_inline]] inline void ServingConnection::SendReply(ServerCall& call) {
  transport::Poller& poller = poller_;  // Read once.
  const uint64_t sent_before = poller.sent_bytes().value();
  absl::StatusCode code = absl::StatusCode::kResourceExhausted;
  absl::Status sent = SendReplyOf(call, code);
  if (sent.ok()) [[likely]] {
    CountEnd(call, poller.NowFineNs(), poller.sent_bytes().value() - sent_before);
  } else {
    AnswerUnsendable(call, code, sent);
  }
}

[[gnu::always_inline]] inline absl::Status ServingConnection::SendReplyOf(ServerCall& call,
                                                                          absl::StatusCode& code) {
  transport::OutgoingMessagePtr& reply = call.MadeReply();
  if (!call.is_usual() || !reply->status().ok()) [[unlikely]]
    return SendUnusualReply(call, code);
  reply->SetEnvelope(kOkEnvelope);
  return connection_->Respond(call.id(), reply);
}

absl::Status ServingConnection::SendUnusualReply(ServerCall& call, absl::StatusCode& code) {
  transport::OutgoingMessagePtr& reply = call.MadeReply();
  const Metadata* const metadata = call.metadata_to_send();
  uint16_t segment = 0;
  if (metadata != nullptr) {
    if (!metadata->status().ok()) {
      code = absl::StatusCode::kInternal;
      return metadata->status();
    }
    segment = AddMetadata(*metadata, *reply);
  }
  if (!reply->status().ok()) {
    code = reply->status().code();
    return reply->status();
  }
  reply->SetEnvelope(Encode(ResponseEnvelope{absl::StatusCode::kOk, false, segment}));
  return connection_->Respond(call.id(), reply);
}

void ServingConnection::Recycle(ServerCall& call) {
  poller_.AssertHeld();
  HAWSER_CHECK(!call.is_free(), "a call of ", peer_address_, " has ended twice");
  if (call.abandoned()) --abandoned_calls_;
  PutBack(call);
}

[[gnu::always_inline]] inline void ServingConnection::PutBack(ServerCall& call) {
  call.Reset();
  call.next_free = free_;
  free_ = &call;
  --busy_;
  if (connection_ == nullptr) [[unlikely]]
    CheckGone();
}

void ServingConnection::RunOnCancelSoon(ServerCall& call) {
  poller_.AssertHeld();
  to_cancel_.push_back(&call);
  poller_.timers().Set(cancel_timer_, poller_.now_ns());
}

// Each call that is due owns this. Releasing the last of them may destroy it.
void ServingConnection::OnCancelTimer() {
  for (ServerCall* call : std::exchange(to_cancel_, {})) call->RunOnCancel();
}

}  // namespace hawser::internal
