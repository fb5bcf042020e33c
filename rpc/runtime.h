#ifndef HAWSER_RPC_RUNTIME_H_
#define HAWSER_RPC_RUNTIME_H_

// hawser::Runtime: memory, pollers and a network device, for programs that choose theirs or share them
// between channels and servers (ChannelOptions::runtime, ServerOptions::runtime).
#include "hawser/rpc/options.h"
#include "hawser/transport/runtime.h"

namespace hawser {
using transport::RdmaGrants;
using transport::RuntimeOptions;
}  // namespace hawser

#endif  // HAWSER_RPC_RUNTIME_H_
