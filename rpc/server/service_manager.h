#ifndef HAWSER_RPC_SERVER_SERVICE_MANAGER_H_
#define HAWSER_RPC_SERVER_SERVICE_MANAGER_H_

#include "absl/strings/string_view.h"

// Tells the service manager that started this process, if it wants to know (systemd, Type=notify), when it
// serves: by the datagrams of sd_notify(3) to $NOTIFY_SOCKET.
// Thread:  any. Blocks for a second at most.
// Failure: logged once if the manager cannot be notified.
namespace hawser::internal {

// A server listens on `address`. READY=1 for the first server of the process, and STATUS for each.
void NotifyServing(absl::string_view address);
// A server that was announced stops. STOPPING=1 if no other server of the process serves.
void NotifyStopping();

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_SERVICE_MANAGER_H_
