// What the pages and their JSON show of a snapshot.

#include "hawser/observe/page.h"

#include <capnp/compat/json.h>
#include <capnp/message.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/html.h"
#include "hawser/observe/json.h"
#include "hawser/observe/units.h"
#include "hawser/tests/observe/busy_snapshot.h"

namespace hawser::observe {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class Busy {
 public:
  explicit Busy(const BusyOptions& options = {}) { FillInBusy(options, message_.initRoot<wire::Snapshot>()); }
  wire::Snapshot::Reader Get() { return message_.getRoot<wire::Snapshot>().asReader(); }

 private:
  capnp::MallocMessageBuilder message_;
};

const Page& PageAt(absl::string_view path) {
  for (const Page& page : Pages()) {
    if (path == page.path) return page;
  }
  ADD_FAILURE() << path;
  return Pages()[0];
}

std::string Html(absl::string_view path, wire::Snapshot::Reader snapshot, size_t from = 0) {
  return ToHtml(PageAt(path), snapshot, History(10), from);
}

size_t CountOf(absl::string_view text, absl::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != absl::string_view::npos; at = text.find(what, at + what.size()))
    ++count;
  return count;
}

TEST(PageTest, EachPageLinksToAllAndHasItsJson) {
  Busy busy;
  for (const Page& page : Pages()) {
    const std::string html = Html(page.path, busy.Get());
    for (const Page& other : Pages())
      EXPECT_THAT(html, HasSubstr(absl::StrCat("<a href=\"", other.path, "\"")));
    EXPECT_THAT(html, HasSubstr(absl::StrCat("<a href=\"", page.path, "\" aria-current=page>")));
    EXPECT_THAT(html, HasSubstr(absl::StrCat("<a href=\"", page.json_path, "\">JSON</a>")));
    EXPECT_THAT(html, Not(HasSubstr("<script")));
    EXPECT_THAT(html, Not(HasSubstr("://fonts")));
  }
}

TEST(PageTest, OverviewSaysWhatServesWithWhichLimits) {
  Busy busy;
  const std::string html = Html("/", busy.Get());
  EXPECT_THAT(html,
              HasSubstr("<b>serving</b> for 5.00 s, since 2023-11-14 22:13:15 UTC. Process 4711 on kv1"));
  EXPECT_THAT(html, HasSubstr("<td>connections</td><td class=n>2</td><td class=n>65536</td>"));
  EXPECT_THAT(html,
              HasSubstr("<td>registered memory, tcp</td><td class=n>3.00 MiB</td><td class=n>4.00 GiB</td>"));
  EXPECT_THAT(html, HasSubstr("2 pollers, 1 held by code of the application"));
  EXPECT_THAT(html, HasSubstr("Services: kv.capnp:KeyValue."));
}

TEST(PageTest, MethodsAreSortedByCalls) {
  Busy busy({.methods = 12});
  for (const char* path : {"/", "/methods"}) {
    const std::string html = Html(path, busy.Get());
    EXPECT_LT(html.find("method11<"), html.find("method10<")) << path;
    EXPECT_LT(html.find("method10<"), html.find("method9<")) << path;
  }
}

TEST(PageTest, EachHistogramHasBothAxes) {
  Busy busy({.methods = 40});
  const std::string html = Html("/methods", busy.Get());
  EXPECT_EQ(CountOf(html, "<svg role=img"), 39u);
  EXPECT_EQ(CountOf(html, "<title>calls by latency: p50 "), 39u);
  EXPECT_THAT(html, ContainsRegex("text-anchor=end>39</text>")) << "the count of the highest bar";
  EXPECT_THAT(html, ContainsRegex("text-anchor=middle>100 us</text>"));
  EXPECT_THAT(html, ContainsRegex("text-anchor=middle>1 ms</text>"));
  EXPECT_THAT(html, HasSubstr(": 39</title></rect>"));
}

TEST(PageTest, SlowestCallsShowWhereTheirTimeWent) {
  Busy busy;
  const std::string html = Html("/calls", busy.Get());
  EXPECT_THAT(html, HasSubstr("<title>waited 500 ms, handler 900 ms, deferred 100 ms</title>"));
  EXPECT_THAT(html, HasSubstr("waited for the executor"));
  EXPECT_THAT(html, HasSubstr("And 1 more."));
}

