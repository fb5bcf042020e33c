#include "hawser/codegen/header_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/codegen/text.h"

namespace hawser::codegen {
namespace {

class Header {
 public:
  explicit Header(const FileModel& file) : file_(file), root_(file.root) {}

  std::string Text() const {
    std::string guard = absl::AsciiStrToUpper(absl::StrCat("HAWSER_GENERATED_", absl::Hex(file_.id), "_"));
    std::string text = Banner(file_);
    if (file_.interfaces.empty())
      absl::StrAppend(&text, "// It declares no interface, so there is nothing to call.\n");
    absl::StrAppend(&text, "#ifndef ", guard, "\n#define ", guard, "\n\n", Includes());
    if (!file_.interfaces.empty()) absl::StrAppend(&text, OpenNamespace(file_));
    for (const InterfaceModel& interface : file_.interfaces) {
      absl::StrAppend(&text, Stub(interface), "\n", Service(interface), "\n");
    }
    if (!file_.interfaces.empty()) absl::StrAppend(&text, CloseNamespace(file_), "\n");
    return absl::StrCat(text, "#endif  // ", guard, "\n");
  }

 private:
  std::string Includes() const {
    std::string capnp_header = absl::StrCat("#include \"", file_.source, ".h\"\n");
    std::string base_headers;
    for (const std::string& header : file_.base_headers)
      absl::StrAppend(&base_headers, "#include ", header, "\n");
    if (file_.interfaces.empty()) return absl::StrCat(capnp_header, "\n");
    return absl::StrCat(
        "#include <memory>\n#include <utility>\n\n"
        "#include \"absl/status/status.h\"\n"
        "#include \"hawser/rpc/call.h\"\n"
        "#include \"hawser/rpc/channel.h\"\n"
        "#include \"hawser/rpc/method.h\"\n"
        "#include \"hawser/rpc/options.h\"\n"
        "#include \"hawser/rpc/server_context.h\"\n"
        "#include \"hawser/rpc/service.h\"\n",
        capnp_header, base_headers, "\n");
  }

  std::string Stub(const InterfaceModel& interface) const {
    std::string text = absl::StrCat("// Calls ", interface.name,
                                    " at the other end of a channel. From any thread; cheap to copy.\n");
    if (!interface.comment.empty()) absl::StrAppend(&text, "//\n", Comment("", interface.comment));
    absl::StrAppend(&text, "class ", interface.stub, " {\n public:\n",
                    Bracketed("  ", absl::StrCat("explicit ", interface.stub, "("),
                              {absl::StrCat(root_, "std::shared_ptr<", root_, "hawser::Channel> channel")},
                              absl::StrCat(") : channel_(", root_, "std::move(channel)) {}")),
                    "\n");
    for (const MethodModel& method : interface.methods) absl::StrAppend(&text, Call(method), "\n");
    for (const InterfaceModel::Base& base : interface.bases) absl::StrAppend(&text, Inherited(base));
    absl::StrAppend(&text, "  const ", root_, "std::shared_ptr<", root_,
                    "hawser::Channel>& channel() const { return channel_; }\n\n");
    for (const MethodModel& method : interface.methods) absl::StrAppend(&text, Descriptor(interface, method));
    if (!interface.methods.empty()) absl::StrAppend(&text, "\n");
    return absl::StrCat(text, " private:\n  ", root_, "std::shared_ptr<", root_,
                        "hawser::Channel> channel_;\n};\n");
  }

  std::string Call(const MethodModel& method) const {
    return absl::StrCat(
        Comment("  ", method.comment), Quotation("  ", method.text),
        Bracketed(
            "  ",
            absl::StrCat(root_, "hawser::Call<", method.params, ", ", method.results, "> ", method.name, "("),
            {absl::StrCat("const ", root_, "hawser::CallOptions& options = {}")}, ") const;"));
  }

  // The calls that come from an interface that is extended.
  std::string Inherited(const InterfaceModel::Base& base) const {
    std::string text = absl::StrCat("  // ---- From ", base.name, ". Converts to its stub.\n");
    if (!base.hidden.empty()) {
      absl::StrAppend(&text, "  // Only through that, because another method here has the same name: ",
                      absl::StrJoin(base.hidden, "(), "), "().\n");
    }
    absl::StrAppend(&text, "  operator ", base.stub, "() const { return ", base.stub, "(channel_); }\n\n");
    for (const MethodModel& method : base.methods) absl::StrAppend(&text, Call(method), "\n");
    return text;
  }

  std::string Descriptor(const InterfaceModel& interface, const MethodModel& method) const {
    return Bracketed(
        "  ", absl::StrCat("static constexpr ", root_, "hawser::Method ", method.descriptor, "{"),
        {absl::StrCat(".interface_id = 0x", absl::Hex(interface.id, absl::kZeroPad16)),
         absl::StrCat(".ordinal = ", method.ordinal), absl::StrCat(".name = \"", method.wire_name, "\""),
         absl::StrCat(".idempotent = ", method.idempotent ? "true" : "false")},
        "};");
  }

  std::string Service(const InterfaceModel& interface) const {
    std::vector<std::string> bases;
    for (const InterfaceModel::Base& base : interface.bases) {
      if (base.direct) bases.push_back(absl::StrCat("public virtual ", base.service));
    }
    if (bases.empty()) bases.push_back(absl::StrCat("public virtual ", root_, "hawser::Service"));
    std::string text =
        absl::StrCat("// What a server of ", interface.name, " derives from; ", interface.stub,
                     " says what each method is.\n",
                     "// A handler fills `reply` and returns OK, or returns why it could not. One that is "
                     "not overridden answers\n"
                     "// Unimplemented.\n",
                     "class ", interface.service, " : ", absl::StrJoin(bases, ", "), " {\n public:\n");
    for (const MethodModel& method : interface.methods) {
      absl::StrAppend(&text,
                      Bracketed("  ", absl::StrCat("virtual ", root_, "absl::Status ", method.name, "("),
                                HandlerArguments(file_, method, true), ");"));
    }
    if (!interface.methods.empty()) absl::StrAppend(&text, "\n");
    for (const std::string& handler : interface.reveal)
      absl::StrAppend(&text, "  using ", handler, ";  // Not hidden by the one above.\n");
    return absl::StrCat(text, "  void AddMethods(", root_, "hawser::MethodTable& table) override;\n};\n");
  }

  const FileModel& file_;
  const std::string& root_;
};

}  // namespace

std::string HeaderText(const FileModel& file) { return Header(file).Text(); }

}  // namespace hawser::codegen
