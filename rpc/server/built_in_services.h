#ifndef HAWSER_RPC_SERVER_BUILT_IN_SERVICES_H_
#define HAWSER_RPC_SERVER_BUILT_IN_SERVICES_H_

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/rpc/services/health_board.h"
#include "hawser/rpc/services/introspection.h"
#include "hawser/rpc/services/reflection.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {

// The services that every server has, unless its options say otherwise: health, reflection and introspection;
// and those that the program has named, ServerOptions::extensions. A service of the application with one of
// these interfaces takes its place.
// Thread:   any.
// Lifetime: owned by ServerCore, until the last handler has returned.
// Locks:    none of its own; ServerCore says where those of its services stand.
class BuiltInServices {
 public:
  // `options`, `methods`, which reflection describes, and `host` outlive it. `snapshot` is called until
  // StopSnapshots().
  BuiltInServices(const ServerOptions& options, const MethodTable& methods,
                  transport::Environment& environment, ServerExtensionHost& host,
                  Introspector::Source snapshot);
  BuiltInServices(const BuiltInServices&) = delete;
  BuiltInServices& operator=(const BuiltInServices&) = delete;

  // Adds those that are wanted. `methods` has the services of the application, which are healthy from here
  // on.
  void AddTo(MethodTable& methods);
  void SetHealth(absl::string_view service, bool serves) { health_->Set(service, serves); }
  // The server shuts down: notifies those that watch its health, until `deadline`, and ends what measures it.
  void Close(absl::Time deadline);
  // Ends the calls that wait for a snapshot, and waits for one that is being made.
  void StopSnapshots() { introspector_.Close(); }

 private:
  const ServerOptions& options_;
  Reflection reflection_;
  const std::shared_ptr<HealthBoard> health_;
  Introspector introspector_;
  const std::vector<std::unique_ptr<ServerExtension>> extensions_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_BUILT_IN_SERVICES_H_
