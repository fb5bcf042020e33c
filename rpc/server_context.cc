#include "hawser/rpc/server_context.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/endian.h"
#include "hawser/rpc/arrival_counter.h"
#include "hawser/rpc/serving/keeping.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/rpc/wire/no_channel.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/runtime.h"

namespace hawser {
namespace {

// A null pointer that says why it is null.
[[gnu::cold]] std::shared_ptr<Channel> NoPeer(const Method& method, internal::ServingConnection& connection) {
  const bool offered = connection.serving().gate != nullptr;
  const char* const why =
      offered ? "the handler is of a service that a client offers; call the server with the client's channel"
              : "the client offers no services (ChannelOptions::services), or is connected for its own calls "
                "only";
  return internal::NullChannel(
      {connection.runtime(), &connection.poller(), connection.peer_address(),
       absl::StrCat("the stub has no channel: ServerContext::peer() returned null in the handler of ",
                    method.name, ", because ", why)});
}

}  // namespace

void ServerContext::MakeReply() { reply_ = call_->connection().poller().messages().NewOutgoing(); }

CallOptions CallOptions::For(ServerContext& context) {
  CallOptions options;
  internal::ServerCall& call = *context.call_;
  options.deadline = call.connection().poller().environment().Now() + call.TimeRemaining();
  options.scope = internal::ScopeRef(call.Scope());
  return options;
}

absl::Duration ServerContext::TimeRemaining() const { return call_->TimeRemaining(); }

bool ServerContext::cancelled() const { return call_->cancelled(); }

void ServerContext::OnCancel(absl::AnyInvocable<void()> callback) { call_->OnCancel(std::move(callback)); }

const Method& ServerContext::method() const { return call_->method(); }

MetadataView ServerContext::metadata() const { return internal::MetadataOfRequest(*request_); }

Metadata& ServerContext::reply_metadata() { return call_->reply_metadata(); }

void ServerContext::SetSpanAttribute(absl::string_view key, const SpanValue& value) {
  call_->SetSpanAttribute(key, value);
}

const std::string& ServerContext::peer_address() const { return call_->connection().peer_address(); }

std::string ServerContext::call_id() const { return call_->Id(); }

namespace internal {
absl::Status StatusOfHandlersException(const ServerContext& context) {
  return StatusOfHandlersException(context.method().name, context.peer_address(), context.call_id(),
                                   context.call_->answered());
}

absl::Status StatusWithoutReturn(const ServerContext& context) {
  const char* const method = context.method().name;
  absl::Status status =
      absl::InternalError(absl::StrCat("the handler of ", method, " ended without co_return"));
  transport::PeerLog::Process().Line(LogSeverity::kError, method,
                                     absl::StrCat(absl::string_view(status.message()), "; call ",
                                                  context.call_id(), " of ", context.peer_address()));
  return status;
}
}  // namespace internal

const PeerIdentity& ServerContext::peer_identity() const { return call_->connection().peer_identity(); }

std::shared_ptr<Channel> ServerContext::peer() const {
  std::shared_ptr<Channel> peer = call_->connection().peer();
  return peer != nullptr ? peer : NoPeer(method(), call_->connection());
}

DeferredCall ServerContext::Defer() {
  HAWSER_CHECK(!call_->deferred(), "Defer() twice in one call of ", method().name);
  call_->Defer();
  return DeferredCall(this);
}

KeptBytes ServerContext::KeepBytes(capnp::Data::Reader bytes) {
  return internal::KeepBytes(*request_, call_->connection().poller().messages().buffers(), bytes);
}

internal::KeptStruct ServerContext::KeepStruct(capnp::AnyStruct::Reader value) {
  return internal::KeepStruct(*request_, call_->connection().poller().messages().buffers(),
                              internal::ReaderOptionsOf(*request_, limits_), call_->steps_of_keeping(),
                              value);
}

absl::StatusOr<Buffer> ServerContext::AllocateBuffer(size_t size_bytes) {
  internal::ServingConnection& connection = call_->connection();
  if (!connection.poller().usable_in_this_process()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the server was");
  }
  return Buffer::Allocate(connection.runtime()->buffers(), size_bytes);
}

absl::Status ServerContext::Grant(const SharedMemory& memory, const GrantOptions& options,
                                  memory::Ticket::Builder ticket) {
  internal::ServingConnection& connection = call_->connection();
  if (!connection.poller().usable_in_this_process()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the server was");
  }
  if (memory.lent() == nullptr) return absl::InvalidArgumentError("the SharedMemory was moved from");
  const absl::StatusOr<transport::LaneTicket> given = connection.owner().GrantMemory(
      memory.lent(), options.offset, options.length, static_cast<uint8_t>(options.access),
      options.counter == nullptr ? nullptr : options.counter->arrivals());
  if (!given.ok()) return given.status();
  ticket.setOwner(given->owner);
  ticket.setRegion(given->region);
  ticket.setOffset(given->offset);
  ticket.setLength(given->length);
  ticket.setAccess(given->access);
  ticket.setKeyLow(LoadLittle64(given->key.data()));
  ticket.setKeyHigh(LoadLittle64(given->key.data() + 8));
  return absl::OkStatus();
}

capnp::Orphan<capnp::Data> ServerContext::Attach(Buffer buffer) {
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  return Attach(owner->reader(), owner);
}

capnp::Orphan<capnp::Data> ServerContext::Attach(capnp::Data::Reader bytes,
                                                 std::shared_ptr<const void> owner) {
  return reply_message().Attach(bytes, std::move(owner));
}

DeferredCall::~DeferredCall() {
  if (context_ != nullptr) context_->call_->DropDeferred();
}

void DeferredCall::CheckFull() const {
  HAWSER_CHECK(context_ != nullptr, "context() of a DeferredCall that was finished, or moved from");
}

void DeferredCall::Finish(absl::Status status) {
  if (ServerContext* const context = std::exchange(context_, nullptr); context != nullptr) {
    context->call_->FinishDeferred(std::move(status));
  }
}

}  // namespace hawser
