#include "hawser/tools/hawser/field_path.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/nearest.h"
#include "hawser/tools/hawser/type_name.h"

namespace hawser::tool {

absl::Status FieldPath::CheckForm(absl::string_view text) {
  const size_t equals = text.find('=');
  if (equals != text.npos && equals != 0 && equals + 1 != text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError("that is not FIELD=FILE, such as value=/tmp/picture.png");
}

absl::StatusOr<FieldPath> FieldPath::Parse(absl::string_view text, capnp::StructSchema schema) {
  if (absl::Status status = CheckForm(text); !status.ok()) return status;
  const size_t equals = text.find('=');
  FieldPath path = {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), {}};
  const std::vector<std::string> parts = absl::StrSplit(path.path, '.');
  for (const std::string& part : parts) {
    std::vector<std::string> names;
    bool found = false;
    for (const auto field : schema.getFields()) {
      const kj::StringPtr name = field.getProto().getName();
      names.emplace_back(name.begin(), name.size());
      if (names.back() != part) continue;
      path.fields.push_back(field);
      found = true;
      break;
    }
    if (!found) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no field \"", EscapePeerText(part), "\" in ", TypeName(capnp::Type(schema)),
          DidYouMean(part, names, "."), names.empty() ? " It has none" : " There are: ", Listed(names)));
    }
    const capnp::Type type = path.fields.back().getType();
    const bool is_last = path.fields.size() == parts.size();
    if (is_last && !type.isData() && !type.isText()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", EscapePeerText(part), "\" is ", TypeName(type),
                                                     "; only Data and Text go to and from files"));
    }
    if (!is_last && !type.isStruct()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", EscapePeerText(part), "\" is ", TypeName(type),
                       ", which has no fields; elements of lists cannot be named"));
    }
    if (!is_last) schema = type.asStruct();
  }
  return path;
}

}  // namespace hawser::tool
