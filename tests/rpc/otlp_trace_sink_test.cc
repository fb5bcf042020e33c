// Spans as lines of OTLP's JSON.

#include "hawser/rpc/otlp_trace_sink.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hawser/rpc/log.h"
#include "hawser/rpc/wire/tracing.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

// Of a child that ends by exit(): what it has of its parent's, and leaves, is no leak.
static bool is_exiting_child = false;
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return is_exiting_child ? 1 : 0; }  // Asked by LeakSanitizer.

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class OtlpTraceSinkTest : public ::testing::Test {
 protected:
  ~OtlpTraceSinkTest() override {
    EXPECT_THAT(SetTraceSink(nullptr), IsOk());
    unlink(path_.c_str());
  }

  std::shared_ptr<OtlpTraceSink> Open(const std::string& path) {
    auto sink = OtlpTraceSink::Open({.path = path,
                                     .service_name = "kv \"1\"",
                                     .service_instance_id = "kv-1",
                                     .attributes = {{"a \"key\"", "a \"value\""}, {"zone", "z1"}}});
    EXPECT_THAT(sink, IsOk());
    return sink.ok() ? *sink : nullptr;
  }
  std::string Written() {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  static size_t SpansIn(const std::string& written) {
    size_t spans = 0;
    for (size_t at = written.find("\"traceId\""); at != std::string::npos;
         at = written.find("\"traceId\"", at + 1)) {
      ++spans;
    }
    return spans;
  }

  const std::string path_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/spans.jsonl");
  const TraceContext context_ =
      *TraceContext::Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  const absl::Time start_ = absl::FromUnixNanos(1'700'000'000'123'456'789);
};

TEST_F(OtlpTraceSinkTest, ASpanIsOneRequestOnOneLine) {
  const auto sink = Open(path_);
  const absl::Status not_found = absl::NotFoundError("no \"tow\"\n\xff\u202e");
  const std::array<uint8_t, 8> parent = {0xb7, 0, 0, 0, 0, 0, 0, 1};
  sink->OnSpan({Span::Kind::kServer, context_, parent, "kv.capnp:KeyValue.get", "tcp://10.0.0.7:51234",
                start_, start_ + absl::Nanoseconds(1500), not_found});
  sink->Flush();
  EXPECT_EQ(
      Written(),
      "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{"
      "\"stringValue\":"
      "\"kv \\\"1\\\"\"}},{\"key\":\"service.instance.id\",\"value\":{\"stringValue\":\"kv-1\"}},{\"key\":"
      "\"a \\\"key\\\"\",\"value\":{\"stringValue\":\"a \\\"value\\\"\"}},{\"key\":\"zone\",\"value\":{"
      "\"stringValue\":\"z1\"}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"hawser\"},\"spans\":[{\"traceId\":"
      "\"4bf92f3577b34da6a3ce929d0e0e4736\",\"spanId\":\"00f067aa0ba902b7\",\"parentSpanId\":"
      "\"b700000000000001\",\"name\":\"kv.capnp:KeyValue.get\",\"kind\":2,\"startTimeUnixNano\":"
      "\"1700000000123456789\",\"endTimeUnixNano\":\"1700000000123458289\",\"attributes\":[{\"key\":"
      "\"rpc.system\",\"value\":{\"stringValue\":\"hawser\"}},{\"key\":\"rpc.service\",\"value\":"
      "{\"stringValue\":\"kv.capnp:KeyValue\"}},{\"key\":\"rpc.method\",\"value\":{\"stringValue\":\"get\"}},"
      "{\"key\":\"network.transport\",\"value\":{\"stringValue\":\"tcp\"}},"
      "{\"key\":\"network.peer.address\",\"value\":{\"stringValue\":\"10.0.0.7\"}},"
      "{\"key\":\"network.peer.port\",\"value\":{\"intValue\":\"51234\"}},{\"key\":"
      "\"rpc.response.status_code\",\"value\":{\"stringValue\":\"NOT_FOUND\"}},{\"key\":"
      "\"hawser.status_message\",\"value\":{\"stringValue\":"
      "\"no \\\"tow\\\"\\n\\ufffd\\u202e\"}}]}]}]}]}\n");
}

TEST_F(OtlpTraceSinkTest, AttributesOfTheApplicationFollowThoseOfTheCall) {
  const auto sink = Open(path_);
  const absl::Status ok;
  const std::vector<SpanAttribute> attributes = {{"a \"key\"", std::string("a \"value\"\n\xff")},
                                                 {"rpc.method", std::string("another")},
                                                 {"pages", int64_t{-5}},
                                                 {"hit", true},
                                                 {"dirty", false}};
  sink->OnSpan({Span::Kind::kServer, context_, std::nullopt, "m", "p", start_, start_, ok, attributes, 2});
  sink->Flush();
  EXPECT_THAT(
      Written(),
      HasSubstr("{\"key\":\"rpc.response.status_code\",\"value\":{\"stringValue\":\"OK\"}},"
                "{\"key\":\"a \\\"key\\\"\",\"value\":{\"stringValue\":\"a \\\"value\\\"\\n\\ufffd\"}},"
                "{\"key\":\"pages\",\"value\":{\"intValue\":\"-5\"}},"
                "{\"key\":\"hit\",\"value\":{\"boolValue\":true}},"
                "{\"key\":\"dirty\",\"value\":{\"boolValue\":false}}],"
                "\"droppedAttributesCount\":3}"));
  EXPECT_EQ(truncate(path_.c_str(), 0), 0);
  sink->OnSpan({Span::Kind::kServer, context_, std::nullopt, "m", "p", start_, start_, ok});
  sink->Flush();
  EXPECT_THAT(Written(), Not(HasSubstr("droppedAttributesCount")));
}

TEST_F(OtlpTraceSinkTest, TheFirstSpanOfATraceHasNoParentAndASuccessNoStatus) {
  const auto sink = Open(path_);
  const absl::Status ok;
  sink->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok});
  sink->Flush();
  EXPECT_THAT(Written(), Not(HasSubstr("parentSpanId")));
  EXPECT_THAT(Written(), Not(HasSubstr("\"status\"")));
  EXPECT_THAT(Written(), HasSubstr("\"kind\":3"));
}

