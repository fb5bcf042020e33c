#include "hawser/codegen/versions.h"

namespace hawser::codegen {

bool IsNamedType(Node::Reader node) {
  if (node.getScopeId() == 0) return false;
  return node.isInterface() || node.isEnum() || (node.isStruct() && !node.getStruct().getIsGroup());
}

Versions::Versions(CodeGeneratorRequest::Reader released_request, CodeGeneratorRequest::Reader next_request)
    : released(released_request), next(next_request) {
  auto next_files = next_request.getRequestedFiles();
  uint32_t place = 0;
  for (auto file : released_request.getRequestedFiles()) {
    const uint64_t id = file.getId();
    bool same_id = false;
    for (auto next_file : next_files) same_id |= next_file.getId() == id;
    if (same_id) {
      files_.push_back({released.Get(id), next.Get(id)});
    } else if (place < next_files.size()) {
      files_.push_back({released.Get(id), next.Get(next_files[place].getId())});
    }
    ++place;
  }

  absl::flat_hash_map<std::string, uint64_t> by_name;
  for (const Files& file : files_) {
    for (Node::Reader type : TypesIn(next, file.next)) {
      if (!released.Has(type.getId())) by_name.try_emplace(next.ScopedName(type), type.getId());
    }
  }
  for (const Files& file : files_) {
    for (Node::Reader type : TypesIn(released, file.released)) {
      if (next.Has(type.getId())) continue;
      auto found = by_name.find(released.ScopedName(type));
      if (found != by_name.end()) next_ids_[type.getId()] = found->second;
    }
  }
}

Node::Reader Versions::NextOf(Node::Reader released_node) const {
  if (next.Has(released_node.getId())) return next.Get(released_node.getId());
  auto found = next_ids_.find(released_node.getId());
  return found == next_ids_.end() ? Node::Reader() : next.Get(found->second);
}

bool Versions::Same(uint64_t released_id, uint64_t next_id) const {
  if (released_id == next_id) return true;
  auto found = next_ids_.find(released_id);
  return found != next_ids_.end() && found->second == next_id;
}

std::vector<Node::Reader> Versions::TypesIn(const Nodes& nodes, Node::Reader file) {
  std::vector<Node::Reader> types;
  for (auto nested : file.getNestedNodes()) {
    if (!nodes.Has(nested.getId())) continue;
    Node::Reader node = nodes.Get(nested.getId());
    if (!IsNamedType(node)) continue;
    types.push_back(node);
    for (Node::Reader inner : TypesIn(nodes, node)) types.push_back(inner);
  }
  return types;
}

}  // namespace hawser::codegen
