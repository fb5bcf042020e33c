#ifndef HAWSER_CODEGEN_CPP_CLASHES_H_
#define HAWSER_CODEGEN_CPP_CLASHES_H_

#include "hawser/codegen/nodes.h"
#include "hawser/codegen/refusals.h"

namespace hawser::codegen {

// Refuses the names of a file that are fine in a schema, and of which capnpc-c++ makes C++ that does not
// compile: each line of its foo.capnp.h that a name can spoil has a rule here. The rules are those of its
// makeInterfaceText(), makeStructText(), makeConstText() and toUpperCase(), of 0.9.2; a rule does not apply
// to a newer version that is known to compile the name.
//
//   kv.capnp:3: error: Server becomes Server in C++, which capnpc-c++ needs inside it.
//     Rename it, or give it another name in C++ only: $Cxx.name("...").
void RefuseCppClashes(const Nodes& nodes, Node::Reader file, Refusals& refusals);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_CPP_CLASHES_H_
