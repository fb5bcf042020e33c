#ifndef HAWSER_TRANSPORT_FABRIC_CHECK_CONNECT_H_
#define HAWSER_TRANSPORT_FABRIC_CHECK_CONNECT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"

// The checks that every fabric makes before it uses the network. Each function returns OK, or an error that
// starts with `what` ("connect to 10.0.0.1:7470").
namespace hawser::fabric {

// QueuePair::Connect(). InvalidArgument: `local` is bound to an address of the other family, or too much
// private data; FailedPrecondition: not `idle`.
absl::Status CheckConnect(absl::string_view what, bool idle, const SocketAddress& local,
                          const SocketAddress& peer, absl::string_view private_data);

// QueuePair::Accept(). InvalidArgument: too much private data; FailedPrecondition: not `idle`.
absl::Status CheckAccept(absl::string_view what, bool idle, absl::string_view private_data);

// InvalidArgument: QueuePair::Accept() was given a request that another kind of fabric made. The caller can
// still reject the request.
absl::Status RequestOfAnotherFabric(const ConnectRequest& request);

// InvalidArgument: `call` asks for TLS, and this fabric's carries_tls() is false.
absl::Status NoTls(absl::string_view call);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_CHECK_CONNECT_H_
