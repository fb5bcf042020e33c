#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/base/json_writer.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/reflection.h"
#include "hawser/tools/hawser/schema_text.h"

namespace hawser::tool {
namespace {

class Describe : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "describe", "[NAME]", "prints schemas of the server as Cap'n Proto text",
        "NAME is an interface, a struct, an enum, or a method as `hawser list` names it, such as "
        "kv.capnp:KeyValue or kv.capnp:KeyValue.get. The end of the name is enough if nothing else ends with "
        "it: KeyValue. Without NAME, all services.\n"
        "\n"
        "What it prints is a file that `capnp compile` accepts, with what NAME refers to, and with the ids "
        "of the server: code generated from it can call the server. For a method it is the interface that "
        "declares it, with the method in a comment on top. Comments of the schema are not there, because a "
        "server does not have them, nor are default values of more than 4 KiB.\n"
        "\n"
        "With --json: {\"name\", \"schema\"}, where schema is that text.",
        "hawser describe --target=tcp://kv1:7470 KeyValue\n"
        "hawser describe --target=tcp://kv1:7470 > kv1.capnp"};
    return kHelp;
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    return words.empty() ? absl::OkStatus() : TakeWords(words, {"NAME"}, {&name_});
  }

  absl::StatusOr<int> Run(const Session& session) override {
    const auto channel = session.Connect(ReflectionOptions());
    if (!channel.ok()) return channel.status();
    const auto schemas = FetchSchemas(*channel, absl::Now() + session.timeout);
    if (!schemas.ok()) return schemas.status();
    std::vector<uint64_t> ids;
    std::string head;
    if (name_.empty()) {
      for (const auto& service : (*schemas)->services()) ids.push_back(service.getProto().getId());
    } else if (absl::Status status = Find(**schemas, ids, head); !status.ok()) {
      return status;
    }
    const absl::StatusOr<std::string> text = SchemaText(**schemas, ids);
    if (!text.ok()) return text.status();
    if (session.json) {
      JsonWriter json;
      json.BeginObject();
      json.Name("name").String(name_);
      json.Name("schema").String(*text);
      json.EndObject();
      std::cout << std::move(json).Take() << '\n';
    } else {
      std::cout << head << *text;
    }
    return 0;
  }

 private:
  absl::Status Find(const Schemas& schemas, std::vector<uint64_t>& ids, std::string& head) const {
    const auto node = schemas.FindNode(name_);
    if (node.ok()) {
      ids.push_back(*node);
      return absl::OkStatus();
    }
    if (node.status().code() != absl::StatusCode::kNotFound) return node.status();
    const auto method = schemas.FindMethod(name_);
    if (!method.ok()) {
      // A dot before the last part is a method's, as a rule; its error says what methods there are.
      return method.status().code() == absl::StatusCode::kNotFound &&
                     name_.find('.', name_.find(':') + 1) == name_.npos
                 ? node.status()
                 : method.status();
    }
    ids.push_back(method->getContainingInterface().getProto().getId());
    head = absl::StrCat("# ", MethodText(schemas, *method), "\n");
    return absl::OkStatus();
  }

  std::string name_;
};

}  // namespace

std::unique_ptr<Command> NewDescribe() { return std::make_unique<Describe>(); }

}  // namespace hawser::tool
