#ifndef HAWSER_TOOLS_HAWSER_SCHEMA_ROOTS_H_
#define HAWSER_TOOLS_HAWSER_SCHEMA_ROOTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hawser/tools/hawser/schemas.h"

namespace hawser::tool {

// What a file has to declare so that it has some types and all that these refer to, and what each is called
// in it. A root is what is declared at the top of the file; the rest is declared inside of a root, as in the
// file that it comes from. Of `schemas`, which outlives it, Schemas::Check() was OK. May throw kj::Exception.
class SchemaRoots {
 public:
  using Node = capnp::schema::Node;

  explicit SchemaRoots(const Schemas& schemas) : schemas_(schemas) {}

  // Call it once. ResourceExhausted: there are more than a million fields, methods and references to look at.
  absl::Status Add(const std::vector<uint64_t>& ids);

  // In the order of the references to them.
  const std::vector<uint64_t>& roots() const { return roots_; }
  // The id of the file that the first roots are from; if there is none, an id that no file has.
  uint64_t FileId() const;

  // Roots of one name are numbered: "Entry", "Entry2".
  std::string NameOf(uint64_t id) const;
  // From the root to `id`. Empty: it is in none.
  std::vector<uint64_t> Chain(uint64_t id) const;
  // What `name` means in the innermost of `scopes`. 0: a type parameter, or nothing.
  uint64_t LookUp(const std::vector<uint64_t>& scopes, const std::string& name) const;
  // What is declared inside of `node`.
  std::vector<uint64_t> Nested(Node::Reader node) const;

 private:
  bool IsInRoot(uint64_t id) const;
  void AddRoot(uint64_t id);
  void Walk(uint64_t id);
  void WalkFields(Node::Reader node);
  void WalkParams(uint64_t id, capnp::schema::Brand::Reader brand);
  void Refer(capnp::schema::Type::Reader type);
  void ReferBrand(capnp::schema::Brand::Reader brand);
  void NameRoots();
  const std::map<std::string, uint64_t>& NamesIn(uint64_t scope) const;
  bool Step();

  const Schemas& schemas_;
  std::vector<uint64_t> roots_;  // Until Add() returns, also some that another one contains.
  std::set<uint64_t> is_root_;
  std::set<uint64_t> seen_;  // By AddRoot().
  std::map<uint64_t, std::string> names_;
  std::map<std::string, uint64_t> ids_;
  mutable std::map<uint64_t, std::map<std::string, uint64_t>> names_in_;  // NamesIn(), so far.
  size_t steps_left_ = 1 << 20;
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_SCHEMA_ROOTS_H_
