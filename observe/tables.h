#ifndef HAWSER_OBSERVE_TABLES_H_
#define HAWSER_OBSERVE_TABLES_H_

#include "hawser/base/check.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// The lists of a snapshot that the status page and `hawser status` show alike, of the facts in facts.h. The
// tool's snapshot comes from a peer, so a table has kTableRowsMax rows at most; no server has more.
// Thread: any.
inline constexpr unsigned kTableRowsMax = 1000;

// The column of a table that has the fact.
template <typename Row, typename Value>
Table::Column ColumnOf(const Fact<Row, Value>& fact) {
  HAWSER_CHECK(fact.column != nullptr, "no table has this fact");
  return {fact.column, kNumber};
}

Table ConnectionTotals(wire::Snapshot::Reader snapshot);  // By fabric and state.
Table Refusals(wire::Snapshot::Reader snapshot);          // Refused peers, by reason; those that are not 0.
Table Channels(wire::Snapshot::Reader snapshot);          // To other servers.
Table Pools(wire::Snapshot::Reader snapshot);
Table Shared(wire::Snapshot::Reader snapshot);  // Memory that clients reach, if there is, or was, any.
Table RemoteOperations(wire::Snapshot::Reader snapshot);  // On the memory of servers, by kind and status.
Table PoolClasses(wire::Snapshot::Reader snapshot);       // The buffers of each size.

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_TABLES_H_
