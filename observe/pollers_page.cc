// The pollers and the pools of registered memory, over the last minutes.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"
#include "hawser/observe/picture.h"
#include "hawser/observe/tables.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

std::string PollerCurves(wire::Snapshot::Reader snapshot, const History& history) {
  std::string html = "<div class=curves>";
  for (const auto poller : snapshot.getPollers()) {
    const History::Curve* const busy = history.BusyOf(View(poller.getName()));
    if (busy == nullptr) continue;
    html += CurvePicture(absl::StrCat(EscapeHtml(View(poller.getName())), " busy"), *busy, history.span_ns(),
                         [](double value) { return absl::StrFormat("%.1f %%", value * 100); });
  }
  return html + "</div>";
}

std::string Pollers(wire::Snapshot::Reader snapshot) {
  Table table({{"poller"},
               {"mode"},
               {"busy", kNumber},
               {"spin", kNumber},
               {"sleep", kNumber},
               {"turns", kNumber},
               {"sleeps", kNumber},
               {"connections", kNumber},
               {"READ in flight", kNumber},
               {"waiting", kNumber},
               {"want memory", kNumber},
               {"held by", Table::Kind::kLongText}});
  for (const auto poller : snapshot.getPollers()) {
    const double all = std::max<double>(
        1, static_cast<double>(poller.getBusyNs() + poller.getSpinNs() + poller.getSleepNs()));
    const auto share = [&](uint64_t ns) {
      return absl::StrFormat("%.1f %%", static_cast<double>(ns) / all * 100);
    };
    const auto if_known = [&](const std::string& text) { return poller.getAnswered() ? text : "?"; };
    table.Row({View(poller.getName()), View(poller.getMode()), share(poller.getBusyNs()),
               share(poller.getSpinNs()), share(poller.getSleepNs()), absl::StrCat(poller.getTurns()),
               absl::StrCat(poller.getSleeps()), if_known(absl::StrCat(poller.getConnections())),
               if_known(absl::StrCat(BytesText(poller.getReadBytesInFlight()), " of ",
                                     BytesText(poller.getReadBytesMax()))),
               if_known(absl::StrCat(poller.getReadsWaiting())),
               if_known(absl::StrCat(poller.getMemoryWaiters())), View(poller.getHeldBy())});
  }
  return table.Html();
}

std::string Messages(wire::Snapshot::Reader snapshot) {
  Table table({{"poller"},
               {"sent whole", kNumber},
               {"pushed", kNumber},
               {"READ by the peer", kNumber},
               {"sent", kNumber},
               {"received whole", kNumber},
               {"pushed", kNumber},
               {"READ", kNumber}});
  for (const auto poller : snapshot.getPollers()) {
    table.Row({View(poller.getName()), absl::StrCat(poller.getSentWhole()),
               absl::StrCat(poller.getSentPushed()), absl::StrCat(poller.getSentRead()),
               BytesText(poller.getSentBytes()), absl::StrCat(poller.getReceivedWhole()),
               absl::StrCat(poller.getReceivedPushed()), absl::StrCat(poller.getReceivedRead())});
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
