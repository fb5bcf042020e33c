#include "examples/kv/authorize.h"

#include "examples/kv/kv_service.h"
#include "hawser/health.rpc.h"
#include "hawser/introspection.rpc.h"
#include "hawser/reflection.rpc.h"

namespace kv {
namespace {

bool OnlyTells(const hawser::Method& method) {
  for (const uint64_t interface :
       {capnp::typeId<hawser::health::Health>(), capnp::typeId<hawser::reflection::Reflection>(),
        capnp::typeId<hawser::introspection::Introspection>()}) {
    if (method.interface_id == interface) return true;
  }
  return false;
}

}  // namespace

absl::Status Authorize(const std::vector<std::string>& writers, const hawser::PeerIdentity& who,
                       const hawser::Method& method) {
  if (KvService::OnlyReads(method) || OnlyTells(method)) return absl::OkStatus();
  for (const std::string& writer : writers) {
    if (who.HasDnsName(writer) || who.HasUri(writer)) return absl::OkStatus();
  }
  return absl::PermissionDeniedError("you may read, but not write: you are " + who.ToString());
}

}  // namespace kv
