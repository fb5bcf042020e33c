#include "hawser/services/perf/perf.h"

#include "hawser/rpc/server_extension.h"
#include "hawser/services/perf/perf_service.h"

namespace hawser {

std::shared_ptr<const internal::ServerExtensionFactory> PerfExtension() {
  return std::make_shared<const internal::ServerExtensionFactory>(internal::ServerExtensionFactory{
      .name = "perf",
      .make = [](internal::ServerExtensionHost& host, transport::Environment& environment,
                 const ServerOptions& options) -> std::shared_ptr<internal::ServerExtension> {
        return std::make_shared<internal::PerfService>(host, environment, options);
      }});
}

}  // namespace hawser
