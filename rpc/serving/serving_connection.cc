#include "hawser/rpc/serving/serving_connection.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/probe.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/status.h"
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

// How much of an error's text is sent if there is no memory for all of it.
constexpr size_t kShortMessage = 256;

constexpr uint64_t kMinusOne = ~uint64_t{0};

}  // namespace

// The error response of a connection that uses the pool's reserve. It is notified when that response has been
// sent and acknowledged.
class ServingConnection::ReserveUse {
 public:
  explicit ReserveUse(ServingConnection& connection) : connection_(&connection) {}

  bool under_way() const { return under_way_; }
  // For the message to own. `self` points to this.
  static std::shared_ptr<const void> Start(const std::shared_ptr<ReserveUse>& self) {
    self->under_way_ = true;
    return std::shared_ptr<const void>(self.get(), [self](const void*) { self->OnEnded(); });
  }
  void ConnectionGone() { connection_ = nullptr; }

 private:
  // This runs inside the handling of a completion.
  void OnEnded() {
    under_way_ = false;
    if (connection_ == nullptr || connection_->owed_.empty()) return;
    transport::Poller& poller = connection_->poller_;
    poller.timers().Set(connection_->owed_timer_, poller.now_ns());
  }

  ServingConnection* connection_;
  bool under_way_ = false;
};

ServingConnection::ServingConnection(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                                     std::shared_ptr<const Serving> serving, ServingCounters& counters,
                                     Owner& owner)
    : runtime_(std::move(runtime)),
      poller_(poller),
      serving_(std::move(serving)),
      counters_(counters),
      owner_(owner),
      reserve_use_(std::make_shared<ReserveUse>(*this)),
      owed_timer_([this] {
        transport::Shortage why;
        if (!SendOwed(why)) poller_.memory_queue().Wait(*this, transport::kReservedBufferBytes);
      }),
      cancel_timer_([this] { OnCancelTimer(); }) {}

ServingConnection::~ServingConnection() { reserve_use_->ConnectionGone(); }

absl::Status ServingConnection::Dial(const SocketAddress& address,
                                     const transport::ConnectionOptions& options,
                                     const transport::Handshake& hello, absl::Duration connect_timeout,
                                     const transport::Security& security) {
  poller_.AssertHeld();
  absl::StatusOr<transport::Connection*> connection =
      transport::Connection::Dial(poller_, address, options, hello, connect_timeout, *this, this, security);
  if (!connection.ok()) return connection.status();
  Opened(*connection, options);
  return absl::OkStatus();
}

absl::Status ServingConnection::Accept(transport::PeerRequest request,
                                       const transport::ConnectionOptions& options,
                                       const transport::SessionToken& session) {
  poller_.AssertHeld();
  absl::StatusOr<transport::Connection*> connection =
      transport::Connection::Accept(poller_, std::move(request), options, session, *this, this);
  if (!connection.ok()) return connection.status();
  Opened(*connection, options);
  return absl::OkStatus();
}

