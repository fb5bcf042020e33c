#ifndef HAWSER_TOOLS_HAWSER_SCHEMA_TEXT_H_
#define HAWSER_TOOLS_HAWSER_SCHEMA_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hawser/tools/hawser/schemas.h"

namespace hawser::tool {

// The text of one Cap'n Proto file that declares `ids` and what these refer to, each with its id, so that code generated from
// it speaks with the server. `capnp compile` accepts it, unless the server's schemas are not what a compiler makes. What the
// server did not send is AnyPointer. Left out: comments, and annotations other than $Hawser.idempotent.
// ResourceExhausted: it has more than 16 MiB. Throws nothing.
absl::StatusOr<std::string> SchemaText(const Schemas& schemas, std::vector<uint64_t> ids);

// "get @1 (key :Text) -> (value :Data, revision :UInt64)": with short names, for people.
std::string MethodText(const Schemas& schemas, capnp::InterfaceSchema::Method method);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_SCHEMA_TEXT_H_
