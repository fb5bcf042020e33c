#ifndef HAWSER_RPC_SERVER_PROCESS_SNAPSHOT_H_
#define HAWSER_RPC_SERVER_PROCESS_SNAPSHOT_H_

#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/serving/method_counts.h"

namespace hawser::internal {

// What a snapshot says of the process, whether it has a server or not: what it uses, its channels, and the
// calls that it has made.
// Thread: any. Reads files below /proc, which takes a millisecond, and more with many thousands of open
//         files.
void FillInOfProcess(observe::wire::Snapshot::Builder snapshot);

// Calls that have ended, their statuses, and their latencies unless there are none.
void FillInEnded(const EndedTotals& ended, observe::wire::Method::Builder method);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_PROCESS_SNAPSHOT_H_
