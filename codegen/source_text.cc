#include "hawser/codegen/source_text.h"

#include "absl/strings/str_cat.h"
#include "hawser/codegen/text.h"

namespace hawser::codegen {
namespace {

class Source {
 public:
  explicit Source(const FileModel& file) : file_(file), root_(file.root) {}

  std::string Text() const {
    std::string header = file_.output_base.substr(file_.output_base.rfind('/') + 1);
    std::string text = absl::StrCat(Banner(file_), "#include \"", header, ".rpc.h\"\n");
    if (file_.interfaces.empty()) return text;
    absl::StrAppend(&text, "\n", OpenNamespace(file_));
    for (const InterfaceModel& interface : file_.interfaces) {
      for (const MethodModel& method : interface.methods) absl::StrAppend(&text, Call(interface, method));
      for (const InterfaceModel::Base& base : interface.bases) {
        for (const MethodModel& method : base.methods) absl::StrAppend(&text, Call(interface, method));
      }
      for (const MethodModel& method : interface.methods)
        absl::StrAppend(&text, Unimplemented(interface, method));
      absl::StrAppend(&text, AddMethods(interface));
    }
    return absl::StrCat(text, CloseNamespace(file_));
  }

 private:
  std::string Call(const InterfaceModel& interface, const MethodModel& method) const {
    return absl::StrCat(
        Bracketed("",
                  absl::StrCat(root_, "hawser::Call<", method.params, ", ", method.results, "> ",
                               interface.stub, "::", method.name, "("),
                  {absl::StrCat("const ", root_, "hawser::CallOptions& options")}, ") const {"),
        "  return {channel_, ", method.descriptor, ", options};\n}\n\n");
  }

  std::string Unimplemented(const InterfaceModel& interface, const MethodModel& method) const {
    return absl::StrCat(
        Bracketed("", absl::StrCat(root_, "absl::Status ", interface.service, "::", method.name, "("),
                  HandlerArguments(file_, method, false), ") {"),
        "  return ", root_, "absl::UnimplementedError(\"", method.wire_name,
        " is not implemented by this server\");\n}\n\n");
  }

  std::string AddMethods(const InterfaceModel& interface) const {
    bool uses_table = !interface.methods.empty() || !interface.bases.empty();
    std::string text = absl::StrCat("void ", interface.service, "::AddMethods(", root_,
                                    "hawser::MethodTable&", uses_table ? " table" : "", ") {\n");
    for (const InterfaceModel::Base& base : interface.bases) {
      if (base.direct) absl::StrAppend(&text, "  ", base.service, "::AddMethods(table);\n");
    }
    for (const MethodModel& method : interface.methods) {
      std::string invoke = absl::StrCat("    return ", root_, "hawser::InvokeHandler<", method.params, ", ",
                                        method.results, ">(");
      absl::string_view arguments = "context, [&](auto request, auto reply) {\n";
      bool fits = invoke.size() + arguments.size() <= kColumns;
      absl::StrAppend(&text, "  table.Add(", interface.stub, "::", method.descriptor,
                      ", this, [](void* self, ", root_, "hawser::ServerContext& context) {\n", invoke,
                      fits ? "" : "\n        ", arguments, "      return static_cast<", interface.service,
                      "*>(self)->", method.name, "(context, request, reply);\n    });\n  });\n");
    }
    return absl::StrCat(text, "}\n\n");
  }

  const FileModel& file_;
  const std::string& root_;
};

}  // namespace

std::string SourceText(const FileModel& file) { return Source(file).Text(); }

}  // namespace hawser::codegen
