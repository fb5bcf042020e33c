#include "hawser/observe/tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

constexpr Table::Kind kLongText = Table::Kind::kLongText;

// Calls `add` for each of a list, kTableRowsMax of them at most.
template <typename List, typename Add>
void ForEach(const List& list, Add add) {
  for (unsigned i = 0; i < std::min(list.size(), kTableRowsMax); ++i) add(list[i]);
}

}  // namespace

Table ConnectionTotals(wire::Snapshot::Reader snapshot) {
  Table table({{"fabric"},
               {"state"},
               {"connections", kNumber},
               {"slots", kNumber},
               {"given", kNumber},
               {"wanted", kNumber},
               {"in use", kNumber}});
  ForEach(snapshot.getTotals(), [&](auto total) {
    table.Row({View(total.getFabric()), View(total.getState()), absl::StrCat(total.getCount()),
               absl::StrCat(total.getSlots()), absl::StrCat(total.getSlotsGiven()),
               absl::StrCat(total.getSlotsWanted()), absl::StrCat(total.getSlotsInUse())});
  });
  return table;
}

Table Refusals(wire::Snapshot::Reader snapshot) {
  Table table({{"refused"}, {"peers", kNumber}});
  ForEach(snapshot.getRefusals(), [&](auto refusal) {
    if (refusal.getCount() != 0) table.Row({View(refusal.getReason()), absl::StrCat(refusal.getCount())});
  });
  return table;
}

Table Channels(wire::Snapshot::Reader snapshot) {
  Table table({{"channel to", kLongText},
               {"state"},
               {"calls wait", kNumber},
               {"connected", kNumber},
               {"lost", kNumber},
               {"attempts failed", kNumber}});
  ForEach(snapshot.getChannels(), [&](auto channel) {
    const wire::ChannelCounts::Reader counts = channel.getCounts();
    table.Row({View(channel.getAddress()), View(channel.getState()), absl::StrCat(channel.getCallsWaiting()),
               absl::StrCat(counts.getConnects()), absl::StrCat(counts.getLosses()),
               absl::StrCat(counts.getFailedAttempts())});
  });
  if (const uint64_t left_out = snapshot.getChannelsLeftOut(); left_out != 0) {
    table.Row({absl::StrCat("and ", left_out, " more"), "", "", "", "", ""});
  }
  return table;
}

Table Pools(wire::Snapshot::Reader snapshot) {
  Table table({{"memory"}, {"in use", kNumber}, {"registered", kNumber}, {"limit", kNumber}});
  ForEach(snapshot.getPools(), [&](auto pool) {
    table.Row({View(pool.getName()), BytesText(pool.getLeasedBytes()), BytesText(pool.getRegisteredBytes()),
               BytesText(pool.getLimitBytes())});
  });
  return table;
}

Table Shared(wire::Snapshot::Reader snapshot) {
  Table table({{"shared memory"},
               {"regions", kNumber},
               {"tickets", kNumber},
               {"lanes", kNumber},
               {"lanes opened", kNumber}});
  const wire::SharedMemory::Reader memory = snapshot.getMemory();
  if (memory.getRegions() != 0 || memory.getTickets() != 0 || memory.getLanesOpened() != 0) {
    table.Row({BytesText(memory.getBytes()), absl::StrCat(memory.getRegions()),
               absl::StrCat(memory.getTickets()), absl::StrCat(memory.getLanes()),
               absl::StrCat(memory.getLanesOpened())});
  }
  return table;
}

Table RemoteOperations(wire::Snapshot::Reader snapshot) {
  Table table({{"one-sided"}, {"ended with"}, {"operations", kNumber}});
  ForEach(snapshot.getRemoteOperations(), [&](auto of) {
    ForEach(of.getStatuses(), [&](auto status) {
      if (status.getCount() == 0 || table.rows().size() == kTableRowsMax) return;
      table.Row({View(of.getKind()), View(status.getName()), absl::StrCat(status.getCount())});
    });
  });
  return table;
}

Table PoolClasses(wire::Snapshot::Reader snapshot) {
  Table table({{"buffers"}, {"size", kNumber}, {"in use", kNumber}, {"registered", kNumber}});
  ForEach(snapshot.getPools(), [&](auto pool) {
    ForEach(pool.getClasses(), [&](auto of) {
      if (table.rows().size() == kTableRowsMax) return;
      table.Row({View(pool.getName()), BytesText(of.getBufferBytes()), absl::StrCat(of.getLeased()),
                 absl::StrCat(of.getBuffers())});
    });
  });
  return table;
}

}  // namespace hawser::observe
