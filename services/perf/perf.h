#ifndef HAWSER_SERVICES_PERF_PERF_H_
#define HAWSER_SERVICES_PERF_PERF_H_

#include <memory>

#include "hawser/rpc/options.h"

// Lets clients measure a server, as `hawser perf` does:
//
//   hawser::ServerOptions options;
//   options.extensions = {hawser::PerfExtension()};
//   hawser::Server server(options);
namespace hawser {

// Clients may measure latency and bandwidth (rpc/hawser/perf.capnp). Any client that may call can then make
// the server send and receive as much as the network carries, and open a few ports for a minute each.
// `authorize` is asked about this, too. //services/perf, and the raw sockets and queue pairs that it measures
// with, are part of a program only if it calls this.
std::shared_ptr<const internal::ServerExtensionFactory> PerfExtension();

}  // namespace hawser

#endif  // HAWSER_SERVICES_PERF_PERF_H_
