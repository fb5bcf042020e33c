#include "hawser/rpc/server/extensions.h"

#include <string>
#include <utility>

namespace hawser::internal {
namespace {

std::vector<std::shared_ptr<ServerExtension>> Made(const ServerExtensionList& built_in,
                                                   const ServerOptions& options,
                                                   transport::Environment& environment,
                                                   ServerExtensionHost& host) {
  std::vector<std::shared_ptr<ServerExtension>> made;
  for (const ServerExtensionList* const list : {&built_in, &options.extensions}) {
    for (const auto& factory : *list) {
      if (factory == nullptr) continue;
      if (auto extension = factory->make(host, environment, options); extension != nullptr) {
        made.push_back(std::move(extension));
      }
    }
  }
  return made;
}

}  // namespace

Extensions::Extensions(const ServerExtensionList& built_in, const ServerOptions& options,
                       transport::Environment& environment, ServerExtensionHost& host)
    : all_(Made(built_in, options, environment, host)) {}

void Extensions::AddTo(MethodTable& methods) {
  std::vector<std::string> services;
  for (const auto& [id, interface] : methods.interfaces()) services.emplace_back(interface.name);
  for (const auto& extension : all_) extension->Open(services);
  for (const auto& extension : all_) {
    if (!methods.InterfaceName(extension->interface_id()).empty()) continue;
    MethodTable own;
    extension->AddMethods(own);
    own.MarkBuiltIn(extension->on_poller());
    methods.AddAll(own);
  }
}

void Extensions::SetHealth(absl::string_view service, bool serves) {
  for (const auto& extension : all_) extension->SetHealth(service, serves);
}

void Extensions::Close(absl::Time deadline) {
  for (const auto& extension : all_) extension->Close(deadline);
}

void Extensions::End() {
  for (const auto& extension : all_) extension->End();
}

}  // namespace hawser::internal
