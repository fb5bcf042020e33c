// Snippets with which headers of rpc/ open, and which the guide does not have.

#include <capnp/schema.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "docs/snippets/page_store.h"
#include "gmock/gmock.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/dynamic_call.h"
#include "hawser/rpc/executor.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/rpc/log.h"
#include "hawser/rpc/message_ring.h"
#include "hawser/rpc/otlp_trace_sink.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/rpc/stats.h"
#include "hawser/rpc/status_page.h"
#include "hawser/rpc/task.h"
#include "hawser/rpc/trace.h"

namespace pages {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<std::shared_ptr<hawser::Channel>> Open(const std::string& uri, std::atomic<int>& lines) {
  const auto log_line = [&lines](const std::string&) { ++lines; };
  // snippet: channel
  hawser::ChannelOptions options;
  options.default_timeout = absl::Seconds(2);  // Of calls that name none.
  options.on_state_change = [log_line](hawser::ChannelState state, const absl::Status& why) {
    log_line(absl::StrCat(hawser::ToString(state), ": ", why.ToString()));
  };
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(uri, options);
  if (!channel.ok()) return channel.status();
  PagesStub pages(*channel);  // Any number of stubs and threads share the channel.
  // end of snippet
  return pages.channel();
}

absl::StatusOr<std::string> ReadPage(const PagesStub& pages, uint64_t number) {
  // snippet: call
  auto call = pages.Read({.timeout = absl::Seconds(5)});
  call.request().setNumber(number);  // Built in registered memory.
  absl::StatusOr<hawser::Reply<Pages::ReadResults>> reply = call.Send().Wait();  // Or Then(), or co_await.
  if (!reply.ok()) return reply.status();
  const capnp::Data::Reader page = (*reply)->getPage();  // Valid as long as `reply`.
  return std::string(page.asChars().begin(), page.size());
  // end of snippet
}

TEST(HeadersTest, ACallReadsAPageOverAChannel) {
  PlainPages store;
  hawser::Server server;
  std::atomic<int> lines{0};
  const auto channel = Open(Serve(server, store), lines);
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_TRUE(Eventually([&] { return lines > 0; }));
  const PagesStub pages(*channel);
  ASSERT_TRUE(Write(pages, 1, "one").ok());
  const auto page = ReadPage(pages, 1);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(*page, "one");
  EXPECT_EQ(ReadPage(pages, 2).status().code(), absl::StatusCode::kNotFound);
}

absl::StatusOr<std::string> ReadPageByName(const std::shared_ptr<hawser::Channel>& channel, uint64_t number) {
  // snippet: dynamic_call
  const capnp::InterfaceSchema pages = capnp::Schema::from<Pages>();  // Or from a capnp::SchemaLoader.
  auto call = hawser::DynamicCall::Create(channel, pages.getMethodByName("read"));
  if (!call.ok()) return call.status();
  call->request().set("number", number);
  absl::StatusOr<hawser::Reply<capnp::DynamicStruct>> reply = call->Send().Wait();
  if (!reply.ok()) return reply.status();
  const auto page = (*reply)->get("page").as<capnp::Data>();
  // end of snippet
  return Text(page);
}

TEST(HeadersTest, ADynamicCallReadsAPage) {
  PlainPages store;
  hawser::Server server;
  const auto channel = Connect(Serve(server, store));
  ASSERT_TRUE(Write(PagesStub(channel), 1, "one").ok());
  const auto page = ReadPageByName(channel, 1);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(*page, "one");
}

class NumberPages : public PlainPages {
 public:
  // snippet: service
  absl::Status Read(hawser::ServerContext&, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    if (request.getNumber() == 0) return absl::NotFoundError("pages are counted from 1");
    reply.setPage(Bytes(std::to_string(request.getNumber())));
    return absl::OkStatus();
  }
  // end of snippet
};

absl::Status ServePages(NumberPages& pages) {
  const auto wait_for_signal = [](const std::string& uri) {
    EXPECT_THAT(uri, StartsWith("tcp://[::]:"));
    const PagesStub stub(Connect(absl::StrCat("tcp://[::1]:", uri.substr(uri.rfind(':') + 1))));
    EXPECT_EQ(Read(stub, 3), "3");
    EXPECT_THAT(Read(stub, 0), HasSubstr("counted from 1"));
  };
  // snippet: whole_server
  hawser::ServerOptions options;
  options.status_address = "0";  // A page for people, and /metrics, on a port that is free.
  hawser::Server server(std::move(options));
  absl::Status added = server.AddService(&pages);  // A PagesService; outlives the server.
  if (!added.ok()) return added;
  absl::StatusOr<std::string> uri = server.Listen("tcp://[::]:0");  // The URI with the real port.
  if (!uri.ok()) return uri.status();
  wait_for_signal(*uri);
  return server.Shutdown(absl::Now() + absl::Seconds(10));
  // end of snippet
}

TEST(HeadersTest, AServerServesUntilItIsShutDown) {
  NumberPages pages;
  const absl::Status served = ServePages(pages);
  EXPECT_TRUE(served.ok()) << served;
}

absl::Status WriteOnExecutor() {
  PlainPages pages;
  // snippet: handlers_on_executor
  absl::StatusOr<std::unique_ptr<hawser::Executor>> executor = hawser::Executor::Create({.threads = 8});
  if (!executor.ok()) return executor.status();
  hawser::ServerOptions options;
  options.executor = (*executor)->ForHandlers();  // Handlers may block these threads.
  hawser::Server server(std::move(options));      // Declared after the executor, which outlives it.
  // end of snippet
  return Write(PagesStub(Connect(Serve(server, pages))), 1, "one");
}

TEST(HeadersTest, AnExecutorRunsTheHandlersOfAServer) { EXPECT_TRUE(WriteOnExecutor().ok()); }

class FrontPages : public PlainPages {
 public:
  explicit FrontPages(std::shared_ptr<hawser::Channel> backend) : backend_(std::move(backend)) {}

