#include "hawser/tools/hawser/perf_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/json_writer.h"
#include "hawser/measure/extent.h"
#include "hawser/measure/times.h"
#include "hawser/rpc/stats.h"

namespace hawser::tool {
namespace {

using Kind = PerfTest::Kind;
using Operation = PerfTest::Operation;
using Direction = PerfTest::Direction;

uint64_t Total(const PollerStats::Messages& messages) {
  return messages.whole + messages.pushed + messages.read;
}

uint64_t CountOf(const PollerStats::Messages& messages, PerfWay way) {
  return way == PerfWay::kSend ? messages.whole : way == PerfWay::kWrite ? messages.pushed : messages.read;
}

// "whole", or "pushed 97 %, read 3 %".
std::string Crossed(const PollerStats::Messages& messages) {
  const uint64_t total = Total(messages);
  std::string out;
  const auto add = [&](absl::string_view name, uint64_t count) {
    if (count == 0) return;
    absl::StrAppend(&out, out.empty() ? "" : ", ", name);
    if (count != total) {
      absl::StrAppendFormat(&out, " %.3g %%", 100 * static_cast<double>(count) / static_cast<double>(total));
    }
  };
  add("whole", messages.whole);
  add("pushed", messages.pushed);
  add("read", messages.read);
  return out;
}

double BytesPerSecond(const PerfTest& test, const measure::Ran& ran) {
  return ran.per_second() * static_cast<double>(test.bytes);
}

struct Column {
  const char* name;
  double share;
};
constexpr Column kQuantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};

std::string FigureText(const PerfTest& test, const measure::Times& times, const measure::Ran& ran) {
  if (test.kind == Kind::kRate) {
    return absl::StrFormat("%.0f %s/s", ran.per_second(),
                           test.operation == Operation::kCall ? "calls" : "operations");
  }
  if (test.kind == Kind::kBandwidth) {
    const double bytes = BytesPerSecond(test, ran);
    return absl::StrFormat("%.3f GB/s   %.2f Gbit/s", bytes / 1e9, bytes * 8 / 1e9);
  }
  std::string out;
  for (const Column& column : kQuantiles) {
    absl::StrAppend(&out, out.empty() ? "" : "   ", column.name, " ",
                    absl::StrFormat("%.2f us", times.quantile_us(column.share)));
  }
  return out;
}

double Ratio(const PerfTest& test, const PerfFigure& figure, const PerfFloor& floor) {
  if (test.kind != Kind::kLatency) return figure.ran.per_second() / floor.ran.per_second();
  return figure.times.quantile_us(0.5) / floor.times.quantile_us(0.5);
}

void Write(const PerfTest& test, const measure::Times& times, const measure::Ran& ran, JsonWriter& json) {
  json.Name("calls").Number(ran.exchanges);
  json.Name("seconds").Decimal(absl::ToDoubleSeconds(ran.time), 6);
  if (test.kind == Kind::kLatency) {
    json.Name("min_us").Decimal(times.min_us(), 3);
    json.Name("mean_us").Decimal(times.mean_us(), 3);
    json.Name("p50_us").Decimal(times.quantile_us(0.5), 3);
    json.Name("p99_us").Decimal(times.quantile_us(0.99), 3);
    json.Name("p999_us").Decimal(times.quantile_us(0.999), 3);
    json.Name("max_us").Decimal(times.max_us(), 3);
  } else {
    json.Name("calls_per_s").Decimal(ran.per_second(), 1);
    json.Name("bytes_per_s").Decimal(BytesPerSecond(test, ran), 0);
  }
}

void Write(const PollerStats::Messages& messages, JsonWriter& json) {
  json.BeginObject();
  json.Name("whole").Number(messages.whole);
  json.Name("pushed").Number(messages.pushed);
  json.Name("read").Number(messages.read);
  json.EndObject();
}

}  // namespace

std::string Crossed(const PerfTest& test, const PerfFigure& figure) {
  if (test.direction == Direction::kTo) return Crossed(figure.sent);
  if (test.direction == Direction::kFrom) return Crossed(figure.received);
  const std::string there = Crossed(figure.sent), back = Crossed(figure.received);
  return there == back ? there : absl::StrCat(there, "; back ", back);
}

