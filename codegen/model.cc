#include "hawser/codegen/model.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "hawser/codegen/cpp_names.h"
#include "hawser/codegen/refusals.h"
#include "hawser/codegen/schema_text.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Method;

std::vector<std::string> Lines(const std::string& comment) {
  std::vector<std::string> lines = absl::StrSplit(comment, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// In namespace acme::hawser the name hawser::Channel would be looked for in acme::hawser.
std::string Root(const std::string& cpp_namespace) {
  std::vector<std::string> parts = absl::StrSplit(cpp_namespace, "::");
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "hawser" || parts[i] == "absl" || parts[i] == "std") return "::";
  }
  return "";
}

class Builder {
 public:
  Builder(const Nodes& nodes, CodeGeneratorRequest::RequestedFile::Reader file)
      : nodes_(nodes),
        file_(nodes.Get(file.getId())),
        request_(file),
        refusals_(nodes, file.getFilename().cStr()),
        names_(nodes, NamespaceOf(nodes, file_)) {}

  FileModel Build() {
    FileModel model;
    model.id = file_.getId();
    std::string path = request_.getFilename().cStr();
    model.source = path.substr(path.rfind('/') + 1);
    model.output_base = std::string(absl::StripSuffix(path, ".capnp"));
    model.cpp_namespace = names_.in_namespace();
    model.root = Root(model.cpp_namespace);
    Collect(file_);
    for (Node::Reader interface : interfaces_) refusals_.Check(interface);
    if (!refusals_.messages().empty()) return model;
    for (Node::Reader interface : interfaces_) {
      model.interfaces.push_back(Interface(interface));
      AddBaseHeaders(interface, model.base_headers);
    }
    RefuseTakenNames(model);
    return model;
  }

  const std::vector<std::string>& refusals() const { return refusals_.messages(); }

 private:
  // The interfaces of the file into interfaces_, those that others extend first: C++ wants base classes
  // complete.
  void Collect(Node::Reader scope) {
    for (auto nested : scope.getNestedNodes()) {
      Node::Reader node = nodes_.Get(nested.getId());
      if (node.isInterface()) CollectInterface(node);
      Collect(node);
    }
  }

  void CollectInterface(Node::Reader interface) {
    if (!IsInThisFile(interface) || !collected_.insert(interface.getId()).second) return;
    for (auto superclass : interface.getInterface().getSuperclasses()) {
      CollectInterface(nodes_.Get(superclass.getId()));
    }
    interfaces_.push_back(interface);
  }

  bool IsInThisFile(Node::Reader node) const { return nodes_.FileOf(node).getId() == file_.getId(); }

  InterfaceModel Interface(Node::Reader node) {
    InterfaceModel model;
    model.id = node.getId();
    model.name = nodes_.ScopedName(node);
    model.stub = names_.Generated(node, "Stub");
    model.service = names_.Generated(node, "Service");
    model.comment = Lines(nodes_.Comment(node.getId()));
    model.methods = Methods(node);
    std::set<uint64_t> seen;
    CollectBases(node, seen, model.bases);
    for (auto superclass : node.getInterface().getSuperclasses()) {
      std::string stub = names_.Generated(nodes_.Get(superclass.getId()), "Stub");
      for (InterfaceModel::Base& base : model.bases) base.direct |= base.stub == stub;
    }
    RefuseBadMethodNames(model);
    Hide(model);
    return model;
  }

  std::vector<MethodModel> Methods(Node::Reader interface) const {
    std::vector<std::pair<uint16_t, MethodModel>> ordered;
    auto methods = interface.getInterface().getMethods();
    for (uint16_t ordinal = 0; ordinal < methods.size(); ++ordinal) {
      ordered.emplace_back(methods[ordinal].getCodeOrder(), OneMethod(interface, methods[ordinal], ordinal));
    }
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<MethodModel> models;
    for (auto& method : ordered) models.push_back(std::move(method.second));
    return models;
  }

  MethodModel OneMethod(Node::Reader interface, Method::Reader method, uint16_t ordinal) const {
    std::string file = nodes_.FileOf(interface).getDisplayName().cStr();
    MethodModel model;
    model.name = CppMethodName(method);
    model.descriptor = absl::StrCat("k", model.name);
    model.descriptor_of = names_.Generated(interface, "Stub");
    model.ordinal = ordinal;
    model.wire_name = absl::StrCat(file.substr(file.rfind('/') + 1), ":", nodes_.ScopedName(interface), ".",
                                   method.getName().cStr());
    model.idempotent = HasAnnotation(method.getAnnotations(), kIdempotent);
    model.params = names_.Params(interface, method);
    model.results = names_.Results(interface, method);
    model.comment = Lines(nodes_.MethodComment(interface.getId(), ordinal));
    model.text = MethodText(nodes_, method, ordinal);
    return model;
  }

