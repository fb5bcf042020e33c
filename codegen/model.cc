#include "hawser/codegen/model.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hawser/base/peer_text.h"
#include "hawser/codegen/cpp_clashes.h"
#include "hawser/codegen/cpp_identifiers.h"
#include "hawser/codegen/cpp_names.h"
#include "hawser/codegen/refusals.h"
#include "hawser/codegen/schema_text.h"
#include "hawser/codegen/text.h"

namespace hawser::codegen {
namespace {

class Builder {
 public:
  Builder(const Nodes& nodes, CodeGeneratorRequest::RequestedFile::Reader file, Unsupported unsupported)
      : nodes_(nodes),
        unsupported_(unsupported),
        file_(nodes.Get(file.getId())),
        request_(file),
        refusals_(nodes, file.getFilename().cStr()),
        cpp_namespace_(NamespaceOf(nodes, file_)) {}

  FileModel Build() {
    FileModel model;
    model.id = file_.getId();
    std::string path = request_.getFilename().cStr();
    model.source = path.substr(path.rfind('/') + 1);
    model.output_base = std::string(absl::StripSuffix(path, ".capnp"));
    model.cpp_namespace = cpp_namespace_;
    RefuseBadTexts(model);
    RefuseCppClashes(nodes_, file_, refusals_);
    Collect(file_);
    RefuseLateBases();
    Describe(model);
    // Without one interface those that extend it cannot be served either, and a name that it needed is free.
    while (unsupported_ == Unsupported::kLeaveOut && LeaveOut(model)) Describe(model);
    return model;
  }

  const std::vector<Refusal>& refusals() const { return refusals_.all(); }

 private:
  // Checks the interfaces and, if all can be served, describes them.
  void Describe(FileModel& model) {
    model.interfaces.clear();
    model.base_headers.clear();
    for (Node::Reader interface : interfaces_) {
      refusals_.About(interface.getId());
      refusals_.Check(interface);
      RefuseBadBases(interface);
    }
    if (!refusals_.all().empty()) return;
    for (Node::Reader interface : interfaces_) {
      refusals_.About(interface.getId());
      model.interfaces.push_back(Interface(interface));
      AddBaseHeaders(interface, model.base_headers);
    }
    RefuseTakenNames(model);
  }

  // Drops the interfaces that cannot be served. Returns whether there were any.
  bool LeaveOut(FileModel& model) {
    const size_t before = model.left_out.size();
    for (Refusal& refusal : refusals_.TakeThoseOfInterfaces()) {
      if (!left_out_.insert(refusal.interface).second) continue;
      model.left_out.push_back({std::move(refusal.place), nodes_.ScopedName(nodes_.Get(refusal.interface)),
                                absl::StrCat(refusal.declared, " ", refusal.what)});
    }
    const auto gone = [&](Node::Reader interface) { return left_out_.count(interface.getId()) > 0; };
    interfaces_.erase(std::remove_if(interfaces_.begin(), interfaces_.end(), gone), interfaces_.end());
    return model.left_out.size() > before;
  }

  // Those that are left out. The ones in other files are checked when their code is generated, too; here only
  // if this may leave them out, because then nothing else says why there is no class to derive from.
  void RefuseBadBases(Node::Reader interface) {
    if (unsupported_ == Unsupported::kRefuse) return;
    std::vector<Node::Reader> bases;
    CollectBases(interface, bases);
    for (Node::Reader base : bases) {
      bool bad = left_out_.count(base.getId()) > 0;
      if (!IsInThisFile(base)) {
        Refusals elsewhere(nodes_, nodes_.FileOf(base).getDisplayName().cStr());
        elsewhere.Check(base);
        bad = !elsewhere.all().empty();
      }
      if (!bad) continue;
      refusals_.Add(nodes_.ScopedName(interface),
                    absl::StrCat("extends ", nodes_.ScopedName(base), ", which cannot be served."),
                    "Declare the methods that you need of it here.");
    }
  }

