// The calls in flight, and the slowest of those that have ended.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"
#include "hawser/observe/picture.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

std::string InFlight(wire::Snapshot::Reader snapshot) {
  Table table({{"call"},
               {"method", Table::Kind::kLongText},
               {"stage"},
               {"age", kNumber},
               {"deadline in", kNumber},
               {"request", kNumber},
               {"peer", Table::Kind::kLongText},
               {"identity", Table::Kind::kLongText}});
  for (const auto call : snapshot.getCalls()) {
    table.Row({View(call.getId()), View(call.getMethod()), View(call.getStage()),
               DurationText(call.getAgeNs()),
               call.getDeadlineInNs() < 0 ? "none" : DurationText(call.getDeadlineInNs()),
               BytesText(call.getRequestBytes()), View(call.getPeer()), View(call.getIdentity())});
  }
  const uint64_t left_out = snapshot.getCallsLeftOut();
  return absl::StrCat(table.Html(), left_out == 0 ? "" : absl::StrCat("<p>And ", left_out, " more.</p>"));
}

std::string Slowest(wire::Snapshot::Reader snapshot) {
  Table table({{"call"},
               {"method", Table::Kind::kLongText},
               {"status"},
               {"took", kNumber},
               {"where", Table::Kind::kHtml},
               {"waited", kNumber},
               {"handler", kNumber},
               {"deferred", kNumber},
               {"ended", kNumber},
               {"peer", Table::Kind::kLongText},
               {"identity", Table::Kind::kLongText}});
  for (const auto call : snapshot.getSlowest()) {
    table.Row({View(call.getId()), View(call.getMethod()), View(call.getStage()),
               DurationText(call.getAgeNs()), PartsPicture(call), DurationText(call.getQueuedNs()),
               DurationText(call.getHandlerNs()), DurationText(call.getDeferredNs()),
               absl::FormatTime("%H:%M:%S", absl::FromUnixNanos(call.getEndedUnixNs()), absl::UTCTimeZone()),
               View(call.getPeer()), View(call.getIdentity())});
  }
  return absl::StrCat(table.Html(), table.empty() ? "" : PartsLegend());
}

}  // namespace

std::string CallsBody(wire::Snapshot::Reader snapshot, const History&, size_t) {
  return absl::StrCat("<h2>In flight, the oldest first</h2>", HeldPollers(snapshot), InFlight(snapshot),
                      "<h2>The slowest of the last two minutes, some of each poller</h2>", Slowest(snapshot));
}

}  // namespace hawser::observe