void ServingConnection::Opened(transport::Connection* connection,
                               const transport::ConnectionOptions& options) {
  connection_ = connection;
  number_ = connection->number();
  peer_address_ = connection->peer();
  peer_identity_ = connection->peer_identity();
  by_slot_.resize(options.slots);
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

std::string ServingConnection::AgeOf(const ServerCall& call) const {
  return transport::RoughDuration(absl::Nanoseconds(poller_.now_ns() - call.started_ns()));
}

std::vector<std::string> ServingConnection::DescribeCalls(HandlerStage stage) const {
  poller_.AssertHeld();
  std::vector<std::string> texts;
  for (const auto& call : calls_) {
    if (call->is_free()) continue;
    if (call->stage() != stage) continue;
    texts.push_back(absl::StrCat(call->method().name, ", ", call->Name(), ", ", AgeOf(*call), " old"));
  }
  return texts;
}

std::string ServingConnection::IdentityText() const {
  return peer_identity_ != nullptr && peer_identity_->is_authenticated ? peer_identity_->ToString() : "";
}

void ServingConnection::AddTo(PollerReport& report, uint64_t receive_bytes, int64_t since_unix_ns) const {
  poller_.AssertHeld();
  ConnectionReport mine = {.state = "closed",
                           .receive_bytes = receive_bytes,
                           .since_unix_ns = since_unix_ns,
                           .requests = requests_,
                           .number = number_};
  const bool is_idle = busy_ == 0;
  const int64_t now_ns = is_idle ? 0 : poller_.environment().NowNs();
  for (size_t slot = 0; !is_idle && slot < by_slot_.size(); ++slot) {
    const ServerCall* const call = by_slot_[slot];
    if (call == nullptr) continue;
    ++mine.slots_in_use;
    ++report.running[call->method().name];
    const HandlerStage stage = call->stage();
    if (stage == HandlerStage::kQueued) ++report.calls_queued;
    const int64_t age_ns = now_ns - call->started_ns();
    if (!report.WantsCall(age_ns)) continue;
    report.AddCall(
        {.method = call->method().name,
         .peer = peer_address_,
         .identity = IdentityText(),
         .stage = NameOf(stage),
         .age_ns = age_ns,
         .deadline_in_ns = call->deadline_ns() == transport::kNever ? -1 : call->deadline_ns() - now_ns,
         .request_bytes = call->request_bytes(),
         .id = call->Id()});
  }
  if (connection_ != nullptr) {
    mine.state = connection_->StateName();
    mine.slots = connection_->agreed().slots;
    mine.slots_given = connection_->slots_given();
    mine.slots_wanted = connection_->slots_wanted();
    mine.receives_posted = connection_->receives_posted();
  }
  report.Count(mine);
  if (report.connections.size() >= PollerReport::kConnectionsMax) return;
  mine.peer = peer_address_;
  mine.identity = IdentityText();
  report.connections.push_back(std::move(mine));
}

inline void ServingConnection::CountEnd(ServerCall& call, int64_t now_ns, uint64_t response_bytes) {
  MethodCounts& counts = *call.counts();
  const int64_t all_ns = now_ns - call.started_ns();
  counts.ended[0].Add();
  counts.latency.Add(all_ns);
  counts.response_bytes.Add(response_bytes);
  if (counters_.slow_calls.Wants(all_ns, now_ns)) [[unlikely]]
    NoteSlow(call, absl::StatusCode::kOk, now_ns);
  counters_.handler_end_ns = now_ns;
}

void ServingConnection::CountFailure(ServerCall& call, absl::StatusCode code) {
  MethodCounts& counts = *call.counts();
  const auto number = static_cast<size_t>(code);
  HAWSER_PROBE(call_failed, number_, call.id().slot, call.id().generation, call.method().name, number);
  counts.ended[StatusIndex(code)].Add();
  const int64_t now_ns = poller_.NowFineNs();
  const int64_t all_ns = now_ns - call.started_ns();
  counts.latency.Add(all_ns);
  if (counters_.slow_calls.Wants(all_ns, now_ns)) NoteSlow(call, code, now_ns);
  counters_.handler_end_ns = now_ns;
}

void ServingConnection::NoteSlow(const ServerCall& call, absl::StatusCode code, int64_t now_ns) {
  const int64_t all_ns = now_ns - call.started_ns();
  const ServerCall::Times times = call.TimesOf(all_ns, counters_.handler_end_ns);
  counters_.slow_calls.Add({.method = call.method().name,
                            .peer = peer_address_,
                            .identity = IdentityText(),
                            .id = call.Id(),
                            .code = code,
                            .queued_ns = times.queued_ns,
                            .handler_ns = times.handler_ns,
                            .deferred_ns = times.deferred_ns,
                            .all_ns = all_ns,
                            .ended_unix_ns = absl::ToUnixNanos(poller_.environment().Now())},
                           now_ns);
}

void ServingConnection::OnReady(const transport::Handshake&) {
  peer_identity_ = connection_->peer_identity();  // If it was dialed, it is known only now.
  owner_.OnServingReady();
}

void ServingConnection::OnFirstMessage() { owner_.OnServingFirstMessage(); }

void ServingConnection::OnClosed(const absl::Status& why) {
  connection_ = nullptr;
  owed_.clear();
  StopWaiting();
  poller_.timers().Cancel(owed_timer_);
  owner_.OnServingClosed(why);
  CheckGone();
}

void ServingConnection::CheckGone() {
  if (connection_ == nullptr && busy_ == 0) [[unlikely]]
    owner_.OnServingEnded();
}

// ---- Requests.

void ServingConnection::OnRequest(transport::ExchangeId id, transport::IncomingMessagePtr request,
                                  int64_t deadline_ns) {
  poller_.AssertHeld();
  counters_.calls_total.Add();
  ++requests_;
  RequestEnvelope envelope;
  if (!DecodeRequestEnvelope(request->envelope(), envelope)) [[unlikely]]
    return OnOtherRequest(id, std::move(request), deadline_ns);
  OnRequestOf(envelope, id, std::move(request), deadline_ns, /*is_traced=*/false);
}

[[gnu::always_inline]] inline void ServingConnection::OnRequestOf(const RequestEnvelope& envelope,
                                                                  transport::ExchangeId id,
                                                                  transport::IncomingMessagePtr&& request,
                                                                  int64_t deadline_ns, bool is_traced) {
  if (draining_) [[unlikely]]
    return RefuseDraining(id);
  const Served served = Find(envelope.interface_id, envelope.ordinal);
  if (served.entry == nullptr) [[unlikely]]
    return RefuseUnimplemented(envelope, id);
  if (abandoned_calls_ != 0 && RefuseBesideAbandoned(id)) [[unlikely]]
    return;
  ServerCall* const call = free_ != nullptr ? free_ : NewCall();
  free_ = call->next_free;
  ++busy_;
  if (id.slot >= by_slot_.size() || by_slot_[id.slot] != nullptr) [[unlikely]]
    SlotMisused(id, "got a second call");
  by_slot_[id.slot] = call;
  counters_.calls_running.Add();
  served.counts->request_bytes.Add(request->body_bytes());
  if (is_traced) [[unlikely]]
    call->NoteTrace();
  call->Start(id, *served.entry, *served.counts, std::move(request), deadline_ns);
}

void ServingConnection::OnOtherRequest(transport::ExchangeId id, transport::IncomingMessagePtr request,
                                       int64_t deadline_ns) {
  const absl::StatusOr<RequestEnvelope> envelope = DecodeRequestEnvelope(request->envelope());
  if (!envelope.ok()) return SendError(id, envelope.status(), false);
  const absl::StatusOr<MetadataView> metadata = MetadataIn(*request, envelope->metadata_segment);
  if (!metadata.ok()) return SendError(id, metadata.status(), false);
  OnRequestOf(*envelope, id, std::move(request), deadline_ns, HasTraceIn(*metadata));
}

void ServingConnection::RefuseDraining(transport::ExchangeId id) {
  SendError(id, absl::UnavailableError("the server is shutting down"), true);
}

void ServingConnection::RefuseUnimplemented(const RequestEnvelope& envelope, transport::ExchangeId id) {
  SendError(id, Unimplemented(envelope.interface_id, envelope.ordinal), false);
}

bool ServingConnection::RefuseBesideAbandoned(transport::ExchangeId id) {
  const absl::Status status = CheckAbandoned();
  if (!status.ok()) SendError(id, status, false);
  return !status.ok();
}

ServerCall* ServingConnection::NewCall() {
  calls_.push_back(std::make_unique<ServerCall>(*this));
  return calls_.back().get();
}

void ServingConnection::SlotMisused(transport::ExchangeId id, const char* how) const {
  HAWSER_CHECK(false, "slot ", id.slot, " of ", by_slot_.size(), " ", how, ", connection to ", peer_address_);
  std::abort();
}

void ServingConnection::OnBadRequest(transport::ExchangeId id, const absl::Status& why) {
  counters_.calls_total.Add();
  SendError(id, why, false);
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
  SendError(call.id(),
            absl::Status(why.code(), absl::StrCat(call.method().name, ": ", absl::string_view(why.message()),
                                                  ", and its handler has not answered")),
            false);
}

absl::Status ServingConnection::CheckAbandoned() const {
  if (abandoned_calls_ < kAbandonedPerSlotMax * connection_->agreed().slots) return absl::OkStatus();
  const ServerCall* oldest = nullptr;
  for (const auto& each : calls_) {
    if (each->abandoned() && (oldest == nullptr || each->started_ns() < oldest->started_ns())) {
      oldest = each.get();
    }
  }
  absl::Status refused = absl::ResourceExhaustedError(absl::StrCat(
      abandoned_calls_,
      " handlers of this connection go on although their callers have stopped waiting, the oldest, ",
      oldest->method().name, ", for ", AgeOf(*oldest),
      "; handlers have to end when ServerContext::cancelled() says so"));
  transport::PeerLog::Process().Line(LogSeverity::kWarning, oldest->method().name,
                                     absl::StrCat("a call on connection ", number_, " of ", peer_address_,
                                                  " was refused: ", absl::string_view(refused.message())));
  return refused;
}

inline ServingConnection::Served ServingConnection::Find(uint64_t interface_id, uint16_t ordinal) {
  if (last_found_.entry != nullptr && last_found_.entry->method->ordinal == ordinal &&
      last_found_.entry->method->interface_id == interface_id) {
    return last_found_;
  }
  const MethodTable::Entry* const found = serving_->methods.Find(interface_id, ordinal);
  if (found == nullptr) return {};
  return last_found_ = {found, &counters_.ForMethod(found->index)};
}

absl::Status ServingConnection::Unimplemented(uint64_t interface_id, uint16_t ordinal) const {
  const MethodTable& methods = serving_->methods;
  // What there is to call is told only to callers that may call it, and `authorize` knows methods, not
  // interfaces.
  if (serving_->authorize) return UnservedError("the server implements no such method");
  if (const absl::string_view name = methods.InterfaceName(interface_id); !name.empty()) {
    return UnservedError(
        absl::StrCat("the server's ", name, " has no method @", ordinal, ": the caller's schema is newer"));
  }
  const std::string names = methods.InterfaceNames();
  return UnservedError(
      absl::StrCat("the server implements no interface 0x", absl::Hex(interface_id, absl::kZeroPad16),
                   "; it implements: ", names.empty() ? "none" : names, ". Was the service given to ",
                   serving_->gate != nullptr ? "ChannelOptions::services?" : "AddService()?"));
}

// ---- Answers.

// A handler that stops at the deadline may return Cancelled, and that answer may arrive before the caller's
// own timer fires.
absl::Status ServingConnection::WhyCancelled(const ServerCall& call, const absl::Status& status) const {
  if (poller_.environment().NowNs() < call.deadline_ns()) return status;
  absl::Status expired(absl::StatusCode::kDeadlineExceeded, status.message());
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { expired.SetPayload(url, payload); });
  return expired;
}

