#include "hawser/codegen/nodes.h"

#include <kj/debug.h>

namespace hawser::codegen {

Nodes::Nodes(CodeGeneratorRequest::Reader request) : all_(request.getNodes()) {
  for (Node::Reader node : all_) by_id_[node.getId()] = node;
  for (Node::SourceInfo::Reader info : request.getSourceInfo()) comments_[info.getId()] = info;
}

Node::Reader Nodes::Get(uint64_t id) const {
  auto found = by_id_.find(id);
  KJ_REQUIRE(found != by_id_.end(), "the request refers to a node that it does not contain", kj::hex(id));
  return found->second;
}

Node::Reader Nodes::FileOf(Node::Reader node) const {
  while (!node.isFile()) node = Get(node.getScopeId());
  return node;
}

std::string Nodes::LocalName(Node::Reader node) const {
  // displayName is "file:Outer.Inner" and its prefix ends before "Inner".
  return node.getDisplayName().slice(node.getDisplayNamePrefixLength()).cStr();
}

std::string Nodes::ScopedName(Node::Reader node) const {
  std::string name = LocalName(node);
  while (node.getScopeId() != 0) {
    node = Get(node.getScopeId());
    if (node.isFile()) break;
    name = LocalName(node) + "." + name;
  }
  return name;
}

std::string Nodes::Comment(uint64_t id) const {
  auto found = comments_.find(id);
  return found == comments_.end() ? "" : found->second.getDocComment().cStr();
}

std::string Nodes::MethodComment(uint64_t interface_id, uint16_t ordinal) const {
  auto found = comments_.find(interface_id);
  if (found == comments_.end()) return "";
  auto members = found->second.getMembers();
  return ordinal < members.size() ? members[ordinal].getDocComment().cStr() : "";
}

std::optional<std::string> AnnotationText(capnp::List<capnp::schema::Annotation>::Reader annotations,
                                          uint64_t id) {
  for (auto annotation : annotations) {
    if (annotation.getId() == id) return annotation.getValue().getText().cStr();
  }
  return std::nullopt;
}

bool HasAnnotation(capnp::List<capnp::schema::Annotation>::Reader annotations, uint64_t id) {
  for (auto annotation : annotations) {
    if (annotation.getId() == id) return true;
  }
  return false;
}

}  // namespace hawser::codegen
