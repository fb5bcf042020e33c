// The connections: how many there are, each one, and the peers that were refused; and the channels to other
// servers.
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"
#include "hawser/observe/tables.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

constexpr size_t kConnectionsMax = 200;

std::string Each(wire::Snapshot::Reader snapshot, const Slice& slice) {
  Table table({{"number", kNumber},
               {"peer", Table::Kind::kLongText},
               {"identity", Table::Kind::kLongText},
               {"fabric"},
               {"state"},
               {"slots", kNumber},
               {"given", kNumber},
               {"in use", kNumber},
               {"requests", kNumber},
               {"receives", kNumber},
               {"memory", kNumber},
               {"age", kNumber},
               {"poller"}});
  const auto pollers = snapshot.getPollers();
  for (size_t i = slice.first; i < slice.end; ++i) {
    const auto each = snapshot.getConnections()[static_cast<unsigned>(i)];
    table.Row({absl::StrCat(each.getNumber()), View(each.getPeer()), View(each.getIdentity()),
               View(each.getFabric()), View(each.getState()), absl::StrCat(each.getSlots()),
               absl::StrCat(each.getSlotsGiven()), absl::StrCat(each.getSlotsInUse()),
               absl::StrCat(each.getRequests()), absl::StrCat(each.getReceivesPosted()),
               BytesText(each.getReceiveBytes()),
               DurationText(snapshot.getTakenUnixNs() - each.getSinceUnixNs()),
               each.getPoller() < pollers.size() ? View(pollers[each.getPoller()].getName()) : ""});
  }
  return table.Html();
}

std::string TlsHandshakes(wire::Tls::Reader tls) {
  return absl::StrCat("<p>", tls::kFull.Text(tls), " with certificates, ", tls::kResumed.Text(tls),
                      " with a ticket of an earlier one, ", tls::kFailed.Text(tls), " failed.</p>");
}

// What the process dials, as a client of other servers.
std::string ChannelsPart(wire::Snapshot::Reader snapshot) {
  const channel::Row all = snapshot.getChannelTotals();
  return absl::StrCat(Channels(snapshot).Html(),
                      "<p class=soft>All channels that there ever were: ", channel::kConnected.Text(all),
                      " connected, ", channel::kLost.Text(all), " lost, ", channel::kFailed.Text(all),
                      " failed attempts.</p>");
}

}  // namespace

std::string ConnectionsBody(wire::Snapshot::Reader snapshot, const History&, size_t from) {
  const Slice slice(snapshot.getConnections().size(), from, kConnectionsMax);
  const uint64_t left_out = snapshot.getConnectionsLeftOut();
  return absl::StrCat(
      "<h2>Connections</h2>", HeldPollers(snapshot), ConnectionTotals(snapshot).Html(), "<h2>Each</h2>",
      slice.Links("/connections"), Each(snapshot, slice), slice.Links("/connections"),
      left_out == 0 ? "" : absl::StrCat("<p>And ", left_out, " that the snapshot leaves out.</p>"),
      "<h2>Shared memory</h2>", Shared(snapshot).Html(), "<h2>Refused</h2>", Refusals(snapshot).Html(),
      "<h2>TLS handshakes</h2>", TlsHandshakes(snapshot.getTls()), "<h2>Channels to other servers</h2>",
      ChannelsPart(snapshot), "<h2>One-sided operations on their memory</h2>",
      RemoteOperations(snapshot).Html());
}

}  // namespace hawser::observe
