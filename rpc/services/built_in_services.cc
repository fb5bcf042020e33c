#include "hawser/rpc/services/built_in_services.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "hawser/rpc/services/health_board.h"
#include "hawser/rpc/services/introspection.h"
#include "hawser/rpc/services/reflection.h"

namespace hawser::internal {
namespace {

// A snapshot in an answer has this at most: more than that of a thousand methods and connections.
constexpr uint64_t kSnapshotBytesMax = 4 << 20;

using Made = std::shared_ptr<ServerExtension>;

Made NewHealth(ServerExtensionHost&, transport::Environment& environment, const ServerOptions& options) {
  return options.health ? std::make_shared<HealthBoard>(environment) : nullptr;
}

Made NewReflection(ServerExtensionHost& host, transport::Environment&, const ServerOptions& options) {
  return options.reflection ? std::make_shared<Reflection>(host.methods()) : nullptr;
}

Made NewIntrospection(ServerExtensionHost& host, transport::Environment& environment,
                      const ServerOptions& options) {
  if (options.introspection == Introspection::kNever) return nullptr;
  const uint64_t bytes_max = std::min<uint64_t>(kSnapshotBytesMax, options.connection.message_bytes_max / 2);
  return std::make_shared<Introspector>(
      options.introspection, bytes_max, environment,
      [&host](observe::wire::Snapshot::Builder snapshot) { host.FillIn(snapshot); });
}

}  // namespace

const ServerExtensionList& BuiltInServices() {
  const auto factory = [](const char* name, auto make) {
    return std::make_shared<const ServerExtensionFactory>(ServerExtensionFactory{name, make});
  };
  static const auto& list =
      *new const ServerExtensionList{factory("health", NewHealth), factory("reflection", NewReflection),
                                     factory("introspection", NewIntrospection)};
  return list;
}

}  // namespace hawser::internal