  // The file's own texts that generated code repeats as they are. Imported files are checked when theirs is
  // generated.
  void RefuseBadTexts(const FileModel& model) {
    if (!IsIncludable(model.source)) {
      refusals_.Add("The file", "has a name that #include cannot name.",
                    "Rename it: no quotes, backslashes, angle brackets, \"?\?\" or control characters.");
    }
    if (!cpp_namespace_.empty() && !IsNamespace(cpp_namespace_)) {
      refusals_.Add("$Cxx.namespace",
                    absl::StrCat("(\"", EscapePeerText(cpp_namespace_), "\") is no namespace of C++."),
                    "Give names with \"::\" between them, none of them a keyword of C++20: "
                    "$Cxx.namespace(\"acme::kv\").");
    } else if (IsTakenNamespace(cpp_namespace_)) {
      refusals_.Add("$Cxx.namespace",
                    absl::StrCat("(\"", cpp_namespace_,
                                 "\") is a namespace of what generated code includes, or hides one."),
                    "Give a namespace of your own: $Cxx.namespace(\"acme::kv\").");
    }
  }

  // Base classes have to be there before what derives from them, in what capnpc-c++ generates, too.
  void RefuseLateBases() {
    std::set<uint64_t> before;
    for (Node::Reader interface : interfaces_) {
      before.insert(interface.getId());
      const std::string name = nodes_.ScopedName(interface);
      std::vector<Node::Reader> bases;
      CollectBases(interface, bases);
      const auto is_itself = [&](Node::Reader base) { return base.getId() == interface.getId(); };
      if (std::any_of(bases.begin(), bases.end(), is_itself)) {
        refusals_.Add(
            name, "extends itself, directly or through others.",
            "An interface has the methods of those that it extends, so these cannot form a circle.");
        continue;
      }
      for (auto superclass : interface.getInterface().getSuperclasses()) {
        Node::Reader base = nodes_.Get(superclass.getId());
        if (!IsInThisFile(base) || before.count(base.getId()) > 0) continue;
        refusals_.Add(name,
                      absl::StrCat("extends ", nodes_.ScopedName(base), ", which is declared after it."),
                      "C++ needs a class before those that derive from it: declare it earlier in the file.");
      }
    }
  }

  // In the order of declaration, which is also capnpc-c++'s.
  void Collect(Node::Reader scope) {
    for (auto nested : scope.getNestedNodes()) {
      Node::Reader node = nodes_.Get(nested.getId());
      if (node.isInterface()) interfaces_.push_back(node);
      Collect(node);
    }
  }

  bool IsInThisFile(Node::Reader node) const { return nodes_.FileOf(node).getId() == file_.getId(); }

  InterfaceModel Interface(Node::Reader node) {
    std::vector<Node::Reader> bases;
    CollectBases(node, bases);
    const CppNames names(nodes_, cpp_namespace_, MemberNames(node, bases));
    InterfaceModel model;
    model.id = node.getId();
    model.name = nodes_.ScopedName(node);
    model.wire_name = WireName(node);
    model.cpp_type = names.Of(node);
    model.stub = GeneratedName(nodes_, node, "Stub");
    model.service = GeneratedName(nodes_, node, "Service");
    model.comment = CommentLines(nodes_.Comment(node.getId()));
    model.methods = Methods(node, node, names);
    for (Node::Reader base : bases) model.bases.push_back(Base(node, base, names));
    RefuseBadMethodNames(model);
    Hide(model);
    return model;
  }

  // The interfaces that one extends, directly or not, each once, those that others extend first. In a circle:
  // itself, too.
  void CollectBases(Node::Reader node, std::vector<Node::Reader>& bases) const {
    std::set<uint64_t> seen;
    CollectBases(node, seen, bases);
  }
  void CollectBases(Node::Reader node, std::set<uint64_t>& seen, std::vector<Node::Reader>& bases) const {
    for (auto superclass : node.getInterface().getSuperclasses()) {
      Node::Reader base = nodes_.Get(superclass.getId());
      if (!seen.insert(base.getId()).second) continue;
      CollectBases(base, seen, bases);
      bases.push_back(base);
    }
  }

  // What a type of the same name would be hidden by inside the generated classes: their methods, and what
  // they have from hawser::Service.
  std::set<std::string> MemberNames(Node::Reader interface, const std::vector<Node::Reader>& bases) const {
    std::set<std::string> names = {"Service", "AddMethods"};
    for (auto method : interface.getInterface().getMethods()) names.insert(CppMethodName(method));
    for (Node::Reader base : bases) {
      for (auto method : base.getInterface().getMethods()) names.insert(CppMethodName(method));
    }
    return names;
  }

  InterfaceModel::Base Base(Node::Reader interface, Node::Reader base, const CppNames& names) const {
    InterfaceModel::Base model;
    model.name = nodes_.ScopedName(base);
    model.stub = names.Generated(base, "Stub");
    model.service = names.Generated(base, "Service");
    for (auto superclass : interface.getInterface().getSuperclasses()) {
      model.direct |= superclass.getId() == base.getId();
    }
    model.methods = Methods(interface, base, names);
    return model;
  }

