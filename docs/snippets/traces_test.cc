// Snippets of docs/guide.md: traces.

#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "docs/snippets/page_store.h"
#include "hawser/rpc/otlp_trace_sink.h"
#include "hawser/rpc/trace.h"

namespace pages {
namespace {

absl::Status TraceTo(const std::string& path) {
  // snippet: traces
  auto sink = hawser::OtlpTraceSink::Open({.path = path, .service_name = "pages"});
  if (!sink.ok()) return sink.status();
  return hawser::SetTraceSink(*sink, {.sample_rate = 0.01});
  // end of snippet
}

hawser::ServerOptions CountingLosses(const std::shared_ptr<hawser::OtlpTraceSink>& sink) {
  hawser::ServerOptions options;
  // snippet: trace_losses
  options.metrics = [sink] {
    return absl::StrCat("# TYPE pages_spans_dropped_total counter\npages_spans_dropped_total ",
                        sink->dropped(), "\n");
  };
  // end of snippet
  return options;
}

class Logging : public PlainPages {
 public:
  // snippet: trace_in_log
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    if (const hawser::TraceContext* trace = hawser::TraceContext::Current(); trace != nullptr) {
      LogLine(absl::StrCat("read ", request.getNumber(), " for trace ", trace->ToString()));
    }
    return PlainPages::Read(context, request, reply);
  }
  // end of snippet

  // snippet: span_attributes
  absl::Status Write(hawser::ServerContext& context, Pages::WriteParams::Reader request,
                     Pages::WriteResults::Builder reply) override {
    context.SetSpanAttribute("page.number", request.getNumber());
    context.SetSpanAttribute("page.is_empty", request.getPage().size() == 0);
    return PlainPages::Write(context, request, reply);
  }
  // end of snippet

  void LogLine(std::string line) {
    absl::MutexLock lock(&log_mutex_);
    logged = std::move(line);
  }
  absl::Mutex log_mutex_;
  std::string logged;
};

TEST(TracesTest, AHandlerKnowsItsTraceAndTheSpansAreInTheFile) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/traces.jsonl");
  ASSERT_TRUE(TraceTo(path).ok());
  Logging store;
  hawser::Server server;
  PagesStub pages(Connect(Serve(server, store)));
  const hawser::Metadata sampled = {
      {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}};
  auto call = pages.Read({.metadata = &sampled});
  call.request().setNumber(7);
  EXPECT_EQ(call.Send().Wait().status().code(), absl::StatusCode::kNotFound);
  {
    absl::MutexLock lock(&store.log_mutex_);
    EXPECT_TRUE(absl::StartsWith(store.logged, "read 7 for trace 00-4bf92f3577b34da6a3ce929d0e0e4736-"));
  }
  auto write = pages.Write({.metadata = &sampled});
  write.request().setNumber(7);
  write.SetSpanAttribute("job", "nightly");
  EXPECT_TRUE(write.Send().Wait().ok());
  EXPECT_TRUE(Eventually([&] {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return absl::StrContains(text.str(), "pages.capnp:Pages.read") &&
           absl::StrContains(text.str(), "page.is_empty") && absl::StrContains(text.str(), "nightly");
  }));
  EXPECT_TRUE(hawser::SetTraceSink(nullptr).ok());
}

TEST(TracesTest, AProgramCountsTheSpansThatItsSinkDrops) {
  const auto sink = hawser::OtlpTraceSink::Open({.path = "/dev/full", .service_name = "pages"});
  ASSERT_TRUE(sink.ok());
  const hawser::TraceContext context =
      *hawser::TraceContext::Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  (*sink)->OnSpan({hawser::Span::Kind::kClient, context, std::nullopt, "m", "p", absl::Now(), absl::Now(),
                   absl::OkStatus()});
  (*sink)->Flush();
  EXPECT_EQ(CountingLosses(*sink).metrics(),
            "# TYPE pages_spans_dropped_total counter\npages_spans_dropped_total 1\n");
}

}  // namespace
}  // namespace pages
