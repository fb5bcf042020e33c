// The overview: what serves, since when, with which limits, and a line on each other page.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/method_order.h"
#include "hawser/observe/page.h"
#include "hawser/observe/picture.h"
#include "hawser/observe/tables.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

constexpr size_t kTopMethods = 8;
constexpr unsigned kServicesMax = 20;

std::string State(wire::Snapshot::Reader snapshot) {
  const wire::Server::Reader server = snapshot.getServer();
  const auto time = [](int64_t unix_ns) {
    return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
  };
  std::string html =
      absl::StrCat("<p><b>", server::NameOf(server.getState()), "</b> for ",
                   DurationText(snapshot.getTakenUnixNs() - server.getStartedUnixNs()), ", since ",
                   time(server.getStartedUnixNs()), " UTC. Process ", snapshot.getProcess().getPid(), " on ",
                   EscapeHtml(View(snapshot.getProcess().getHost())),
                   ". <span class=soft>This page: ", time(snapshot.getTakenUnixNs()), " UTC.</span></p><p>");
  for (const auto address : server.getAddresses()) absl::StrAppend(&html, EscapeHtml(View(address)), "<br>");
  if (server.getWhyNotRdma().size() > 0) {
    absl::StrAppend(&html, "<span class=soft>not over RDMA: ", EscapeHtml(View(server.getWhyNotRdma())),
                    "</span>");
  }
  const auto services = server.getServices();
  absl::StrAppend(&html, "</p><p>Services: ");
  for (unsigned i = 0; i < std::min(services.size(), kServicesMax); ++i) {
    absl::StrAppend(&html, i == 0 ? "" : ", ", EscapeHtml(View(services[i])));
  }
  if (services.size() > kServicesMax)
    absl::StrAppend(&html, " and ", services.size() - kServicesMax, " more");
  return absl::StrCat(html, ".</p><p>",
                      server.getHasCredentials() ? "Callers are authenticated (TLS)."
                                                 : "No credentials: any program may call.",
                      "</p>");
}

std::string Limits(wire::Snapshot::Reader snapshot) {
  const wire::Server::Reader server = snapshot.getServer();
  Table limits({{"what"}, {"now", kNumber}, {"at most", kNumber}});
  limits.Row(
      {server::kConnections.column, server::kConnections.Text(server), server::kConnectionsMax.Text(server)});
  limits.Row({"connections of one host", "", absl::StrCat(server.getConnectionsPerHostMax())});
  uint64_t slots = 0, in_use = 0;
  for (const auto total : snapshot.getTotals()) {
    slots += total.getSlots();
    in_use += total.getSlotsInUse();
  }
  limits.Row({"slots of these connections", absl::StrCat(in_use), absl::StrCat(slots)});
  for (const auto pool : snapshot.getPools()) {
    limits.Row({absl::StrCat("registered memory, ", View(pool.getName())), pool::kLeased.Text(pool),
                pool::kLimit.Text(pool)});
  }
  return limits.Html();
}

std::string Curves(const History& history) {
  if (history.times_unix_ns().empty()) return "<p class=soft>The curves begin a second after the server.</p>";
  const int64_t span_ns = history.span_ns();
  return absl::StrCat("<div class=curves>",
                      CurvePicture("Calls", history.calls_per_second(), span_ns,
                                   [](double value) { return absl::StrFormat("%.0f/s", value); }),
                      CurvePicture("In flight", history.calls_running(), span_ns,
                                   [](double value) { return absl::StrFormat("%.0f", value); }),
                      CurvePicture("Busy", history.busy(), span_ns,
                                   [](double value) { return absl::StrFormat("%.2f pollers", value); }),
                      CurvePicture("Registered memory in use", history.leased_bytes(), span_ns,
                                   [](double value) { return BytesText(static_cast<uint64_t>(value)); }),
                      "</div>");
}

std::string TopMethods(wire::Snapshot::Reader snapshot) {
  Table table({{"method", Table::Kind::kLongText},
               ColumnOf(method::kCalls),
               ColumnOf(method::kRunning),
               {"p50", kNumber},
               {"p99", kNumber}});
  const std::vector<wire::Method::Reader> methods = ByCalls(snapshot.getMethods(), kTopMethods);
  for (const wire::Method::Reader& method : methods) {
    if (method.getCalls() == 0 && method.getRunning() == 0) break;
    table.Row({View(method.getName()), method::kCalls.Text(method), method::kRunning.Text(method),
               PercentileText(method, 50), PercentileText(method, 99)});
  }
  return table.Html();
}

std::string Link(const char* path, const char* title, const std::string& line) {
  return absl::StrCat("<p><a href=\"", path, "\">", title, "</a>: ", line, "</p>");
}

