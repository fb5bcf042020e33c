#include "hawser/tools/hawser/schemas.h"

#include <capnp/dynamic.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/nearest.h"
#include "hawser/tools/hawser/node_check.h"
#include "hawser/tools/hawser/to_view.h"

namespace hawser::tool {
namespace {

constexpr size_t kMethodsMax = 200'000;  // That FindMethod() looks at, inherited ones again for each service.
constexpr size_t kListedMax = 10'000;    // Names that an error chooses from.

std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", EscapePeerText(name.substr(0, 200)), "\"");
}

std::string MethodName(capnp::InterfaceSchema service, capnp::InterfaceSchema::Method method) {
  return absl::StrCat(Schemas::NameOfNode(service.getProto()), ".", ToView(method.getProto().getName()));
}

// The loader makes a node for each reference, of the size of this and of some 20 us, also of one to a node
// that it has.
constexpr size_t kReferenceBytes = 256;

absl::Status TooMany() {
  return absl::ResourceExhaustedError(
      absl::StrCat("its schemas have more than ", kSchemaBytesMax, " bytes, with what they refer to"));
}

// Reads every text in it, and adds to `bytes` what the elements of its lists cost: they may have no size, and
// many of them none, either. False: these are more than kSchemaBytesMax. Throws kj::Exception if a text is
// malformed.
bool ReadTexts(const capnp::DynamicValue::Reader& value, size_t& bytes) {
  switch (value.getType()) {
    case capnp::DynamicValue::STRUCT: {
      const auto fields = value.as<capnp::DynamicStruct>();
      for (const auto field : fields.getSchema().getNonUnionFields()) {
        if (fields.has(field, capnp::HasMode::NON_NULL) && !ReadTexts(fields.get(field), bytes)) return false;
      }
      KJ_IF_MAYBE (chosen, fields.which()) {
        if (fields.has(*chosen, capnp::HasMode::NON_NULL)) return ReadTexts(fields.get(*chosen), bytes);
      }
      return true;
    }
    case capnp::DynamicValue::LIST:
      for (const auto element : value.as<capnp::DynamicList>()) {
        bytes += 4 * sizeof(capnp::word);
        if (bytes > kSchemaBytesMax || !ReadTexts(element, bytes)) return false;
      }
      return true;
    default:
      return true;  // A text was checked when it became a DynamicValue.
  }
}

void CollectMethods(capnp::InterfaceSchema interface, std::set<uint64_t>& seen, int depth,
                    std::vector<capnp::InterfaceSchema::Method>& methods) {
  if (depth > kScopeDepthMax || seen.size() > 1000 || !seen.insert(interface.getProto().getId()).second)
    return;
  for (const auto method : interface.getMethods()) methods.push_back(method);
  for (const auto base : interface.getSuperclasses()) CollectMethods(base, seen, depth + 1, methods);
}

// The last parts of names, which people type.
std::vector<std::string> WithShort(const std::vector<std::string>& names) {
  std::vector<std::string> all = names;
  for (const std::string& name : names) {
    if (const size_t colon = name.find(':'); colon != name.npos) all.push_back(name.substr(colon + 1));
  }
  return all;
}

}  // namespace

bool Schemas::Names(absl::string_view name, absl::string_view full) {
  if (name.empty() || !absl::EndsWith(full, name)) return false;
  if (full.size() == name.size()) return true;
  const char before = full[full.size() - name.size() - 1];
  return before == '.' || before == ':' || before == '/';
}

std::string Schemas::NameOfNode(Node::Reader node) {
  return std::string(WithoutFolder(ToView(node.getDisplayName())));
}