  void CollectBases(Node::Reader node, std::set<uint64_t>& seen,
                    std::vector<InterfaceModel::Base>& bases) const {
    for (auto superclass : node.getInterface().getSuperclasses()) {
      Node::Reader base = nodes_.Get(superclass.getId());
      if (!seen.insert(base.getId()).second) continue;
      CollectBases(base, seen, bases);
      InterfaceModel::Base model;
      model.name = nodes_.ScopedName(base);
      model.stub = names_.Generated(base, "Stub");
      model.service = names_.Generated(base, "Service");
      model.methods = Methods(base);
      bases.push_back(std::move(model));
    }
  }

  // Where methods of several interfaces have one name, the interface's own wins, and the others are for their
  // own stubs.
  static void Hide(InterfaceModel& model) {
    std::map<std::string, int> own, inherited;
    for (const MethodModel& method : model.methods) ++own[method.name];
    for (const InterfaceModel::Base& base : model.bases) {
      for (const MethodModel& method : base.methods) ++inherited[method.name];
    }
    for (InterfaceModel::Base& base : model.bases) {
      std::vector<MethodModel> kept;
      for (MethodModel& method : base.methods) {
        if (own.count(method.name)) model.reveal.push_back(absl::StrCat(base.service, "::", method.name));
        if (own.count(method.name) || inherited[method.name] > 1) {
          base.hidden.push_back(method.name);
        } else {
          kept.push_back(std::move(method));
        }
      }
      base.methods = std::move(kept);
    }
  }

  void RefuseBadMethodNames(const InterfaceModel& model) {
    std::set<std::string> seen;
    for (const MethodModel& method : model.methods) {
      std::string declared = absl::StrCat(model.name, ".", method.text.substr(0, method.text.find(' ')));
      bool taken = method.name == model.stub || method.name == model.service || method.name == "AddMethods";
      if (taken || !seen.insert(method.name).second) {
        refusals_.Add(
            declared,
            absl::StrCat("becomes ", method.name, "() in C++, ",
                         taken ? "which the generated class needs for itself." : "as another method does."),
            "Rename it, or give it another name in C++ only: $Cxx.name(\"...\").");
      }
    }
  }

  void AddBaseHeaders(Node::Reader interface, std::vector<std::string>& headers) {
    for (auto superclass : interface.getInterface().getSuperclasses()) {
      Node::Reader base = nodes_.Get(superclass.getId());
      if (IsInThisFile(base)) continue;
      uint64_t file = nodes_.FileOf(base).getId();
      std::string header;
      for (auto import : request_.getImports()) {
        if (import.getId() != file) continue;
        absl::string_view stem = absl::StripSuffix(import.getName().cStr(), ".capnp");
        header = stem[0] == '/' ? absl::StrCat("<", stem.substr(1), ".rpc.h>")
                                : absl::StrCat("\"", stem, ".rpc.h\"");
      }
      if (header.empty()) {
        refusals_.Add(nodes_.ScopedName(interface),
                      absl::StrCat("extends ", nodes_.ScopedName(base), " through an alias in another file."),
                      absl::StrCat("Import ", nodes_.FileOf(base).getDisplayName().cStr(),
                                   " here, so that its header can be included."));
      } else if (std::find(headers.begin(), headers.end(), header) == headers.end()) {
        headers.push_back(header);
      }
    }
  }

  // FooStub and FooService must not be the names of something else in the namespace.
  void RefuseTakenNames(const FileModel& model) {
    std::set<std::string> taken;
    for (Node::Reader node : nodes_.all()) {
      if (!node.isFile() || NamespaceOf(nodes_, node) != model.cpp_namespace) continue;
      for (auto nested : node.getNestedNodes()) {
        // Of an imported file only the nodes that are used are known.
        taken.insert(nodes_.Has(nested.getId()) ? CppLocalName(nodes_, nodes_.Get(nested.getId()))
                                                : std::string(nested.getName().cStr()));
      }
    }
    for (const InterfaceModel& interface : model.interfaces) {
      for (const std::string& name : {interface.stub, interface.service}) {
        if (taken.insert(name).second) continue;
        refusals_.Add(interface.name, absl::StrCat("needs the name ", name, " in C++, which is taken."),
                      "Rename one of the two, or give one another name in C++ only: $Cxx.name(\"...\").");
      }
    }
  }

  const Nodes& nodes_;
  const Node::Reader file_;
  const CodeGeneratorRequest::RequestedFile::Reader request_;
  Refusals refusals_;
  const CppNames names_;
  std::set<uint64_t> collected_;
  std::vector<Node::Reader> interfaces_;
};

}  // namespace

FileModel BuildModel(const Nodes& nodes, CodeGeneratorRequest::RequestedFile::Reader file,
                     std::vector<std::string>& refusals) {
  Builder builder(nodes, file);
  FileModel model = builder.Build();
  refusals.insert(refusals.end(), builder.refusals().begin(), builder.refusals().end());
  return model;
}

}  // namespace hawser::codegen
