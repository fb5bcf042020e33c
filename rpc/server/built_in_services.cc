#include "hawser/rpc/server/built_in_services.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/hawser/introspection.capnp.h"

namespace hawser::internal {
namespace {

// A snapshot in an answer has this at most: more than that of a thousand methods and connections.
constexpr uint64_t kSnapshotBytesMax = 4 << 20;

std::vector<std::unique_ptr<ServerExtension>> Made(const ServerOptions& options, ServerExtensionHost& host,
                                                   transport::Environment& environment) {
  std::vector<std::unique_ptr<ServerExtension>> made;
  for (const auto& factory : options.extensions) {
    if (factory != nullptr) made.push_back(factory->make(host, environment, options));
  }
  return made;
}

}  // namespace

BuiltInServices::BuiltInServices(const ServerOptions& options, const MethodTable& methods,
                                 transport::Environment& environment, ServerExtensionHost& host,
                                 Introspector::Source snapshot)
    : options_(options),
      reflection_(methods),
      health_(std::make_shared<HealthBoard>(environment)),
      introspector_(options.introspection,
                    std::min<uint64_t>(kSnapshotBytesMax, options.connection.message_bytes_max / 2),
                    environment, std::move(snapshot)),
      extensions_(Made(options, host, environment)) {}

void BuiltInServices::AddTo(MethodTable& methods) {
  std::vector<std::string> services;
  for (const auto& [id, interface] : methods.interfaces()) services.emplace_back(interface.name);
  health_->Open(services);
  if (options_.health && methods.InterfaceName(capnp::typeId<health::Health>()).empty()) {
    health_->AddMethods(methods);
  }
  if (options_.reflection && methods.InterfaceName(capnp::typeId<reflection::Reflection>()).empty()) {
    reflection_.AddMethods(methods);
  }
  if (options_.introspection != Introspection::kNever &&
      methods.InterfaceName(capnp::typeId<introspection::Introspection>()).empty()) {
    introspector_.AddMethods(methods);
  }
  for (const auto& extension : extensions_) {
    if (methods.InterfaceName(extension->interface_id()).empty()) extension->AddMethods(methods);
  }
}

void BuiltInServices::Close(absl::Time deadline) {
  health_->Close(deadline);
  for (const auto& extension : extensions_) extension->Close();
}

}  // namespace hawser::internal