absl::Status Schemas::Add(Node::Reader node) {
  const uint64_t id = node.getId();
  if (nodes_.count(id) != 0) return absl::OkStatus();
  if (nodes_.size() >= kSchemaNodesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("it has more than ", kSchemaNodesMax, " schemas"));
  }
  try {
    // What follows reads all of it, so a small message whose pointers lead to the same places is counted in
    // full.
    const size_t words = node.totalSize().wordCount;
    bytes_ += words * sizeof(capnp::word);
    // A text that is malformed makes the loader of Cap'n Proto 0.9 throw; the note of where it happened,
    // which it makes then, reads the text again, throws, makes that note, and so on until the stack is full.
    if (bytes_ > kSchemaBytesMax || !ReadTexts(capnp::DynamicStruct::Reader(node), bytes_)) {
      return TooMany();
    }
    if (absl::Status status = CheckNode(node); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrFormat("its schema 0x%x cannot be used: %s", id, status.message()));
    }
    ForEachReference(node, [this](uint64_t) { bytes_ += kReferenceBytes; });
    if (bytes_ > kSchemaBytesMax) return TooMany();
    const absl::string_view display_name = ToView(node.getDisplayName());
    const absl::string_view name = WithoutFolder(display_name);
    // In one piece of the size that it takes: the default is 8 KiB, and a node may have a hundred bytes.
    auto message = std::make_unique<capnp::MallocMessageBuilder>(
        static_cast<unsigned>(words + name.size() / sizeof(capnp::word) + 2));
    message->setRoot(node);
    auto copy = message->getRoot<Node>();
    if (name.size() < display_name.size()) copy.setDisplayName({name.data(), name.size()});
    // capnp::Schema::getShortDisplayName() does not compare it with the length of the name.
    copy.setDisplayNamePrefixLength(static_cast<uint32_t>(LocalName(name).data() - name.data()));
    loader_->loadOnce(copy.asReader());
    messages_.push_back(std::move(message));
    nodes_.emplace(id, copy.asReader());
    return absl::OkStatus();
  } catch (const kj::Exception& exception) {
    return absl::DataLossError(absl::StrFormat("its schema 0x%x cannot be used: %s", id,
                                               EscapePeerText(ToView(exception.getDescription()))));
  }
}

void Schemas::Serve(uint64_t interface_id) {
  if (std::find(served_.begin(), served_.end(), interface_id) == served_.end())
    served_.push_back(interface_id);
}

Schemas::Node::Reader Schemas::Get(uint64_t id) const {
  const auto node = nodes_.find(id);
  return node == nodes_.end() ? Node::Reader() : node->second;
}

bool Schemas::IsGroup(uint64_t id) const {
  const Node::Reader node = Get(id);
  return node.isStruct() && node.getStruct().getIsGroup();
}

absl::Status Schemas::CheckGroups(Node::Reader node, std::set<uint64_t>& groups) const {
  const auto outer = node.getStruct();
  for (const auto field : outer.getFields()) {
    if (!field.isGroup()) continue;
    const uint64_t id = field.getGroup().getTypeId();
    // With these a group is that of one field, and scopes form trees: so do groups.
    if (!IsGroup(id) || Get(id).getScopeId() != node.getId() || !groups.insert(id).second) {
      return absl::DataLossError(absl::StrFormat("its schema 0x%x has a group that is none", node.getId()));
    }
    // A group has the memory of the struct around it. The loader enlarges that one for it, and not the one
    // around that.
    const auto group = Get(id).getStruct();
    if (group.getDataWordCount() > outer.getDataWordCount() ||
        group.getPointerCount() > outer.getPointerCount()) {
      return absl::DataLossError(
          absl::StrFormat("its schema 0x%x has a group that is larger than it", node.getId()));
    }
  }
  return absl::OkStatus();
}

absl::Status Schemas::Check() const {
  std::set<uint64_t> groups;
  for (const auto& [id, node] : nodes_) {
    uint64_t scope = node.getScopeId();
    for (int depth = 0; scope != 0 && Has(scope); ++depth) {
      if (depth > kScopeDepthMax)
        return absl::DataLossError(absl::StrFormat("its schema 0x%x has scopes without end", id));
      scope = Get(scope).getScopeId();
    }
    if (!node.isStruct()) continue;
    if (absl::Status status = CheckGroups(node, groups); !status.ok()) return status;
  }
  for (const auto& [id, node] : nodes_) {
    if (IsGroup(id) && groups.count(id) == 0) {
      return absl::DataLossError(absl::StrFormat("its schema 0x%x is a group of no struct", id));
    }
    bool refers_to_group = false;
    ForEachReference(node, [&](uint64_t other) { refers_to_group |= IsGroup(other); });
    if (refers_to_group) {
      return absl::DataLossError(absl::StrFormat("its schema 0x%x has a group as a type", id));
    }
  }
  for (const uint64_t id : served_) {
    if (!Get(id).isInterface()) {
      return absl::DataLossError(
          absl::StrFormat("it serves 0x%x, and its schema is not there or no interface", id));
    }
  }
  return absl::OkStatus();
}

