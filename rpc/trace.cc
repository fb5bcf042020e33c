#include "hawser/rpc/trace.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/base/fork.h"
#include "hawser/base/mutex.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/tracing.h"

namespace hawser {
namespace {

constexpr char kTraceParent[] = "traceparent";
constexpr char kTraceState[] = "tracestate";

// In version 00: "00-", 32 digits, '-', 16 digits, "-01". A longer one has a higher version.
constexpr size_t kTraceParentBytes = 55;
// What W3C Trace Context asks implementations to pass on at least; a longer one is dropped.
constexpr size_t kTraceStateMax = 512;

// Lower case only, as the standard has it.
template <size_t N>
bool ParseHex(absl::string_view digits, std::array<uint8_t, N>& bytes) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digits.size() != 2 * N || !std::all_of(digits.begin(), digits.end(), is_digit)) return false;
  // Not absl::HexStringToBytes(): its older form is deprecated in newer releases of abseil, and older ones
  // have no other.
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  for (size_t i = 0; i < N; ++i) {
    bytes[i] = static_cast<uint8_t>(value(digits[2 * i]) << 4 | value(digits[2 * i + 1]));
  }
  return true;
}

template <size_t N>
bool IsZero(const std::array<uint8_t, N>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Behind a pointer: thread-local variables of a plug-in are in little room (docs/guide.md).
absl::BitGen& Random() {
  thread_local const auto random = std::make_unique<absl::BitGen>();
  return *random;
}

template <size_t N>
std::array<uint8_t, N> NewId() {
  std::array<uint8_t, N> id;
  do {
    for (uint8_t& byte : id) byte = absl::Uniform<uint8_t>(absl::IntervalClosed, Random(), 0, 255);
  } while (IsZero(id));
  return id;
}

// The sink of this process.
class Sink {
 public:
  static Sink& Process() {
    static constinit PerProcess<Sink> sink;
    return sink.Get();
  }

  void Set(std::shared_ptr<TraceSink> sink, const TraceOptions& options) {
    MutexLock lock(mutex_);
    sink_.swap(sink);
    options_ = options;
    filled_ = {};  // The peers' spans of one second may come at once.
    is_set_.store(sink_ != nullptr, std::memory_order_relaxed);
  }
  bool is_set() const { return is_set_.load(std::memory_order_relaxed); }

  // Whether one more span fits TraceOptions::peers_spans_per_second.
  bool TakePeersSpan() {
    MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> passed_s = now - filled_;
    const double most = std::max(1.0, options_.peers_spans_per_second);
    peers_spans_ = std::min(most, peers_spans_ + passed_s.count() * options_.peers_spans_per_second);
    filled_ = now;
    if (peers_spans_ < 1) return false;
    peers_spans_ -= 1;
    return true;
  }
  std::shared_ptr<TraceSink> Get(TraceOptions* options = nullptr) {
    MutexLock lock(mutex_);
    if (options != nullptr) *options = options_;
    return sink_;
  }

 private:
  Mutex mutex_;
  std::shared_ptr<TraceSink> sink_ ABSL_GUARDED_BY(mutex_);
  TraceOptions options_ ABSL_GUARDED_BY(mutex_);
  double peers_spans_ ABSL_GUARDED_BY(mutex_) = 0;  // That may be made at once.
  std::chrono::steady_clock::time_point filled_ ABSL_GUARDED_BY(mutex_) = {};
  std::atomic<bool> is_set_{false};
};

// Becomes a Span when the call ends.
class OpenSpan final : public Interceptor::Call {
 public:
  OpenSpan(std::shared_ptr<TraceSink> sink, Span::Kind kind, TraceContext context, const TraceContext* parent,
           const Method& method, const std::string& peer_address, absl::Time start,
           std::shared_ptr<internal::SpanAttributes> attributes)
      : sink_(std::move(sink)),
        kind_(kind),
        context_(std::move(context)),
        attributes_(std::move(attributes)),
        method_(method.name),
        peer_address_(peer_address),
        start_(start) {
    if (parent != nullptr) parent_span_id_ = parent->span_id;
  }

  void OnEnd(const absl::Status& status) override {
    internal::SpanAttributes::Taken taken;
    if (attributes_ != nullptr) taken = attributes_->Take();
    internal::CallUser("the TraceSink, given", method_, [&] {
      sink_->OnSpan({kind_, context_, parent_span_id_, method_, peer_address_, start_, absl::Now(), status,
                     taken.attributes, taken.dropped});
    });
  }

 private:
  const std::shared_ptr<TraceSink> sink_;
  const Span::Kind kind_;
  const TraceContext context_;
  const std::shared_ptr<internal::SpanAttributes> attributes_;  // Null: there are none.
  std::optional<std::array<uint8_t, 8>> parent_span_id_;
  const std::string method_;
  const std::string peer_address_;
  const absl::Time start_;
};

// Empty if there is none, or it is malformed.
std::optional<TraceContext> TraceIn(MetadataView metadata) {
  const std::optional<absl::string_view> traceparent = metadata.Get(kTraceParent);
  if (!traceparent.has_value()) return std::nullopt;
  std::optional<TraceContext> trace = TraceContext::Parse(*traceparent);
  const std::optional<absl::string_view> state = metadata.Get(kTraceState);
  if (trace.has_value() && state.has_value() && state->size() <= kTraceStateMax && IsPrintable(*state)) {
    trace->state = std::string(*state);
  }
  return trace;
}

// Replaces a trace that is there already. Leaves `metadata` alone if the trace does not fit.
void PutTrace(const TraceContext& trace, Metadata& metadata) {
  Metadata with_trace;
  for (const MetadataView::Pair& pair : metadata) {
    if (pair.key != kTraceParent && pair.key != kTraceState) with_trace.Add(pair.key, pair.value);
  }
  with_trace.Add(kTraceParent, trace.ToString());
  if (!trace.state.empty()) with_trace.Add(kTraceState, trace.state);
  if (with_trace.status().ok() && metadata.status().ok()) metadata = std::move(with_trace);
}

// The span below `parent`; without one the first of a trace.
TraceContext Child(const TraceContext* parent, const TraceOptions& options) {
  TraceContext child;
  if (parent != nullptr) {
    child = *parent;
  } else {
    child.trace_id = NewId<16>();
    child.is_sampled = absl::Bernoulli(Random(), options.sample_rate);
  }
  child.span_id = NewId<8>();
  return child;
}

std::variant<std::string, int64_t, bool> Owned(const SpanValue& value) {
  if (const auto* const text = std::get_if<absl::string_view>(&value.get())) return std::string(*text);
  if (const auto* const number = std::get_if<int64_t>(&value.get())) return *number;
  return std::get<bool>(value.get());
}

// As kSpanAttributeBytesMax counts.
size_t BytesOf(const SpanValue& value) {
  const auto* const text = std::get_if<absl::string_view>(&value.get());
  return text != nullptr ? text->size() : sizeof(int64_t);
}
size_t BytesOf(const SpanAttribute& attribute) {
  const auto* const text = std::get_if<std::string>(&attribute.value);
  return attribute.key.size() + (text != nullptr ? text->size() : sizeof(int64_t));
}

}  // namespace

