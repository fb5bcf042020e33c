#include "hawser/rpc/server/built_in_services.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/service.h"

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

// Unless the application serves that interface itself. `on_poller`: MethodTable::Entry says why.
void Add(uint64_t interface_id, Service& service, bool on_poller, MethodTable& methods) {
  if (!methods.InterfaceName(interface_id).empty()) return;
  MethodTable own;
  service.AddMethods(own);
  own.MarkBuiltIn(on_poller);
  methods.AddAll(own);
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
  constexpr bool kOnPoller = true;
  if (options_.health) Add(capnp::typeId<health::Health>(), *health_, kOnPoller, methods);
  // To load schemas takes long.
  if (options_.reflection) Add(capnp::typeId<reflection::Reflection>(), reflection_, !kOnPoller, methods);
  if (options_.introspection != Introspection::kNever) {
    Add(capnp::typeId<introspection::Introspection>(), introspector_, kOnPoller, methods);
  }
  for (const auto& extension : extensions_) Add(extension->interface_id(), *extension, kOnPoller, methods);
}

void BuiltInServices::Close(absl::Time deadline) {
  health_->Close(deadline);
  for (const auto& extension : extensions_) extension->Close();
}

}  // namespace hawser::internal
