#include "hawser/rpc/server_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/rpc/wire/read_limits.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/runtime.h"

namespace hawser {

capnp::AnyPointer::Reader ServerContext::request_root() {
  return internal::Root(call_->request(), call_->connection().serving().read);
}

capnp::_::StructReader ServerContext::request_struct() {
  return internal::ReadRootStruct(call_->request(), call_->connection().serving().read);
}

capnp::AnyPointer::Builder ServerContext::reply_root() {
  return call_->reply().builder().getRoot<capnp::AnyPointer>();
}

capnp::_::StructBuilder ServerContext::reply_struct(capnp::_::StructSize size) {
  return call_->reply().InitRootStruct(size);
}

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

MetadataView ServerContext::metadata() const { return internal::MetadataOfRequest(call_->request()); }

Metadata& ServerContext::reply_metadata() { return call_->reply_metadata(); }

void ServerContext::SetSpanAttribute(absl::string_view key, const SpanValue& value) {
  call_->SetSpanAttribute(key, value);
}

const std::string& ServerContext::peer_address() const { return call_->connection().peer_address(); }

std::string ServerContext::call_id() const { return call_->Id(); }

namespace internal {
absl::Status StatusOfHandlersException(const ServerContext& context) {
  return StatusOfHandlersException(context.method().name, context.peer_address(), context.call_id());
}
}  // namespace internal

const PeerIdentity& ServerContext::peer_identity() const { return call_->connection().peer_identity(); }

std::shared_ptr<Channel> ServerContext::peer() const {
  std::shared_ptr<Channel> peer = call_->connection().peer();
  return peer != nullptr ? peer : call_->NoPeer();
}

DeferredCall ServerContext::Defer() {
  HAWSER_CHECK(!call_->deferred(), "Defer() twice in one call of ", method().name);
  call_->Defer();
  return DeferredCall(this);
}

KeptBytes ServerContext::KeepBytes(capnp::Data::Reader bytes) { return call_->KeepBytes(bytes); }

std::shared_ptr<const void> ServerContext::KeepRequest() { return call_->KeepRequest(); }

uint64_t ServerContext::request_memory_bytes() const { return call_->request().memory_bytes(); }

absl::StatusOr<Buffer> ServerContext::AllocateBuffer(size_t size_bytes) {
  internal::ServingConnection& connection = call_->connection();
  if (!connection.poller().usable_in_this_process()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the server was");
  }
  return Buffer::Allocate(connection.runtime()->buffers(), size_bytes);
}

capnp::Orphan<capnp::Data> ServerContext::Attach(Buffer buffer) {
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  return Attach(owner->reader(), owner);
}

capnp::Orphan<capnp::Data> ServerContext::Attach(capnp::Data::Reader bytes,
                                                 std::shared_ptr<const void> owner) {
  return call_->reply().Attach(bytes, std::move(owner));
}

DeferredCall::~DeferredCall() {
  if (context_ == nullptr) return;
  const absl::Status status = absl::InternalError(absl::StrCat(
      "the handler of ", context_->method().name, " destroyed its DeferredCall without Finish()"));
  if (!context_->cancelled()) {
    transport::PeerLog::Process().Line(LogSeverity::kError, context_->method().name,
                                       absl::StrCat(absl::string_view(status.message()), "; call ",
                                                    context_->call_id(), " of ", context_->peer_address()));
  }
  Finish(status);
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
