#include "hawser/rpc/otlp_trace_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <concepts>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/fork.h"
#include "hawser/base/json_writer.h"
#include "hawser/base/option_range.h"
#include "hawser/base/thread.h"
#include "hawser/base/unique_fd.h"
#include "hawser/base/write_signals.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/uri.h"

namespace hawser {
namespace {

constexpr size_t kQueueMax = 4096;
// Spans that are written without a look at the queue.
constexpr size_t kSpansAtOnce = 1024;
// A line ends with the span that reaches this, which has some 25 KB at most: the Collector's receiver cuts a
// line at 1 MiB.
constexpr size_t kLineBytes = 768 << 10;
constexpr size_t kStatusTextMax = 256;
// How long exit() waits for a file that takes no more, such as a pipe that nothing reads.
constexpr absl::Duration kFlushAtExitMax = absl::Seconds(5);

constexpr absl::string_view kServiceName = "service.name";
constexpr absl::string_view kServiceInstanceId = "service.instance.id";

constexpr absl::string_view kSystem = "rpc.system";
constexpr absl::string_view kService = "rpc.service";
constexpr absl::string_view kMethod = "rpc.method";
constexpr absl::string_view kStatusCode = "rpc.response.status_code";
constexpr absl::string_view kStatusMessage = "hawser.status_message";  // The conventions have no name for it.
constexpr absl::string_view kTransport = "network.transport";
constexpr absl::string_view kPeerAddress = "network.peer.address";
constexpr absl::string_view kPeerPort = "network.peer.port";
constexpr absl::string_view kServerAddress = "server.address";
constexpr absl::string_view kServerPort = "server.port";

// Values of opentelemetry-proto's trace.proto.
constexpr int kKindServer = 2;
constexpr int kKindClient = 3;
constexpr int kStatusError = 2;

template <size_t N>
void WriteId(absl::string_view name, const std::array<uint8_t, N>& id, JsonWriter& json) {
  json.Name(name).String(internal::HexOfId(id));
}

// An attribute: its key, and its value by the name that Protobuf's JSON has for the type.
template <typename WriteValue>
void WriteTyped(absl::string_view key, absl::string_view type, JsonWriter& json, WriteValue write_value) {
  json.BeginObject();
  json.Name("key").String(key);
  json.Name("value").BeginObject();
  json.Name(type);
  write_value();
  json.EndObject();
  json.EndObject();
}
void WriteAttribute(absl::string_view key, absl::string_view value, JsonWriter& json) {
  WriteTyped(key, "stringValue", json, [&] { json.String(value); });
}
void WriteAttribute(absl::string_view key, int64_t value, JsonWriter& json) {
  WriteTyped(key, "intValue", json, [&] { json.Number64(value); });
}
// Not for a literal, which is a text.
void WriteAttribute(absl::string_view key, std::same_as<bool> auto value, JsonWriter& json) {
  WriteTyped(key, "boolValue", json, [&] { json.Bool(value); });
}

// The keys that a span has from this sink: an application's attribute with one of them would be its second.
constexpr absl::string_view kOwnKeys[] = {kSystem,      kService,      kMethod,        kTransport,
                                          kPeerAddress, kPeerPort,     kServerAddress, kServerPort,
                                          kStatusCode,  kStatusMessage};
bool IsOwnKey(absl::string_view key) {
  return std::find(std::begin(kOwnKeys), std::end(kOwnKeys), key) != std::end(kOwnKeys);
}

// By opentelemetry.io, "Semantic conventions for gRPC spans": the others are what the client did wrong, or
// what it asked for.
bool IsErrorOfServer(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

// A version 4 UUID (RFC 9562).
std::string RandomUuid() {
  absl::BitGen random;
  std::array<uint8_t, 16> bytes;
  for (uint8_t& byte : bytes) byte = absl::Uniform<uint8_t>(absl::IntervalClosed, random, 0, 255);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  std::string uuid = internal::HexOfId(bytes);
  for (const size_t at : {20, 16, 12, 8}) uuid.insert(at, 1, '-');
  return uuid;
}

}  // namespace

class OtlpTraceSink::Writer {
 public:
  explicit Writer(Options options) : options_(std::move(options)), resource_(ResourceOf(options_)) {}