  // snippet: small_task
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    return ReadLater(context.Defer(), request.getNumber(), reply);
  }
  hawser::Task ReadLater(hawser::DeferredCall call, uint64_t number, Pages::ReadResults::Builder reply) {
    auto read = backend_.Read(hawser::CallOptions::For(call.context()));
    read.request().setNumber(number);
    auto page = co_await read.Send();  // Holds no thread meanwhile.
    if (page.ok()) reply.setPage((*page)->getPage());
    co_return page.status();
  }
  // end of snippet

 private:
  PagesStub backend_;
};

TEST(HeadersTest, ATaskAnswersWithWhatAnotherServerSays) {
  PlainPages back;
  hawser::Server back_server;
  const auto to_back = Connect(Serve(back_server, back));
  FrontPages front(to_back);
  hawser::Server front_server;
  const PagesStub stub(Connect(Serve(front_server, front)));
  ASSERT_TRUE(Write(PagesStub(to_back), 1, "one").ok());
  EXPECT_EQ(Read(stub, 1), "one");
  EXPECT_THAT(Read(stub, 2), HasSubstr("no such page"));
}

// snippet: stamp
class Stamp : public hawser::Interceptor {
 public:
  explicit Stamp(std::string tenant) : tenant_(std::move(tenant)) {}
  absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) override {
    call.outgoing_metadata.Add("tenant", tenant_);
    return nullptr;  // Its end does not matter.
  }

 private:
  const std::string tenant_;
};
// end of snippet

class TenantPages : public PlainPages {
 public:
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader,
                    Pages::ReadResults::Builder reply) override {
    reply.setPage(Bytes(std::string(context.metadata().Get("tenant").value_or(""))));
    return absl::OkStatus();
  }
};

TEST(HeadersTest, AnInterceptorNamesTheTenantInEachCall) {
  TenantPages pages;
  hawser::Server server;
  hawser::ChannelOptions options;
  options.interceptors = {std::make_shared<Stamp>("blue")};
  EXPECT_EQ(Read(PagesStub(Connect(Serve(server, pages), std::move(options))), 1), "blue");
}

class TablesImpl : public TablesService {
 public:
  // snippet: share
  absl::Status Start(hawser::Server& server) {  // Before its first Listen().
    absl::StatusOr<hawser::SharedMemory> table = server.Share(64 << 20);
    if (!table.ok()) return table.status();
    table_ = *std::move(table);
    return absl::OkStatus();
  }
  absl::Status Open(hawser::ServerContext& context, Tables::OpenParams::Reader,
                    Tables::OpenResults::Builder reply) override {
    return context.Grant(*table_, {.length = 1 << 20, .access = hawser::Access::kRead}, reply.initTable());
  }
  std::optional<hawser::SharedMemory> table_;
  // end of snippet
};

TEST(HeadersTest, SharedMemoryIsReadByAClient) {
  TablesImpl tables;
  hawser::Server server;
  ASSERT_TRUE(tables.Start(server).ok());
  tables.table_->data()[7] = 'r';
  const auto channel = Connect(Serve(server, tables));
  const auto opened = TablesStub(channel).Open().Send().Wait();
  ASSERT_TRUE(opened.ok()) << opened.status();
  hawser::RemoteMemory table(channel, (*opened)->getTable());
  uint8_t byte = 0;
  EXPECT_TRUE(table.Read(7, {&byte, 1}).Wait().ok());
  EXPECT_EQ(byte, 'r');
}

class RingImpl : public TablesService {
 public:
  void Lend(hawser::SharedMemory memory) { memory_.emplace(std::move(memory)); }
  absl::Status Open(hawser::ServerContext& context, Tables::OpenParams::Reader,
                    Tables::OpenResults::Builder reply) override {
    return context.Grant(*memory_, {.access = hawser::Access::kReadWrite}, reply.initTable());
  }

 private:
  std::optional<hawser::SharedMemory> memory_;
};

