// The pollers and the pools of registered memory, over the last minutes.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"
#include "hawser/observe/picture.h"
#include "hawser/observe/tables.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

// "12.5 %", of 0.125.
std::string ShareText(double part) { return absl::StrFormat("%.1f %%", part * 100); }

std::string PollerCurves(wire::Snapshot::Reader snapshot, const History& history) {
  std::string html = "<div class=curves>";
  for (const auto poller : snapshot.getPollers()) {
    const History::Curve* const busy = history.BusyOf(View(poller.getName()));
    if (busy == nullptr) continue;
    html += CurvePicture(absl::StrCat(EscapeHtml(View(poller.getName())), " busy"), *busy, history.span_ns(),
                         ShareText);
  }
  return html + "</div>";
}

std::string Pollers(wire::Snapshot::Reader snapshot) {
  Table table({{"poller"},
               {"mode"},
               ColumnOf(poller::kBusy),
               ColumnOf(poller::kSpin),
               ColumnOf(poller::kSleep),
               ColumnOf(poller::kTurns),
               ColumnOf(poller::kSleeps),
               ColumnOf(poller::kConnections),
               ColumnOf(poller::kReadBytes),
               ColumnOf(poller::kReadsWait),
               ColumnOf(poller::kWantMemory),
               {"held by", Table::Kind::kLongText}});
  for (const auto poller : snapshot.getPollers()) {
    const double all = std::max<double>(
        1, static_cast<double>(poller.getBusyNs() + poller.getSpinNs() + poller.getSleepNs()));
    const auto share = [&](uint64_t ns) { return ShareText(static_cast<double>(ns) / all); };
    std::string reads = poller::kReadBytes.Text(poller);
    if (poller.getAnswered()) absl::StrAppend(&reads, " of ", poller::kReadBytesMax.Text(poller));
    table.Row({View(poller.getName()), View(poller.getMode()), share(poller.getBusyNs()),
               share(poller.getSpinNs()), share(poller.getSleepNs()), poller::kTurns.Text(poller),
               poller::kSleeps.Text(poller), poller::kConnections.Text(poller), reads,
               poller::kReadsWait.Text(poller), poller::kWantMemory.Text(poller), View(poller.getHeldBy())});
  }
  return table.Html();
}

std::string Messages(wire::Snapshot::Reader snapshot) {
  Table table({{"poller"},
               ColumnOf(poller::kSentWhole),
               ColumnOf(poller::kSentPushed),
               ColumnOf(poller::kSentRead),
               ColumnOf(poller::kSentBytes),
               ColumnOf(poller::kReceivedWhole),
               ColumnOf(poller::kReceivedPushed),
               ColumnOf(poller::kReceivedRead)});
  for (const auto poller : snapshot.getPollers()) {
    table.Row({View(poller.getName()), poller::kSentWhole.Text(poller), poller::kSentPushed.Text(poller),
               poller::kSentRead.Text(poller), poller::kSentBytes.Text(poller),
               poller::kReceivedWhole.Text(poller), poller::kReceivedPushed.Text(poller),
               poller::kReceivedRead.Text(poller)});
  }
  return table.Html();
}

std::string PoolCurves(wire::Snapshot::Reader snapshot, const History& history) {
  std::string html = "<div class=curves>";
  for (const auto pool : snapshot.getPools()) {
    const History::Curve* const leased = history.LeasedBytesOf(View(pool.getName()));
    if (leased == nullptr) continue;
    html +=
        CurvePicture(absl::StrCat(EscapeHtml(View(pool.getName())), " in use"), *leased, history.span_ns(),
                     [](double value) { return BytesText(static_cast<uint64_t>(value)); });
  }
  return html + "</div>";
}

}  // namespace

std::string PollersBody(wire::Snapshot::Reader snapshot, const History& history, size_t) {
  return absl::StrCat("<h2>Pollers</h2>", PollerCurves(snapshot, history), Pollers(snapshot),
                      "<h2>Messages, by how they crossed</h2>", Messages(snapshot),
                      "<h2>Registered memory</h2>", PoolCurves(snapshot, history), Pools(snapshot).Html(),
                      PoolClasses(snapshot).Html());
}

}  // namespace hawser::observe
