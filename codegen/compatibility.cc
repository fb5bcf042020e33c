#include "hawser/codegen/compatibility.h"

#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/codegen/difference.h"
#include "hawser/codegen/source_lines.h"
#include "hawser/codegen/struct_comparison.h"
#include "hawser/codegen/versions.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Brand;
using capnp::schema::Method;

std::string IdText(uint64_t id) { return absl::StrCat("@0x", absl::Hex(id, absl::kZeroPad16)); }

const char* KindOf(Node::Reader node) {
  return node.isInterface() ? "interface" : node.isEnum() ? "enum" : node.isStruct() ? "struct" : "constant";
}

class Comparison {
 public:
  explicit Comparison(const Versions& versions) : versions_(versions), structs_(versions) {}

  std::vector<std::string> Run() {
    for (const Versions::Files& file : versions_.files()) CompareFiles(file);
    // What they import, as far as both use it.
    for (Node::Reader node : versions_.released.all()) {
      if (IsNamedType(node) && versions_.next.Has(node.getId())) CompareTypes(node);
    }
    return std::move(messages_);
  }

 private:
  // ---- Messages.

  // Adds a difference of a file as a whole, or of the type `name` in it.
  void Add(Node::Reader file, const std::string& name, const Difference& difference) {
    const std::string path = file.getDisplayName().cStr();
    auto lines = lines_.find(path);
    if (lines == lines_.end()) lines = lines_.emplace(path, SourceLines::OfFile(path)).first;
    int line = difference.ordinal ? lines->second.Find(name, *difference.ordinal) : 0;
    if (line == 0) line = lines->second.Find(name);
    std::vector<std::string> subject;
    if (!name.empty()) subject.push_back(name);
    if (!difference.member.empty()) subject.push_back(difference.member);
    messages_.push_back(absl::StrCat(path, line == 0 ? "" : absl::StrCat(":", line),
                                     ": error: ", absl::StrJoin(subject, "."), " ", difference.what, "\n  ",
                                     difference.consequence, "\n  Instead: ", difference.instead, "\n"));
  }

  void Add(Node::Reader next, const Difference& difference) {
    Add(versions_.next.FileOf(next), versions_.next.ScopedName(next), difference);
  }

  // ---- Files and types.

  void CompareFiles(const Versions::Files& file) {
    const uint64_t was = file.released.getId(), is = file.next.getId();
    if (was != is) {
      Add(file.next, "",
          {{},
           "the file",
           absl::StrCat("has the id ", IdText(is), ", and had ", IdText(was), " in the released schema."),
           "Types that state no id have one that is made from the file's. A peer finds an interface by its "
           "id, so "
           "each call between the two versions ends with Unimplemented.",
           absl::StrCat("give the file its id back, ", IdText(was), ";")});
    }
    for (Node::Reader type : Versions::TypesIn(versions_.released, file.released)) {
      if (versions_.NextOf(type).getId() == 0) {
        Add(file.next, "", Removed(type));
      } else {
        CompareTypes(type);
      }
    }
  }

  Difference Removed(Node::Reader type) const {
    const std::string name = versions_.released.ScopedName(type);
    const std::string keep = absl::StrCat(
        "keep it, deprecated in its comment. If it has another name or place now, "
        "give it its id there: ",
        KindOf(type), " NewName ", IdText(type.getId()), " { ... }");
    return {
        {},
        name,
        absl::StrCat("is gone, the ", KindOf(type), " ", IdText(type.getId()), " of the released schema."),
        type.isInterface()
            ? "A released client's calls of it end with Unimplemented."
            : "A schema that imports it, or a peer that puts it into an AnyPointer, has it still.",
        keep};
  }

  void CompareTypes(Node::Reader released) {
    if (!compared_.insert(released.getId()).second) return;
    Node::Reader next = versions_.NextOf(released);
    CompareIds(released, next);
    if (released.which() != next.which()) {
      Add(next, {{},
                 "",
                 absl::StrCat("is declared as ", KindOf(next), ", and as ", KindOf(released),
                              " in the released schema."),
                 "What one side sends means nothing to the other.",
                 absl::StrCat("declare it as ", KindOf(released), " again, and the ", KindOf(next),
                              " under a name and an id of its own.")});
    } else if (released.isInterface()) {
      CompareSuperclasses(released, next);
      CompareMethods(released, next);
    } else if (released.isEnum()) {
      CompareEnumerants(released, next);
    } else {
      for (const Difference& difference : structs_.Compare(released, nullptr, next, nullptr)) {
        Add(next, difference);
      }
    }
  }

  void CompareIds(Node::Reader released, Node::Reader next) {
    const uint64_t was = released.getId(), is = next.getId();
    // The id of a type that states none changes with that of its scope, which has been reported already.
    if (was == is || released.getScopeId() != next.getScopeId()) return;
    Add(next,
        {{},
         "",
         absl::StrCat("has the id ", IdText(is), ", and had ", IdText(was), " in the released schema."),
         next.isInterface()
             ? "A peer finds an interface by its id, so each call between the two versions ends with "
               "Unimplemented."
             : "For Cap'n Proto these are two types, so what goes by ids (interfaces inside it, dynamic "
               "readers, schemas that import it) does not find the other.",
         absl::StrCat("declare it with its released id: ", KindOf(released), " ",
                      versions_.next.LocalName(next), " ", IdText(was), " { ... }")});
  }

  // ---- Interfaces.