void ServingConnection::Answer(ServerCall& call, const absl::Status& status) {
  poller_.AssertHeld();
  const transport::ExchangeId id = call.id();
  if (call.abandoned()) [[unlikely]]
    return counters_.calls_running.Add(kMinusOne);
  if (id.slot >= by_slot_.size() || by_slot_[id.slot] != &call) [[unlikely]]
    SlotMisused(id, "was answered twice");
  by_slot_[id.slot] = nullptr;
  counters_.calls_running.Add(kMinusOne);
  if (connection_ == nullptr) [[unlikely]]
    return CountFailure(call, absl::StatusCode::kCancelled);
  if (!status.ok()) [[unlikely]]
    return AnswerWithError(call, status);
  absl::StatusCode code = absl::StatusCode::kResourceExhausted;
  transport::Poller& poller = poller_;  // Read once.
  const uint64_t sent_before = poller.sent_bytes().value();
  if (absl::Status sent = SendReply(call, code); sent.ok()) [[likely]] {
    CountEnd(call, poller.NowFineNs(), poller.sent_bytes().value() - sent_before);
  } else {
    AnswerUnsendable(call, code, sent);
  }
}

void ServingConnection::AnswerWithError(ServerCall& call, const absl::Status& status) {
  const absl::Status why = absl::IsCancelled(status) ? WhyCancelled(call, status) : status;
  CountFailure(call, why.code());
  SendError(call.id(), why, false, call.metadata_to_send());
}

