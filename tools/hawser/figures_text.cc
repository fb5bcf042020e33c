#include "hawser/tools/hawser/figures_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/tables.h"
#include "hawser/observe/units.h"

namespace hawser::tool {
namespace {

namespace wire = observe::wire;

using observe::BytesText;
using observe::DurationText;
using observe::kTableRowsMax;

namespace call = observe::call;
namespace method = observe::method;
namespace poller = observe::poller;
namespace pool = observe::pool;
namespace server = observe::server;
namespace shared = observe::shared;
namespace tls = observe::tls;
namespace total = observe::total;

// Rows of each list of `status`: more would be too long for a terminal.
constexpr size_t kStatusRowsMax = 200;

// Below the summary the pollers and the calls in flight each get one in so many of the rows. The methods get
// the rest.
constexpr size_t kPollersShare = 4;
constexpr size_t kCallsShare = 4;
// An empty line, the heading and a row.
constexpr size_t kLinesOfListMin = 3;

// Without a decimal, for which a line has no room.
std::string Percent(double part) { return absl::StrFormat("%.0f%%", part * 100); }

// What of a text is kept: more than a line has.
absl::string_view Text(capnp::Text::Reader text) { return observe::View(text).substr(0, Figures::kTextMax); }

template <typename List>
std::vector<std::string> Texts(const List& list) {
  std::vector<std::string> texts;
  for (unsigned i = 0; i < std::min(list.size(), kTableRowsMax); ++i) texts.emplace_back(Text(list[i]));
  return texts;
}

// Empty for 0: there was no call.
std::string Time(int64_t ns) { return ns == 0 ? "" : DurationText(ns); }

class Rates {
 public:
  explicit Rates(const Figures& figures)
      : seconds_(figures.seconds > 0 ? figures.seconds
                                     : std::max(1e-9, static_cast<double>(figures.up_ns) / 1e9)) {}
  double Of(uint64_t count) const { return static_cast<double>(count) / seconds_; }
  std::string Calls(uint64_t count) const { return RateText(Of(count)); }
  std::string Bytes(uint64_t bytes) const {
    return BytesText(static_cast<uint64_t>(std::min(Of(bytes), 1e18)));
  }

