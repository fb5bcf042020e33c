// The calls in flight, and the slowest of those that have ended.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"
#include "hawser/observe/picture.h"
#include "hawser/observe/tables.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

std::string InFlight(wire::Snapshot::Reader snapshot) {
  Table table({{"call"},
               {"method", Table::Kind::kLongText},
               {"stage"},
               ColumnOf(call::kAge),
               {"deadline in", kNumber},
               ColumnOf(call::kRequest),
               {"peer", Table::Kind::kLongText},
               {"identity", Table::Kind::kLongText}});
  for (const auto call : snapshot.getCalls()) {
    table.Row({View(call.getId()), View(call.getMethod()), View(call.getStage()), call::kAge.Text(call),
               call.getDeadlineInNs() < 0 ? "none" : DurationText(call.getDeadlineInNs()),
               call::kRequest.Text(call), View(call.getPeer()), View(call.getIdentity())});
  }
  const uint64_t left_out = snapshot.getCallsLeftOut();
  return absl::StrCat(table.Html(), left_out == 0 ? "" : absl::StrCat("<p>And ", left_out, " more.</p>"));
}

std::string Slowest(wire::Snapshot::Reader snapshot) {
  Table table({{"call"},
               {"method", Table::Kind::kLongText},
               {"status"},
               ColumnOf(call::kTook),
               {"where", Table::Kind::kHtml},
               ColumnOf(call::kQueued),
               ColumnOf(call::kHandler),
               ColumnOf(call::kDeferred),
               {"ended", kNumber},
               {"peer", Table::Kind::kLongText},
               {"identity", Table::Kind::kLongText}});
  for (const auto call : snapshot.getSlowest()) {
    table.Row({View(call.getId()), View(call.getMethod()), View(call.getStage()), call::kTook.Text(call),
               PartsPicture(call), call::kQueued.Text(call), call::kHandler.Text(call),
               call::kDeferred.Text(call),
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