absl::Status SendOne(hawser::Server& server, RingImpl& tickets,
                     const std::shared_ptr<hawser::Channel>& channel, std::string& message) {
  // snippet: message_ring
  absl::StatusOr<hawser::SharedMemory> memory = server.Share(64 << 10);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<hawser::MessageRing> ring = hawser::MessageRing::Create(memory->bytes());
  if (!ring.ok()) return ring.status();
  tickets.Lend(*std::move(memory));  // Its handler grants kReadWrite to one client, which does this:
  auto opened = TablesStub(channel).Open().Send().Wait();
  if (!opened.ok()) return opened.status();
  hawser::RemoteRing remote(hawser::RemoteMemory(channel, (*opened)->getTable()));
  absl::Status sent = remote.Send("a message");
  if (!sent.ok()) return sent;
  absl::StatusOr<bool> came = ring->Receive(message);  // The server, whenever it likes.
  // end of snippet
  if (!came.ok()) return came.status();
  return *came ? absl::OkStatus() : absl::NotFoundError("no message");
}

TEST(HeadersTest, AMessageCrossesARing) {
  RingImpl tickets;
  hawser::Server server;
  const auto channel = Connect(Serve(server, tickets));
  std::string message;
  EXPECT_EQ(SendOne(server, tickets, channel, message), absl::OkStatus());
  EXPECT_EQ(message, "a message");
}

TEST(HeadersTest, AServerCountsItsCalls) {
  PlainPages pages;
  hawser::Server server;
  const PagesStub stub(Connect(Serve(server, pages)));
  ASSERT_TRUE(Write(stub, 1, "one").ok());
  std::string report;
  // snippet: server_stats
  const hawser::ServerStats stats = server.stats();
  report = absl::StrCat(stats.calls_running, " of ", stats.calls_total, " calls are running; ");
  absl::StrAppend(&report, stats.violations[hawser::Violation::kSlot], " peers used a wrong slot");
  for (const hawser::PollerStats& poller : stats.pollers) {
    absl::StrAppend(&report, "; ", ToString(poller));  // "spins for 16us: ..."
  }
  // end of snippet
  EXPECT_THAT(report, StartsWith("0 of 1 calls are running; 0 peers used a wrong slot; "));
}

absl::StatusOr<std::string> ShowStatus() {
  std::atomic<int> pages_read{7};
  // snippet: status_page
  const auto metrics = [&pages_read] {
    return absl::StrCat("# TYPE pages_read_total counter\npages_read_total ", pages_read.load(), "\n");
  };
  auto page = hawser::StartStatusPage("0", metrics);  // "9090": that port, for this machine only. 0: any.
  if (!page.ok()) return page.status();
  return (*page)->url();  // "http://127.0.0.1:9090", until `page` is destroyed.
  // end of snippet
}

TEST(HeadersTest, AProgramWithoutAServerHasAStatusPage) {
  const absl::StatusOr<std::string> url = ShowStatus();
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_THAT(*url, StartsWith("http://127.0.0.1:"));
}

class LogFile {
 public:
  void Append(absl::string_view line) {
    absl::MutexLock lock(&mutex_);
    absl::StrAppend(&text_, line, "\n");
  }
  std::string text() {
    absl::MutexLock lock(&mutex_);
    return text_;
  }

 private:
  absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

void LogTo(LogFile& file) {
  // snippet: log_levels
  hawser::SetLogLevel(hawser::LogSeverity::kDebug);  // Connections that open and close, too.
  hawser::SetLogSink([&file](hawser::LogSeverity severity, absl::string_view line) {
    if (severity >= hawser::LogSeverity::kWarning) file.Append("Look at this: ");
    file.Append(line);  // On the log's own thread: it may block.
  });
  // end of snippet
}

TEST(HeadersTest, ASinkGetsTheLinesOfTheLog) {
  LogFile file;
  LogTo(file);
  {
    PlainPages pages;
    hawser::Server server;
    ASSERT_TRUE(Write(PagesStub(Connect(Serve(server, pages))), 1, "one").ok());
  }
  EXPECT_TRUE(Eventually([&] { return !file.text().empty(); }));
  hawser::SetLogSink({});
}

absl::Status TraceTo(const std::string& path) {
  // snippet: otlp_trace_sink
  auto sink = hawser::OtlpTraceSink::Open({.path = path,  // "/var/log/pages/traces.jsonl"
                                           .service_name = "pages",
                                           .attributes = {{"deployment.environment.name", "staging"}}});
  if (!sink.ok()) return sink.status();
  return hawser::SetTraceSink(*sink, {.sample_rate = 0.01});  // Of the traces that begin in this process.
  // end of snippet
}

TEST(HeadersTest, SpansAreInAFile) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/traces.jsonl");
  ASSERT_TRUE(TraceTo(path).ok());
  PlainPages pages;
  hawser::Server server;
  const PagesStub stub(Connect(Serve(server, pages)));
  const hawser::Metadata sampled = {
      {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}};
  EXPECT_FALSE(stub.Read({.metadata = &sampled}).Send().Wait().ok());
  EXPECT_TRUE(Eventually([&] {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return absl::StrContains(text.str(), "staging") && absl::StrContains(text.str(), "Pages.read");
  }));
  EXPECT_TRUE(hawser::SetTraceSink(nullptr).ok());
}

}  // namespace
}  // namespace pages