  absl::Status Start() {
    absl::StatusOr<std::thread> thread = StartThread("hawser-traces", [this] { Run(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    Writers& writers = Writers::OfProcess();
    absl::MutexLock lock(&writers.mutex);
    writers.all.insert(this);
    return absl::OkStatus();
  }
  // Before the first span.
  absl::Status Open() {
    // Without O_NONBLOCK the open of a pipe waits until something opens it to read.
    file_.Reset(
        open(options_.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0640));
    const int flags = file_.is_open() ? fcntl(file_.get(), F_GETFL) : -1;
    // The thread that writes may wait.
    if (flags >= 0 && fcntl(file_.get(), F_SETFL, flags & ~O_NONBLOCK) == 0) return absl::OkStatus();
    const int error = errno;
    return absl::Status(
        absl::ErrnoToStatusCode(error),
        absl::StrCat("open ", options_.path, " to write spans to it: ", DescribeErrno(error),
                     error == ENXIO ? "; if it is a pipe, its reader has to come first" : ""));
  }
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    if (thread_.joinable()) thread_.join();
    // Not before: exit() on another thread waits for what is queued here, too.
    Writers& writers = Writers::OfProcess();
    absl::MutexLock lock(&writers.mutex);
    writers.all.erase(this);
  }
  bool in_child() const { return fork_mark_.in_child(); }

  void Add(const Span& span) {
    Queued queued = {.kind = span.kind,
                     .context = span.context,
                     .parent_span_id = span.parent_span_id,
                     .method = std::string(span.method),
                     .peer_address = std::string(span.peer_address),
                     .start = span.start,
                     .end = span.end,
                     .code = span.status.code(),
                     .text = std::string(span.status.message().substr(0, kStatusTextMax)),
                     .attributes = {span.attributes.begin(), span.attributes.end()},
                     .dropped_attributes = span.dropped_attributes};
    absl::MutexLock lock(&mutex_);
    if (queue_.size() >= kQueueMax) {
      ++dropped_;
    } else {
      queue_.push_back(std::move(queued));
      ++added_;
    }
  }

  void Flush(absl::Time until = absl::InfiniteFuture()) {
    absl::MutexLock lock(&mutex_);
    const uint64_t wanted = added_;
    const auto are_done = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_ >= wanted; };
    mutex_.AwaitWithDeadline(absl::Condition(&are_done), until);
  }

  uint64_t dropped() const {
    absl::MutexLock lock(&mutex_);
    return dropped_;
  }

 private:
  // The writers of this process. exit() lets them write what is queued: mostly the spans of the last calls,
  // without which the traces that they begin have no root.
  struct Writers {
    static Writers& OfProcess() {
      static constinit PerProcess<Writers> writers;
      [[maybe_unused]] static const int registered = std::atexit(FlushAll);
      return writers.Get();
    }
    static void FlushAll() {
      Writers& writers = OfProcess();
      const absl::Time until = absl::Now() + kFlushAtExitMax;
      absl::MutexLock lock(&writers.mutex);
      for (Writer* writer : writers.all) writer->Flush(until);
    }

    absl::Mutex mutex;
    std::set<Writer*> all ABSL_GUARDED_BY(mutex);
  };

  // A copy of a Span.
  struct Queued {
    Span::Kind kind;
    TraceContext context;
    std::optional<std::array<uint8_t, 8>> parent_span_id;
    std::string method;
    std::string peer_address;
    absl::Time start;
    absl::Time end;
    absl::StatusCode code;
    std::string text;
    std::vector<SpanAttribute> attributes;
    uint32_t dropped_attributes;

    void Write(JsonWriter& json) const {
      json.BeginObject();
      WriteId("traceId", context.trace_id, json);
      WriteId("spanId", context.span_id, json);
      if (parent_span_id.has_value()) WriteId("parentSpanId", *parent_span_id, json);
      if (!context.state.empty()) json.Name("traceState").String(context.state);
      json.Name("name").String(method);
      json.Name("kind").Number(kind == Span::Kind::kClient ? kKindClient : kKindServer);
      json.Name("startTimeUnixNano").Number64(int64_t{absl::ToUnixNanos(start)});
      json.Name("endTimeUnixNano").Number64(int64_t{absl::ToUnixNanos(end)});
      json.Name("attributes").BeginList();
      const size_t dot = method.rfind('.');
      const bool has_service = dot != std::string::npos;
      WriteAttribute(kSystem, "hawser", json);
      WriteAttribute(kService, has_service ? method.substr(0, dot) : "", json);
      WriteAttribute(kMethod, has_service ? method.substr(dot + 1) : method, json);
      WritePeer(json);
      WriteAttribute(kStatusCode, absl::StatusCodeToString(code), json);
      const bool is_error =
          code != absl::StatusCode::kOk && (kind == Span::Kind::kClient || IsErrorOfServer(code));
      // A status that is no error has no text (opentelemetry.io, "Tracing API", Set Status).
      if (!is_error && !text.empty()) WriteAttribute(kStatusMessage, text, json);
      const uint32_t dropped = WriteAttributes(json);
      json.EndList();
      if (dropped != 0) json.Name("droppedAttributesCount").Number(dropped);
      if (is_error) {
        json.Name("status").BeginObject();
        json.Name("code").Number(kStatusError);
        if (!text.empty()) json.Name("message").String(text);
        json.EndObject();
      }
      json.EndObject();
    }

    void WritePeer(JsonWriter& json) const {
      const absl::StatusOr<transport::Uri> peer = transport::ParseUri(peer_address);
      if (!peer.ok()) return WriteAttribute(kPeerAddress, peer_address, json);
      WriteAttribute(kTransport, peer->scheme, json);
      WriteAttribute(kPeerAddress, peer->host, json);
      WriteAttribute(kPeerPort, int64_t{peer->port}, json);
      if (kind == Span::Kind::kClient) {
        WriteAttribute(kServerAddress, peer->host, json);
        WriteAttribute(kServerPort, int64_t{peer->port}, json);
      }
    }

    // The application's. How many are not among the attributes.
    uint32_t WriteAttributes(JsonWriter& json) const {
      uint32_t dropped = dropped_attributes;
      for (const SpanAttribute& each : attributes) {
        if (IsOwnKey(each.key)) {
          ++dropped;
        } else {
          std::visit([&](const auto& value) { WriteAttribute(each.key, value, json); }, each.value);
        }
      }
      return dropped;
    }
  };

  // The object of Protobuf's JSON, as it stands in each line.
  static std::string ResourceOf(const Options& options) {
    JsonWriter json(JsonWriter::Layout::kDense);
    json.BeginObject();
    json.Name("attributes").BeginList();
    WriteAttribute(kServiceName, options.service_name, json);
    WriteAttribute(kServiceInstanceId,
                   options.service_instance_id.empty() ? RandomUuid() : options.service_instance_id, json);
    for (const auto& [key, value] : options.attributes) WriteAttribute(key, value, json);
    json.EndList();
    json.EndObject();
    return std::move(json).Take();
  }

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || stopping_; }

