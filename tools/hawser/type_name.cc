#include "hawser/tools/hawser/type_name.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/peer_text.h"

namespace hawser::tool {
namespace {

// By Type::Which, up to DATA.
constexpr const char* kBuiltIn[] = {"Void",   "Bool",   "Int8",   "Int16",   "Int32",   "Int64", "UInt8",
                                    "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Text",  "Data"};

std::string LocalName(capnp::Schema schema) {
  const kj::StringPtr name = schema.getProto().getDisplayName();
  absl::string_view view(name.begin(), name.size());
  if (const size_t file_end = view.rfind(':'); file_end != view.npos) view.remove_prefix(file_end + 1);
  return EscapePeerText(view.substr(0, 256));
}

}  // namespace

std::string TypeName(capnp::Type type) {
  if (type.isList()) return absl::StrCat("List(", TypeName(type.asList().getElementType()), ")");
  if (type.isStruct()) return LocalName(type.asStruct());
  if (type.isEnum()) return LocalName(type.asEnum());
  if (type.isInterface()) return LocalName(type.asInterface());
  if (type.isAnyPointer()) return "AnyPointer";
  const auto which = static_cast<size_t>(type.which());
  return which < sizeof(kBuiltIn) / sizeof(kBuiltIn[0]) ? kBuiltIn[which]
                                                        : "a type that this program does not know";
}

}  // namespace hawser::tool
