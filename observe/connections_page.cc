// The connections: how many there are, each one, and the peers that were refused.
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

constexpr size_t kRowsMax = 200;
constexpr Table::Kind kNumber = Table::Kind::kNumber;

std::string Totals(wire::Snapshot::Reader snapshot) {
  Table table({{"fabric"}, {"state"}, {"connections", kNumber}, {"slots", kNumber}, {"in use", kNumber}});
  for (const auto total : snapshot.getTotals()) {
    table.Row({View(total.getFabric()), View(total.getState()), absl::StrCat(total.getCount()),
               absl::StrCat(total.getSlots()), absl::StrCat(total.getSlotsInUse())});
  }
  return table.Html();
}

std::string Each(wire::Snapshot::Reader snapshot, const Slice& slice) {
  Table table({{"peer", Table::Kind::kLongText},
               {"identity", Table::Kind::kLongText},
               {"fabric"},
               {"state"},
               {"slots", kNumber},
               {"in use", kNumber},
               {"requests", kNumber},
               {"receives", kNumber},
               {"memory", kNumber},
               {"age", kNumber},
               {"poller"}});
  const auto pollers = snapshot.getPollers();
  for (size_t i = slice.first; i < slice.end; ++i) {
    const auto each = snapshot.getConnections()[static_cast<unsigned>(i)];
    table.Row({View(each.getPeer()), View(each.getIdentity()), View(each.getFabric()), View(each.getState()),
               absl::StrCat(each.getSlots()), absl::StrCat(each.getSlotsInUse()),
               absl::StrCat(each.getRequests()), absl::StrCat(each.getReceivesPosted()),
               BytesText(each.getReceiveBytes()),
               DurationText(snapshot.getTakenUnixNs() - each.getSinceUnixNs()),
               each.getPoller() < pollers.size() ? View(pollers[each.getPoller()].getName()) : ""});
  }
  return table.Html();
}

std::string Refusals(wire::Snapshot::Reader snapshot) {
  Table table({{"reason"}, {"peers", kNumber}});
  for (const auto refusal : snapshot.getRefusals()) {
    if (refusal.getCount() != 0) table.Row({View(refusal.getReason()), absl::StrCat(refusal.getCount())});
  }
  return table.Html();
}

}  // namespace

std::string ConnectionsBody(wire::Snapshot::Reader snapshot, const History&, size_t from) {
  const Slice slice(snapshot.getConnections().size(), from, kRowsMax);
  const uint64_t left_out = snapshot.getConnectionsLeftOut();
  return absl::StrCat(
      "<h2>Connections</h2>", Totals(snapshot), "<h2>Each</h2>", slice.Links("/connections"),
      Each(snapshot, slice), slice.Links("/connections"),
      left_out == 0 ? "" : absl::StrCat("<p>And ", left_out, " that the snapshot leaves out.</p>"),
      "<h2>Refused</h2>", Refusals(snapshot));
}

}  // namespace hawser::observe
