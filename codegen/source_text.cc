#include "hawser/codegen/source_text.h"

#include "absl/strings/str_cat.h"
#include "hawser/codegen/text.h"

namespace hawser::codegen {
namespace {

std::string Call(const InterfaceModel& interface, const MethodModel& method) {
  std::string opening = absl::StrCat("::hawser::Call<", method.params, ", ", method.results, "> ",
                                     interface.stub, "::", method.name, "(");
  return absl::StrCat(Bracketed("", opening, {"const ::hawser::CallOptions& options"}, ") const {"),
                      "  return {channel_, ", method.descriptor, ", options};\n}\n\n");
}

std::string Unimplemented(const InterfaceModel& interface, const MethodModel& method) {
  return absl::StrCat(
      Bracketed("", absl::StrCat("::absl::Status ", interface.service, "::", method.name, "("),
                {"::hawser::ServerContext&", absl::StrCat(method.params, "::Reader"),
                 absl::StrCat(method.results, "::Builder")},
                ") {"),
      "  return ::absl::UnimplementedError(\"", method.wire_name,
      " is not implemented by this server\");\n}\n\n");
}

std::string AddMethods(const InterfaceModel& interface) {
  std::string text =
      absl::StrCat("void ", interface.service, "::AddMethods(::hawser::MethodTable& table) {\n");
  for (const InterfaceModel::Base& base : interface.bases) {
    if (base.direct) absl::StrAppend(&text, "  ", base.service, "::AddMethods(table);\n");
  }
  absl::StrAppend(&text, "  table.AddInterface(0x", absl::Hex(interface.id, absl::kZeroPad16), ",\n",
                  "                     {.name = \"", interface.wire_name, "\",\n",
                  "                      .load_schema = ::hawser::internal::LoadSchema<", interface.cpp_type,
                  ">});\n");
  for (const MethodModel& method : interface.methods) {
    std::string invoke =
        absl::StrCat("    return ::hawser::InvokeHandler<", method.params, ", ", method.results, ">(");
    absl::string_view arguments = "context, [&](const auto& request, const auto& reply) {\n";
    bool fits = invoke.size() + arguments.size() <= kColumns + 1;
    absl::StrAppend(&text, "  table.Add(", interface.stub, "::", method.descriptor,
                    ", this, [](void* self, ::hawser::ServerContext& context) {\n",  //
                    invoke, fits ? "" : "\n        ", arguments,                     //
                    "      return static_cast<", interface.service, "*>(self)->", method.name,
                    "(context, request, reply);\n    });\n  });\n");
  }
  return absl::StrCat(text, "}\n\n");
}

}  // namespace

std::string SourceText(const FileModel& file) {
  std::string header = file.output_base.substr(file.output_base.rfind('/') + 1);
  std::string text = absl::StrCat(Banner(file), "#include \"", header, ".rpc.h\"\n");
  if (file.interfaces.empty()) return text;
  absl::StrAppend(&text, "\n#include \"hawser/rpc/load_schema.h\"\n");
  absl::StrAppend(&text, "\n", OpenNamespace(file));
  for (const InterfaceModel& interface : file.interfaces) {
    for (const MethodModel& method : interface.methods) absl::StrAppend(&text, Call(interface, method));
    for (const InterfaceModel::Base& base : interface.bases) {
      for (const MethodModel& method : base.methods) absl::StrAppend(&text, Call(interface, method));
    }
    for (const MethodModel& method : interface.methods)
      absl::StrAppend(&text, Unimplemented(interface, method));
    absl::StrAppend(&text, AddMethods(interface));
  }
  // Without a namespace to close, the last function would leave an empty line.
  if (file.cpp_namespace.empty()) text.pop_back();
  return absl::StrCat(text, CloseNamespace(file));
}

}  // namespace hawser::codegen
