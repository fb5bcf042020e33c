#ifndef HAWSER_RPC_OTLP_TRACE_SINK_H_
#define HAWSER_RPC_OTLP_TRACE_SINK_H_

// Spans in a file, for the OpenTelemetry Collector:
//
//   auto sink = hawser::OtlpTraceSink::Open({.path = path,  // "/var/log/pages/traces.jsonl"
//                                            .service_name = "pages",
//                                            .attributes = {{"deployment.environment.name", "staging"}}});
//   if (!sink.ok()) return sink.status();
//   return hawser::SetTraceSink(*sink, {.sample_rate = 0.01});  // Of the traces that begin in this process.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hawser/rpc/trace.h"

namespace hawser {

// Writes spans to a file in OTLP's JSON (opentelemetry.io, "OTLP File Exporter"): each line is one
// ExportTraceServiceRequest, which the OpenTelemetry Collector reads with its otlpjsonfile receiver. A
// program that uses it links @hawser//rpc:otlp_trace_sink.
//
// A span's name is the method; its attributes are rpc.system, rpc.service, rpc.method, network.transport
// ("tcp" or "rdma"), network.peer.address ("10.0.0.7"), network.peer.port, at a client also server.address
// and server.port, and rpc.response.status_code ("NOT_FOUND"). The span of a call that failed is marked as an
// error at a client. At a server only these are, by OpenTelemetry's conventions for RPC: UNKNOWN,
// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS; the others are answers that the
// server meant to give. An error has the text of the call's status, up to 256 bytes, as the message of the
// span's status. Only errors may have one, so the other calls that failed have the text as the attribute
// hawser.status_message.
//
// Behind these are the application's own (rpc/trace.h, SetSpanAttribute()). One with the key of one of these
// is left out, and counted in droppedAttributesCount like those that exceeded the bounds.
//
// Thread:   any. A thread of its own writes. OnSpan() copies the span and waits for no file.
// Lifetime: the destructor writes what is queued, and so does exit(), for 5 s at most. A process that ends by
//           _exit() or a signal loses that: call Flush() before. A child made by fork() has no sink until it
//           sets one.
// Failure:  the log says once when a write fails, and when one succeeds again, with the number of spans that
//           were dropped meanwhile. A span that cannot be written, or that finds 4096 others queued, is
//           dropped and counted. If the disk takes only a part of a line, the sink removes that part, so the
//           file ends with a whole line. It cannot do so in a pipe, in a file that may only be appended to
//           (chattr +a), or in one with another writer: there the next line begins with a newline, so that
//           readers can skip the part. The rest of a line is never written later, because the next reader of
//           a pipe has not seen its beginning.
class OtlpTraceSink final : public TraceSink {
 public:
  struct Options {
    std::string path;  // Appended to; created, readable and writable by its owner and readable by its group.
    std::string service_name;  // The resource's service.name.
    // The resource's service.instance.id, which tells the processes of a service apart. Empty: a random UUID.
    std::string service_instance_id = {};
    // Further attributes of the resource, such as {"deployment.environment.name", "staging"}: keys and
    // values, in UTF-8.
    std::vector<std::pair<std::string, std::string>> attributes = {};
    // The most that the file may have. Beyond that the sink drops spans until it is smaller. Rotate it by
    // truncation (logrotate: copytruncate).
    int64_t bytes_max = int64_t{1} << 30;
  };

  // InvalidArgument: no path, or no service_name; bytes_max below 1; or a key of `attributes` is empty, comes
  // twice, or is one of the two above. NotFound: `path` is a pipe that nothing has open to read, or a folder
  // of it is not there. Otherwise the error of open(2), or of starting the thread.
  static absl::StatusOr<std::shared_ptr<OtlpTraceSink>> Open(Options options);
  ~OtlpTraceSink() override;
  OtlpTraceSink(const OtlpTraceSink&) = delete;
  OtlpTraceSink& operator=(const OtlpTraceSink&) = delete;

  void OnSpan(const Span& span) override;

  // Returns once everything that was queued before is written, or dropped. In a child after fork(): at once.
  void Flush();
  // Spans that were not written, since Open(). A program that has metrics can add it: guide.md, "Traces".
  uint64_t dropped() const;

 private:
  class Writer;
  explicit OtlpTraceSink(Writer* writer) : writer_(writer) {}

  Writer* const writer_;  // Leaked in a child after fork(), where its thread is not.
};

}  // namespace hawser

#endif  // HAWSER_RPC_OTLP_TRACE_SINK_H_
