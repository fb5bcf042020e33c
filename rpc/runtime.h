#ifndef HAWSER_RPC_RUNTIME_H_
#define HAWSER_RPC_RUNTIME_H_

// hawser::Runtime: memory, pollers and a network device, for programs that choose theirs or share them
// between channels and servers (ChannelOptions::runtime, ServerOptions::runtime).
//
//   absl::StatusOr<std::shared_ptr<hawser::Runtime>> runtime =
//       hawser::Runtime::Create("tcp", {.pollers = 1,
//                                       .poller = {.mode = hawser::PollingMode::kSpin},
//                                       .pool = {.limit_bytes = size_t{256} << 20}});
//   if (!runtime.ok()) return runtime.status();
//   hawser::ChannelOptions options;
//   options.runtime = *runtime;
//   return hawser::Channel::Connect(uri, std::move(options));

#include "hawser/rpc/options.h"
#include "hawser/transport/runtime.h"

namespace hawser {
using transport::RdmaGrants;
using transport::RuntimeOptions;
}  // namespace hawser

#endif  // HAWSER_RPC_RUNTIME_H_
