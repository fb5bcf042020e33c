#ifndef HAWSER_RPC_SERVICES_BUILT_IN_SERVICES_H_
#define HAWSER_RPC_SERVICES_BUILT_IN_SERVICES_H_

#include "hawser/rpc/server_extension.h"

namespace hawser::internal {

// The services that each server has, unless its options say otherwise: health, reflection and introspection.
// rpc/server.cc gives them to each Server; no other code names them.
// Thread: any. The list is made at the first call, and stays.
const ServerExtensionList& BuiltInServices();

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVICES_BUILT_IN_SERVICES_H_
