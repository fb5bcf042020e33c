#ifndef HAWSER_TRANSPORT_FABRIC_CHECK_CONNECT_H_
#define HAWSER_TRANSPORT_FABRIC_CHECK_CONNECT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"

// What every fabric asks of its callers before it asks the network. Each: OK, or an error that starts with
// `what` ("connect to 10.0.0.1:7470").
namespace hawser::fabric {

// QueuePair::Connect(). InvalidArgument: `local` is bound to an address of the other family, or too much
// private data; FailedPrecondition: not `idle`.
absl::Status CheckConnect(absl::string_view what, bool idle, const SocketAddress& local,
                          const SocketAddress& peer, absl::string_view private_data);

// QueuePair::Accept(). InvalidArgument: too much private data; FailedPrecondition: not `idle`.
absl::Status CheckAccept(absl::string_view what, bool idle, absl::string_view private_data);

// QueuePair::Accept() of a request that a fabric of another kind has made: InvalidArgument. The request can
// be rejected yet.
absl::Status RequestOfAnotherFabric(const ConnectRequest& request);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_CHECK_CONNECT_H_
