#include "hawser/rpc/client/call_extras.h"

#include <utility>

#include "absl/strings/str_cat.h"
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

absl::Status CallExtras::ReceiveInto(absl::Span<uint8_t> buffer, transport::Runtime& runtime) {
  landing_.reset();
  if (buffer.size() < sizeof(uint64_t)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ReceiveInto() was given ", buffer.size(), " bytes, and takes at least one word of 8"));
  }
  if (reinterpret_cast<uintptr_t>(buffer.data()) % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError("the memory of ReceiveInto() does not begin at a multiple of 8 bytes");
  }
  Landing landing;
  landing.memory = {buffer.data(), buffer.size(), runtime.buffers().FindRegion(buffer.data(), buffer.size())};
  if (landing.memory.lkey == 0) {
    transport::UserRegions::Found found = runtime.user_regions().Find(buffer.data(), buffer.size());
    if (!found.copyable.ok()) return found.copyable;
    if (!found.use) {
      return absl::InvalidArgumentError(
          absl::StrCat("the ", buffer.size(),
                       " bytes of ReceiveInto() are not registered as a whole with the device of this "
                       "channel: see Channel::Register() and Channel::AllocateBuffer()"));
    }
    const transport::UserRegion& region = found.use.region();
    if (absl::Status usable = region.Usable(); !usable.ok()) return usable;
    landing.memory.lkey = region.lkey();
    landing.memory.cpu_visible = region.range().cpu_visible;
    landing.region = &region;
    landing.use = std::move(found.use);
  }
  landing_ = std::make_unique<Landing>(std::move(landing));
  return absl::OkStatus();
}

void CallExtras::Drop() {
  landing_.reset();
  scope_.reset();
  intercepted_.reset();
}

}  // namespace hawser::internal