  void Run() {
    const WriteSignalsBlocked blocked;
    while (true) {
      std::deque<Queued> spans;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Writer::HasWork));
        if (queue_.empty()) return;
        while (!queue_.empty() && spans.size() < kSpansAtOnce) {
          spans.push_back(std::move(queue_.front()));
          queue_.pop_front();
        }
      }
      while (!spans.empty()) {
        const size_t before = spans.size();
        const bool is_written = Write(Line(spans));
        const size_t count = before - spans.size();
        absl::MutexLock lock(&mutex_);
        done_ += count;
        if (!is_written) dropped_ += count;
      }
    }
  }

  // Takes the spans of one line.
  std::string Line(std::deque<Queued>& spans) const {
    JsonWriter json(JsonWriter::Layout::kDense);
    json.BeginObject();
    json.Name("resourceSpans").BeginList();
    json.BeginObject();
    json.Name("resource").Raw(resource_);
    json.Name("scopeSpans").BeginList();
    json.BeginObject();
    json.Name("scope").BeginObject();
    json.Name("name").String("hawser");
    json.EndObject();
    json.Name("spans").BeginList();
    while (!spans.empty() && json.size_bytes() < kLineBytes) {
      spans.front().Write(json);
      spans.pop_front();
    }
    json.EndList();
    json.EndObject();
    json.EndList();
    json.EndObject();
    json.EndList();
    json.EndObject();
    return std::move(json).Take() + "\n";
  }

  // False: not all of it was written.
  bool Write(std::string line) {
    if (is_torn_) line.insert(line.begin(), '\n');
    struct stat file = {};
    if (fstat(file_.get(), &file) == 0 && S_ISREG(file.st_mode) &&
        file.st_size + static_cast<int64_t>(line.size()) > options_.bytes_max) {
      NotifyFailure(
          absl::StrCat("the file has ", file.st_size, " bytes (OtlpTraceSink::Options::bytes_max)"));
      return false;
    }
    off_t begin = -1;  // Where the line begins in the file, if that has places.
    for (absl::string_view rest = line; !rest.empty();) {
      const ssize_t n = write(file_.get(), rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        NotifyFailure(n < 0 ? DescribeErrno(errno) : "nothing was written");
        const size_t written = line.size() - rest.size();
        if (written > 0 && !TakeBack(begin, written)) is_torn_ = true;
        return false;
      }
      if (rest.size() == line.size()) begin = lseek(file_.get(), 0, SEEK_CUR) - n;
      rest.remove_prefix(static_cast<size_t>(n));
    }
    is_torn_ = false;
    if (std::exchange(is_failing_, false)) {
      transport::Log(LogSeverity::kInfo,
                     absl::StrCat("spans are written to ", options_.path,
                                  " again; dropped meanwhile: ", dropped() - dropped_before_failure_));
    }
    return true;
  }

  // Makes the file end with its last whole line again, after the first `written` bytes of a line. False: it
  // is a pipe, it must not become shorter (chattr +a), or another writer has appended to it since `begin`.
  bool TakeBack(off_t begin, size_t written) {
    struct stat file = {};
    return begin >= 0 && fstat(file_.get(), &file) == 0 && S_ISREG(file.st_mode) &&
           file.st_size == begin + static_cast<off_t>(written) && ftruncate(file_.get(), begin) == 0;
  }

  // Once, until a write succeeds.
  void NotifyFailure(absl::string_view why) {
    if (std::exchange(is_failing_, true)) return;
    dropped_before_failure_ = dropped();
    transport::Log(LogSeverity::kError, absl::StrCat("spans cannot be written to ", options_.path, ": ", why,
                                                     "; they are dropped until they can"));
  }

  const Options options_;
  const std::string resource_;  // Its attributes, in JSON.
  const ForkMark fork_mark_;
  UniqueFd file_;
  // Used by the thread.
  bool is_torn_ = false;  // The last line is not complete, so a newline comes before the next one.
  bool is_failing_ = false;
  uint64_t dropped_before_failure_ = 0;

  mutable absl::Mutex mutex_;
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  // How many spans were queued, and how many of these were written or dropped.
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

