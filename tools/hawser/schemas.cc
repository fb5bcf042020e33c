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
#include "hawser/rpc/dynamic_call.h"
#include "hawser/tools/hawser/nearest.h"

namespace hawser::tool {
namespace {

constexpr int kDepthMax = 64;  // Of scopes and groups: deeper than any schema that people write.

absl::string_view ToView(kj::StringPtr text) { return {text.begin(), text.size()}; }

std::string Quoted(absl::string_view name) {
  return absl::StrCat("\"", EscapePeerText(name.substr(0, 200)), "\"");
}

std::string MethodName(capnp::InterfaceSchema service, capnp::InterfaceSchema::Method method) {
  return absl::StrCat(Schemas::NameOfNode(service.getProto()), ".", ToView(method.getProto().getName()));
}

// Reads every text in it. Throws kj::Exception if one is malformed.
void ReadTexts(const capnp::DynamicValue::Reader& value) {
  switch (value.getType()) {
    case capnp::DynamicValue::STRUCT: {
      const auto fields = value.as<capnp::DynamicStruct>();
      for (const auto field : fields.getSchema().getNonUnionFields()) {
        if (fields.has(field, capnp::HasMode::NON_NULL)) ReadTexts(fields.get(field));
      }
      KJ_IF_MAYBE (chosen, fields.which()) {
        if (fields.has(*chosen, capnp::HasMode::NON_NULL)) ReadTexts(fields.get(*chosen));
      }
      return;
    }
    case capnp::DynamicValue::LIST:
      for (const auto element : value.as<capnp::DynamicList>()) ReadTexts(element);
      return;
    default:
      return;  // A text was checked when it became a DynamicValue.
  }
}

void CollectMethods(capnp::InterfaceSchema interface, std::set<uint64_t>& seen, int depth,
                    std::vector<capnp::InterfaceSchema::Method>& methods) {
  if (depth > kDepthMax || seen.size() > 1000 || !seen.insert(interface.getProto().getId()).second) return;
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
  absl::string_view name = ToView(node.getDisplayName());
  const size_t file_end = name.rfind(':');
  const size_t slash = name.substr(0, file_end).rfind('/');
  if (slash != name.npos) name.remove_prefix(slash + 1);
  return std::string(name);
}

absl::Status Schemas::Add(Node::Reader node) {
  const uint64_t id = node.getId();
  if (nodes_.count(id) != 0) return absl::OkStatus();
  if (nodes_.size() >= kSchemaNodesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("it has more than ", kSchemaNodesMax, " schemas"));
  }
  try {
    // Copying it reads all of it, so a small message whose pointers lead to the same places is counted in full.
    bytes_ += node.totalSize().wordCount * sizeof(capnp::word);
    if (bytes_ > kSchemaBytesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("its schemas have more than ", kSchemaBytesMax, " bytes"));
    }
    auto message = std::make_unique<capnp::MallocMessageBuilder>();
    message->setRoot(node);
    const Node::Reader copy = message->getRoot<Node>().asReader();
    // A text that is malformed makes the loader of Cap'n Proto 0.9 throw; the note of where it happened, which it makes then,
    // reads the text again, throws, makes that note, and so on until the stack is full.
    ReadTexts(capnp::DynamicStruct::Reader(copy));
    loader_->loadOnce(copy);
    messages_.push_back(std::move(message));
    nodes_.emplace(id, copy);
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

absl::Status Schemas::CheckGroups(uint64_t id, int depth) const {
  const Node::Reader node = Get(id);
  if (!node.isStruct()) return absl::OkStatus();
  if (depth > kDepthMax) {
    return absl::DataLossError(absl::StrFormat("its schema 0x%x has groups without end", id));
  }
  std::set<uint64_t> seen;
  for (const auto field : node.getStruct().getFields()) {
    if (!field.isGroup()) continue;
    const Node::Reader group = Get(field.getGroup().getTypeId());
    // With this each group is that of one field, so a walk ends, and after no more steps than there are groups.
    if (!group.isStruct() || !group.getStruct().getIsGroup() || group.getScopeId() != id ||
        !seen.insert(group.getId()).second) {
      return absl::DataLossError(absl::StrFormat("its schema 0x%x has a group that is none", id));
    }
    if (absl::Status status = CheckGroups(group.getId(), depth + 1); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Schemas::Check() const {
  for (const auto& [id, node] : nodes_) {
    uint64_t scope = node.getScopeId();
    for (int depth = 0; scope != 0 && Has(scope); ++depth) {
      if (depth > kDepthMax)
        return absl::DataLossError(absl::StrFormat("its schema 0x%x has scopes without end", id));
      scope = Get(scope).getScopeId();
    }
    // A group is walked from the struct around it. One that belongs to no struct is never walked as one.
    if (node.isStruct() && !node.getStruct().getIsGroup()) {
      if (absl::Status status = CheckGroups(id, 0); !status.ok()) return status;
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
  std::vector<std::string> of_service;  // If the service is there, and not the method.
  const size_t dot = name.rfind('.');
  for (const capnp::InterfaceSchema& service : services()) {
    const bool is_named = dot != name.npos && Names(name.substr(0, dot), NameOfNode(service.getProto()));
    for (const auto& method : MethodsOf(service)) {
      const std::string full = MethodName(service, method);
      all.push_back(full);
      if (is_named) of_service.emplace_back(ToView(method.getProto().getName()));
      // One that is inherited is one method, whatever the service.
      if (!Names(name, full) || std::find(found.begin(), found.end(), method) != found.end()) continue;
      found.push_back(method);
      found_names.push_back(full);
    }
  }
  if (found.size() == 1) return found[0];
  // Its own name in full is that one, whatever else ends with it.
  for (size_t i = 0; i < found.size(); ++i) {
    if (found_names[i] == name) return found[i];
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(name), " is the end of several names: ",
                                                   Listed(found_names), "; say which by more of its name"));
  }
  if (!of_service.empty()) {
    const absl::string_view method = name.substr(dot + 1);
    return absl::NotFoundError(absl::StrCat(Quoted(name.substr(0, dot)), " has no method ", Quoted(method),
                                            DidYouMean(method, of_service),
                                            " It has: ", Listed(of_service, 100)));
  }
  return absl::NotFoundError(absl::StrCat("the server has no method ", Quoted(name),
                                          DidYouMean(name, WithShort(all)),
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
  if (found.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(name), " is the end of several names: ",
                                                   Listed(found_names), "; say which by more of its name"));
  }
  return absl::NotFoundError(absl::StrCat("the server has nothing named ", Quoted(name),
                                          DidYouMean(name, WithShort(all)),
                                          all.empty() ? " It has nothing" : " It has: ", Listed(all, 50)));
}

}  // namespace hawser::tool