std::vector<capnp::InterfaceSchema> Schemas::services() const {
  std::vector<capnp::InterfaceSchema> services;
  for (const uint64_t id : served_) services.push_back(loader_->get(id).asInterface());
  std::sort(services.begin(), services.end(), [](capnp::InterfaceSchema a, capnp::InterfaceSchema b) {
    return NameOfNode(a.getProto()) < NameOfNode(b.getProto());
  });
  return services;
}

std::vector<capnp::InterfaceSchema::Method> Schemas::MethodsOf(capnp::InterfaceSchema interface) {
  std::vector<capnp::InterfaceSchema::Method> methods;
  std::set<uint64_t> seen;
  CollectMethods(interface, seen, 0, methods);
  return methods;
}

absl::StatusOr<capnp::InterfaceSchema::Method> Schemas::FindMethod(absl::string_view name) const {
  std::vector<std::string> all, found_names;
  std::vector<capnp::InterfaceSchema::Method> found;
  std::set<std::pair<uint64_t, uint16_t>> found_ids;
  std::vector<std::string> of_service;  // If the service is there, and not the method.
  size_t methods = 0;
  const size_t dot = name.rfind('.');
  for (const capnp::InterfaceSchema& service : services()) {
    const bool is_named = dot != name.npos && Names(name.substr(0, dot), NameOfNode(service.getProto()));
    for (const auto& method : MethodsOf(service)) {
      if (++methods > kMethodsMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the server's services have more than ", kMethodsMax, " methods"));
      }
      const std::string full = MethodName(service, method);
      if (all.size() < kListedMax) all.push_back(full);
      if (is_named && of_service.size() < kListedMax) {
        of_service.emplace_back(ToView(method.getProto().getName()));
      }
      const std::string declared = MethodName(method.getContainingInterface(), method);
      if (declared == name) return method;  // Whatever else ends with it.
      // One that is inherited is one method, whatever the service. A service may inherit two of one name from
      // two others.
      if (!(Names(name, full) || Names(name, declared)) || found.size() >= kListedMax ||
          !found_ids.emplace(method.getContainingInterface().getProto().getId(), method.getOrdinal())
               .second) {
        continue;
      }
      found.push_back(method);
      found_names.push_back(declared);
    }
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1) return SeveralNames(name, found_names);
  if (!of_service.empty()) {
    const absl::string_view method = name.substr(dot + 1);
    return absl::NotFoundError(absl::StrCat(Quoted(name.substr(0, dot)), " has no method ", Quoted(method),
                                            DidYouMean(method, of_service, "."),
                                            " It has: ", Listed(of_service, 100)));
  }
  return absl::NotFoundError(absl::StrCat("the server has no method ", Quoted(name),
                                          DidYouMean(name, WithShort(all), "."),
                                          all.empty() ? " It has none" : " It has: ", Listed(all, 50)));
}

absl::StatusOr<uint64_t> Schemas::FindNode(absl::string_view name) const {
  std::vector<std::string> all, found_names;
  std::vector<uint64_t> found;
  for (const auto& [id, node] : nodes_) {
    if (node.isFile() || (node.isStruct() && node.getStruct().getIsGroup())) continue;
    const std::string full = NameOfNode(node);
    if (node.getScopeId() == 0 && node.isStruct()) continue;  // The params or results of a method.
    all.push_back(full);
    if (!Names(name, full)) continue;
    found.push_back(id);
    found_names.push_back(full);
  }
  if (found.size() == 1) return found[0];
  for (size_t i = 0; i < found.size(); ++i) {
    if (found_names[i] == name) return found[i];
  }
  std::sort(all.begin(), all.end());
  if (found.size() > 1) return SeveralNames(name, found_names);
  return absl::NotFoundError(absl::StrCat("the server has nothing named ", Quoted(name),
                                          DidYouMean(name, WithShort(all), "."),
                                          all.empty() ? " It has nothing" : " It has: ", Listed(all, 50)));
}

}  // namespace hawser::tool