absl::StatusOr<std::shared_ptr<OtlpTraceSink>> OtlpTraceSink::Open(Options options) {
  if (options.service_name.empty()) {
    return absl::InvalidArgumentError(
        "OtlpTraceSink::Options::service_name is empty: what reads the spans tells programs apart by it");
  }
  if (absl::Status in_range = CheckOption("OtlpTraceSink::Options::bytes_max", options.bytes_max, int64_t{1},
                                          std::numeric_limits<int64_t>::max());
      !in_range.ok()) {
    return in_range;
  }
  std::set<absl::string_view> keys = {"", kServiceName, kServiceInstanceId};
  for (const auto& [key, value] : options.attributes) {
    if (!keys.insert(key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("OtlpTraceSink::Options::attributes: the key \"", key,
                       "\" is empty, comes twice, or has an option of its own"));
    }
  }
  if (options.path.empty()) {
    return absl::InvalidArgumentError(
        "OtlpTraceSink::Options::path is empty: it is the file to write spans to");
  }
  auto writer = std::make_unique<Writer>(std::move(options));
  // The file comes last, so that none is made for a sink that there is not.
  if (absl::Status status = writer->Start(); !status.ok()) return status;
  if (absl::Status status = writer->Open(); !status.ok()) {
    writer->Stop();
    return status;
  }
  return std::shared_ptr<OtlpTraceSink>(new OtlpTraceSink(writer.release()));
}

OtlpTraceSink::~OtlpTraceSink() {
  if (writer_->in_child()) return;
  writer_->Stop();
  delete writer_;
}

void OtlpTraceSink::OnSpan(const Span& span) {
  if (!writer_->in_child()) writer_->Add(span);
}
void OtlpTraceSink::Flush() {
  if (!writer_->in_child()) writer_->Flush();
}
uint64_t OtlpTraceSink::dropped() const { return writer_->dropped(); }

}  // namespace hawser
