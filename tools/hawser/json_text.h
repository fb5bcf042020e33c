#ifndef HAWSER_TOOLS_HAWSER_JSON_TEXT_H_
#define HAWSER_TOOLS_HAWSER_JSON_TEXT_H_

#include <capnp/dynamic.h>

#include <cstddef>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace hawser::tool {

struct JsonTextOptions {
  bool pretty = true;  // A line a field; otherwise all in one line.
  // Data that is UTF-8 without control characters is a string, other Data {"base64": "..."}. With this all of
  // it is the latter, so that a program need not tell the two apart. FillFromJson() (json_fit.h) takes both.
  bool base64_always = false;
  // Fields, as "a.b.c", of no list's elements: they are not even looked at.
  std::set<std::string> left_out = {};
  size_t bytes_max = 256 << 20;
};

// A message as JSON, in the way of capnp::JsonCodec: null pointers are left out, of a union the field that is
// set is there, 64-bit integers are strings, NaN and infinities too. An enumerant without a name is its
// number, a Text that is not UTF-8 {"base64": "..."}, a capability or an AnyPointer null. But for those two,
// FillFromJson() (json_fit.h) makes an equal message of it. Why not JsonCodec itself: it builds a second tree
// in memory, and passes on what a terminal obeys.
// ResourceExhausted: it has more than `bytes_max`, to which each absent field adds 4 bytes.
// Throws kj::Exception if the message is malformed.
absl::StatusOr<std::string> ToJson(capnp::DynamicStruct::Reader message, const JsonTextOptions& options);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_JSON_TEXT_H_
