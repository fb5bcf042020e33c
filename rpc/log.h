#ifndef HAWSER_RPC_LOG_H_
#define HAWSER_RPC_LOG_H_

// Where the log of the library goes, and which lines are in it:
//
//   hawser::SetLogLevel(hawser::LogSeverity::kDebug);  // Connections that open and close, too.
//   hawser::SetLogSink([&file](hawser::LogSeverity severity, absl::string_view line) {
//     if (severity >= hawser::LogSeverity::kWarning) file.Append("Look at this: ");
//     file.Append(line);  // On the log's own thread: it may block.
//   });

// The log of the library, for the operator of the process: hawser::SetLogSink(), hawser::SetLogLevel() and
// hawser::LogSeverity. A line reports a connection that was refused or lost, memory that ran out, a
// handler or callback that threw or that holds a poller, calls that the end of a server waits for or
// leaves, or a peer that broke the protocol. Lines that a peer can cause are limited: for each peer host
// or method 3 lines at once, then one in 10 s; for all hosts together 20, then one a second, and as many for
// all methods together (transport/log/peer_log.h).
#include "hawser/transport/log/log.h"

#endif  // HAWSER_RPC_LOG_H_