  // The methods that `declared_in` declares, for the stub of `interface`, which extends it or is it.
  std::vector<MethodModel> Methods(Node::Reader interface, Node::Reader declared_in,
                                   const CppNames& names) const {
    std::vector<std::pair<uint16_t, MethodModel>> ordered;
    auto methods = declared_in.getInterface().getMethods();
    for (uint16_t ordinal = 0; ordinal < methods.size(); ++ordinal) {
      ordered.emplace_back(methods[ordinal].getCodeOrder(), Method(interface, declared_in, ordinal, names));
    }
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<MethodModel> models;
    for (auto& method : ordered) models.push_back(std::move(method.second));
    return models;
  }

  // "kv.capnp:Outer.KeyValue".
  std::string WireName(Node::Reader interface) const {
    const std::string file = nodes_.FileOf(interface).getDisplayName().cStr();
    return absl::StrCat(file.substr(file.rfind('/') + 1), ":", nodes_.ScopedName(interface));
  }

  MethodModel Method(Node::Reader interface, Node::Reader declared_in, uint16_t ordinal,
                     const CppNames& names) const {
    auto method = declared_in.getInterface().getMethods()[ordinal];
    MethodModel model;
    model.name = CppMethodName(method);
    model.descriptor = absl::StrCat("k", model.name);
    if (declared_in.getId() != interface.getId()) {
      model.descriptor = absl::StrCat(names.Generated(declared_in, "Stub"), "::", model.descriptor);
    }
    model.ordinal = ordinal;
    model.wire_name = absl::StrCat(WireName(declared_in), ".", method.getName().cStr());
    model.idempotent = HasAnnotation(method.getAnnotations(), kIdempotent);
    model.params = names.Params(declared_in, method);
    model.results = names.Results(declared_in, method);
    model.comment = CommentLines(nodes_.MethodComment(declared_in.getId(), ordinal));
    model.text = MethodText(nodes_, declared_in, ordinal);
    return model;
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
        if (own.count(method.name) || inherited[method.name] > 1 || method.name == model.stub) {
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
        header = absl::StartsWith(stem, "/") ? absl::StrCat("<", stem.substr(1), ".rpc.h>")
                                             : absl::StrCat("\"", stem, ".rpc.h\"");
      }
      if (header.empty()) {
        refusals_.Add(nodes_.ScopedName(interface),
                      absl::StrCat("extends ", nodes_.ScopedName(base), " through an alias in another file."),
                      absl::StrCat("Import ", nodes_.FileOf(base).getDisplayName().cStr(),
                                   " here, so that its header can be included."));
      } else if (!IsIncludable(header.substr(1, header.size() - 2))) {
        refusals_.Add(nodes_.ScopedName(interface),
                      absl::StrCat("extends ", nodes_.ScopedName(base), ", whose file #include cannot name."),
                      "Rename that file or its folder: no quotes, backslashes, angle brackets, \"?\?\" or "
                      "control characters.");
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
        // Only those nodes of an imported file are known that are used.
        taken.insert(nodes_.Has(nested.getId()) ? CppLocalName(nodes_, nodes_.Get(nested.getId()))
                                                : std::string(nested.getName().cStr()));
      }
    }
    for (const InterfaceModel& interface : model.interfaces) {
      refusals_.About(interface.id);
      for (const std::string& name : {interface.stub, interface.service}) {
        if (taken.insert(name).second) continue;
        refusals_.Add(interface.name, absl::StrCat("needs the name ", name, " in C++, which is taken."),
                      "Rename one of the two, or give one another name in C++ only: $Cxx.name(\"...\").");
      }
    }
  }

  const Nodes& nodes_;
  const Unsupported unsupported_;
  const Node::Reader file_;
  const CodeGeneratorRequest::RequestedFile::Reader request_;
  Refusals refusals_;
  const std::string cpp_namespace_;
  std::vector<Node::Reader> interfaces_;
  std::set<uint64_t> left_out_;
};

}  // namespace

FileModel BuildModel(const Nodes& nodes, CodeGeneratorRequest::RequestedFile::Reader file,
                     Unsupported unsupported, std::vector<std::string>& refusals) {
  Builder builder(nodes, file, unsupported);
  FileModel model = builder.Build();
  for (const Refusal& refusal : builder.refusals()) refusals.push_back(Message(refusal));
  return model;
}

}  // namespace hawser::codegen
