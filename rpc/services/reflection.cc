#include "hawser/rpc/services/reflection.h"

#include <capnp/schema-loader.h>
#include <capnp/schema.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hawser::internal {
namespace {

// The nodes in one answer, so that it fits where a small message_bytes_max is agreed, and its copy holds the
// thread for less than a millisecond.
constexpr uint64_t kAnswerWordsMax = 256 * 1024 / sizeof(capnp::word);

// "get" of "kv.capnp:KeyValue.get".
absl::string_view LocalName(const Method& method) {
  const absl::string_view name(method.name);
  return name.substr(name.rfind('.') + 1);
}

kj::StringPtr ToKj(absl::string_view text, std::string& owner) {
  owner = std::string(text);
  return {owner.c_str(), owner.size()};
}

}  // namespace

// The loader owns the nodes.
struct Reflection::Nodes {
  capnp::SchemaLoader loader;
  std::vector<capnp::schema::Node::Reader> by_id;
};

Reflection::Reflection(const MethodTable& methods) : methods_(methods) {}
Reflection::~Reflection() = default;

uint64_t Reflection::interface_id() const { return capnp::typeId<reflection::Reflection>(); }

absl::Status Reflection::List(ServerContext&, reflection::Reflection::ListParams::Reader,
                              reflection::Reflection::ListResults::Builder reply) {
  std::vector<std::pair<absl::string_view, uint64_t>> by_name;
  for (const auto& [id, interface] : methods_.interfaces()) by_name.emplace_back(interface.name, id);
  std::sort(by_name.begin(), by_name.end());
  std::string text;
  auto services = reply.initServices(static_cast<unsigned>(by_name.size()));
  for (unsigned i = 0; i < services.size(); ++i) {
    const auto& [name, id] = by_name[i];
    services[i].setName(ToKj(name, text));
    services[i].setInterfaceId(id);
    services[i].setHasSchema(methods_.interfaces().at(id).load_schema != nullptr);
    const std::vector<const Method*> own = methods_.MethodsOf(id);
    auto methods = services[i].initMethods(static_cast<unsigned>(own.size()));
    for (unsigned j = 0; j < methods.size(); ++j) {
      methods[j].setName(ToKj(LocalName(*own[j]), text));
      methods[j].setOrdinal(own[j]->ordinal);
      methods[j].setIdempotent(own[j]->idempotent);
    }
  }
  return absl::OkStatus();
}

absl::Status Reflection::Schema(ServerContext&, reflection::Reflection::SchemaParams::Reader request,
                                reflection::Reflection::SchemaResults::Builder reply) {
  const uint64_t id = request.getInterfaceId();
  const auto interface = methods_.interfaces().find(id);
  if (interface == methods_.interfaces().end()) {
    return absl::NotFoundError(absl::StrCat("the server has no interface 0x", absl::Hex(id, absl::kZeroPad16),
                                            "; Reflection.list has the ids of those it has"));
  }
  if (interface->second.load_schema == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(interface->second.name,
                     " has no schema: the server's program adds its methods by hand "
                     "(MethodTable::Add()), not with generated code"));
  }
  const std::vector<capnp::schema::Node::Reader>& nodes = NodesOf(id, interface->second).by_id;
  const size_t skip = std::min<size_t>(request.getSkip(), nodes.size());
  size_t end = skip;
  for (uint64_t words = 0; end < nodes.size(); ++end) {
    words += nodes[end].totalSize().wordCount;
    if (end > skip && words > kAnswerWordsMax) break;
  }
  reply.setTotal(static_cast<uint32_t>(nodes.size()));
  auto answer = reply.initNodes(static_cast<unsigned>(end - skip));
  for (size_t i = skip; i < end; ++i) answer.setWithCaveats(static_cast<unsigned>(i - skip), nodes[i]);
  return absl::OkStatus();
}

const Reflection::Nodes& Reflection::NodesOf(uint64_t interface_id, const MethodTable::Interface& interface) {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<const Nodes>& known = nodes_[interface_id];
  if (known == nullptr) {
    auto loaded = std::make_unique<Nodes>();
    interface.load_schema(loaded->loader);
    for (capnp::Schema schema : loaded->loader.getAllLoaded()) loaded->by_id.push_back(schema.getProto());
    std::sort(loaded->by_id.begin(), loaded->by_id.end(),
              [](auto a, auto b) { return a.getId() < b.getId(); });
    known = std::move(loaded);
  }
  return *known;
}

}  // namespace hawser::internal
