#ifndef HAWSER_CODEGEN_CPP_NAMES_H_
#define HAWSER_CODEGEN_CPP_NAMES_H_

#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// The names that capnpc-c++ gives to what a schema declares, as code in one namespace writes them. The rules
// are those of its cppFullName() and makeMethodText().
class CppNames {
 public:
  // For code in a namespace (empty: the global one), where its names are written without it, unless they are
  // among `hidden`: those that mean something else inside the class that is being written. All others begin
  // at the root.
  CppNames(const Nodes& nodes, std::string in_namespace, std::set<std::string> hidden)
      : nodes_(nodes), in_namespace_(std::move(in_namespace)), hidden_(std::move(hidden)) {}

  // "Map<::capnp::Text, ::other::Value>::Entry": a struct, enum or interface, with what its type parameters,
  // and those of the scopes around it, are bound to.
  std::string Of(Node::Reader node, capnp::schema::Brand::Reader brand) const;
  std::string Of(Node::Reader node) const { return Of(node, capnp::schema::Brand::Reader()); }

  // The parameters or the results of a method, whether the schema names the struct or the compiler made it.
  std::string Params(Node::Reader interface, capnp::schema::Method::Reader method) const;
  std::string Results(Node::Reader interface, capnp::schema::Method::Reader method) const;

  // GeneratedName(), with the namespace where that is needed.
  std::string Generated(Node::Reader interface, absl::string_view suffix) const;

 private:
  std::string Type(capnp::schema::Type::Reader type) const;
  std::string Bindings(Node::Reader node, capnp::schema::Brand::Reader brand) const;
  std::string MethodStruct(Node::Reader interface, capnp::schema::Method::Reader method, uint64_t id,
                           capnp::schema::Brand::Reader brand, absl::string_view suffix) const;
  std::string InNamespaceOf(Node::Reader node, std::string name) const;

  const Nodes& nodes_;
  const std::string in_namespace_;
  const std::set<std::string> hidden_;
};

// "acme::kv", empty for none.
std::string NamespaceOf(const Nodes& nodes, Node::Reader node);

// "Outer_Inner" + suffix, for the classes that we generate. A class cannot be added to the struct Outer
// afterwards.
std::string GeneratedName(const Nodes& nodes, Node::Reader interface, absl::string_view suffix);

// "Inner", or what $Cxx.name says.
std::string CppLocalName(const Nodes& nodes, Node::Reader node);

// "get" -> "Get", "$Cxx.name" applied.
std::string CppMethodName(capnp::schema::Method::Reader method);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_CPP_NAMES_H_
