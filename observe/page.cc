#include "hawser/observe/page.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "hawser/base/peer_text.h"
#include "hawser/observe/histogram.h"

namespace hawser::observe {
namespace {

// A text of a peer is cut here: a page has many.
constexpr size_t kTextMax = 200;

constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--line:#d0d4da;--soft:#66707c;--bar:#3b6ea8;--bar2:#b26a1f;--bar3:#4f8a4c;--ground:#fff;--ink:#15191e}
@media(prefers-color-scheme:dark){:root{--line:#3a4149;--soft:#9aa5b1;--bar:#7aa7dc;--bar2:#e0a05a;--bar3:#8cc488;--ground:#14171b;--ink:#e4e8ec}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--ground);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
h1{font-size:1.3rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem;border-bottom:1px solid var(--line)}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem}a{color:var(--bar)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2rem .7rem .2rem 0;vertical-align:top;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--soft)}td.n,th.n{text-align:right}td.t{white-space:normal;overflow-wrap:anywhere;min-width:12rem}
.soft{color:var(--soft)}svg{display:block;max-width:100%}
.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:1rem}
figure{margin:0}figcaption{color:var(--soft)}
)";

absl::string_view Text(capnp::Text::Reader text) { return {text.cStr(), text.size()}; }

std::string Cell(absl::string_view html) { return absl::StrCat("<td>", html, "</td>"); }
std::string Number(absl::string_view html) { return absl::StrCat("<td class=n>", html, "</td>"); }
std::string PeerCell(capnp::Text::Reader text) {
  return absl::StrCat("<td class=t>", EscapeHtml(Text(text)), "</td>");
}

// The columns whose names begin with '#' have numbers.
std::string TableHead(std::initializer_list<const char*> columns) {
  std::string head = "<div class=scroll><table><thead><tr>";
  for (const char* column : columns) {
    const bool is_number = column[0] == '#';
    absl::StrAppend(&head, is_number ? "<th class=n>" : "<th>", is_number ? column + 1 : column, "</th>");
  }
  return head + "</tr></thead><tbody>";
}
constexpr char kTableEnd[] = "</tbody></table></div>";

// A histogram as bars, from the first bucket that is not empty to the last.
std::string HistogramPicture(wire::Histogram::Reader histogram, absl::string_view label) {
  const auto counts = histogram.getCounts();
  const auto bounds = histogram.getBoundsNs();
  unsigned first = counts.size(), last = 0;
  uint64_t most = 0;
  for (unsigned i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    first = std::min(first, i);
    last = i;
    most = std::max<uint64_t>(most, counts[i]);
  }
  if (most == 0) return "";
  constexpr unsigned kHeight = 28, kWidth = 5;
  std::string svg = absl::StrCat("<svg role=img width=", (last - first + 1) * kWidth, " height=", kHeight,
                                 " viewBox=\"0 0 ", (last - first + 1) * kWidth, " ", kHeight, "\"><title>",
                                 EscapeHtml(label), "</title>");
  for (unsigned i = first; i <= last; ++i) {
    if (counts[i] == 0) continue;
    const double height = std::max(1.0, static_cast<double>(counts[i]) / static_cast<double>(most) * kHeight);
    absl::StrAppend(
        &svg, absl::StrFormat("<rect x=%u y=%.1f width=%u height=%.1f fill=\"var(--bar)\"><title>below "
                              "%s: %u</title></rect>",
                              (i - first) * kWidth, kHeight - height, kWidth - 1, height,
                              i < bounds.size() && bounds[i] != INT64_MAX ? DurationText(bounds[i]) : "any",
                              counts[i]));
  }
  return svg + "</svg>";
}

// Where the time of a call went: waiting, in the handler, deferred.
std::string PartsPicture(wire::Call::Reader call) {
  const double all = std::max<double>(1, static_cast<double>(call.getAgeNs()));
  constexpr double kWidth = 120;
  const std::array<std::pair<int64_t, const char*>, 3> parts = {
      {{call.getQueuedNs(), "--bar2"}, {call.getHandlerNs(), "--bar"}, {call.getDeferredNs(), "--bar3"}}};
  std::string svg =
      absl::StrFormat("<svg role=img width=%.0f height=10><title>waited %s, handler %s, deferred %s</title>",
                      kWidth, DurationText(call.getQueuedNs()), DurationText(call.getHandlerNs()),
                      DurationText(call.getDeferredNs()));
  double x = 0;
  for (const auto& [ns, colour] : parts) {
    const double width = static_cast<double>(ns) / all * kWidth;
    absl::StrAppend(
        &svg, absl::StrFormat("<rect x=%.1f y=0 width=%.1f height=10 fill=\"var(%s)\"/>", x, width, colour));
    x += width;
  }
  return svg + "</svg>";
}

