#ifndef HAWSER_CODEGEN_SCHEMA_TEXT_H_
#define HAWSER_CODEGEN_SCHEMA_TEXT_H_

#include <cstdint>
#include <string>

#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// "get @0 (key :Text) -> (value :Data);": a method as the schema declares it, for the comments of generated
// code.
std::string MethodText(const Nodes& nodes, Node::Reader interface, uint16_t ordinal);

// "List(Outer.Entry)": a type, by the name that it has within its file.
std::string TypeText(const Nodes& nodes, capnp::schema::Type::Reader type);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_SCHEMA_TEXT_H_