std::string MethodsLine(wire::Snapshot::Reader snapshot) {
  uint64_t failed = 0, called = 0;
  for (const auto method : snapshot.getMethods()) {
    if (method.getCalls() != 0) ++called;
    for (const auto status : method.getStatuses()) {
      if (status.getCode() != 0) failed += status.getCount();
    }
  }
  return absl::StrCat(snapshot.getMethods().size(), " are served, ", called, " were called; ",
                      snapshot.getServer().getCallsTotal(), " requests so far, ", failed,
                      " did not end with OK.");
}

std::string CallsLine(wire::Snapshot::Reader snapshot) {
  std::string line = absl::StrCat(snapshot.getServer().getCallsRunning(), " in flight");
  if (snapshot.getCalls().size() > 0) {
    absl::StrAppend(&line, ", the oldest for ", DurationText(snapshot.getCalls()[0].getAgeNs()));
  }
  if (snapshot.getSlowest().size() > 0) {
    absl::StrAppend(&line, "; the slowest of the last two minutes took ",
                    DurationText(snapshot.getSlowest()[0].getAgeNs()));
  }
  return line + ".";
}

std::string ConnectionsLine(wire::Snapshot::Reader snapshot) {
  std::map<absl::string_view, uint64_t> by_fabric;
  for (const auto total : snapshot.getTotals()) by_fabric[View(total.getFabric())] += total.getCount();
  std::string line = absl::StrCat(snapshot.getServer().getConnectionsOpen(), " open");
  for (const auto& [fabric, count] : by_fabric) {
    absl::StrAppend(&line, ", ", count, " of clients over ", EscapeHtml(fabric));
  }
  uint64_t refused = 0;
  for (const auto refusal : snapshot.getRefusals()) refused += refusal.getCount();
  return absl::StrCat(line, "; ", refused, " refused.");
}

std::string OutgoingLine(wire::Snapshot::Reader snapshot) {
  return absl::StrCat(snapshot.getOutgoingCalls(), " made, ", snapshot.getOutgoingFailed(),
                      " did not end with OK, ", snapshot.getChannelCallsWaiting(),
                      " wait for a connection or a free slot.");
}

std::string ProcessLine(wire::Process::Reader process) {
  std::string line = absl::StrCat(process::kCpu.Text(process), " of processor time");
  if (process::kResident.IsKnown(process)) {
    absl::StrAppend(&line, ", ", process::kResident.Text(process), " resident");
  }
  if (process::kOpenFiles.IsKnown(process)) {
    absl::StrAppend(&line, ", ", process::kOpenFiles.Text(process), " files open");
    if (process::kOpenFilesMax.IsKnown(process)) {
      absl::StrAppend(&line, " of ", process::kOpenFilesMax.Text(process));
    }
  }
  return line + ".";
}

std::string WithoutServer(wire::Snapshot::Reader snapshot) {
  const wire::Process::Reader process = snapshot.getProcess();
  return absl::StrCat(
      "<p>Process ", process.getPid(), " on ", EscapeHtml(View(process.getHost())),
      ", which serves nothing: ", ProcessLine(process), "</p>",
      Link("/methods", "Calls to others", OutgoingLine(snapshot)),
      Link("/connections", "Channels",
           absl::StrCat(snapshot.getChannels().size() + snapshot.getChannelsLeftOut(), ".")),
      "<p class=soft>All of it for programs: <a href=\"/snapshot.json\">/snapshot.json</a>.</p>");
}

std::string PollersLine(wire::Snapshot::Reader snapshot) {
  uint64_t held = 0, waiters = 0;
  for (const auto poller : snapshot.getPollers()) {
    if (!poller.getAnswered()) ++held;
    waiters += poller.getMemoryWaiters();
  }
  return absl::StrCat(snapshot.getPollers().size(), " pollers, ", held, " held by code of the application; ",
                      waiters, " connections wait for memory.");
}

}  // namespace

std::string OverviewBody(wire::Snapshot::Reader snapshot, const History& history, size_t) {
  if (!snapshot.hasServer()) return WithoutServer(snapshot);
  return absl::StrCat(
      State(snapshot), HeldPollers(snapshot), Curves(history), "<h2>Limits</h2>", Limits(snapshot),
      "<h2>Methods by calls</h2>", TopMethods(snapshot), "<h2>More</h2>",
      Link("/methods", "Methods", MethodsLine(snapshot)), Link("/calls", "Calls", CallsLine(snapshot)),
      Link("/connections", "Connections", ConnectionsLine(snapshot)),
      Link("/pollers", "Pollers and memory", PollersLine(snapshot)),
      "<p>Process: ", ProcessLine(snapshot.getProcess()),
      " <a href=\"/methods\">Calls to others</a>: ", OutgoingLine(snapshot), "</p>",
      Link("/configuration", "Configuration",
           absl::StrCat(snapshot.getConfiguration().size(), " options as this server has them.")),
      "<p class=soft>All of it for programs: <a href=\"/snapshot.json\">/snapshot.json</a>.</p>");
}

}  // namespace hawser::observe
