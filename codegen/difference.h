#ifndef HAWSER_CODEGEN_DIFFERENCE_H_
#define HAWSER_CODEGEN_DIFFERENCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "hawser/codegen/nodes.h"

namespace hawser::codegen {

// Something that peers of two versions of a schema would misunderstand.
struct Difference {
  std::optional<uint16_t> ordinal;  // That of the member that it is about, for its line.
  std::string member;               // "get @1"; empty: the type itself.
  std::string what;                 // "was remove in the released schema.": the member is its subject.
  std::string consequence;          // "A released client that calls remove runs get ...": sentences.
  std::string instead;              // "give get its released ordinal, @2.": follows "Instead: ".
};

// The methods of an interface, the fields of a struct or the enumerants of an enum, as they were released.
using ReleasedNames = std::map<uint16_t, std::string>;

enum class MemberKind { kMethod, kField, kEnumerant };

// Names are not sent, so Cap'n Proto does not mind another name at an ordinal. A peer of the other version
// means something else by that number, though. None: the name is the same, or $Hawser.renamedFrom says that
// only the name has changed.
std::optional<Difference> NameDifference(MemberKind kind, const ReleasedNames& released, uint16_t ordinal,
                                         const std::string& name,
                                         capnp::List<capnp::schema::Annotation>::Reader annotations);

// The next version has no member at this ordinal.
Difference RemovedMember(MemberKind kind, const ReleasedNames& released, uint16_t ordinal);

// Whether a released name is the one that a member has, or is said to have had.
bool IsNamed(const std::string& released, const std::string& name,
             capnp::List<capnp::schema::Annotation>::Reader annotations);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_DIFFERENCE_H_
