#ifndef HAWSER_CODEGEN_STRUCT_LAYOUT_H_
#define HAWSER_CODEGEN_STRUCT_LAYOUT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// A field that holds a value, in whichever group it is declared. Groups have no place in a message, so two
// versions of a struct are compared by these.
struct ValueField {
  capnp::schema::Field::Reader field;                // isSlot().
  std::vector<capnp::schema::Field::Reader> groups;  // Around it, outermost first.

  // Around it, outermost first: where the union's tag is, in units of 16 bits from the start of the data
  // section, and the value that it has while this field, or the group around it, is set.
  struct UnionCase {
    uint32_t tag_offset;
    uint16_t tag;
    friend bool operator==(const UnionCase& a, const UnionCase& b) {
      return a.tag_offset == b.tag_offset && a.tag == b.tag;
    }
  };
  std::vector<UnionCase> cases;
};

// By ordinal: all fields of a struct, with those of its groups. For the parameters or results of a method,
// too, where the ordinal is the place in the list.
using StructLayout = std::map<uint16_t, ValueField>;
StructLayout LayoutOf(const Nodes& nodes, Node::Reader node);

// "5", "\"text\"": a default value, for messages; empty for a list, a struct or Data.
std::string ValueText(capnp::schema::Value::Reader value);

// A field that was not set reads the same from both.
bool SameDefault(capnp::schema::Field::Slot::Reader a, capnp::schema::Field::Slot::Reader b);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_STRUCT_LAYOUT_H_
