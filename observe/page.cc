#include "hawser/observe/page.h"

#include "absl/strings/str_cat.h"
#include "hawser/observe/html.h"
#include "hawser/observe/json.h"

namespace hawser::observe {
namespace {

constexpr char kStyle[] = R"(
:root{color-scheme:light dark;--line:#d0d4da;--soft:#5a6470;--bar:#3b6ea8;--bar2:#b26a1f;--bar3:#4f8a4c;--ground:#fff;--ink:#15191e}
@media(prefers-color-scheme:dark){:root{--line:#3a4149;--soft:#9aa5b1;--bar:#7aa7dc;--bar2:#e0a05a;--bar3:#8cc488;--ground:#14171b;--ink:#e4e8ec}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--ground);color:var(--ink);font:14px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.3rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem;border-bottom:1px solid var(--line)}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;margin:.4rem 0 .8rem}nav a{padding:.15rem 0}a{color:var(--bar)}
nav a[aria-current]{color:var(--ink);font-weight:600;text-decoration:none}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2rem .7rem .2rem 0;vertical-align:top;border-bottom:1px solid var(--line);white-space:nowrap}
th{font-weight:600;color:var(--soft)}td.n,th.n{text-align:right}td.t{white-space:normal;min-width:12rem}
.soft{color:var(--soft)}svg{display:block;max-width:100%;fill:var(--bar)}svg text{font:10px system-ui,sans-serif;fill:var(--soft)}
td svg{max-width:none}.legend svg{display:inline-block}.curve{border-bottom:1px solid var(--line)}
.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:1rem}
figure{margin:0}.axis{display:flex;justify-content:space-between;font-size:12px;max-width:300px}
)";

constexpr absl::string_view kOverview[] = {"takenUnixNs", "process", "server"};
constexpr absl::string_view kMethods[] = {"takenUnixNs",     "methods",       "outgoing",
                                          "outgoingLeftOut", "outgoingCalls", "outgoingFailed"};
constexpr absl::string_view kCalls[] = {"takenUnixNs", "calls", "callsLeftOut", "slowest", "pollers"};
constexpr absl::string_view kConnections[] = {
    "takenUnixNs",     "connections",   "connectionsLeftOut",  "totals", "refusals",        "tls", "channels",
    "channelsLeftOut", "channelTotals", "channelCallsWaiting", "memory", "remoteOperations"};
constexpr absl::string_view kPollers[] = {"takenUnixNs", "pollers", "pools"};
constexpr absl::string_view kConfiguration[] = {"takenUnixNs", "configuration"};

constexpr Page kPages[] = {
    {"/", "/overview.json", "Overview", kOverview, true, OverviewBody},
    {"/methods", "/methods.json", "Methods", kMethods, false, MethodsBody},
    {"/calls", "/calls.json", "Calls", kCalls, false, CallsBody},
    {"/connections", "/connections.json", "Connections", kConnections, false, ConnectionsBody},
    {"/pollers", "/pollers.json", "Pollers and memory", kPollers, true, PollersBody},
    {"/configuration", "/configuration.json", "Configuration", kConfiguration, false, ConfigurationBody},
};

}  // namespace

absl::Span<const Page> Pages() { return kPages; }

std::string ToHtml(const Page& page, wire::Snapshot::Reader snapshot, const History& history, size_t from) {
  const std::string name = EscapeHtml(View(snapshot.getProcess().getName()));
  std::string html = absl::StrCat(
      "<!doctype html><html lang=en><head><meta charset=utf-8><meta http-equiv=refresh content=5>"
      "<meta name=viewport content=\"width=device-width,initial-scale=1\"><title>",
      name, " - ", page.title, " - Hawser</title><style>", kStyle, "</style></head><body><h1>", name,
      "</h1><nav aria-label=Pages>");
  for (const Page& each : kPages) {
    absl::StrAppend(&html, "<a href=\"", each.path, "\"", each.path == page.path ? " aria-current=page" : "",
                    ">", each.title, "</a>");
  }
  absl::StrAppend(&html, "<a href=\"", page.json_path, "\">JSON</a><a href=\"/metrics\">Metrics</a></nav>",
                  page.body(snapshot, history, from), "</body></html>\n");
  return html;
}

std::string HeldPollers(wire::Snapshot::Reader snapshot) {
  constexpr size_t kLinesMax = 8;
  std::string html;
  size_t held = 0;
  for (const auto poller : snapshot.getPollers()) {
    if (poller.getAnswered() || ++held > kLinesMax) continue;
    absl::StrAppend(&html, "<p><b>", EscapeHtml(View(poller.getName())), "</b> is held by ",
                    poller.hasHeldBy() ? EscapeHtml(View(poller.getHeldBy())) : "its last turn",
                    ": the connections and calls on it are not shown.</p>");
  }
  if (held > kLinesMax) absl::StrAppend(&html, "<p>And ", held - kLinesMax, " more pollers.</p>");
  return html;
}

std::string ToJson(const Page& page, wire::Snapshot::Reader snapshot, const History& history) {
  return JsonOf(snapshot, page.fields, page.has_history ? &history : nullptr);
}

}  // namespace hawser::observe
