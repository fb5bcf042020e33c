#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "hawser/base/json_writer.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/reflection.h"

namespace hawser::tool {
namespace {

void Write(const ServiceInfo& service, JsonWriter& json) {
  json.BeginObject();
  json.Name("name").String(service.name);
  json.Name("id").String(absl::StrFormat("0x%016x", service.interface_id));
  json.Name("has_schema").Bool(service.has_schema);
  json.Name("methods").BeginList();
  for (const ServiceInfo::Method& method : service.methods) {
    json.BeginObject();
    json.Name("name").String(method.name);
    json.Name("ordinal").Number(method.ordinal);
    json.Name("idempotent").Bool(method.idempotent);
    json.EndObject();
  }
  json.EndList();
  json.EndObject();
}

class List : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "list", "", "lists the services of the server and their methods",
        "Prints each service of the server and, indented, the methods that it declares. Those that it "
        "inherits stand at the service that it extends. \"idempotent\": a call of it that was sent already "
        "may be sent again.\n"
        "\n"
        "With --json: {\"services\": [{\"name\", \"id\", \"has_schema\", \"methods\": [{\"name\", "
        "\"ordinal\", \"idempotent\"}]}]}.",
        "hawser list --target=tcp://kv1:7470"};
    return kHelp;
  }

  absl::StatusOr<int> Run(const Session& session) override {
    const auto channel = session.Connect(ReflectionOptions());
    if (!channel.ok()) return channel.status();
    const auto services = ListServices(*channel, absl::Now() + session.timeout);
    if (!services.ok()) return services.status();
    if (session.json) {
      JsonWriter json;
      json.BeginObject();
      json.Name("services").BeginList();
      for (const ServiceInfo& service : *services) Write(service, json);
      json.EndList();
      json.EndObject();
      std::cout << std::move(json).Take() << '\n';
      return 0;
    }
    for (const ServiceInfo& service : *services) {
      std::cout << EscapePeerText(service.name)
                << (service.has_schema ? "" : "  (without a schema: describe and call do not work)") << '\n';
      for (const ServiceInfo::Method& method : service.methods) {
        std::cout << "  " << EscapePeerText(method.name) << (method.idempotent ? "  idempotent" : "") << '\n';
      }
    }
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> NewList() { return std::make_unique<List>(); }

}  // namespace hawser::tool
