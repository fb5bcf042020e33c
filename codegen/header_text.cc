#include "hawser/codegen/header_text.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/codegen/text.h"

namespace hawser::codegen {
namespace {

constexpr const char* kIncludes =
    R"(#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/service.h"
)";

std::string Call(const MethodModel& method) {
  std::string opening =
      absl::StrCat("::hawser::Call<", method.params, ", ", method.results, "> ", method.name, "(");
  return absl::StrCat(
      Comment("  ", method.comment), Quotation("  ", method.text),
      Bracketed("  ", opening, {"const ::hawser::CallOptions& options = ::hawser::CallOptions::kNone"},
                ") const;"),
      "\n");
}

// The calls that come from an interface that is extended.
std::string InheritedCalls(const InterfaceModel::Base& base) {
  std::string text = absl::StrCat("  // ---- From ", base.name, ". Converts to its stub.\n");
  if (!base.hidden.empty()) {
    absl::StrAppend(&text, "  // Only through that, because another method here has the same name: ",
                    absl::StrJoin(base.hidden, "(), "), "().\n");
  }
  absl::StrAppend(&text, "  operator ", base.stub, "() const { return ", base.stub, "(channel_); }\n\n");
  for (const MethodModel& method : base.methods) absl::StrAppend(&text, Call(method));
  return text;
}

std::string Descriptor(const InterfaceModel& interface, const MethodModel& method) {
  return Bracketed(
      "  ", absl::StrCat("static constexpr ::hawser::Method ", method.descriptor, "{"),
      {absl::StrCat(".interface_id = 0x", absl::Hex(interface.id, absl::kZeroPad16)),
       absl::StrCat(".ordinal = ", method.ordinal), absl::StrCat(".name = \"", method.wire_name, "\""),
       absl::StrCat(".idempotent = ", method.idempotent ? "true" : "false")},
      "};");
}

std::string Stub(const InterfaceModel& interface) {
  std::string text = absl::StrCat("// Calls ", interface.name,
                                  " at the other end of a channel. From any thread; cheap to copy.\n");
  if (!interface.comment.empty()) absl::StrAppend(&text, "//\n", Comment("", interface.comment));
  absl::StrAppend(
      &text, "class ", interface.stub, " {\n public:\n",
      Bracketed("  ", absl::StrCat("explicit ", interface.stub, "("),
                {"std::shared_ptr<::hawser::Channel> channel"}, ") : channel_(std::move(channel)) {}"),
      "\n");
  for (const MethodModel& method : interface.methods) absl::StrAppend(&text, Call(method));
  for (const InterfaceModel::Base& base : interface.bases) absl::StrAppend(&text, InheritedCalls(base));
  absl::StrAppend(&text,
                  "  const std::shared_ptr<::hawser::Channel>& channel() const { return channel_; }\n\n");
  for (const MethodModel& method : interface.methods) absl::StrAppend(&text, Descriptor(interface, method));
  if (!interface.methods.empty()) absl::StrAppend(&text, "\n");
  return absl::StrCat(text, " private:\n  std::shared_ptr<::hawser::Channel> channel_;\n};\n\n");
}

std::string Service(const InterfaceModel& interface) {
  std::vector<std::string> bases;
  for (const InterfaceModel::Base& base : interface.bases) {
    if (base.direct) bases.push_back(absl::StrCat("public virtual ", base.service));
  }
  if (bases.empty()) bases.push_back("public virtual ::hawser::Service");
  std::string text =
      absl::StrCat("// What a server of ", interface.name, " derives from; ", interface.stub,
                   " says what each method is.\n",
                   "// A handler fills `reply` and returns OK, or returns why it could not. One that is not "
                   "overridden answers\n",
                   "// Unimplemented.\n",  //
                   "class ", interface.service, " : ", absl::StrJoin(bases, ", "), " {\n public:\n");
  for (const MethodModel& method : interface.methods) {
    absl::StrAppend(
        &text, Bracketed("  ", absl::StrCat("virtual ::absl::Status ", method.name, "("),
                         {"::hawser::ServerContext& context", absl::StrCat(method.params, "::Reader request"),
                          absl::StrCat(method.results, "::Builder reply")},
                         ");"));
  }
  if (!interface.methods.empty()) absl::StrAppend(&text, "\n");
  for (const std::string& handler : interface.reveal) {
    absl::StrAppend(&text, "  using ", handler, ";  // Not hidden by the one above.\n");
  }
  return absl::StrCat(text, "  void AddMethods(::hawser::MethodTable& table) override;\n};\n\n");
}

// Which interfaces have no classes here, and why.
std::string LeftOut(const FileModel& file) {
  std::string text;
  for (const LeftOutModel& left_out : file.left_out) {
    absl::StrAppend(
        &text, Comment("", {absl::StrCat(left_out.name,
                                         " is left out, it has no stub and no service: ", left_out.reason)}));
  }
  return text;
}

}  // namespace

std::string HeaderText(const FileModel& file) {
  std::string guard = absl::AsciiStrToUpper(absl::StrCat("HAWSER_GENERATED_", absl::Hex(file.id), "_"));
  std::string capnp_header = absl::StrCat("#include \"", file.source, ".h\"\n");
  std::string text = absl::StrCat(Banner(file), LeftOut(file));
  if (file.interfaces.empty()) {
    return absl::StrCat(
        text, file.left_out.empty() ? "// It declares no interface, so there is nothing to call.\n" : "",
        "#ifndef ", guard, "\n#define ", guard, "\n\n", capnp_header, "\n#endif  // ", guard, "\n");
  }
  absl::StrAppend(&text, "#ifndef ", guard, "\n#define ", guard, "\n\n", kIncludes, capnp_header);
  for (const std::string& header : file.base_headers) absl::StrAppend(&text, "#include ", header, "\n");
  absl::StrAppend(&text, "\n", OpenNamespace(file));
  for (const InterfaceModel& interface : file.interfaces)
    absl::StrAppend(&text, Stub(interface), Service(interface));
  absl::StrAppend(&text, CloseNamespace(file), file.cpp_namespace.empty() ? "" : "\n");
  return absl::StrCat(text, "#endif  // ", guard, "\n");
}

}  // namespace hawser::codegen
