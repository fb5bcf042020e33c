#ifndef HAWSER_TOOLS_HAWSER_JSON_FIT_H_
#define HAWSER_TOOLS_HAWSER_JSON_FIT_H_

#include <capnp/dynamic.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {

// Fills `into` with the JSON object `text`.
//
//   struct, group   an object; a field that is left out, or null for a pointer, keeps its default
//   union           at most one of its fields; null chooses one that is a pointer
//   List            an array; null is an element that is a pointer and keeps its default
//   Text            a string; {"base64": "..."} for bytes that are not UTF-8
//   Data            a string, for its UTF-8 bytes; {"base64": "aGVsbG8="} for any bytes
//   Bool, Void      true or false; null
//   integers        a number that is whole, or digits in quotes
//   Float32, 64     a number, of which the nearest is taken; "NaN", "Infinity", "-Infinity"
//   enum            the name of an enumerant, or its number
//
// What ToJson() (json_text.h) writes is taken back. Why not capnp::JsonCodec: see Json (json_value.h).
// InvalidArgument: `text` is no JSON object, has a name twice, or does not fit: "at .entries[3].key: expected
// Text, found the number 5". `into` is then filled in part.
absl::Status FillFromJson(absl::string_view text, capnp::DynamicStruct::Builder into);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_JSON_FIT_H_
