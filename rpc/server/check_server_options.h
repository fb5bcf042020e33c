#ifndef HAWSER_RPC_SERVER_CHECK_SERVER_OPTIONS_H_
#define HAWSER_RPC_SERVER_CHECK_SERVER_OPTIONS_H_

#include "absl/status/status.h"
#include "hawser/rpc/options.h"

namespace hawser::internal {

// InvalidArgument: an option is out of its range, with its name and the range. Thread: any.
absl::Status CheckServerOptions(const ServerOptions& options);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_CHECK_SERVER_OPTIONS_H_