TEST_F(OtlpTraceSinkTest, AnErrorWithoutTextHasTheCodeAlone) {
  const auto sink = Open(path_);
  for (const absl::StatusCode code : {absl::StatusCode::kInternal, absl::StatusCode::kNotFound}) {
    sink->OnSpan(
        {Span::Kind::kServer, context_, std::nullopt, "m", "p", start_, start_, absl::Status(code, "")});
  }
  sink->Flush();
  EXPECT_THAT(Written(), HasSubstr("\"status\":{\"code\":2}"));
  EXPECT_THAT(Written(), Not(HasSubstr("message")));
}

TEST_F(OtlpTraceSinkTest, AServersSpanIsAnErrorOnlyIfTheServerFailed) {
  const auto sink = Open(path_);
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "no");
    for (const Span::Kind kind : {Span::Kind::kClient, Span::Kind::kServer}) {
      sink->OnSpan({kind, context_, std::nullopt, "m", "tcp://p:1", start_, start_, status});
      sink->Flush();
      const bool is_error = Written().find("\"status\":{\"code\":2,\"message\":\"no\"}") != std::string::npos;
      const std::set<int> of_servers = {2, 4, 12, 13, 14, 15};
      EXPECT_EQ(is_error, kind == Span::Kind::kClient || of_servers.count(code) != 0) << status;
      // The text is there once: a status without the code of an error must have none.
      const bool has_attribute =
          Written().find("{\"key\":\"hawser.status_message\",\"value\":{\"stringValue\":\"no\"}}") !=
          std::string::npos;
      EXPECT_EQ(has_attribute, !is_error) << status;
      EXPECT_EQ(Written().find("\"status\":") != std::string::npos, is_error) << status;
      EXPECT_EQ(truncate(path_.c_str(), 0), 0);
    }
  }
}

TEST_F(OtlpTraceSinkTest, AnAddressIsSplitAsFarAsItCanBe) {
  const auto sink = Open(path_);
  const absl::Status ok;
  const auto written = [&](Span::Kind kind, const char* address) {
    sink->OnSpan({kind, context_, std::nullopt, "m", address, start_, start_, ok});
    sink->Flush();
    std::string line = Written();
    EXPECT_EQ(truncate(path_.c_str(), 0), 0);
    return line;
  };
  const std::string server = written(Span::Kind::kServer, "rdma://[fd00::1]:7470");
  EXPECT_THAT(server, HasSubstr("\"network.transport\",\"value\":{\"stringValue\":\"rdma\"}"));
  EXPECT_THAT(server, HasSubstr("\"network.peer.address\",\"value\":{\"stringValue\":\"fd00::1\"}"));
  EXPECT_THAT(server, Not(HasSubstr("server.address")));
  const std::string client = written(Span::Kind::kClient, "tcp://kv1:7470");
  EXPECT_THAT(client, HasSubstr("\"server.address\",\"value\":{\"stringValue\":\"kv1\"}"));
  EXPECT_THAT(client, HasSubstr("\"server.port\",\"value\":{\"intValue\":\"7470\"}"));
  const std::string other = written(Span::Kind::kClient, "elsewhere");
  EXPECT_THAT(other, HasSubstr("\"network.peer.address\",\"value\":{\"stringValue\":\"elsewhere\"}"));
  EXPECT_THAT(other, Not(HasSubstr("network.peer.port")));
}

