#ifndef HAWSER_TOOLS_HAWSER_FIELD_PATH_H_
#define HAWSER_TOOLS_HAWSER_FIELD_PATH_H_

#include <capnp/schema.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {

// "FIELD=FILE" of --in and --out: a Data or Text field of a message, and the file for it.
struct FieldPath {
  std::string path;  // "a.b.c": b is a field of the struct or group a.
  std::string file;
  std::vector<capnp::StructSchema::Field> fields;

  // InvalidArgument: it is not of that form, whatever the message.
  static absl::Status CheckForm(absl::string_view text);
  // InvalidArgument: it is not of that form; a part is not there (with the nearest, and what is); the last is
  // neither Data nor Text.
  static absl::StatusOr<FieldPath> Parse(absl::string_view text, capnp::StructSchema schema);

  bool is_text() const { return fields.back().getType().isText(); }
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_FIELD_PATH_H_
