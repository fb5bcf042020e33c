#ifndef HAWSER_TOOLS_HAWSER_SCHEMA_TEXT_H_
#define HAWSER_TOOLS_HAWSER_SCHEMA_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hawser/tools/hawser/schemas.h"

namespace hawser::tool {

// The text of one Cap'n Proto file that declares `ids` and what these refer to, each with its id, so that
// code generated from it speaks with the server. `capnp compile` accepts it, unless the server's schemas are
// not what a compiler makes. What the server did not send is AnyPointer. Left out: comments, annotations
// other than $Hawser.idempotent, and defaults of more than 4 KiB, which only lists, structs, Text and Data
// can have: a reader that has code from this text gets an empty one instead. Of `schemas` Schemas::Check()
// was OK. ResourceExhausted: it has more than 16 MiB, or refers to too many types. Throws nothing.
absl::StatusOr<std::string> SchemaText(const Schemas& schemas, std::vector<uint64_t> ids);

// "get @1 (key :Text) -> (value :Data, revision :UInt64)": with short names, for people. Cut beyond some 64
// KiB.
std::string MethodText(const Schemas& schemas, capnp::InterfaceSchema::Method method);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_SCHEMA_TEXT_H_