TEST_F(OtlpTraceSinkTest, EachSinkThatIsGivenNoInstanceHasOneOfItsOwn) {
  const absl::Status ok;
  std::set<std::string> instances;
  for (int i = 0; i < 2; ++i) {
    const auto sink = OtlpTraceSink::Open({.path = path_, .service_name = "kv"});
    ASSERT_THAT(sink, IsOk());
    (*sink)->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok});
    (*sink)->Flush();
    const std::string before = "\"service.instance.id\",\"value\":{\"stringValue\":\"";
    const std::string text = Written();
    const size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos) << text;
    const std::string instance = text.substr(at + before.size(), 36);
    EXPECT_THAT(instance, ::testing::MatchesRegex(
                              "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    instances.insert(instance);
    EXPECT_EQ(truncate(path_.c_str(), 0), 0);
  }
  EXPECT_EQ(instances.size(), 2u);
}

TEST_F(OtlpTraceSinkTest, AttributesThatClashAreRefused) {
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  for (const Attributes& attributes :
       {Attributes{{"", "x"}}, Attributes{{"a", "x"}, {"a", "y"}}, Attributes{{"service.name", "x"}},
        Attributes{{"service.instance.id", "x"}}}) {
    EXPECT_THAT(OtlpTraceSink::Open({.path = path_, .service_name = "kv", .attributes = attributes}).status(),
                HasCode(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_NE(access(path_.c_str(), F_OK), 0) << "no file was made";
}

TEST_F(OtlpTraceSinkTest, EverySpanOfManyThreadsIsWrittenOnceBeforeTheSinkEnds) {
  constexpr int kThreads = 4, kEach = 200;
  {
    const auto sink = Open(path_);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        const absl::Status ok;
        for (int j = 0; j < kEach; ++j) {
          sink->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(sink->dropped(), 0u);
  }
  const std::string written = Written();
  EXPECT_EQ(SpansIn(written), static_cast<size_t>(kThreads * kEach));
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(written, '\n', absl::SkipEmpty()))) {
    EXPECT_THAT(line, StartsWith("{\"resourceSpans\""));
  }
}

TEST_F(OtlpTraceSinkTest, AFullDiskIsToldOnceAndTheSpansAreCounted) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
  const auto sink = Open("/dev/full");
  const absl::Status ok;
  for (int i = 0; i < 3; ++i) {
    sink->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok});
    sink->Flush();
  }
  EXPECT_EQ(sink->dropped(), 3u);
  SetLogSink({});
  EXPECT_THAT(lines.Take(),
              HasSubstr("spans cannot be written to /dev/full: no space left on device (ENOSPC)"));
  EXPECT_EQ(lines.size(), 0u);
}

// A limit of files stands for the disk: write(2) takes what there is room for, and fails after that.
TEST_F(OtlpTraceSinkTest, ALineWrittenInPartIsRemoved) {
  Box<std::string> lines;
  SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
  const auto sink = Open(path_);
  const absl::Status ok;
  const auto write = [&] {
    sink->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok});
    sink->Flush();
  };
  write();
  const std::string whole = Written();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full = {.rlim_cur = whole.size() + whole.size() / 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int i = 0; i < 3; ++i) write();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(Written(), whole);
  EXPECT_EQ(sink->dropped(), 3u);
  write();
  EXPECT_EQ(Written(), whole + whole);
  EXPECT_EQ(sink->dropped(), 3u);
  SetLogSink({});
  EXPECT_THAT(lines.Take(), HasSubstr("spans cannot be written to "));
  EXPECT_THAT(lines.Take(), HasSubstr("again; dropped meanwhile: 3"));
  EXPECT_EQ(lines.size(), 0u);
}

