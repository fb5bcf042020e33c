#ifndef HAWSER_RPC_CLIENT_CALL_EXTRAS_H_
#define HAWSER_RPC_CLIENT_CALL_EXTRAS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/wire/cancel_scope.h"
#include "hawser/rpc/wire/interception.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/memory/user_regions.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/message.h"

namespace hawser::internal {

// What few calls have: the scope of the handler that makes them, a trace, interceptors, and memory that a
// large result lands in. An UntypedCall tests once, at each step of its life, whether it has any of these,
// and does without this class otherwise.
// Thread:   that of the caller until Send(), then the poller.
// Lifetime: a part of the UntypedCall. Drop() empties it before the call is used again.
class CallExtras {
 public:
  // The call is made, and has metadata or perhaps one of these. True: it has. `metadata_segment`: of what is
  // added to `request` now; without interceptors and a trace it is complete.
  [[gnu::cold]] bool Prepare(const CallOptions& options, bool intercepts, transport::OutgoingMessage& request,
                             uint16_t& metadata_segment);
  void SetSpanAttribute(absl::string_view key, const SpanValue& value);

  // The call has interceptors or a trace, and Intercept() is to be called when it is sent.
  bool intercepted() const { return intercepted_ != nullptr; }
  // Begins the span, asks the interceptors, and adds the metadata to `request`. Returns its segment. If an
  // interceptor refuses the call, `request` cannot be sent.
  [[gnu::cold]] uint16_t Intercept(const Interceptors& interceptors, const Method& method,
                                   const std::string& peer_address, const PeerIdentity& peer_identity,
                                   transport::OutgoingMessage& request);
  // The status of the interceptor that refused the call; OK: none did.
  absl::Status refused() const { return intercepted() ? intercepted_->refused : absl::OkStatus(); }

  // `call` is under way, in its scope. False: that is cancelled.
  template <typename Call>
  bool JoinScope(Call& call) {
    return scope_ == nullptr || scope_->Add(call);
  }

  // `call` has its result, which is `error` or OK.
  template <typename Call>
  void End(Call& call, transport::Poller& poller, const char* method, const absl::Status& error) {
    if (scope_ != nullptr) scope_->Remove(call);
    if (intercepted()) intercepted_->interception.End(poller, method, error);
  }

  // That of the call, for its callback, or `none`.
  const TraceRef& TraceOr(const TraceRef& none) const { return intercepted() ? intercepted_->trace : none; }

  // ---- Memory that a large result lands in.

  // `buffer`, which is registered with the device of `runtime`. Not OK: it is not, or cannot be used.
  [[gnu::cold]] absl::Status ReceiveInto(absl::Span<uint8_t> buffer, transport::Runtime& runtime);
  bool lands() const { return landing_ != nullptr; }
  // Null: there is none, or its device cannot use it any more.
  const transport::Landing* landing() const {
    return lands() && (landing_->region == nullptr || landing_->region->Usable().ok()) ? &landing_->memory
                                                                                       : nullptr;
  }
  // That of `other`, which has the use of its region, for a carrier of that call.
  void LandAs(const CallExtras& other) {
    if (other.lands())
      landing_ = std::make_unique<Landing>(Landing{other.landing_->memory, other.landing_->region, {}});
  }
  // The call has its result, `reply` or null, and the memory is the program's again.
  void EndLanding(transport::IncomingMessage* reply) {
    if (!lands()) return;
    if (reply != nullptr) reply->SetLanding(landing_->memory);
    landing_->use = {};
  }

  [[gnu::cold]] void Drop();

 private:
  struct Intercepted {
    Metadata metadata;  // That of the request; copied into it when the call begins.
    Interception interception;
    absl::Status refused;
    bool is_traced = false;
    TraceRef trace;                              // That the call, and its callback, carry on.
    std::shared_ptr<SpanAttributes> attributes;  // Null: none was set.
  };

  struct Landing {
    transport::Landing memory;
    const transport::UserRegion* region = nullptr;  // Null: it is memory of the pool.
    transport::UserRegionUse use;                   // Of the region; empty in a carrier.
  };

  std::unique_ptr<Landing> landing_;          // Null: no ReceiveInto().
  std::shared_ptr<CancelScope> scope_;        // Of CallOptions::For(), or null.
  std::unique_ptr<Intercepted> intercepted_;  // Null: the channel has no interceptors, and the call no trace.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CALL_EXTRAS_H_