  static void AddBases(const Nodes& nodes, Node::Reader node, std::map<uint64_t, Node::Reader>& bases) {
    for (auto superclass : node.getInterface().getSuperclasses()) {
      Node::Reader base = nodes.Get(superclass.getId());
      if (bases.emplace(base.getId(), base).second) AddBases(nodes, base, bases);
    }
  }

  void CompareSuperclasses(Node::Reader released, Node::Reader next) {
    std::map<uint64_t, Node::Reader> old_bases, new_bases;
    AddBases(versions_.released, released, old_bases);
    AddBases(versions_.next, next, new_bases);
    for (const auto& [id, base] : old_bases) {
      Node::Reader new_base = versions_.NextOf(base);
      if (new_bases.count(id) || new_bases.count(new_base.getId())) continue;
      const std::string name = versions_.released.ScopedName(base);
      Add(next,
          {{},
           "",
           absl::StrCat("does not extend ", name, " any more, which it did in the released schema."),
           absl::StrCat("A released client that calls a method of ", name, " there gets Unimplemented."),
           absl::StrCat("extend it as before: extends (", name, ").")});
    }
  }

  void CompareMethods(Node::Reader released, Node::Reader next) {
    auto old_methods = released.getInterface().getMethods(), new_methods = next.getInterface().getMethods();
    ReleasedNames names;
    for (uint16_t i = 0; i < old_methods.size(); ++i) names[i] = old_methods[i].getName().cStr();
    for (uint16_t i = 0; i < old_methods.size(); ++i) {
      if (i >= new_methods.size()) {
        Add(next, RemovedMember(MemberKind::kMethod, names, i));
        continue;
      }
      Method::Reader was = old_methods[i], is = new_methods[i];
      auto name = NameDifference(MemberKind::kMethod, names, i, is.getName().cStr(), is.getAnnotations());
      if (name) Add(next, *name);
      CompareMethodStruct(next, i, "parameter", {was.getParamStructType(), was.getParamBrand()},
                          {is.getParamStructType(), is.getParamBrand()});
      CompareMethodStruct(next, i, "result", {was.getResultStructType(), was.getResultBrand()},
                          {is.getResultStructType(), is.getResultBrand()});
    }
  }

  struct MethodStruct {
    uint64_t id;
    Brand::Reader brand;
  };

  // What a method takes or returns: a list in the schema, or a struct with a name.
  void CompareMethodStruct(Node::Reader interface, uint16_t ordinal, const char* role,
                           const MethodStruct& released, const MethodStruct& next) {
    Node::Reader was = versions_.released.Get(released.id), is = versions_.next.Get(next.id);
    const Bindings old_bindings = Bind(released.brand, nullptr), new_bindings = Bind(next.brand, nullptr);
    const bool named = IsNamedType(was) && IsNamedType(is);
    if (named && versions_.Same(released.id, next.id) && !old_bindings && !new_bindings) return;
    for (Difference& difference : structs_.Compare(was, old_bindings, is, new_bindings)) {
      auto method = interface.getInterface().getMethods()[ordinal];
      difference.ordinal = ordinal;
      difference.member =
          absl::StrCat(method.getName().cStr(), " @", ordinal,
                       difference.member.empty() ? "" : absl::StrCat(": its ", role, " "), difference.member);
      if (difference.what.rfind("has no", 0) == 0) {
        difference.what = absl::StrCat("(its ", role, "s) ", difference.what);
      }
      Add(interface, difference);
    }
  }

  // ---- Enums.

  void CompareEnumerants(Node::Reader released, Node::Reader next) {
    auto old_enumerants = released.getEnum().getEnumerants(), new_enumerants = next.getEnum().getEnumerants();
    ReleasedNames names;
    for (uint16_t i = 0; i < old_enumerants.size(); ++i) names[i] = old_enumerants[i].getName().cStr();
    for (uint16_t i = 0; i < old_enumerants.size(); ++i) {
      if (i >= new_enumerants.size()) {
        Add(next, RemovedMember(MemberKind::kEnumerant, names, i));
        continue;
      }
      auto name = NameDifference(MemberKind::kEnumerant, names, i, new_enumerants[i].getName().cStr(),
                                 new_enumerants[i].getAnnotations());
      if (name) Add(next, *name);
    }
  }

  const Versions& versions_;
  StructComparison structs_;
  std::set<uint64_t> compared_;  // Released types.
  std::map<std::string, SourceLines> lines_;
  std::vector<std::string> messages_;
};

// Two files without anything in common are a mistake of the build, not a change of a schema.
absl::Status AreVersions(const Versions& versions) {
  if (versions.files().empty()) return absl::InvalidArgumentError("no schema file in one of the two");
  for (const Versions::Files& file : versions.files()) {
    if (file.released.getId() == file.next.getId()) continue;
    bool common = false;
    for (Node::Reader type : Versions::TypesIn(versions.released, file.released)) {
      common |= versions.NextOf(type).getId() != 0;
    }
    if (common) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file.released.getDisplayName().cStr(), " is no version of ", file.next.getDisplayName().cStr(),
        ": their ids differ, ", IdText(file.released.getId()), " and ", IdText(file.next.getId()),
        ", and no type of the one has a name or an id of the other. Was the wrong file given as the released "
        "one?"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Incompatibilities(CodeGeneratorRequest::Reader released,
                                                           CodeGeneratorRequest::Reader next) {
  const Versions versions(released, next);
  if (absl::Status status = AreVersions(versions); !status.ok()) return status;
  return Comparison(versions).Run();
}

}  // namespace hawser::codegen