std::string Curve(absl::string_view name, const std::vector<double>& values, const std::string& most_text,
                  const std::string& now_text) {
  constexpr double kWidth = 300, kHeight = 60;
  const double most = std::max(1e-9, *std::max_element(values.begin(), values.end()));
  std::string points;
  for (size_t i = 0; i < values.size(); ++i) {
    absl::StrAppend(&points, absl::StrFormat("%.1f,%.1f ",
                                             kWidth * static_cast<double>(i) /
                                                 std::max<double>(1, static_cast<double>(values.size() - 1)),
                                             kHeight - 1 - values[i] / most * (kHeight - 2)));
  }
  return absl::StrCat(
      "<figure><svg role=img viewBox=\"0 0 300 60\" preserveAspectRatio=none width=300 height=60><title>",
      name, ", now ", now_text, ", at most ", most_text,
      "</title><polyline fill=none stroke=\"var(--bar)\" stroke-width=1.5 points=\"", points,
      "\"/></svg><figcaption>", name, ": ", now_text, " <span class=soft>(at most ", most_text,
      ")</span></figcaption></figure>");
}

std::string Curves(const History& history) {
  const std::vector<History::Point>& points = history.points();
  if (points.empty()) return "<p class=soft>The curves begin a second after the server.</p>";
  std::vector<double> calls, busy, leased, running;
  for (const History::Point& point : points) {
    calls.push_back(point.calls_per_second);
    busy.push_back(point.busy);
    leased.push_back(static_cast<double>(point.leased_bytes));
    running.push_back(static_cast<double>(point.calls_running));
  }
  const auto most = [](const std::vector<double>& values) {
    return *std::max_element(values.begin(), values.end());
  };
  const auto rate = [](double value) { return absl::StrFormat("%.0f/s", value); };
  const auto share = [](double value) { return absl::StrFormat("%.2f pollers", value); };
  const auto bytes = [](double value) { return BytesText(static_cast<uint64_t>(value)); };
  const auto count = [](double value) { return absl::StrFormat("%.0f", value); };
  return absl::StrCat("<div class=curves>", Curve("Calls", calls, rate(most(calls)), rate(calls.back())),
                      Curve("In flight", running, count(most(running)), count(running.back())),
                      Curve("Busy", busy, share(most(busy)), share(busy.back())),
                      Curve("Registered memory in use", leased, bytes(most(leased)), bytes(leased.back())),
                      "</div>");
}

std::string Overview(wire::Snapshot::Reader snapshot) {
  const wire::Server::Reader server = snapshot.getServer();
  constexpr const char* kStates[] = {"serving", "draining", "down"};
  const auto state = static_cast<size_t>(server.getState());
  std::string html = absl::StrCat(
      "<p><b>", state < std::size(kStates) ? kStates[state] : "", "</b> for ",
      DurationText(snapshot.getTakenUnixNs() - server.getStartedUnixNs()), ", process ",
      snapshot.getProcess().getPid(), " on ", EscapeHtml(Text(snapshot.getProcess().getHost())), ". At ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(snapshot.getTakenUnixNs()),
                       absl::UTCTimeZone()),
      " UTC.</p><p>");
  for (const auto address : server.getAddresses()) absl::StrAppend(&html, EscapeHtml(Text(address)), "<br>");
  if (server.getWhyNotRdma().size() > 0) {
    absl::StrAppend(&html, "<span class=soft>not over RDMA: ", EscapeHtml(Text(server.getWhyNotRdma())),
                    "</span>");
  }
  absl::StrAppend(&html, "</p><p>", server.getConnectionsOpen(), " connections of at most ",
                  server.getConnectionsMax(), ", ", server.getCallsRunning(), " calls in flight, ",
                  server.getCallsTotal(), " requests so far. ",
                  server.getHasCredentials() ? "Callers are authenticated (TLS)."
                                             : "No credentials: any program may call.",
                  "</p>");
  return html;
}

std::string Methods(wire::Snapshot::Reader snapshot) {
  std::string html = TableHead({"method", "#calls", "#in flight", "status", "#p50", "#p90", "#p99", "#p99.9",
                                "latency", "#in", "#out"});
  for (const auto method : snapshot.getMethods()) {
    std::string statuses;
    for (const auto status : method.getStatuses()) {
      absl::StrAppend(&statuses, statuses.empty() ? "" : ", ", Text(status.getName()), " ",
                      status.getCount());
    }
    const auto latency = method.getLatency();
    const auto percentile = [&](double percent) {
      return latency.getCounts().size() == 0
                 ? std::string()
                 : DurationText(PercentileNs(latency.getBoundsNs(), latency.getCounts(), percent));
    };
    const std::string p50 = percentile(50), p90 = percentile(90), p99 = percentile(99),
                      p999 = percentile(99.9);
    absl::StrAppend(&html, "<tr>", PeerCell(method.getName()), Number(absl::StrCat(method.getCalls())),
                    Number(absl::StrCat(method.getRunning())), Cell(statuses), Number(p50), Number(p90),
                    Number(p99), Number(p999),
                    Cell(HistogramPicture(
                        latency, absl::StrCat("p50 ", p50, ", p90 ", p90, ", p99 ", p99, ", p99.9 ", p999))),
                    Number(BytesText(method.getRequestBytes())), Number(BytesText(method.getResponseBytes())),
                    "</tr>");
  }
  return html + kTableEnd;
}

