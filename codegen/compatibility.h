#ifndef HAWSER_CODEGEN_COMPATIBILITY_H_
#define HAWSER_CODEGEN_COMPATIBILITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// What peers of two versions of a schema would misunderstand, as messages for its author:
//   kv.capnp:12: error: KeyValue.get @1 was remove in the released schema.
//     A released client that calls remove runs get ...
//     Instead: ...
// Empty: a server of the next version can serve clients of the released one, and the other way round.
// A request is what `capnp compile -o-` writes. Lines are those of the next version; SourceLines::OfFile()
// finds its text. InvalidArgument: the two are not versions of one schema.
absl::StatusOr<std::vector<std::string>> Incompatibilities(CodeGeneratorRequest::Reader released,
                                                           CodeGeneratorRequest::Reader next);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_COMPATIBILITY_H_