 private:
  const double seconds_;
};

std::string ServerText(const Figures& figures, absl::string_view target) {
  return absl::StrCat(target, ": ", figures.process, ", process ", figures.pid, " on ", figures.host, ", ",
                      figures.state, ", up ", DurationText(figures.up_ns));
}

std::string TrafficText(const Figures& figures) {
  const Rates rates(figures);
  std::string text = absl::StrCat("calls ", rates.Calls(figures.ended), "/s, errors ",
                                  rates.Calls(figures.errors), "/s, in flight ", figures.running);
  if (figures.latency.p99_ns != 0) {
    absl::StrAppend(&text, ", p50 ", Time(figures.latency.p50_ns), ", p90 ", Time(figures.latency.p90_ns),
                    ", p99 ", Time(figures.latency.p99_ns));
  }
  return text;
}

std::string BytesRateText(const Figures& figures) {
  const Rates rates(figures);
  return absl::StrCat(
      "in ", rates.Bytes(figures.request_bytes), "/s, out ", rates.Bytes(figures.response_bytes), "/s; ",
      figures.seconds > 0 ? absl::StrFormat("of the last %.2f s", figures.seconds) : "since its start");
}

std::string OpenText(server::Row row) {
  return absl::StrCat(server::kConnections.column, " ", server::kConnections.Text(row), " of ",
                      server::kConnectionsMax.Text(row));
}

std::string ConnectionsText(wire::Snapshot::Reader snapshot) {
  std::vector<std::string> parts;
  const auto totals = snapshot.getTotals();
  for (unsigned i = 0; i < std::min(totals.size(), kTableRowsMax); ++i) {
    parts.push_back(absl::StrCat(Text(totals[i].getFabric()), " ", Text(totals[i].getState()), " ",
                                 total::kConnections.Text(totals[i]), " (", total::kInUse.Text(totals[i]),
                                 " of ", total::kSlots.Text(totals[i]), " slots in use)"));
  }
  return absl::StrCat(OpenText(snapshot.getServer()), parts.empty() ? "" : ": ", absl::StrJoin(parts, ", "));
}

std::string PoolsText(wire::Snapshot::Reader snapshot) {
  std::vector<std::string> parts;
  const auto pools = snapshot.getPools();
  for (unsigned i = 0; i < std::min(pools.size(), kTableRowsMax); ++i) {
    parts.push_back(absl::StrCat(Text(pools[i].getName()), " ", pool::kLeased.Text(pools[i]), " ",
                                 pool::kLeased.column, ", ", pool::kRegistered.Text(pools[i]), " ",
                                 pool::kRegistered.column, " of ", pool::kLimit.Text(pools[i])));
  }
  return absl::StrCat("memory ", absl::StrJoin(parts, "; "));
}

std::string SharedText(shared::Row memory) {
  if (memory.getRegions() == 0 && memory.getLanes() == 0) return "";
  return absl::StrCat("shares ", shared::kBytes.Text(memory), ", ", shared::kTickets.column, " ",
                      shared::kTickets.Text(memory), ", ", shared::kLanes.column, " ",
                      shared::kLanes.Text(memory));
}

std::string RefusalsText(const Figures& figures) {
  std::vector<std::string> parts;
  for (const Figures::Refusal& refusal : figures.refusals) {
    parts.push_back(absl::StrCat(refusal.reason, " ", refusal.count));
  }
  return parts.empty() ? "" : absl::StrCat("refused ", absl::StrJoin(parts, ", "));
}

// The column of a fact, with what may follow its name.
template <typename Row, typename Value>
TextTable::Column TextColumnOf(const observe::Fact<Row, Value>& fact, absl::string_view unit = "") {
  return {.heading = absl::AsciiStrToUpper(absl::StrCat(fact.column, unit)), .is_number = true};
}

// Those of the snapshot, with the parts of the time that the figures have.
TextTable Pollers(const Figures& figures, wire::Snapshot::Reader snapshot) {
  TextTable table({{"POLLER"},
                   {"MODE"},
                   TextColumnOf(poller::kBusy),
                   TextColumnOf(poller::kSpin),
                   TextColumnOf(poller::kSleep),
                   TextColumnOf(poller::kConnections),
                   TextColumnOf(poller::kReadsWait),
                   TextColumnOf(poller::kWantMemory),
                   {"HELD BY", false, true}});
  const auto rows = snapshot.getPollers();
  for (unsigned i = 0; i < figures.pollers.size() && i < rows.size(); ++i) {
    const Figures::Poller& each = figures.pollers[i];
    table.Add({each.name, std::string(Text(rows[i].getMode())), Percent(each.busy), Percent(each.spin),
               Percent(each.sleep), poller::kConnections.Text(rows[i]), poller::kReadsWait.Text(rows[i]),
               poller::kWantMemory.Text(rows[i]), each.held_by});
  }
  return table;
}

// Calls and bytes as `count` and `bytes` write them, `unit` behind the names of these columns.
template <typename Count, typename Bytes>
TextTable MethodTable(const Figures& figures, absl::string_view unit, const Count& count,
                      const Bytes& bytes) {
  TextTable table({{"METHOD", false, true, true},
                   TextColumnOf(method::kCalls, unit),
                   {absl::AsciiStrToUpper(absl::StrCat("errors", unit)), true},
                   TextColumnOf(method::kRunning),
                   {"P50", true},
                   {"P90", true},
                   {"P99", true},
                   TextColumnOf(method::kIn, unit),
                   TextColumnOf(method::kOut, unit)});
  for (const Figures::Method& each : figures.methods) {
    table.Add({each.name, count(each.calls), count(each.errors), absl::StrCat(each.running),
               Time(each.latency.p50_ns), Time(each.latency.p90_ns), Time(each.latency.p99_ns),
               bytes(each.request_bytes), bytes(each.response_bytes)});
  }
  return table;
}

TextTable MethodRates(const Figures& figures) {
  const Rates rates(figures);
  return MethodTable(
      figures, "/s", [&](uint64_t count) { return rates.Calls(count); },
      [&](uint64_t bytes) { return rates.Bytes(bytes); });
}

TextTable MethodCounts(const Figures& figures) {
  return MethodTable(
      figures, "", [](uint64_t count) { return absl::StrCat(count); }, BytesText);
}

// The peer's name takes what is left.
TextTable Calls(const Figures& figures) {
  TextTable table({TextColumnOf(call::kAge),
                   {"METHOD", false, true, true},
                   {"STAGE"},
                   {"PEER"},
                   {"IDENTITY", false, true}});
  for (const Figures::Call& each : figures.calls) {
    table.Add({DurationText(each.age_ns), each.method, each.stage, each.peer, each.identity});
  }
  return table;
}

TextTable Slowest(const Figures& figures) {
  TextTable table({TextColumnOf(call::kTook),
                   {"METHOD", false, true, true},
                   {"STATUS"},
                   TextColumnOf(call::kQueued),
                   TextColumnOf(call::kHandler),
                   TextColumnOf(call::kDeferred),
                   {"PEER", false, true}});
  for (const Figures::Call& each : figures.slowest) {
    table.Add({DurationText(each.age_ns), each.method, each.stage, DurationText(each.queued_ns),
               DurationText(each.handler_ns), DurationText(each.deferred_ns), each.peer});
  }
  return table;
}

// A table that the status page has, too, in columns of the terminal.
TextTable TextOf(const observe::Table& table) {
  std::vector<TextTable::Column> columns;
  for (const observe::Table::Column& column : table.columns()) {
    columns.push_back({.heading = absl::AsciiStrToUpper(column.name),
                       .is_number = column.kind == observe::Table::Kind::kNumber,
                       .gives_way = column.kind == observe::Table::Kind::kLongText});
  }
  TextTable text(std::move(columns));
  for (const std::vector<std::string>& row : table.rows()) text.Add(row);
  return text;
}

// Lines of a screen.
class Page {
 public:
  Page(size_t columns, size_t rows) : columns_(columns), rows_(rows) {}

