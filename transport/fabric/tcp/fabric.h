#ifndef HAWSER_TRANSPORT_FABRIC_TCP_FABRIC_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_FABRIC_H_

#include <memory>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/options.h"

// The fabric for machines without an RDMA device: a reliable connected queue pair over one TCP connection, by
// epoll and non-blocking sockets, with TLS or without. Without it peers trust each other as far as verbs
// peers do: nothing is encrypted.
// Whatever arrives at the port ends at most its own connection.
namespace hawser::fabric {

// Never null. Opens nothing yet.
std::unique_ptr<Fabric> CreateTcpFabric(const TcpFabricOptions& options = {});

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_FABRIC_H_