std::string Calls(wire::Snapshot::Reader snapshot) {
  if (snapshot.getCalls().size() == 0) return "<p class=soft>None.</p>";
  std::string html = TableHead({"method", "stage", "#age", "#deadline in", "peer", "identity"});
  for (const auto call : snapshot.getCalls()) {
    absl::StrAppend(&html, "<tr>", PeerCell(call.getMethod()), Cell(EscapeHtml(Text(call.getStage()))),
                    Number(DurationText(call.getAgeNs())),
                    Number(call.getDeadlineInNs() < 0 ? "none" : DurationText(call.getDeadlineInNs())),
                    PeerCell(call.getPeer()), PeerCell(call.getIdentity()), "</tr>");
  }
  html += kTableEnd;
  if (snapshot.getCallsLeftOut() != 0)
    absl::StrAppend(&html, "<p>and ", snapshot.getCallsLeftOut(), " more</p>");
  return html;
}

std::string Slowest(wire::Snapshot::Reader snapshot) {
  if (snapshot.getSlowest().size() == 0) return "<p class=soft>None.</p>";
  std::string html =
      TableHead({"method", "status", "#took", "where", "#waited", "#handler", "#deferred", "peer"});
  for (const auto call : snapshot.getSlowest()) {
    absl::StrAppend(&html, "<tr>", PeerCell(call.getMethod()), Cell(EscapeHtml(Text(call.getStage()))),
                    Number(DurationText(call.getAgeNs())), Cell(PartsPicture(call)),
                    Number(DurationText(call.getQueuedNs())), Number(DurationText(call.getHandlerNs())),
                    Number(DurationText(call.getDeferredNs())), PeerCell(call.getPeer()), "</tr>");
  }
  return html + kTableEnd;
}

std::string Connections(wire::Snapshot::Reader snapshot) {
  std::string html = TableHead({"fabric", "state", "#connections", "#slots", "#in use"});
  for (const auto total : snapshot.getTotals()) {
    absl::StrAppend(&html, "<tr>", Cell(Text(total.getFabric())), Cell(Text(total.getState())),
                    Number(absl::StrCat(total.getCount())), Number(absl::StrCat(total.getSlots())),
                    Number(absl::StrCat(total.getSlotsInUse())), "</tr>");
  }
  absl::StrAppend(&html, kTableEnd,
                  TableHead({"peer", "identity", "fabric", "state", "#slots", "#in use", "#requests",
                             "#receives", "#memory", "#age", "poller"}));
  for (const auto each : snapshot.getConnections()) {
    const auto pollers = snapshot.getPollers();
    absl::StrAppend(
        &html, "<tr>", PeerCell(each.getPeer()), PeerCell(each.getIdentity()), Cell(Text(each.getFabric())),
        Cell(Text(each.getState())), Number(absl::StrCat(each.getSlots())),
        Number(absl::StrCat(each.getSlotsInUse())), Number(absl::StrCat(each.getRequests())),
        Number(absl::StrCat(each.getReceivesPosted())), Number(BytesText(each.getReceiveBytes())),
        Number(DurationText(snapshot.getTakenUnixNs() - each.getSinceUnixNs())),
        Cell(each.getPoller() < pollers.size() ? Text(pollers[each.getPoller()].getName()) : ""), "</tr>");
  }
  html += kTableEnd;
  if (snapshot.getConnectionsLeftOut() != 0) {
    absl::StrAppend(&html, "<p>and ", snapshot.getConnectionsLeftOut(), " more</p>");
  }
  return html;
}

