#ifndef HAWSER_RPC_WIRE_TRACING_H_
#define HAWSER_RPC_WIRE_TRACING_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/mutex.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/trace.h"

// How calls carry traces: what a call and its handler do at their begin.
// Thread: any.
namespace hawser::internal {

// An id in hex, as in a traceparent: "00f067aa0ba902b7".
template <size_t N>
std::string HexOfId(const std::array<uint8_t, N>& id) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(id.data()), N});
}

// What the application says of one call, for its span.
// Thread: any. What is set once the span has ended is lost.
class SpanAttributes {
 public:
  // Takes the place of what was set with this key. One that is beyond the bounds, or has no key, is left out.
  void Set(absl::string_view key, const SpanValue& value);

  struct Taken {
    std::vector<SpanAttribute> attributes;
    uint32_t dropped = 0;
  };
  Taken Take();

 private:
  Mutex mutex_;
  Taken set_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A trace as the calls of this process carry it on.
struct CarriedTrace {
  TraceContext context;
  bool makes_spans = true;  // False: a peer's, beyond TraceOptions::peers_spans_per_second.
  // Those of the span of the call that is handled; null: that has none.
  std::shared_ptr<SpanAttributes> attributes = nullptr;
};
using TraceRef = std::shared_ptr<const CarriedTrace>;  // Null: no trace.

// Set by the first sink, for good. From then on any call may have a trace, and has to ask for it. Before,
// only those have one that came with a traceparent, and what these call.
inline std::atomic<bool> has_had_sink{false};
inline bool AnyCallMayHaveTrace() { return has_had_sink.load(std::memory_order_relaxed); }

// The trace of the handler, or of the callback, that this thread runs.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local const TraceRef* current_trace = nullptr;
const TraceRef& CurrentTrace();
// Whether a call that this thread makes may have a trace.
inline bool MayTraceHere() { return current_trace != nullptr || AnyCallMayHaveTrace(); }

// Makes `trace`, which outlives this, the current one of this thread.
class TraceScope {
 public:
  explicit TraceScope(const TraceRef& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const TraceRef* const outer_;
};

// Whether a call that is created now has a trace. `inherited`: that of the handler or callback which makes
// the call; may be null.
bool HasTrace(const TraceRef& inherited);

// Adds the trace to the metadata of a client's call to `peer_address`. A traceparent that the application has
// put there takes the place of `inherited`. Metadata that would exceed its bounds with the trace goes
// without. Returns the span, which ends with the call and has `attributes`, unless these are null; nullptr:
// there is none.
std::unique_ptr<Interceptor::Call> BeginClientSpan(const Method& method, const std::string& peer_address,
                                                   const TraceRef& inherited, Metadata& metadata,
                                                   std::shared_ptr<SpanAttributes> attributes);

// Whether a request came with a trace.
bool HasTraceIn(MetadataView metadata);

// Sets `trace` to that of a server's call, which arrived `age` ago from `peer_address` with `metadata`; null:
// it has none. Returns as BeginClientSpan().
std::unique_ptr<Interceptor::Call> BeginServerSpan(const Method& method, const std::string& peer_address,
                                                   MetadataView metadata, absl::Duration age,
                                                   TraceRef& trace);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_TRACING_H_