TEST_F(OtlpTraceSinkTest, TheTextOfAStatusIsCut) {
  const auto sink = Open(path_);
  const absl::Status long_text = absl::InternalError(std::string(256, 'x') + std::string(10'000, 'y'));
  sink->OnSpan({Span::Kind::kServer, context_, std::nullopt, "m", "p", start_, start_, long_text});
  sink->Flush();
  EXPECT_THAT(Written(), HasSubstr(absl::StrCat("\"message\":\"", std::string(256, 'x'), "\"}")));
  EXPECT_LT(Written().size(), 2000u);
}

// A sink whose thread is inside write(2), to a pipe that is full.
class BlockedSinkTest : public OtlpTraceSinkTest {
 protected:
  BlockedSinkTest() {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    reader_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(reader_, 0);
    const int capacity = fcntl(reader_, F_SETPIPE_SZ, 4096);
    sink_ = Open(path_);
    const std::string long_name(100'000, 'm');
    sink_->OnSpan({Span::Kind::kClient, context_, std::nullopt, long_name, "p", start_, start_, ok_});
    EXPECT_TRUE(Eventually([&] {
      int filled = 0;
      return ioctl(reader_, FIONREAD, &filled) == 0 && filled == capacity;
    }));
  }
  ~BlockedSinkTest() override {
    CloseReader();
    sink_ = nullptr;
  }

  void Add(int spans) {
    for (int i = 0; i < spans; ++i) {
      sink_->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok_});
    }
  }
  // Reads until the sink has written all.
  std::string ReadAll() {
    std::atomic<bool> is_flushed{false};
    std::thread flush([&] {
      sink_->Flush();
      is_flushed = true;
    });
    std::string all;
    char bytes[4096];
    for (bool is_last = false; true; is_last = is_flushed) {
      const ssize_t n = read(reader_, bytes, sizeof(bytes));
      if (n > 0) {
        all.append(bytes, static_cast<size_t>(n));
      } else if (is_last) {
        break;
      } else {
        sched_yield();
      }
    }
    flush.join();
    return all;
  }
  void CloseReader() {
    if (reader_ >= 0) close(reader_);
    reader_ = -1;
  }

  const absl::Status ok_;
  int reader_ = -1;
  std::shared_ptr<OtlpTraceSink> sink_;
};

TEST_F(BlockedSinkTest, TheQueueHas4096SpansAndWhatFindsItFullIsDroppedAndCounted) {
  Add(4096);
  EXPECT_EQ(sink_->dropped(), 0u);
  Add(10);
  EXPECT_EQ(sink_->dropped(), 10u);
  EXPECT_EQ(SpansIn(ReadAll()), 1u + 4096u);
  EXPECT_EQ(sink_->dropped(), 10u);
  Add(1);
  EXPECT_EQ(SpansIn(ReadAll()), 1u) << "there is room again";
  EXPECT_EQ(sink_->dropped(), 10u);
}

// The Collector's receiver cuts it there.
TEST_F(BlockedSinkTest, ALineIsBelow1MiBWhateverAttributesItsSpansHave) {
  std::vector<SpanAttribute> many;
  for (size_t i = 0; i < kSpanAttributesMax; ++i) many.push_back({absl::StrCat("k", i), int64_t{7}});
  const std::vector<SpanAttribute> long_ones = {{"key", std::string(kSpanAttributeBytesMax - 3, '\x01')}};
  for (int i = 0; i < 1000; ++i) {
    sink_->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok_,
                   i % 2 == 0 ? many : long_ones});
  }
  const std::string all = ReadAll();
  EXPECT_EQ(SpansIn(all), 1001u);
  for (const absl::string_view line : absl::StrSplit(all, '\n')) EXPECT_LT(line.size(), 1u << 20);
}

TEST_F(BlockedSinkTest, EachSpanOfALineThatCannotBeWrittenCounts) {
  Add(100);
  CloseReader();  // From here on write(2) fails, and does not end the process.
  sink_->Flush();
  EXPECT_EQ(sink_->dropped(), 101u);
}

TEST_F(BlockedSinkTest, AfterATornLineAPipesNextReaderGetsWholeLines) {
  CloseReader();
  sink_->Flush();
  EXPECT_EQ(sink_->dropped(), 1u);
  reader_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader_, 0);
  Add(1);
  const std::vector<std::string> read = absl::StrSplit(ReadAll(), '\n');
  ASSERT_EQ(read.size(), 3u);
  EXPECT_THAT(read[1], StartsWith("{\"resourceSpans\""));
  EXPECT_EQ(SpansIn(read[1]), 1u);
  EXPECT_EQ(read[2], "");
}

TEST_F(OtlpTraceSinkTest, AFileThatHasItsSizeTakesNoMoreUntilItIsTruncated) {
  const auto opened = OtlpTraceSink::Open({.path = path_, .service_name = "kv", .bytes_max = 2000});
  ASSERT_THAT(opened, IsOk());
  OtlpTraceSink& sink = **opened;
  const absl::Status ok;
  const auto write = [&] {
    sink.OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, ok});
    sink.Flush();
  };
  while (sink.dropped() == 0) write();
  const size_t size = Written().size();
  EXPECT_LE(size, 2000u);
  EXPECT_GT(size, 1000u);
  write();
  EXPECT_EQ(Written().size(), size);
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  write();
  EXPECT_THAT(Written(), StartsWith("{\"resourceSpans\""));
  EXPECT_EQ(sink.dropped(), 2u);
}

