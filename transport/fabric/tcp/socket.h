#ifndef HAWSER_TRANSPORT_FABRIC_TCP_SOCKET_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_SOCKET_H_

#include "absl/status/statusor.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/unique_fd.h"
#include "hawser/transport/fabric/tcp/options.h"

namespace hawser::fabric {

// A non-blocking TCP socket that dies with exec(), with the buffer sizes of `options`. ResourceExhausted: no
// file descriptor left. InvalidArgument: `family` is neither IPv4 nor IPv6, or this machine does not have it.
absl::StatusOr<UniqueFd> OpenSocket(int family, const TcpFabricOptions& options);

// Sets the options of a socket that carries frames: no delay for small ones, little queued before them, and a
// limit on retransmissions.
void PrepareForFrames(int fd, const TcpFabricOptions& options);

// bind(2) of a socket that is going to connect. Takes no port of its own unless `address` has one, so that
// the number of connections is not limited by the ports of this machine, but of each peer.
int BindToConnect(int fd, const SocketAddress& address);

// Ends the connection, or stops listening, and closes the descriptor. close(2) alone does neither as long as
// a child made by fork() shares the socket: the peer would go on waiting.
void EndAndClose(UniqueFd& socket);

SocketAddress LocalAddress(int fd);
SocketAddress PeerAddress(int fd);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_SOCKET_H_