std::optional<TraceContext> TraceContext::Parse(absl::string_view traceparent) {
  std::array<uint8_t, 1> version, flags;
  TraceContext trace;
  if (traceparent.size() < kTraceParentBytes || traceparent[2] != '-' || traceparent[35] != '-' ||
      traceparent[52] != '-' || !ParseHex(traceparent.substr(0, 2), version) ||
      !ParseHex(traceparent.substr(3, 32), trace.trace_id) ||
      !ParseHex(traceparent.substr(36, 16), trace.span_id) || !ParseHex(traceparent.substr(53, 2), flags)) {
    return std::nullopt;
  }
  const bool has_more = traceparent.size() > kTraceParentBytes;
  if (version[0] == 0xff || (has_more && (version[0] == 0 || traceparent[kTraceParentBytes] != '-'))) {
    return std::nullopt;
  }
  if (IsZero(trace.trace_id) || IsZero(trace.span_id)) return std::nullopt;
  trace.is_sampled = (flags[0] & 1) != 0;
  return trace;
}

std::string TraceContext::ToString() const {
  return absl::StrCat("00-", internal::HexOfId(trace_id), "-", internal::HexOfId(span_id),
                      is_sampled ? "-01" : "-00");
}

const TraceContext* TraceContext::Current() {
  const internal::TraceRef& trace = internal::CurrentTrace();
  return trace == nullptr ? nullptr : &trace->context;
}