bool CrossedBy(PerfWay way, const PerfTest& test, const PerfFigure& figure) {
  const auto mostly = [way](const PollerStats::Messages& messages) {
    return CountOf(messages, way) * 2 >= Total(messages);
  };
  return (test.direction == Direction::kFrom || mostly(figure.sent)) &&
         (test.direction == Direction::kTo || mostly(figure.received));
}

std::string BytesText(uint64_t bytes) {
  constexpr std::pair<uint64_t, const char*> kUnits[] = {{1 << 20, " MiB"}, {1 << 10, " KiB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= unit && bytes % unit == 0) return absl::StrCat(bytes / unit, name);
  }
  return absl::StrCat(bytes, " B");
}

std::string TitleOf(const PerfTest& test) {
  const std::string in_flight =
      test.kind == Kind::kLatency ? "" : absl::StrCat(", ", test.in_flight, " in flight");
  switch (test.operation) {
    case Operation::kRead:
      return absl::StrCat(NameOf(test.kind), ", READs of ", BytesText(test.bytes), in_flight);
    case Operation::kWrite:
      return absl::StrCat(NameOf(test.kind), ", WRITEs of ", BytesText(test.bytes), in_flight);
    case Operation::kFetchAdd:
      return absl::StrCat(NameOf(test.kind), ", fetch-and-adds", in_flight);
    case Operation::kCall:
      break;
  }
  return absl::StrCat(NameOf(test.kind), ", ", BytesText(test.bytes),
                      test.direction == Direction::kTo     ? " to the server"
                      : test.direction == Direction::kFrom ? " from the server"
                                                           : " there and back",
                      in_flight);
}

std::string PerfText(const PerfTest& test, const PerfFigure& figure, const std::optional<PerfFloor>& floor,
                     const std::string& why_no_floor, uint32_t slots) {
  std::string out =
      absl::StrCat("\n", TitleOf(test), "\n  hawser  ", FigureText(test, figure.times, figure.ran), "   ",
                   test.operation == Operation::kCall ? absl::StrCat("crossed ", Crossed(test, figure))
                   : figure.by_nic                    ? "by the server's NIC"
                                                      : "by the server's poller",
                   "\n");
  if (test.operation == Operation::kCall && static_cast<uint32_t>(test.in_flight) > slots) {
    absl::StrAppend(&out, "          (the server has ", slots,
                    " slots for a connection; what is beyond waits at this side)\n");
  }
  if (floor.has_value()) {
    absl::StrAppend(&out, "  floor   ", FigureText(test, floor->times, floor->ran), "   ", floor->by, "\n",
                    absl::StrFormat("  ratio   %.2f\n", Ratio(test, figure, *floor)));
  } else {
    absl::StrAppend(&out, "  floor   none: ", why_no_floor, "\n");
  }
  return out;
}

void WritePerf(const PerfTest& test, const PerfFigure& warm_up, const PerfFigure& figure,
               const std::optional<PerfFloor>& floor, const std::string& why_no_floor, JsonWriter& json) {
  json.BeginObject();
  json.Name("test").String(NameOf(test.kind));
  const bool calls = test.operation == Operation::kCall;
  if (calls) {
    json.Name("direction").String(NameOf(test.direction));
  } else {
    json.Name("operation").String(NameOf(test.operation));
    json.Name("by_nic").Bool(figure.by_nic);
  }
  json.Name("bytes").Number(test.bytes);
  json.Name("in_flight").Number(test.in_flight);
  json.Name("warm_up_calls").Number(warm_up.ran.exchanges);
  Write(test, figure.times, figure.ran, json);
  if (calls) {
    json.Name("sent");
    Write(figure.sent, json);
    json.Name("received");
    Write(figure.received, json);
  }
  if (floor.has_value()) {
    json.Name("floor").BeginObject();
    json.Name("by").String(floor->by);
    Write(test, floor->times, floor->ran, json);
    json.EndObject();
    json.Name("ratio").Decimal(Ratio(test, figure, *floor), 4);
  } else {
    json.Name("floor").Null();
    json.Name("why_no_floor").String(why_no_floor);
  }
  json.EndObject();
}

}  // namespace hawser::tool