void ServingConnection::AnswerUnsendable(ServerCall& call, absl::StatusCode code, const absl::Status& why) {
  CountFailure(call, code);
  call.DropReply();
  SendError(call.id(),
            absl::Status(code, absl::StrCat("the reply of ", call.method().name,
                                            " cannot be sent: ", absl::string_view(why.message()))),
            false);
}

[[gnu::always_inline]] inline absl::Status ServingConnection::SendReply(ServerCall& call,
                                                                        absl::StatusCode& code) {
  transport::OutgoingMessagePtr& reply = call.MadeReply();
  if (const Metadata* const metadata = call.metadata_to_send(); metadata != nullptr) [[unlikely]]
    return SendReplyWithMetadata(call, *metadata, code);
  if (!reply->status().ok()) [[unlikely]] {
    code = reply->status().code();
    return reply->status();
  }
  reply->SetEnvelope(kOkEnvelope);
  return connection_->Respond(call.id(), reply);
}

absl::Status ServingConnection::SendReplyWithMetadata(ServerCall& call, const Metadata& metadata,
                                                      absl::StatusCode& code) {
  if (!metadata.status().ok()) {
    code = absl::StatusCode::kInternal;
    return metadata.status();
  }
  transport::OutgoingMessagePtr& reply = call.MadeReply();
  const uint16_t segment = AddMetadata(metadata, *reply);
  if (!reply->status().ok()) {
    code = reply->status().code();
    return reply->status();
  }
  reply->SetEnvelope(Encode(ResponseEnvelope{absl::StatusCode::kOk, false, segment}));
  return connection_->Respond(call.id(), reply);
}