std::string Pollers(wire::Snapshot::Reader snapshot) {
  std::string html = TableHead({"poller", "mode", "#busy", "#spin", "#sleep", "#turns", "#sleeps",
                                "#connections", "#READ in flight", "#waiting", "#want memory", "held by"});
  for (const auto poller : snapshot.getPollers()) {
    const double all = std::max<double>(
        1, static_cast<double>(poller.getBusyNs() + poller.getSpinNs() + poller.getSleepNs()));
    const auto share = [&](uint64_t ns) {
      return absl::StrFormat("%.1f %%", static_cast<double>(ns) / all * 100);
    };
    const bool known = poller.getAnswered();
    const auto if_known = [&](const std::string& text) { return Number(known ? text : "?"); };
    absl::StrAppend(&html, "<tr>", Cell(EscapeHtml(Text(poller.getName()))), Cell(Text(poller.getMode())),
                    Number(share(poller.getBusyNs())), Number(share(poller.getSpinNs())),
                    Number(share(poller.getSleepNs())), Number(absl::StrCat(poller.getTurns())),
                    Number(absl::StrCat(poller.getSleeps())), if_known(absl::StrCat(poller.getConnections())),
                    if_known(absl::StrCat(BytesText(poller.getReadBytesInFlight()), " of ",
                                          BytesText(poller.getReadBytesMax()))),
                    if_known(absl::StrCat(poller.getReadsWaiting())),
                    if_known(absl::StrCat(poller.getMemoryWaiters())), PeerCell(poller.getHeldBy()), "</tr>");
  }
  absl::StrAppend(&html, kTableEnd, TableHead({"pool", "#in use", "#registered", "#limit"}));
  for (const auto pool : snapshot.getPools()) {
    absl::StrAppend(&html, "<tr>", Cell(EscapeHtml(Text(pool.getName()))),
                    Number(BytesText(pool.getLeasedBytes())), Number(BytesText(pool.getRegisteredBytes())),
                    Number(BytesText(pool.getLimitBytes())), "</tr>");
  }
  return html + kTableEnd;
}

std::string Refusals(wire::Snapshot::Reader snapshot) {
  std::string html;
  for (const auto refusal : snapshot.getRefusals()) {
    if (refusal.getCount() == 0) continue;
    absl::StrAppend(&html, "<tr>", Cell(EscapeHtml(Text(refusal.getReason()))),
                    Number(absl::StrCat(refusal.getCount())), "</tr>");
  }
  if (html.empty()) return "<p class=soft>None.</p>";
  return absl::StrCat(TableHead({"reason", "#peers"}), html, kTableEnd);
}

std::string Configuration(wire::Snapshot::Reader snapshot) {
  std::string html = TableHead({"option", "value"});
  for (const auto setting : snapshot.getConfiguration()) {
    absl::StrAppend(&html, "<tr>", Cell(EscapeHtml(Text(setting.getName()))), PeerCell(setting.getValue()),
                    "</tr>");
  }
  return html + kTableEnd;
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  std::string html;
  const bool is_cut = text.size() > kTextMax;
  for (char c : EscapePeerText(text.substr(0, kTextMax))) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html.push_back(c);
    }
  }
  return is_cut ? html + "..." : html;
}

std::string DurationText(int64_t ns) {
  if (ns < 1000) return absl::StrCat(ns, " ns");
  if (ns < 1'000'000) return absl::StrFormat("%.3g us", static_cast<double>(ns) / 1e3);
  if (ns < 1'000'000'000) return absl::StrFormat("%.3g ms", static_cast<double>(ns) / 1e6);
  const int64_t seconds = ns / 1'000'000'000;
  if (seconds < 120) return absl::StrFormat("%.2f s", static_cast<double>(ns) / 1e9);
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 172'800) return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
  return absl::StrCat(seconds / 86'400, " d ", seconds / 3600 % 24, " h");
}

std::string BytesText(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024; ++unit) value /= 1024;
  return absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string StatusPage(wire::Snapshot::Reader snapshot, const History& history) {
  const std::string name = EscapeHtml(Text(snapshot.getProcess().getName()));
  return absl::StrCat(
      "<!doctype html><html lang=en><head><meta charset=utf-8><meta http-equiv=refresh content=5>"
      "<meta name=viewport content=\"width=device-width,initial-scale=1\"><title>",
      name, " - Hawser</title><style>", kStyle, "</style></head><body><h1>", name,
      "</h1><nav><a href=\"#methods\">Methods</a><a href=\"#calls\">Calls</a><a "
      "href=\"#connections\">Connections</a>"
      "<a href=\"#pollers\">Pollers</a><a href=\"#configuration\">Configuration</a>"
      "<a href=\"/snapshot.json\">JSON</a><a href=\"/metrics\">Metrics</a></nav>",
      Overview(snapshot), Curves(history), "<h2 id=methods>Methods</h2>", Methods(snapshot),
      "<h2 id=calls>Calls in flight</h2>", Calls(snapshot), "<h2>The slowest of the last two minutes</h2>",
      Slowest(snapshot), "<h2 id=connections>Connections</h2>", Connections(snapshot),
      "<h2 id=pollers>Pollers and memory</h2>", Pollers(snapshot), "<h2>Refused</h2>", Refusals(snapshot),
      "<h2 id=configuration>Configuration</h2>", Configuration(snapshot), "</body></html>\n");
}

}  // namespace hawser::observe