TEST_F(OtlpTraceSinkTest, CallsAreWritten) {
  TestServer server;
  server.probe.on_act = [](ServerContext& context, uint64_t number) {
    context.SetSpanAttribute("page.number", number);
    return absl::OkStatus();
  };
  const auto sink = Open(path_);
  ASSERT_THAT(SetTraceSink(sink), IsOk());
  auto call = probe::ProbeStub(server.Connect()).Act();
  call.request().setNumber(7);
  call.SetSpanAttribute("job", "nightly");
  ASSERT_THAT(call.Send().Wait(), IsOk());
  EXPECT_TRUE(Eventually([&] {
    sink->Flush();
    const std::string written = Written();
    return written.find("\"kind\":2") != std::string::npos && written.find("\"kind\":3") != std::string::npos;
  }));
  EXPECT_THAT(Written(), HasSubstr("\"name\":\"probe.capnp:Probe.act\""));
  EXPECT_THAT(Written(), HasSubstr("{\"key\":\"page.number\",\"value\":{\"intValue\":\"7\"}}"));
  EXPECT_THAT(Written(), HasSubstr("{\"key\":\"job\",\"value\":{\"stringValue\":\"nightly\"}}"));
}

TEST_F(OtlpTraceSinkTest, AChildOfForkDestroysItsCopyAndHasNoSink) {
  auto sink = Open(path_);
  ASSERT_THAT(SetTraceSink(sink), IsOk());
  EXPECT_TRUE(InChild([&] {
    sink.reset();
    return !internal::HasTrace(nullptr);
  }));
  EXPECT_TRUE(internal::HasTrace(nullptr)) << "the parent has it still";
}

// The child's sink writes into a pipe that takes one page, and nothing reads before exit() has begun.
TEST_F(OtlpTraceSinkTest, ExitWritesWhatIsQueued) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has no threads after fork()";
#endif
  constexpr size_t kSpans = 2000;
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const int reader = open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_GE(fcntl(reader, F_SETPIPE_SZ, 4096), 0);
  int exiting[2];
  ASSERT_EQ(pipe2(exiting, O_CLOEXEC), 0);
  static int tell_exit;
  tell_exit = exiting[1];
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // Ends a child that hangs.
    is_exiting_child = true;
    close(reader);
    const std::shared_ptr<OtlpTraceSink> sink = Open(path_);
    SetTraceSink(sink).IgnoreError();
    for (size_t i = 0; i < kSpans; ++i) {
      sink->OnSpan({Span::Kind::kClient, context_, std::nullopt, "m", "p", start_, start_, absl::OkStatus()});
    }
    // Runs before what the sink has registered.
    std::atexit([] { [[maybe_unused]] const ssize_t n = write(tell_exit, "", 1); });
    exit(0);
  }
  close(exiting[1]);
  char none;
  EXPECT_EQ(read(exiting[0], &none, 1), 1);
  close(exiting[0]);
  std::string all;
  char bytes[4096];
  ASSERT_EQ(fcntl(reader, F_SETFL, 0),
            0);  // From here on read() waits for more, or for the end of the child.
  for (ssize_t n; (n = read(reader, bytes, sizeof(bytes))) > 0;) all.append(bytes, static_cast<size_t>(n));
  close(reader);
  EXPECT_EQ(SpansIn(all), kSpans);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(OtlpTraceSinkTest, WhatCannotBeOpenedSaysWhy) {
  EXPECT_THAT(OtlpTraceSink::Open({.path = path_}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  const absl::Status nowhere = OtlpTraceSink::Open({.service_name = "kv"}).status();
  EXPECT_THAT(nowhere, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("OtlpTraceSink::Options::path is empty"));
  const auto missing = OtlpTraceSink::Open({.path = "/nowhere/spans", .service_name = "kv"});
  EXPECT_THAT(missing.status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_EQ(missing.status().message(),
            "open /nowhere/spans to write spans to it: no such file or directory (ENOENT)");
}

// Open() would keep the program waiting.
TEST_F(OtlpTraceSinkTest, APipeThatNothingReadsCannotBeOpened) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const absl::Status status = OtlpTraceSink::Open({.path = path_, .service_name = "kv"}).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(status.message()), HasSubstr("if it is a pipe, its reader has to come first"));
}

}  // namespace
}  // namespace hawser
