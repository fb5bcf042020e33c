#ifndef HAWSER_TOOLS_HAWSER_NODE_CHECK_H_
#define HAWSER_TOOLS_HAWSER_NODE_CHECK_H_

#include <capnp/schema.h>

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {

// The longest name in a node. The folder of a display name does not count.
inline constexpr size_t kNameBytesMax = 256;
// How deep scopes, groups and brands may be: deeper than in any schema that people write.
inline constexpr int kScopeDepthMax = 64;

// What must be true of one node of a peer before a capnp::SchemaLoader may have it. The loader of Cap'n Proto
// 0.9 does not check it or checks it in 32 bits, and builders and readers rely on it:
//  - a field and the tag of a union lie inside their struct: the loader takes bits * (offset + 1) modulo
//    2^32;
//  - a union has as many fields as it says: the loader counts them after it has written a table of that size;
//  - an interface extends at most 1,000 others and a brand has at most kScopeDepthMax scopes: the loader
//    sorts and searches these again for each reference to them.
// And of what is printed for people and for compilers: names are identifiers of the schema language, since
// others can hold declarations, "A {} struct B"; a display name is that of a file and of scopes in it,
// "kv.capnp:KeyValue.get$Params". Throws kj::Exception: the node is malformed. DataLoss: what is wrong,
// without names of the peer.
absl::Status CheckNode(capnp::schema::Node::Reader node);

// Calls `visit` with the id of each type that `node` refers to: types of fields, lists, parameters and
// constants, superclasses, nested nodes. Not its groups, which are parts of it. False: a brand has more than
// kScopeDepthMax scopes; the rest is not visited.
bool ForEachReference(capnp::schema::Node::Reader node, absl::FunctionRef<void(uint64_t id)> visit);

// "kv.capnp:KeyValue.Entry" of "folder/kv.capnp:KeyValue.Entry".
absl::string_view WithoutFolder(absl::string_view display_name);
// "Entry" of that; "get" of "kv.capnp:KeyValue.get$Params".
absl::string_view LocalName(absl::string_view display_name);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_NODE_CHECK_H_
