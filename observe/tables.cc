#include "hawser/observe/tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/observe/facts.h"

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
               ColumnOf(total::kConnections),
               ColumnOf(total::kSlots),
               ColumnOf(total::kGiven),
               ColumnOf(total::kWanted),
               ColumnOf(total::kInUse)});
  ForEach(snapshot.getTotals(), [&](auto total) {
    table.Row({View(total.getFabric()), View(total.getState()), total::kConnections.Text(total),
               total::kSlots.Text(total), total::kGiven.Text(total), total::kWanted.Text(total),
               total::kInUse.Text(total)});
  });
  return table;
}

Table Refusals(wire::Snapshot::Reader snapshot) {
  Table table({{"refused"}, ColumnOf(refusal::kPeers)});
  ForEach(snapshot.getRefusals(), [&](auto refusal) {
    if (refusal.getCount() != 0) table.Row({View(refusal.getReason()), refusal::kPeers.Text(refusal)});
  });
  return table;
}

Table Channels(wire::Snapshot::Reader snapshot) {
  Table table({{"channel to", kLongText},
               {"state"},
               ColumnOf(channel::kCallsWait),
               ColumnOf(channel::kConnected),
               ColumnOf(channel::kLost),
               ColumnOf(channel::kFailed)});
  ForEach(snapshot.getChannels(), [&](auto channel) {
    const channel::Row counts = channel.getCounts();
    table.Row({View(channel.getAddress()), View(channel.getState()), channel::kCallsWait.Text(channel),
               channel::kConnected.Text(counts), channel::kLost.Text(counts), channel::kFailed.Text(counts)});
  });
  if (const uint64_t left_out = snapshot.getChannelsLeftOut(); left_out != 0) {
    table.Row({absl::StrCat("and ", left_out, " more"), "", "", "", "", ""});
  }
  return table;
}

Table Pools(wire::Snapshot::Reader snapshot) {
  Table table({{"memory"}, ColumnOf(pool::kLeased), ColumnOf(pool::kRegistered), ColumnOf(pool::kLimit)});
  ForEach(snapshot.getPools(), [&](auto pool) {
    table.Row({View(pool.getName()), pool::kLeased.Text(pool), pool::kRegistered.Text(pool),
               pool::kLimit.Text(pool)});
  });
  return table;
}

Table Shared(wire::Snapshot::Reader snapshot) {
  Table table({{shared::kBytes.column},
               ColumnOf(shared::kRegions),
               ColumnOf(shared::kTickets),
               ColumnOf(shared::kGrants),
               ColumnOf(shared::kLanes),
               ColumnOf(shared::kLanesOpened)});
  const shared::Row memory = snapshot.getMemory();
  if (memory.getRegions() != 0 || memory.getTickets() != 0 || memory.getLanesOpened() != 0) {
    table.Row({shared::kBytes.Text(memory), shared::kRegions.Text(memory), shared::kTickets.Text(memory),
               shared::kGrants.Text(memory), shared::kLanes.Text(memory), shared::kLanesOpened.Text(memory)});
  }
  return table;
}

Table RemoteOperations(wire::Snapshot::Reader snapshot) {
  Table table({{"one-sided"}, {"ended with"}, ColumnOf(status::kOperations)});
  ForEach(snapshot.getRemoteOperations(), [&](auto of) {
    ForEach(of.getStatuses(), [&](auto status) {
      if (status.getCount() == 0 || table.rows().size() == kTableRowsMax) return;
      table.Row({View(of.getKind()), View(status.getName()), status::kOperations.Text(status)});
    });
  });
  return table;
}

Table PoolClasses(wire::Snapshot::Reader snapshot) {
  Table table({{"buffers"},
               ColumnOf(pool_class::kSize),
               ColumnOf(pool_class::kLeased),
               ColumnOf(pool_class::kRegistered)});
  ForEach(snapshot.getPools(), [&](auto pool) {
    ForEach(pool.getClasses(), [&](auto of) {
      if (table.rows().size() == kTableRowsMax) return;
      table.Row({View(pool.getName()), pool_class::kSize.Text(of), pool_class::kLeased.Text(of),
                 pool_class::kRegistered.Text(of)});
    });
  });
  return table;
}

}  // namespace hawser::observe
