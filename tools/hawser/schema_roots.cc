#include "hawser/tools/hawser/schema_roots.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/tools/hawser/node_check.h"
#include "hawser/tools/hawser/to_view.h"

namespace hawser::tool {

using capnp::schema::Brand;
using capnp::schema::Node;
using capnp::schema::Type;

namespace {

std::string NameOfNode(Node::Reader node) { return std::string(LocalName(ToView(node.getDisplayName()))); }

}  // namespace

absl::Status SchemaRoots::Add(const std::vector<uint64_t>& ids) {
  for (const uint64_t id : ids) AddRoot(id);
  // AddRoot() adds to what is walked.
  for (size_t i = 0; i < roots_.size(); ++i) Walk(roots_[i]);
  if (steps_left_ == 0) {
    return absl::ResourceExhaustedError(
        "it refers to more types than can be looked at; describe one part of it by its name");
  }
  // A type may be added before one that contains it.
  roots_.erase(std::remove_if(roots_.begin(), roots_.end(),
                              [this](uint64_t id) { return IsInRoot(schemas_.Get(id).getScopeId()); }),
               roots_.end());
  NameRoots();
  return absl::OkStatus();
}

// One for each field, method and reference: a server may name the same ones again and again.
bool SchemaRoots::Step() {
  if (steps_left_ > 0) --steps_left_;
  return steps_left_ > 0;
}

// Whether `id`, or a scope around it, is a root.
bool SchemaRoots::IsInRoot(uint64_t id) const {
  for (; id != 0 && schemas_.Has(id); id = schemas_.Get(id).getScopeId()) {
    if (is_root_.count(id) != 0) return true;
  }
  return false;
}

void SchemaRoots::AddRoot(uint64_t id) {
  if (!seen_.insert(id).second || !schemas_.Has(id) || schemas_.Get(id).isFile()) return;
  // What is inside a generic type, or a group, is declared with that.
  for (uint64_t outer = id; outer != 0 && schemas_.Has(outer); outer = schemas_.Get(outer).getScopeId()) {
    const Node::Reader node = schemas_.Get(outer);
    if (node.getIsGeneric() && !node.isFile()) id = outer;
    if (node.isStruct() && node.getStruct().getIsGroup()) id = node.getScopeId();
  }
  if (IsInRoot(id)) return;
  roots_.push_back(id);
  is_root_.insert(id);
}

void SchemaRoots::Refer(Type::Reader type) {
  if (!Step()) return;
  switch (type.which()) {
    case Type::LIST:
      return Refer(type.getList().getElementType());
    case Type::ENUM:
      return AddRoot(type.getEnum().getTypeId());
    case Type::STRUCT:
      ReferBrand(type.getStruct().getBrand());
      return AddRoot(type.getStruct().getTypeId());
    case Type::INTERFACE:
      ReferBrand(type.getInterface().getBrand());
      return AddRoot(type.getInterface().getTypeId());
    default:
      return;
  }
}
void SchemaRoots::ReferBrand(Brand::Reader brand) {
  for (const auto scope : brand.getScopes()) {
    if (!scope.isBind()) continue;
    for (const auto binding : scope.getBind()) {
      if (!Step()) return;
      if (binding.isType()) Refer(binding.getType());
    }
  }
}

void SchemaRoots::Walk(uint64_t id) {
  const Node::Reader node = schemas_.Get(id);
  switch (node.which()) {
    case Node::STRUCT:
      WalkFields(node);
      break;
    case Node::INTERFACE:
      for (const auto base : node.getInterface().getSuperclasses()) {
        ReferBrand(base.getBrand());
        AddRoot(base.getId());
      }
      for (const auto method : node.getInterface().getMethods()) {
        if (!Step()) return;
        WalkParams(method.getParamStructType(), method.getParamBrand());
        WalkParams(method.getResultStructType(), method.getResultBrand());
      }
      break;
    case Node::CONST:
      Refer(node.getConst().getType());
      break;
    case Node::ANNOTATION:
      Refer(node.getAnnotation().getType());
      break;
    default:
      break;
  }
  for (const uint64_t nested : Nested(node)) Walk(nested);
}

// Ends, because groups form trees (Schemas::Check()).
void SchemaRoots::WalkFields(Node::Reader node) {
  for (const auto field : node.getStruct().getFields()) {
    if (!Step()) return;
    if (field.isGroup()) {
      WalkFields(schemas_.Get(field.getGroup().getTypeId()));
    } else {
      Refer(field.getSlot().getType());
    }
  }
}

void SchemaRoots::WalkParams(uint64_t id, Brand::Reader brand) {
  const Node::Reader node = schemas_.Get(id);
  ReferBrand(brand);
  if (!node.isStruct()) return;
  if (node.getScopeId() == 0) {
    WalkFields(node);
  } else {
    AddRoot(id);
  }
}

// Those that say so themselves: so this is a tree (Schemas::Check()).
std::vector<uint64_t> SchemaRoots::Nested(Node::Reader node) const {
  std::vector<uint64_t> ids;
  std::set<uint64_t> seen;
  for (const auto nested : node.getNestedNodes()) {
    const Node::Reader inner = schemas_.Get(nested.getId());
    if (schemas_.Has(nested.getId()) && !inner.isFile() && inner.getScopeId() == node.getId() &&
        seen.insert(nested.getId()).second) {
      ids.push_back(nested.getId());
    }
  }
  return ids;
}

void SchemaRoots::NameRoots() {
  std::map<std::string, int> numbers;  // By name: the last one that was tried.
  for (const uint64_t root : roots_) {
    const std::string name = NameOfNode(schemas_.Get(root));
    int& number = numbers[name];
    std::string unique;
    do {
      unique = ++number == 1 ? name : absl::StrCat(name, number);
    } while (!ids_.emplace(unique, root).second);
    names_[root] = unique;
  }
}

uint64_t SchemaRoots::FileId() const {
  for (const uint64_t root : roots_) {
    for (uint64_t id = root; id != 0; id = schemas_.Get(id).getScopeId()) {
      const bool is_file = !schemas_.Has(id) || schemas_.Get(id).isFile();
      if (is_file && id >> 63 != 0) return id;
    }
  }
  return 0xffffffffffffffff;
}

std::string SchemaRoots::NameOf(uint64_t id) const {
  const auto root = names_.find(id);
  return root != names_.end() ? root->second : NameOfNode(schemas_.Get(id));
}

std::vector<uint64_t> SchemaRoots::Chain(uint64_t id) const {
  std::vector<uint64_t> chain;
  for (; id != 0 && schemas_.Has(id); id = schemas_.Get(id).getScopeId()) {
    chain.push_back(id);
    if (names_.count(id) != 0) {
      std::reverse(chain.begin(), chain.end());
      return chain;
    }
  }
  return {};
}

// What is declared in a scope, by name; 0: a parameter of its type.
const std::map<std::string, uint64_t>& SchemaRoots::NamesIn(uint64_t scope) const {
  const auto known = names_in_.find(scope);
  if (known != names_in_.end()) return known->second;
  std::map<std::string, uint64_t>& names = names_in_[scope];
  const Node::Reader node = schemas_.Get(scope);
  for (const uint64_t nested : Nested(node)) names.emplace(NameOfNode(schemas_.Get(nested)), nested);
  for (const auto parameter : node.getParameters()) {
    names.emplace(std::string(ToView(parameter.getName())), 0);
  }
  return names;
}

uint64_t SchemaRoots::LookUp(const std::vector<uint64_t>& scopes, const std::string& name) const {
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    const auto& names = NamesIn(*scope);
    if (const auto found = names.find(name); found != names.end()) return found->second;
  }
  const auto root = ids_.find(name);
  return root == ids_.end() ? 0 : root->second;
}

}  // namespace hawser::tool
