#include "hawser/tools/hawser/reflection.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/peer_text.h"
#include "hawser/reflection.rpc.h"
#include "hawser/tools/hawser/node_check.h"

namespace hawser::tool {
namespace {

using reflection::Reflection;
using reflection::ReflectionStub;

std::string ToString(capnp::Text::Reader text) { return std::string(text.begin(), text.size()); }

absl::Status Explained(const absl::Status& status, absl::string_view doing, const Channel& channel) {
  std::string why(status.message());
  if (status.code() == absl::StatusCode::kUnimplemented) {
    why =
        "the server has no reflection service, so this program cannot learn what it serves. Start it with "
        "ServerOptions::reflection, which is on by default, or update it. `hawser ping` works without, and "
        "so do programs with generated stubs";
  } else if (status.code() == absl::StatusCode::kPermissionDenied) {
    absl::StrAppend(&why,
                    " (ServerOptions::authorize of the server decides; --tls_certificate says who you are)");
  }
  return absl::Status(status.code(), absl::StrCat("cannot ", doing, " ", channel.peer_address(), ": ", why));
}

absl::Status FetchNodes(const std::shared_ptr<Channel>& channel, absl::Time deadline,
                        const ServiceInfo& service, Schemas& schemas) {
  const std::string doing = absl::StrCat("fetch the schema of ", EscapePeerText(service.name), " from");
  uint32_t have = 0;
  while (true) {
    auto call = ReflectionStub(channel).Schema({.deadline = deadline});
    call.request().setInterfaceId(service.interface_id);
    call.request().setSkip(have);
    const auto reply = call.Send().Wait();
    if (!reply.ok()) return Explained(reply.status(), doing, *channel);
    absl::Status added;
    uint32_t total = 0;
    uint32_t came = 0;
    const absl::Status read = reply->Read([&](Reflection::SchemaResults::Reader results) {
      total = results.getTotal();
      const auto nodes = results.getNodes();
      came = nodes.size();
      for (uint32_t i = 0; i < came && added.ok(); ++i) added = schemas.Add(nodes[i]);
    });
    if (!read.ok()) return Explained(read, doing, *channel);
    if (!added.ok()) return Explained(added, doing, *channel);
    have += came;
    if (have >= total) return absl::OkStatus();
    if (came == 0 || have > kSchemaNodesMax) {
      return Explained(
          absl::DataLossError(absl::StrCat("it says that there are ", total, " schemas, and sends ", have)),
          doing, *channel);
    }
  }
}

// Each before it is copied.
absl::Status CheckName(capnp::Text::Reader name) {
  if (name.size() <= kNameBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("it has a name of more than ", kNameBytesMax, " bytes"));
}

absl::Status AddServices(Reflection::ListResults::Reader results, std::vector<ServiceInfo>& services) {
  if (results.getServices().size() > kServicesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("it has more than ", kServicesMax, " services"));
  }
  size_t methods_left = kMethodsMax;
  for (const auto service : results.getServices()) {
    const auto name = service.getName();
    if (absl::Status status = CheckName(name); !status.ok()) return status;
    ServiceInfo info = {ToString(name), service.getInterfaceId(), service.getHasSchema(), {}};
    const auto methods = service.getMethods();
    if (methods.size() > methods_left) {
      return absl::ResourceExhaustedError(
          absl::StrCat("its services have more than ", kMethodsMax, " methods"));
    }
    methods_left -= methods.size();
    for (const auto method : methods) {
      const auto method_name = method.getName();
      if (absl::Status status = CheckName(method_name); !status.ok()) return status;
      info.methods.push_back({ToString(method_name), method.getOrdinal(), method.getIdempotent()});
    }
    services.push_back(std::move(info));
  }
  return absl::OkStatus();
}

}  // namespace

ChannelOptions ReflectionOptions() {
  ChannelOptions options;
  options.connection.message_bytes_max = kReflectionBytesMax;
  return options;
}

absl::StatusOr<std::vector<ServiceInfo>> ListServices(const std::shared_ptr<Channel>& channel,
                                                      absl::Time deadline) {
  auto call = ReflectionStub(channel).List({.deadline = deadline});
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return Explained(reply.status(), "list the services of", *channel);
  std::vector<ServiceInfo> services;
  absl::Status listed;
  absl::Status read =
      reply->Read([&](Reflection::ListResults::Reader results) { listed = AddServices(results, services); });
  if (read.ok()) read = listed;
  if (!read.ok()) return Explained(read, "list the services of", *channel);
  return services;
}

absl::StatusOr<std::unique_ptr<Schemas>> FetchSchemas(const std::shared_ptr<Channel>& channel,
                                                      absl::Time deadline, absl::string_view method) {
  const auto services = ListServices(channel, deadline);
  if (!services.ok()) return services.status();
  const absl::string_view wanted = method.substr(0, method.rfind('.') == method.npos ? 0 : method.rfind('.'));
  std::vector<const ServiceInfo*> named, all;
  for (const ServiceInfo& service : *services) {
    all.push_back(&service);
    if (Schemas::Names(wanted, service.name)) named.push_back(&service);
  }
  auto schemas = std::make_unique<Schemas>();
  bool has_schema = false;
  for (const ServiceInfo* const service : named.empty() ? all : named) {
    if (!service->has_schema) continue;
    has_schema = true;
    if (absl::Status status = FetchNodes(channel, deadline, *service, *schemas); !status.ok()) return status;
    schemas->Serve(service->interface_id);
  }
  if (!named.empty() && !has_schema) {
    return Explained(
        absl::FailedPreconditionError("the server has no schema of it, because its methods were added by "
                                      "hand; only a program with generated stubs can call it"),
        absl::StrCat("fetch the schema of ", EscapePeerText(named[0]->name), " from"), *channel);
  }
  if (absl::Status status = schemas->Check(); !status.ok()) {
    return Explained(status, "use the schemas of", *channel);
  }
  return schemas;
}

}  // namespace hawser::tool
