#ifndef HAWSER_RPC_TRACE_H_
#define HAWSER_RPC_TRACE_H_

// A handler that names its trace in a line of the program's log:
//
//   absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
//                     Pages::ReadResults::Builder reply) override {
//     if (const hawser::TraceContext* trace = hawser::TraceContext::Current(); trace != nullptr) {
//       LogLine(absl::StrCat("read ", request.getNumber(), " for trace ", trace->ToString()));
//     }
//     return PlainPages::Read(context, request, reply);
//   }

#include <kj/string.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace hawser {

// The place of a call in a trace, as it crosses in the metadata "traceparent" and "tracestate" (W3C Trace
// Context). A value.
//
// A handler's calls carry on the trace of the call that it answers, with no code of the application: calls
// that it makes itself; those that callbacks of Then(), and coroutines, make after such a call; and those
// with CallOptions::For(). What another thread calls, without For(), begins a trace of its own. This holds
// without a sink, too: a process without one passes the trace on as it got it.
struct TraceContext {
  std::array<uint8_t, 16> trace_id = {};  // The same for every span of the trace. Not all zero.
  std::array<uint8_t, 8> span_id = {};    // This call's. Not all zero.
  bool is_sampled = false;                // The spans of this trace are wanted.
  std::string state;                      // "tracestate": what others keep in the trace. Passed on unread.

  // Reads a traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Empty: it is malformed. A
  // version above 00 may have more fields, which are ignored.
  static std::optional<TraceContext> Parse(absl::string_view traceparent);
  std::string ToString() const;

  // The trace of the call whose handler, or callback, this thread runs, for the application's own spans and
  // logs. nullptr: there is no such call, or its caller sent none and this process has no sink. Valid until
  // that handler, or callback, returns.
  static const TraceContext* Current();
};

// What the application says of a call in its span: ServerContext::SetSpanAttribute() of a call that it
// handles, Call::SetSpanAttribute() of one that it makes. Of one span at most so many are kept, of so many
// bytes in all: those of keys and texts, and 8 for each other value. Each further one is left out and
// counted. At a client they are kept until Send(), which decides whether the call is sampled.
inline constexpr size_t kSpanAttributesMax = 32;
inline constexpr size_t kSpanAttributeBytesMax = 4096;

struct SpanAttribute {
  std::string key;  // Not empty. A span has each key once.
  std::variant<std::string, int64_t, bool> value;
};

// A text, an integer or a bool, as an argument of SetSpanAttribute(). It refers to the text.
class SpanValue {
 public:
  SpanValue(absl::string_view text) : value_(text) {}  // NOLINT(google-explicit-constructor)
  SpanValue(const std::string& text)
      : value_(absl::string_view(text)) {}                          // NOLINT(google-explicit-constructor)
  SpanValue(const char* text) : value_(absl::string_view(text)) {}  // NOLINT(google-explicit-constructor)
  // Also a field of a message: capnp::Text::Reader is one.
  SpanValue(kj::StringPtr text)
      : value_(absl::string_view(text.begin(), text.size())) {}  // NOLINT(google-explicit-constructor)
  // An integer above 2^63 - 1 counts as that.
  template <std::integral Value>
  SpanValue(Value value) : value_(Stored(value)) {}  // NOLINT(google-explicit-constructor)

  const std::variant<absl::string_view, int64_t, bool>& get() const { return value_; }

 private:
  static bool Stored(bool value) { return value; }
  template <std::signed_integral Value>
  static int64_t Stored(Value value) {
    return value;
  }
  template <std::unsigned_integral Value>
  static int64_t Stored(Value value) {
    return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
  }

  std::variant<absl::string_view, int64_t, bool> value_;
};

// One call, as one of its two sides saw it. Valid during OnSpan().
struct Span {
  enum class Kind : uint8_t {
    kClient,  // From Send() to the result.
    kServer,  // From the arrival of the whole request to the answer of the handler.
  };
  Kind kind;
  const TraceContext& context;  // Its own: span_id is that of the span.
  // The call whose handler made this one, or, at a server, the client's span. Empty: this span is the first
  // of its trace.
  std::optional<std::array<uint8_t, 8>> parent_span_id;
  absl::string_view method;        // "kv.capnp:KeyValue.get".
  absl::string_view peer_address;  // "tcp://10.0.0.7:51234".
  absl::Time start;
  absl::Time end;
  // At a client the call's result; at a server the handler's answer. Messages may quote what a peer sent.
  const absl::Status& status;
  absl::Span<const SpanAttribute> attributes = {};  // The application's own.
  uint32_t dropped_attributes = 0;                  // Those that were left out.
};

// Takes the spans of this process.
// Thread:   any, often that of a poller, several at once: it must not block, and must make no call.
// Lifetime: shared with the calls that are under way.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void OnSpan(const Span& span) = 0;
};

struct TraceOptions {
  // The share of the traces that begin in this process which is sampled, 0 to 1. A call with a traceparent is
  // sampled if that says so.
  double sample_rate = 1.0;
  // Spans a second, at most, of calls that a peer's traceparent samples, by this process as a server: peers
  // cannot flood the sink. What exceeds it makes no span; the trace is passed on as it came. 0 at least;
  // infinite: no bound.
  double peers_spans_per_second = 1000;
};

// Gives the spans of the calls that begin from now on to `sink`; nullptr: to none. Only sampled calls make
// spans. After fork() the child has no sink. Thread: any. InvalidArgument: an option is out of its range;
// nothing has changed.
absl::Status SetTraceSink(std::shared_ptr<TraceSink> sink, const TraceOptions& options = {});

}  // namespace hawser

#endif  // HAWSER_RPC_TRACE_H_