absl::Status ServingConnection::SendErrorIn(transport::OutgoingMessagePtr message, transport::ExchangeId id,
                                            const absl::Status& status, bool not_run,
                                            const Metadata* metadata) {
  EncodeStatus(status, *message);
  const uint16_t segment = metadata == nullptr ? 0 : AddMetadata(*metadata, *message);
  message->SetEnvelope(Encode(ResponseEnvelope{status.code(), not_run, segment}));
  return message->status().ok() ? connection_->Respond(id, message) : message->status();
}

void ServingConnection::SendError(transport::ExchangeId id, const absl::Status& status, bool not_run,
                                  const Metadata* metadata) {
  poller_.AssertHeld();
  // At the pool's limit each error would take a buffer that a receive ring waits for, and no answer is sent
  // before the ring is filled again. Errors then use the reserve, one at a time.
  if (owed_.empty() && poller_.messages().buffers().HasRoomForSlab()) {
    absl::Status sent;
    // Whole; without the metadata; then as short as it gets.
    for (int form = 0; form < 3; ++form) {
      sent = SendErrorIn(poller_.messages().NewOutgoing(), id,
                         form < 2 ? status : Shortened(status, kShortMessage), not_run,
                         form < 1 ? metadata : nullptr);
      if (sent.ok() || connection_ == nullptr) return;
    }
    if (!absl::IsResourceExhausted(sent)) {
      // Otherwise the client would wait until its deadline. Closing ends its calls in flight at once.
      return connection_->Close(absl::ResourceExhaustedError(absl::StrCat(
          "not even an error could be sent to ", peer_address_, ": ", absl::string_view(sent.message()))));
    }
  }
  owed_.push_back({id, Shortened(status, kShortMessage), not_run});
  transport::Shortage why;
  if (!SendOwed(why)) poller_.memory_queue().Wait(*this, transport::kReservedBufferBytes);
}

bool ServingConnection::SendOwed(transport::Shortage& why) {
  why = transport::Shortage::kAtLimit;
  while (!owed_.empty() && !reserve_use_->under_way()) {
    const OwedError& next = owed_.front();
    transport::OutgoingMessagePtr message = poller_.messages().NewReserved();
    message->Own(ReserveUse::Start(reserve_use_));
    absl::Status sent = SendErrorIn(std::move(message), next.id, next.status, next.not_run);
    if (connection_ == nullptr) return true;
    if (absl::IsResourceExhausted(sent)) {
      poller_.timers().Cancel(owed_timer_);  // The destruction of the unsent message has set it.
      return false;
    }
    if (!sent.ok()) {
      connection_->Close(
          absl::Status(sent.code(), absl::StrCat("not even an error could be sent to ", peer_address_, ": ",
                                                 absl::string_view(sent.message()))));
      return true;
    }
    owed_.pop_front();
  }
  return true;  // The other errors follow when the one in flight has ended.
}

bool ServingConnection::OnMemory(transport::Shortage& why) { return SendOwed(why); }

void ServingConnection::Recycle(ServerCall& call) {
  poller_.AssertHeld();
  HAWSER_CHECK(!call.is_free(), "a call of ", peer_address_, " has ended twice");
  if (call.abandoned()) --abandoned_calls_;
  call.Reset();
  call.next_free = free_;
  free_ = &call;
  --busy_;
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