absl::Status SetTraceSink(std::shared_ptr<TraceSink> sink, const TraceOptions& options) {
  if (!(options.peers_spans_per_second >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("TraceOptions::peers_spans_per_second is ",
                                                   options.peers_spans_per_second, ": 0 at least"));
  }
  if (!(options.sample_rate >= 0 && options.sample_rate <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("TraceOptions::sample_rate is ", options.sample_rate, ": it has to be from 0 to 1"));
  }
  if (sink != nullptr) internal::has_had_sink.store(true, std::memory_order_relaxed);
  Sink::Process().Set(std::move(sink), options);
  return absl::OkStatus();
}

namespace internal {

const TraceRef& CurrentTrace() {
  static const TraceRef* const none = new TraceRef;
  return current_trace != nullptr ? *current_trace : *none;
}

TraceScope::TraceScope(const TraceRef& trace) : outer_(std::exchange(current_trace, &trace)) {}
TraceScope::~TraceScope() { current_trace = outer_; }

void SpanAttributes::Set(absl::string_view key, const SpanValue& value) {
  MutexLock lock(mutex_);
  std::vector<SpanAttribute>& attributes = set_.attributes;
  const auto old = std::find_if(attributes.begin(), attributes.end(),
                                [key](const SpanAttribute& each) { return each.key == key; });
  if (old != attributes.end()) {
    bytes_ -= BytesOf(*old);
    attributes.erase(old);
  }
  const size_t bytes = key.size() + BytesOf(value);
  if (key.empty() || attributes.size() == kSpanAttributesMax || bytes > kSpanAttributeBytesMax - bytes_) {
    ++set_.dropped;
    return;
  }
  bytes_ += bytes;
  attributes.push_back({std::string(key), Owned(value)});
}

SpanAttributes::Taken SpanAttributes::Take() {
  MutexLock lock(mutex_);
  return std::exchange(set_, {});
}

bool HasTrace(const TraceRef& inherited) { return inherited != nullptr || Sink::Process().is_set(); }

std::unique_ptr<Interceptor::Call> BeginClientSpan(const Method& method, const std::string& peer_address,
                                                   const TraceRef& inherited, Metadata& metadata,
                                                   std::shared_ptr<SpanAttributes> attributes) {
  const std::optional<TraceContext> own = TraceIn(metadata.view());
  const TraceContext* const parent = own.has_value()        ? &*own
                                     : inherited != nullptr ? &inherited->context
                                                            : nullptr;
  const bool makes_spans = own.has_value() || inherited == nullptr || inherited->makes_spans;
  TraceOptions options;
  std::shared_ptr<TraceSink> sink = Sink::Process().Get(&options);
  if (sink == nullptr || !makes_spans) {
    if (parent != nullptr) PutTrace(*parent, metadata);
    return nullptr;
  }
  TraceContext context = Child(parent, options);
  PutTrace(context, metadata);
  if (!context.is_sampled) return nullptr;
  return std::make_unique<OpenSpan>(std::move(sink), Span::Kind::kClient, std::move(context), parent, method,
                                    peer_address, absl::Now(), std::move(attributes));
}

bool HasTraceIn(MetadataView metadata) { return metadata.Get(kTraceParent).has_value(); }

std::unique_ptr<Interceptor::Call> BeginServerSpan(const Method& method, const std::string& peer_address,
                                                   MetadataView metadata, absl::Duration age,
                                                   TraceRef& trace) {
  std::optional<TraceContext> parent = TraceIn(metadata);
  TraceOptions options;
  // Without a sink no call takes a lock.
  std::shared_ptr<TraceSink> sink =
      Sink::Process().is_set() ? Sink::Process().Get(&options) : std::shared_ptr<TraceSink>();
  if (sink == nullptr) {
    if (parent.has_value()) trace = std::make_shared<const CarriedTrace>(CarriedTrace{*std::move(parent)});
    return nullptr;
  }
  if (parent.has_value() && parent->is_sampled && !Sink::Process().TakePeersSpan()) {
    trace = std::make_shared<const CarriedTrace>(CarriedTrace{*std::move(parent), /*makes_spans=*/false});
    return nullptr;
  }
  TraceContext context = Child(parent.has_value() ? &*parent : nullptr, options);
  auto attributes = context.is_sampled ? std::make_shared<SpanAttributes>() : nullptr;
  trace = std::make_shared<const CarriedTrace>(CarriedTrace{context, /*makes_spans=*/true, attributes});
  if (!context.is_sampled) return nullptr;
  return std::make_unique<OpenSpan>(std::move(sink), Span::Kind::kServer, std::move(context),
                                    parent.has_value() ? &*parent : nullptr, method, peer_address,
                                    absl::Now() - age, std::move(attributes));
}

}  // namespace internal
}  // namespace hawser