TEST(PageTest, PagesWithoutWhatIsOnAHeldPollerSaySo) {
  constexpr char kHeld[] = "tcp 1</b> is held by the handler of kv.capnp:KeyValue.get, for 12 s";
  Busy held({.pollers = 2}), free({.pollers = 1});
  for (const char* path : {"/", "/calls", "/connections"}) {
    EXPECT_THAT(Html(path, held.Get()), HasSubstr(kHeld)) << path;
    EXPECT_THAT(Html(path, free.Get()), Not(HasSubstr("is held by"))) << path;
  }
  EXPECT_THAT(ToJson(PageAt("/calls"), held.Get(), History(10)), HasSubstr("\"heldBy\": \"the handler of"));
  Busy many({.pollers = 100});
  EXPECT_EQ(CountOf(Html("/calls", many.Get()), "is held by"), 8u);
  EXPECT_THAT(Html("/calls", many.Get()), HasSubstr("And 42 more pollers."));
}

TEST(PageTest, ThousandsOfMethodsComeInSlices) {
  Busy busy({.methods = 10'000, .connections = 200});
  const absl::Time start = absl::Now();
  const std::string first = Html("/methods", busy.Get());
  EXPECT_EQ(CountOf(first, "<tr>"), 101u);
  EXPECT_THAT(first, HasSubstr("Rows 1 to 100 of 10000. <a href=\"/methods?from=100\">After</a>"));
  const std::string last = Html("/methods", busy.Get(), 9'950);
  EXPECT_THAT(last, HasSubstr("Rows 9951 to 10000 of 10000. <a href=\"/methods?from=9850\">"));
  EXPECT_THAT(last, Not(HasSubstr(">After</a>")));
  EXPECT_THAT(Html("/methods", busy.Get(), SIZE_MAX), HasSubstr("Rows 9901 to 10000 of 10000. "));
  for (const Page& page : Pages()) EXPECT_LT(Html(page.path, busy.Get()).size(), 300'000u) << page.path;
  EXPECT_LT(JsonOf(busy.Get()).size(), size_t{32} << 20);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10)) << "some tenths of a second";
}

TEST(PageTest, HundredsOfConnectionsAreOnOnePage) {
  Busy busy({.connections = 200});
  const std::string html = Html("/connections", busy.Get());
  EXPECT_THAT(html, HasSubstr("tcp://10.0.0.7:50199"));
  EXPECT_THAT(html, Not(HasSubstr("Rows ")));
  Busy more({.connections = 201});
  EXPECT_THAT(Html("/connections", more.Get()),
              HasSubstr("Rows 1 to 200 of 201. <a href=\"/connections?from=200\">"));
  EXPECT_THAT(Html("/connections", more.Get(), 200), HasSubstr("tcp://10.0.0.7:50200"));
}

TEST(PageTest, ChannelsHandshakesAndSizesOfBuffersAreShown) {
  Busy busy;
  const std::string connections = Html("/connections", busy.Get());
  EXPECT_THAT(connections,
              HasSubstr("<td class=t>tcp://kv2:7470</td><td>ready</td><td class=n>9</td><td class=n>5</td>"));
  EXPECT_THAT(connections, HasSubstr("<td>3.00 MiB</td><td class=n>2</td><td class=n>41</td><td "
                                     "class=n>40</td><td class=n>5</td><td class=n>6</td>"));
  EXPECT_THAT(connections, HasSubstr("<td>read</td><td>OUT_OF_RANGE</td><td class=n>17</td>"));
  EXPECT_THAT(connections,
              HasSubstr("<td class=n>64</td><td class=n>4</td><td class=n>8</td><td class=n>3</td>"))
      << "slots, given, wanted, in use";
  EXPECT_THAT(connections, HasSubstr("7 with a ticket of an earlier one"));
  EXPECT_THAT(Html("/pollers", busy.Get()),
              HasSubstr("<td class=n>4.00 KiB</td><td class=n>60</td><td class=n>100</td>"));
  EXPECT_THAT(Html("/calls", busy.Get()), HasSubstr("<td>12:3.17</td>"));
}

TEST(PageTest, TextsAreNoMarkupOnAnyPage) {
  constexpr char kMarkup[] = "<script>alert(1)</script>\"'&\x1b[31m\xff\xe2\x80\xae";
  Busy busy({.text = [&](const std::string&) { return std::string(kMarkup); }});
  for (const Page& page : Pages()) {
    const std::string html = Html(page.path, busy.Get());
    EXPECT_THAT(html, Not(HasSubstr("<script"))) << page.path;
    EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\\x1b[31m\\xff\\u202e"))
        << page.path;
  }
}

TEST(PageTest, AnEmptySnapshotHasEachPage) {
  capnp::MallocMessageBuilder message;
  const auto empty = message.initRoot<wire::Snapshot>().asReader();
  for (const Page& page : Pages()) {
    EXPECT_THAT(Html(page.path, empty), HasSubstr("</html>"));
    EXPECT_THAT(ToJson(page, empty, History(10)), HasSubstr("\"takenUnixNs\": \"0\""));
  }
}

TEST(JsonTest, DecodesToTheSameSnapshot) {
  Busy busy;
  capnp::JsonCodec codec;
  const std::string json = JsonOf(busy.Get());
  capnp::MallocMessageBuilder message;
  auto decoded = message.initRoot<wire::Snapshot>();
  codec.decode(kj::StringPtr(json.c_str(), json.size()), decoded);
  EXPECT_EQ(std::string(codec.encode(decoded.asReader()).cStr()),
            std::string(codec.encode(busy.Get()).cStr()));
}

TEST(JsonTest, PagesHaveTheirPartOfTheSnapshotAndTogetherAll) {
  Busy busy;
  std::set<std::string> fields;
  for (const Page& page : Pages()) {
    for (absl::string_view field : page.fields) fields.emplace(field);
  }
  for (const auto field : capnp::Schema::from<wire::Snapshot>().getFields()) {
    EXPECT_EQ(fields.count(field.getProto().getName().cStr()), 1u) << field.getProto().getName().cStr();
  }
  const std::string methods = ToJson(PageAt("/methods"), busy.Get(), History(10));
  EXPECT_THAT(methods, HasSubstr("\"methods\": ["));
  EXPECT_THAT(methods, Not(HasSubstr("\"pollers\"")));
}

TEST(JsonTest, TextIsEscaped) {
  Busy busy({.text = [](const std::string&) { return std::string("a\"\\\n\x7f\xc3\xa4\xff"); }});
  EXPECT_THAT(JsonOf(busy.Get()), HasSubstr("\"a\\\"\\\\\\n\\u007f\xc3\xa4\\ufffd\""));
}

TEST(HistoryTest, PollersAndPoolsHaveCurvesOfTheirOwn) {
  History history(3);
  constexpr int64_t kStart = 1'700'000'000'000'000'000, kSecond = 1'000'000'000;
  for (int64_t i = 0; i < 6; ++i) {
    // The second poller is started after the fourth snapshot.
    Busy busy({.pollers = i < 4 ? 1u : 2u, .taken_unix_ns = kStart + i * kSecond});
    history.Add(busy.Get());
  }
  ASSERT_THAT(history.times_unix_ns(), SizeIs(3));
  EXPECT_EQ(history.span_ns(), 2 * kSecond);
  EXPECT_THAT(*history.BusyOf("tcp 0"), ::testing::ElementsAre(0.5, 0.5, 0.5));
  EXPECT_THAT(*history.BusyOf("tcp 1"), ::testing::ElementsAre(0, 0, ::testing::DoubleNear(1.0 / 3, 1e-6)));
  EXPECT_THAT(*history.LeasedBytesOf("tcp"), ::testing::Each(3 << 20));
  EXPECT_EQ(history.BusyOf("tcp 2"), nullptr);
  Busy busy({.taken_unix_ns = kStart});
  const std::string html = ToHtml(PageAt("/pollers"), busy.Get(), history, 0);
  EXPECT_EQ(CountOf(html, "<polyline"), 3u);
  EXPECT_THAT(html, HasSubstr("<title>tcp 0 busy: now 50.0 %, at most 50.0 %</title>"));
  EXPECT_THAT(ToJson(PageAt("/pollers"), busy.Get(), history), HasSubstr("\"busy\": [0.5, 0.5, 0.5]"));
}

TEST(HistoryTest, ThePollersOfADeviceThatIsGoneAreForgotten) {
  History history(3);
  for (int64_t i = 0; i < 3; ++i) {
    history.Add(Busy({.pollers = i < 2 ? 2u : 1u, .taken_unix_ns = 1'000 + i}).Get());
  }
  EXPECT_NE(history.BusyOf("tcp 0"), nullptr);
  EXPECT_EQ(history.BusyOf("tcp 1"), nullptr);
}

TEST(UnitsTest, LengthsSizesAndCountsHaveUnits) {
  EXPECT_EQ(DurationText(950), "950 ns");
  EXPECT_EQ(DurationText(12'500), "12.5 us");
  EXPECT_EQ(DurationText(3'200'000'000), "3.20 s");
  EXPECT_EQ(DurationText(int64_t{7'500} * 1'000'000'000), "2 h 5 min");
  EXPECT_EQ(DurationText(int64_t{400'000} * 1'000'000'000), "4 d 15 h");
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(3 << 19), "1.50 MiB");
  EXPECT_EQ(BytesText(UINT64_MAX), "16.00 EiB");
  EXPECT_EQ(CountText(9'999), "9999");
  EXPECT_EQ(CountText(12'500), "12.5 k");
  EXPECT_EQ(CountText(999'900), "1 M");
  EXPECT_EQ(CountText(UINT64_MAX), "18.4 E");
}

}  // namespace
}  // namespace hawser::observe
