// Snapshots of a server as hawser status and hawser top show them.

#include "hawser/tools/hawser/figures.h"

#include <capnp/message.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/histogram.h"
#include "hawser/tools/hawser/figures_text.h"
#include "hawser/tools/hawser/text_table.h"

namespace hawser::tool {
namespace {

using observe::wire::Snapshot;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

// A snapshot that is being made.
class Made {
 public:
  explicit Made(int64_t taken_s) {
    Get().setTakenUnixNs(taken_s * kSecond);
    auto process = Get().initProcess();
    process.setName("kv_server");
    process.setPid(17);
    process.setHost("kv1");
    Get().initServer().setStartedUnixNs(1000 * kSecond);
    Get().getServer().setConnectionsMax(100);
  }
  Snapshot::Builder Get() { return message_.getRoot<Snapshot>(); }
  operator Snapshot::Reader() { return Get().asReader(); }

  struct Method {
    std::string name;
    uint64_t calls, errors;
    int64_t each_ns;
    uint64_t running = 0;
  };
  Made& Methods(const std::vector<Method>& methods) {
    auto list = Get().initMethods(static_cast<unsigned>(methods.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      const Method& from = methods[i];
      list[i].setName(from.name.c_str());
      list[i].setCalls(from.calls);
      list[i].setRunning(from.running);
      list[i].setRequestBytes(from.calls * 1024);
      list[i].setResponseBytes(from.calls * 2048);
      auto statuses = list[i].initStatuses(2);
      statuses[0].setCount(from.calls - from.errors);
      statuses[1].setCode(5);
      statuses[1].setCount(from.errors);
      using observe::Histogram;
      auto bounds = list[i].initLatency().initBoundsNs(Histogram::kBuckets);
      auto counts = list[i].getLatency().initCounts(Histogram::kBuckets);
      for (unsigned b = 0; b < Histogram::kBuckets; ++b) bounds.set(b, Histogram::BoundNs(b));
      counts.set(static_cast<unsigned>(Histogram::BucketOf(from.each_ns)), from.calls);
    }
    return *this;
  }
  Made& Poller(uint64_t busy_ns, uint64_t spin_ns, uint64_t sleep_ns, bool answered = true) {
    auto poller = Get().initPollers(1)[0];
    poller.setName("tcp 0");
    poller.setBusyNs(busy_ns);
    poller.setSpinNs(spin_ns);
    poller.setSleepNs(sleep_ns);
    poller.setAnswered(answered);
    return *this;
  }

 private:
  capnp::MallocMessageBuilder message_;
};

std::string Joined(const std::vector<TextLine>& lines) {
  std::string text;
  for (const TextLine& line : lines) absl::StrAppend(&text, line.text, "\n");
  return text;
}

bool IsNear(int64_t ns, int64_t wanted_ns) { return ns > wanted_ns * 7 / 8 && ns < wanted_ns * 9 / 8; }

// ---- Figures

TEST(FiguresTest, AnIntervalHasItsOwnCallsAndTimes) {
  Made before(2000), now(2004);
  before.Methods({{"a.capnp:A.slow", 1000, 10, 1 * kSecond}, {"a.capnp:A.quick", 7, 0, 5000}});
  now.Methods({{"a.capnp:A.slow", 1000, 10, 1 * kSecond}, {"a.capnp:A.quick", 407, 8, 5000}});
  ASSERT_TRUE(IsSameServer(before, now));
  const Figures figures = FiguresOf(now, before);
  EXPECT_EQ(figures.seconds, 4);
  EXPECT_EQ(figures.ended, 400u);
  EXPECT_EQ(figures.errors, 8u);
  EXPECT_EQ(figures.request_bytes, 400u * 1024);
  EXPECT_TRUE(IsNear(figures.latency.p99_ns, 5000)) << figures.latency.p99_ns << ": not the slow ones before";
  ASSERT_EQ(figures.methods.size(), 2u);
  EXPECT_EQ(figures.methods[0].name, "a.capnp:A.quick") << "the busiest first";
  EXPECT_TRUE(IsNear(figures.methods[0].latency.p50_ns, 5000));
  EXPECT_EQ(figures.methods[1].calls, 0u);
  EXPECT_EQ(figures.methods[1].latency.p50_ns, 0) << "none ended";
}

TEST(FiguresTest, WithoutAnIntervalTheyAreSinceTheStart) {
  Made now(1100);
  now.Methods({{"a.capnp:A.a", 200, 10, 5000}, {"a.capnp:A.never", 0, 0, 1}});
  const Figures figures = FiguresOf(now);
  EXPECT_EQ(figures.ended, 200u);
  EXPECT_EQ(figures.up_ns, 100 * kSecond);
  EXPECT_EQ(figures.methods.size(), 1u) << "without those that were never called";
}

TEST(FiguresTest, CallsForSnapshotsAreLeftOut) {
  Made now(1100);
  now.Methods(
      {{"introspection.capnp:Introspection.snapshot", 50, 0, 5000, 1}, {"a.capnp:A.a", 2, 0, 5000, 3}});
  now.Get().getServer().setCallsRunning(4);
  now.Get().initCalls(2)[0].setMethod("introspection.capnp:Introspection.snapshot");
  now.Get().getCalls()[1].setMethod("a.capnp:A.a");
  const Figures figures = FiguresOf(now);
  EXPECT_EQ(figures.ended, 2u);
  EXPECT_EQ(figures.running, 3u);
  EXPECT_EQ(figures.methods.size(), 1u);
  EXPECT_EQ(figures.calls.size(), 1u);
}

TEST(FiguresTest, CountsThatGoBackAreOfANewServer) {
  Made before(2000), now(2001);
  EXPECT_TRUE(IsSameServer(before, now));
  EXPECT_FALSE(IsSameServer(now, before)) << "the clock was set back";
  EXPECT_FALSE(IsSameServer(now, now)) << "the same snapshot";
  now.Get().getProcess().setPid(18);
  EXPECT_FALSE(IsSameServer(before, now));
  now.Get().getProcess().setPid(17);
  before.Get().getServer().setCallsTotal(10);
  EXPECT_FALSE(IsSameServer(before, now));
  now.Get().getServer().setCallsTotal(10);
  EXPECT_TRUE(IsSameServer(before, now));
  now.Get().getServer().setStartedUnixNs(1999 * kSecond);
  EXPECT_FALSE(IsSameServer(before, now));
}

TEST(FiguresTest, APollersSharesAreOfTheInterval) {
  const auto shares = [](const Figures& figures) {
    const Figures::Poller& poller = figures.pollers.at(0);
    return std::vector<double>{poller.busy, poller.spin, poller.sleep};
  };
  constexpr uint64_t kPart = kSecond / 4;
  EXPECT_THAT(shares(FiguresOf(Made(2001).Poller(9 * kPart, 8 * kPart, 8 * kPart),
                               Made(2000).Poller(7 * kPart, 7 * kPart, 7 * kPart))),
              ElementsAre(0.5, 0.25, 0.25));
  // One that has slept all the time, and one that code holds, have counted nothing yet.
  EXPECT_THAT(shares(FiguresOf(Made(2001).Poller(7, 7, 7), Made(2000).Poller(7, 7, 7))),
              ElementsAre(0, 0, 1));
  EXPECT_THAT(shares(FiguresOf(Made(2001).Poller(7, 7, 7, false), Made(2000).Poller(7, 7, 7))),
              ElementsAre(1, 0, 0));
  EXPECT_THAT(shares(FiguresOf(Made(2001).Poller(3, 1, 0))), ElementsAre(0.75, 0.25, 0));
}

TEST(FiguresTest, AHistogramThatMakesNoSenseIsNone) {
  for (int wrong = 0; wrong < 3; ++wrong) {
    Made now(2000);
    now.Methods({{"a.capnp:A.a", 5, 0, 5000}});
    auto latency = now.Get().getMethods()[0].getLatency();
    if (wrong == 0) latency.initCounts(200).set(199, 7);
    if (wrong == 1) latency.getBoundsNs().set(3, std::numeric_limits<int64_t>::min());
    if (wrong == 2) latency.initBoundsNs(1'000'000), latency.initCounts(1'000'000);
    EXPECT_EQ(FiguresOf(now).latency.p99_ns, 0);
  }
}

TEST(FiguresTest, ExtremesOfAHostileServerAreShownSomehow) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  Made before(2000), now(2001);
  for (Made* made : {&before, &now}) {
    made->Methods({{"a", kMost, kMost, kSecond, kMost}, {"b", kMost / 2, 1, 1}, {"a", 3, 3, 1}});
    made->Poller(kMost, kMost, kMost);
    auto call = made->Get().initCalls(1)[0];
    call.setAgeNs(std::numeric_limits<int64_t>::min());
    call.setQueuedNs(std::numeric_limits<int64_t>::max());
    made->Get().getServer().setStartedUnixNs(std::numeric_limits<int64_t>::min());
    made->Get().initTotals(1)[0].setCount(kMost);
  }
  for (const Figures& figures : {FiguresOf(now), FiguresOf(now, before), FiguresOf(before, now)}) {
    EXPECT_THAT(Joined(StatusLines(figures, now, "tcp://kv1:7470", 100)), HasSubstr("kv_server"));
    EXPECT_THAT(Joined(TopLines(figures, now, "tcp://kv1:7470", 100, 50)), HasSubstr("kv_server"));
    EXPECT_THAT(FiguresAsJson(figures), HasSubstr("\"methods\""));
  }
}

TEST(FiguresTest, JsonHasRatesOfTheInterval) {
  Made before(2000), now(2004);
  before.Methods({{"a.capnp:A.\"a\"", 0, 0, 5000}}).Poller(0, 0, 0);
  now.Methods({{"a.capnp:A.\"a\"", 400, 8, 5000, 2}}).Poller(kSecond, 0, 0);
  const std::string json = FiguresAsJson(FiguresOf(now, before));
  EXPECT_THAT(json, Not(HasSubstr("\n")));
  EXPECT_THAT(json, HasSubstr("\"interval_s\": 4.000"));
  EXPECT_THAT(
      json,
      HasSubstr("{\"name\": \"a.capnp:A.\\\"a\\\"\", \"calls_per_s\": 100.000, \"errors_per_s\": 2.000"));
  EXPECT_THAT(json, HasSubstr("\"in_flight\": 2"));
  EXPECT_THAT(json, HasSubstr("\"busy\": 0.2500"));
}

// ---- Their text

// Everything, with texts that a terminal would obey, or that are wider than they are long.
std::unique_ptr<Made> Everything(unsigned methods, unsigned calls) {
  auto made = std::make_unique<Made>(2000);
  Made& now = *made;
  std::vector<Made::Method> list;
  for (unsigned i = 0; i < methods; ++i)
    list.push_back({absl::StrCat("many.capnp:Many.method", i), 1000 - i, 1, 5000});
  now.Methods(list).Poller(1, 2, 3, false);
  now.Get().getPollers()[0].setHeldBy("the handler of \x1b[2Jkv.capnp:KeyValue.get");
  now.Get().getProcess().setHost("\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97");
  auto in_flight = now.Get().initCalls(calls);
  for (auto call : in_flight) {
    call.setMethod("kv.capnp:KeyValue.get");
    call.setPeer("tcp://10.0.0.7:51234");
    call.setIdentity("spiffe://\xff\xfe/\xe2\x80\xae/e\xcc\x81\xcc\x81\xcc\x81\xcc\x81\xcc\x81\xcc\x81");
    call.setStage("deferred");
  }
  auto totals = now.Get().initTotals(1)[0];
  totals.setFabric("tcp");
  totals.setState("ready");
  totals.setCount(12);
  auto refusal = now.Get().initRefusals(1)[0];
  refusal.setReason("slot");
  refusal.setCount(3);
  auto slowest = now.Get().initSlowest(1)[0];
  slowest.setMethod(std::string(100'000, 'm').c_str());
  auto pool = now.Get().initPools(1)[0];
  pool.setName("tcp");
  auto buffers = pool.initClasses(1)[0];
  buffers.setBufferBytes(65536);
  buffers.setBuffers(7);
  buffers.setLeased(5);
  auto channel = now.Get().initChannels(1)[0];
  channel.setAddress("tcp://\x1b[2Jstore3:7470");
  channel.setState("transient failure");
  channel.setCallsWaiting(5678);
  channel.getCounts().setLosses(41);
  now.Get().setChannelsLeftOut(987);
  now.Get().getServer().setHasCredentials(true);
  now.Get().getTls().setResumed(654);
  return made;
}

TEST(FiguresTextTest, NoLineIsWiderThanTheTerminalOrObeyedByIt) {
  const std::unique_ptr<Made> made = Everything(50, 20);
  const Figures figures = FiguresOf(*made);
  for (size_t columns : {0, 1, 2, 3, 10, 31, 40, 79, 80, 100, 200, 999}) {
    for (const auto& lines : {StatusLines(figures, *made, "tcp://kv1:7470", columns),
                              TopLines(figures, *made, "tcp://kv1:7470", columns, 60)}) {
      for (const TextLine& line : lines) {
        EXPECT_LE(WidthOf(line.text), columns) << line.text;
        for (char c : line.text) EXPECT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f) << line.text;
        EXPECT_THAT(line.text, Not(HasSubstr("\xe2\x80\xae")));
      }
    }
  }
}

TEST(FiguresTextTest, SharedMemoryAndOperationsOnThatOfServersAreShown) {
  Made now(2000);
  const std::string none = Joined(TopLines(FiguresOf(now), now, "tcp://kv1:7470", 100, 50));
  EXPECT_THAT(none, Not(HasSubstr("shares")));
  auto memory = now.Get().initMemory();
  memory.setRegions(2);
  memory.setBytes(3 << 20);
  memory.setTickets(41);
  memory.setLanes(5);
  auto remote = now.Get().initRemoteOperations(1)[0];
  remote.setKind("fetch-and-add");
  auto ended = remote.initStatuses(1)[0];
  ended.setName("OK");
  ended.setCount(17);
  EXPECT_THAT(Joined(TopLines(FiguresOf(now), now, "tcp://kv1:7470", 100, 50)),
              HasSubstr("shares 3.00 MiB, tickets 41, lanes 5"));
  const std::string status = Joined(StatusLines(FiguresOf(now), now, "tcp://kv1:7470", 100));
  EXPECT_THAT(status, ::testing::ContainsRegex("3.00 MiB +2 +41 +0 +5 +0"));
  EXPECT_THAT(status, ::testing::ContainsRegex("fetch-and-add +OK +17"));
}

TEST(FiguresTextTest, TopFitsTheRowsAndEachListGetsSome) {
  const std::unique_ptr<Made> made = Everything(50, 20);
  const Figures figures = FiguresOf(*made);
  for (size_t rows : {0, 1, 2, 5, 8, 12, 14, 16, 24, 30, 50, 100}) {
    const std::vector<TextLine> lines = TopLines(figures, *made, "tcp://kv1:7470", 100, rows);
    EXPECT_LE(lines.size(), rows);
    const std::string text = Joined(lines);
    if (rows > 0) {
      EXPECT_THAT(text, HasSubstr("tcp://kv1:7470: kv_server"));
    }
    if (rows >= 14) {
      EXPECT_THAT(text, HasSubstr("method0 ")) << rows;
    }
    if (rows > 0 && rows < 24) {
      EXPECT_FALSE(lines.back().text.empty()) << "an empty line above nothing, of " << rows;
    }
    if (rows < 24) continue;
    for (const char* part : {"POLLER", "held", "METHOD", "method0 ", "deferred"}) {
      if (std::string(part) != "held") {
        EXPECT_THAT(text, HasSubstr(part)) << rows;
      }
    }
    EXPECT_THAT(text, HasSubstr(rows < 60 ? " more\n" : "deferred"));
  }
  const std::string all = Joined(TopLines(figures, *made, "tcp://kv1:7470", 100, 1000));
  EXPECT_THAT(all, HasSubstr("method49 "));
  EXPECT_THAT(all, HasSubstr("the handler of \\x1b[2Jkv"));
}

TEST(FiguresTextTest, StatusHasEverySectionUnderAHeading) {
  const std::unique_ptr<Made> made = Everything(3, 2);
  const std::vector<TextLine> lines = StatusLines(FiguresOf(*made), *made, "tcp://kv1:7470", 120);
  const std::string text = Joined(lines);
  for (const char* part : {"tcp://kv1:7470: kv_server, process 17 on ",
                           "serving",
                           "with credentials",
                           "resumed 654",
                           "METHOD",
                           "P99",
                           "FABRIC",
                           "POLLER",
                           "MEMORY",
                           "BUFFERS",
                           "64.00 KiB",
                           "CHANNEL TO",
                           "store3:7470",
                           "transient failure",
                           "41",
                           "and 987 more",
                           "REFUSED",
                           "slot",
                           "Calls in flight",
                           "The slowest"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  size_t headings = 0;
  for (const TextLine& line : lines) headings += line.is_heading;
  EXPECT_EQ(headings, 9u);
}

TEST(FiguresTextTest, AnIdleServerHasNoEmptyTables) {
  Made now(2000);
  const std::string text = Joined(TopLines(FiguresOf(now), now, "tcp://kv1:7470", 80, 24));
  EXPECT_THAT(text, HasSubstr("calls 0/s"));
  EXPECT_THAT(text, Not(HasSubstr("METHOD")));
  EXPECT_THAT(text, Not(HasSubstr("AGE")));
}

TEST(FiguresTextTest, RatesHaveThreeDigitsAndMore) {
  EXPECT_EQ(RateText(0), "0");
  EXPECT_EQ(RateText(0.25), "0.25");
  EXPECT_EQ(RateText(12.345), "12.3");
  EXPECT_EQ(RateText(4567), "4567");
  EXPECT_EQ(RateText(89'123), "89.1k");
  EXPECT_EQ(RateText(2.5e6), "2.50M");
}

// ---- Columns

TEST(TextTableTest, TextIsCutByColumnsAndNotByBytes) {
  EXPECT_EQ(Fit("harbour", 7), "harbour");
  EXPECT_EQ(Fit("harbour", 6), "harb..");
  EXPECT_EQ(Fit("harbour", 1), "h");
  EXPECT_EQ(Fit("harbour", 0), "");
  const std::string ideographs = "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2";  // Two columns each.
  EXPECT_EQ(WidthOf(ideographs), 6u);
  EXPECT_EQ(Fit(ideographs, 6), ideographs);
  EXPECT_EQ(Fit(ideographs, 5), absl::StrCat(ideographs.substr(0, 3), ".."));
  EXPECT_EQ(Fit("caf\xc3\xa9", 4), "caf\xc3\xa9");
  EXPECT_EQ(Fit("e\xcc\x81t\xc3\xa9", 3), "e\xcc\x81t\xc3\xa9") << "an accent of its own takes no column";
}

TEST(TextTableTest, WhatATerminalWouldObeyIsEscaped) {
  EXPECT_EQ(Fit("a\x1b[2Jb\n", 20), "a\\x1b[2Jb\\n");
  EXPECT_EQ(Fit("\xff", 20), "\\xff");
  EXPECT_EQ(WidthOf(Fit(std::string(1000, '\x1b'), 9)), 9u);
  std::string accents = "e";
  for (int i = 0; i < 1000; ++i) accents += "\xcc\x81";
  EXPECT_LE(Fit(accents, 10).size(), 10u);
}

TEST(TextTableTest, TheEndIsKeptWhereItSaysMore) {
  EXPECT_EQ(FitEnd("KeyValue.get", 12), "KeyValue.get");
  EXPECT_EQ(FitEnd("KeyValue.get", 11), "..Value.get");
  EXPECT_EQ(FitEnd("KeyValue.get", 1), "K");
  EXPECT_EQ(FitEnd("abcde\xcc\x81"
                   "f",
                   4),
            "..e\xcc\x81"
            "f");
  EXPECT_EQ(FitEnd("abcde\xcc\x81"
                   "f",
                   3),
            "..f")
      << "no accent on the dots";
  EXPECT_EQ(FitEnd("\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", 5), "..\xe6\xbc\xa2");
  for (size_t columns : {2, 3, 10, 50}) {
    EXPECT_LE(WidthOf(FitEnd(std::string(100'000, '\x1b'), columns)), columns);
    std::string ideographs;
    for (int i = 0; i < 1000; ++i) ideographs += "\xe6\xbc\xa2";
    EXPECT_LE(WidthOf(FitEnd(ideographs, columns)), columns);
    EXPECT_THAT(FitEnd(ideographs, columns), Not(HasSubstr("\\x")));
  }
}

TEST(TextTableTest, NumbersAreOnTheRightAndTheWideColumnGivesWay) {
  TextTable table({{"METHOD", false, true}, {"CALLS", true}});
  table.Add({"kv.capnp:KeyValue.get", "7"});
  table.Add({"put", "12345678"});
  EXPECT_THAT(table.Lines(40, 9), ElementsAre(TextLine{"METHOD                    CALLS", true},
                                              TextLine{"kv.capnp:KeyValue.get         7", false},
                                              TextLine{"put                    12345678", false}));
  EXPECT_THAT(table.Lines(20, 9),
              ElementsAre(TextLine{"METHOD         CALLS", true}, TextLine{"kv.capnp..         7", false},
                          TextLine{"put         12345678", false}));
  EXPECT_THAT(table.Lines(40, 1),
              ElementsAre(TextLine{"METHOD  CALLS", true}, TextLine{"and 2 more", false}));
  EXPECT_TRUE(table.Lines(40, 0).empty());
  EXPECT_TRUE(TextTable({{"A"}}).Lines(40, 9).empty());
}

}  // namespace
}  // namespace hawser::tool
