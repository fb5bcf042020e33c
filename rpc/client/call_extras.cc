#include "hawser/rpc/client/call_extras.h"

#include <utility>

#include "hawser/rpc/wire/message_metadata.h"

namespace hawser::internal {

bool CallExtras::Prepare(const CallOptions& options, bool intercepts, transport::OutgoingMessage& request,
                         uint16_t& metadata_segment) {
  scope_ = options.scope.get();
  const TraceRef& trace = scope_ != nullptr && scope_->trace() != nullptr ? scope_->trace() : CurrentTrace();
  const bool is_traced = HasTrace(trace);
  if (intercepts || is_traced) {
    intercepted_ = std::make_unique<Intercepted>();
    intercepted_->is_traced = is_traced;
    intercepted_->trace = trace;
    if (options.metadata != nullptr) intercepted_->metadata = *options.metadata;
  } else if (options.metadata != nullptr) {
    metadata_segment = AddMetadata(*options.metadata, request);
  }
  return scope_ != nullptr || intercepted();
}

void CallExtras::SetSpanAttribute(absl::string_view key, const SpanValue& value) {
  // In a process that never had a sink a trace is only passed on.
  if (!intercepted() || !intercepted_->is_traced || !AnyCallMayHaveTrace()) return;
  if (intercepted_->attributes == nullptr) intercepted_->attributes = std::make_shared<SpanAttributes>();
  intercepted_->attributes->Set(key, value);
}

uint16_t CallExtras::Intercept(const Interceptors& interceptors, const Method& method,
                               const std::string& peer_address, const PeerIdentity& peer_identity,
                               transport::OutgoingMessage& request) {
  Metadata& metadata = intercepted_->metadata;
  if (intercepted_->is_traced) {
    intercepted_->interception.Adopt(BeginClientSpan(method, peer_address, intercepted_->trace, metadata,
                                                     std::move(intercepted_->attributes)));
  }
  intercepted_->refused = intercepted_->interception.Begin(
      interceptors,
      {Interceptor::Side::kClient, method, peer_address, peer_identity, metadata.view(), metadata});
  if (intercepted_->refused.ok()) return AddMetadata(metadata, request);
  request.Refuse(intercepted_->refused);
  return 0;
}

void CallExtras::Drop() {
  scope_.reset();
  intercepted_.reset();
}

}  // namespace hawser::internal