  size_t left() const { return rows_ - lines_.size(); }
  void Text(absl::string_view text) {
    if (left() > 0 && !text.empty()) lines_.push_back({Fit(text, columns_)});
  }
  // In as many lines as they take.
  void List(absl::string_view label, const std::vector<std::string>& items) {
    std::string line(label);
    bool starts = true;
    for (const std::string& item : items) {
      if (!starts && line.size() + item.size() + 3 > columns_) {
        Text(absl::StrCat(line, ","));
        line = "   ";
      } else if (!starts) {
        line += ",";
      }
      absl::StrAppend(&line, " ", item);
      starts = false;
    }
    Text(line);
  }
  void Blank() {
    if (left() > 0) lines_.emplace_back();
  }
  // Heading and rows, of `rows` lines at most; nothing if there is no room for a row.
  void Table(const TextTable& table, size_t rows) {
    rows = std::min(rows, left());
    if (rows < 2) return;
    for (TextLine& line : table.Lines(columns_, rows - 1)) lines_.push_back(std::move(line));
  }
  std::vector<TextLine> Take() && { return std::move(lines_); }

 private:
  const size_t columns_, rows_;
  std::vector<TextLine> lines_;
};

// The lines that a table takes, with the empty one before it.
size_t LinesOf(const TextTable& table) { return table.rows() == 0 ? 0 : table.rows() + 2; }

}  // namespace

std::string RateText(double per_second) {
  if (per_second == 0) return "0";
  if (per_second < 10) return absl::StrFormat("%.2f", per_second);
  if (per_second < 100) return absl::StrFormat("%.1f", per_second);
  if (per_second < 10'000) return absl::StrFormat("%.0f", per_second);
  if (per_second < 1e6) return absl::StrFormat("%.1fk", per_second / 1e3);
  return absl::StrFormat("%.2fM", per_second / 1e6);
}

std::vector<TextLine> TopLines(const Figures& figures, wire::Snapshot::Reader snapshot,
                               absl::string_view target, size_t columns, size_t rows) {
  Page page(columns, rows);
  page.Text(ServerText(figures, target));
  page.Text(TrafficText(figures));
  page.Text(BytesRateText(figures));
  page.Text(ConnectionsText(snapshot));
  page.Text(PoolsText(snapshot));
  page.Text(SharedText(snapshot.getMemory()));
  page.Text(RefusalsText(figures));

  const TextTable pollers = Pollers(figures, snapshot), methods = MethodRates(figures),
                  in_flight = Calls(figures);
  const size_t left = page.left();
  // What one list does not need, the methods get.
  const size_t for_pollers = std::min(LinesOf(pollers), std::max<size_t>(left / kPollersShare, 4));
  size_t for_calls = std::min(LinesOf(in_flight), std::max<size_t>(left / kCallsShare, 4));
  // On a small screen the methods come first.
  if (left < for_pollers + std::min(LinesOf(methods), kLinesOfListMin + 1) + for_calls) for_calls = 0;
  const auto list = [&page](const TextTable& table, size_t lines) {
    if (table.rows() == 0 || lines < kLinesOfListMin) return;
    page.Blank();
    page.Table(table, lines - 1);
  };
  list(pollers, std::min(for_pollers, left));
  list(methods, page.left() - std::min(page.left(), for_calls));
  list(in_flight, page.left());
  return std::move(page).Take();
}

std::vector<TextLine> StatusLines(const Figures& figures, wire::Snapshot::Reader snapshot,
                                  absl::string_view target, size_t columns) {
  const wire::Server::Reader server = snapshot.getServer();
  Page page(columns, SIZE_MAX);
  page.Text(ServerText(figures, target));
  page.List(absl::StrCat("listens ", server.getHasCredentials() ? "with" : "without", " credentials on"),
            Texts(server.getAddresses()));
  if (server.getWhyNotRdma().size() > 0) page.Text(absl::StrCat("no RDMA: ", Text(server.getWhyNotRdma())));
  page.List("serves", Texts(server.getServices()));
  page.Text(absl::StrCat("calls ", figures.ended, ", errors ", figures.errors, ", in flight ",
                         figures.running, "; ", OpenText(server)));
  if (server.getHasCredentials()) {
    const tls::Row handshakes = snapshot.getTls();
    page.Text(absl::StrCat("TLS handshakes ", tls::kFull.Text(handshakes), ", resumed ",
                           tls::kResumed.Text(handshakes), ", failed ", tls::kFailed.Text(handshakes)));
  }
  const auto table = [&](const TextTable& each) {
    if (each.rows() == 0) return;
    page.Blank();
    page.Table(each, kStatusRowsMax);
  };
  table(MethodCounts(figures));
  table(TextOf(observe::ConnectionTotals(snapshot)));
  table(Pollers(figures, snapshot));
  table(TextOf(observe::Pools(snapshot)));
  table(TextOf(observe::PoolClasses(snapshot)));
  table(TextOf(observe::Shared(snapshot)));
  table(TextOf(observe::Channels(snapshot)));
  table(TextOf(observe::RemoteOperations(snapshot)));
  table(TextOf(observe::Refusals(snapshot)));
  if (!figures.calls.empty()) {
    page.Blank();
    const uint64_t left_out = snapshot.getCallsLeftOut();
    page.Text(left_out == 0 ? "Calls in flight, the oldest first:"
                            : absl::StrCat("Calls in flight, the oldest first (", left_out, " more):"));
    page.Table(Calls(figures), kStatusRowsMax);
  }
  if (!figures.slowest.empty()) {
    page.Blank();
    page.Text("The slowest of the last two minutes, some of each poller:");
    page.Table(Slowest(figures), kStatusRowsMax);
  }
  return std::move(page).Take();
}

}  // namespace hawser::tool
