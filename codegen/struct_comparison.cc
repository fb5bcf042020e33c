#include "hawser/codegen/struct_comparison.h"

#include "absl/strings/str_cat.h"
#include "hawser/codegen/schema_text.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Field;
using capnp::schema::Type;

// How often one generic struct is compared inside itself. One that contains itself with other parameters each
// time would be compared for ever; a difference in it shows at the first or second level.
constexpr size_t kNestingMax = 6;

bool IsPointer(Type::Reader type) {
  return type.isText() || type.isData() || type.isList() || type.isStruct() || type.isInterface() ||
         type.isAnyPointer();
}

// Data and List(UInt8) are the same bytes.
bool IsBytes(Type::Reader type) {
  if (type.isData()) return true;
  return type.isList() &&
         (type.getList().getElementType().isUint8() || type.getList().getElementType().isInt8());
}

bool IsAnyStruct(Type::Reader type) {
  return type.isAnyPointer() && type.getAnyPointer().isUnconstrained() &&
         type.getAnyPointer().getUnconstrained().isStruct();
}

std::string MemberName(uint16_t ordinal, const ValueField& field) {
  return absl::StrCat(field.field.getName().cStr(), " @", ordinal);
}

ReleasedNames NamesIn(const StructLayout& layout) {
  ReleasedNames names;
  for (const auto& [ordinal, field] : layout) names[ordinal] = field.field.getName().cStr();
  return names;
}

std::string UnionText(const ValueField& field, const ValueField& other) {
  if (field.cases.empty()) return "in no union";
  if (field.cases.size() != other.cases.size()) {
    return field.cases.size() == 1 ? "in a union" : absl::StrCat("in ", field.cases.size(), " unions");
  }
  std::string text;
  for (const ValueField::UnionCase& union_case : field.cases) {
    absl::StrAppend(&text, text.empty() ? "" : ", then ", "member ", union_case.tag,
                    " of the union with its tag at bit ", union_case.tag_offset * 16);
  }
  return text;
}

}  // namespace

std::vector<Difference> StructComparison::Compare(Node::Reader released, const Bindings& released_bindings,
                                                  Node::Reader next, const Bindings& next_bindings) {
  const StructLayout old_layout = LayoutOf(versions_.released, released);
  const StructLayout new_layout = LayoutOf(versions_.next, next);
  std::vector<Difference> differences;
  CompareNames(old_layout, new_layout, differences);

  std::vector<Difference> moved;
  bool same_layout = true;
  for (const auto& [ordinal, old_field] : old_layout) {
    auto found = new_layout.find(ordinal);
    if (found == new_layout.end()) continue;
    const ValueField& new_field = found->second;
    auto old_slot = old_field.field.getSlot(), new_slot = new_field.field.getSlot();
    Sides types{{old_slot.getType(), released_bindings}, {new_slot.getType(), next_bindings}};
    if (!CompareUnion(ordinal, old_field, new_field, differences) ||
        !CompareType(ordinal, types, old_field.field, new_field, differences)) {
      same_layout = false;
    } else if (!old_slot.getType().isVoid() && old_slot.getOffset() != new_slot.getOffset()) {
      moved.push_back({ordinal, MemberName(ordinal, new_field),
                       absl::StrCat("is at place ", new_slot.getOffset(), ", and was at ",
                                    old_slot.getOffset(), ", counted in values of its size."),
                       "Each side reads other bytes than the other wrote.",
                       "find which fields before it have changed, and change them back."});
    }
  }
  // A type that changes moves what follows, and then it alone is worth saying.
  if (same_layout) differences.insert(differences.end(), moved.begin(), moved.end());
  return differences;
}

void StructComparison::CompareNames(const StructLayout& released, const StructLayout& next,
                                    std::vector<Difference>& differences) const {
  const ReleasedNames names = NamesIn(released);
  std::set<std::string> groups_told;
  for (const auto& [ordinal, old_field] : released) {
    auto found = next.find(ordinal);
    if (found == next.end()) {
      differences.push_back(RemovedMember(MemberKind::kField, names, ordinal));
      continue;
    }
    const ValueField& new_field = found->second;
    auto name = NameDifference(MemberKind::kField, names, ordinal, new_field.field.getName().cStr(),
                               new_field.field.getAnnotations());
    if (name) differences.push_back(*std::move(name));

    // A field may be put into a group, or taken out of one. A group that a field is in before and after is to
    // have the same name: as a member of a union it means something.
    if (old_field.groups.size() != new_field.groups.size()) continue;
    for (size_t i = 0; i < old_field.groups.size(); ++i) {
      const std::string was = old_field.groups[i].getName().cStr(), is = new_field.groups[i].getName().cStr();
      if (IsNamed(was, is, new_field.groups[i].getAnnotations())) continue;
      if (!groups_told.insert(absl::StrCat(i, ".", was, ".", is)).second) continue;
      differences.push_back(
          {ordinal, absl::StrCat("group ", is, ", which has ", MemberName(ordinal, new_field), ","),
           absl::StrCat("was ", was, " in the released schema."),
           absl::StrCat("A released peer takes for ", was, " what a peer of this schema sends as ", is,
                        ", and the other way round, without an error."),
           absl::StrCat("give it its name back. If it means the same and only its name has changed, say so: ",
                        is, " :group $Hawser.renamedFrom(\"", was, "\").")});
    }
  }
}

bool StructComparison::CompareUnion(uint16_t ordinal, const ValueField& released, const ValueField& next,
                                    std::vector<Difference>& differences) const {
  if (released.cases == next.cases) return true;
  differences.push_back(
      {ordinal, MemberName(ordinal, next),
       absl::StrCat("is ", UnionText(next, released), ", and was ", UnionText(released, next),
                    " in the released schema."),
       "One side reads it while the other has set another member of the union, whose bytes it "
       "then gets.",
       "leave it where it was. What is to exclude it goes into a new union beside it, with "
       "fields of its own."});
  return false;
}

bool StructComparison::CompareType(uint16_t ordinal, const Sides& types, Field::Reader released,
                                   const ValueField& next, std::vector<Difference>& differences) {
  if (!Match(types, Position::kField)) {
    const std::string was = TypeText(versions_.released, Resolve(types.released).type);
    const std::string is = TypeText(versions_.next, Resolve(types.next).type);
    const bool text_or_data = types.released.type.isText() || types.next.type.isText();
    differences.push_back(
        {ordinal, MemberName(ordinal, next),
         is == was
             ? absl::StrCat("is :", is, ", which is another type than the ", was, " of the released schema.")
             : absl::StrCat("is :", is, ", and was :", was, " in the released schema."),
         text_or_data && IsPointer(types.released.type) && IsPointer(types.next.type)
             ? "Text ends with a NUL, and reading something else as Text fails."
             : "Each side reads other bytes than the other wrote: a wrong value, or an error.",
         "give it its type back, and add a field of the new type, with a name of its own, behind the last "
         "ordinal."});
    return false;
  }
  if (!SameDefault(released.getSlot(), next.field.getSlot())) {
    const bool pointer = IsPointer(types.next.type);
    const std::string was = ValueText(released.getSlot().getDefaultValue());
    const std::string is = ValueText(next.field.getSlot().getDefaultValue());
    differences.push_back(
        {ordinal, MemberName(ordinal, next),
         is.empty() || was.empty()
             ? "has another default value than in the released schema."
             : absl::StrCat("has the default ", is, ", and had ", was, " in the released schema."),
         pointer
             ? "A field that is not set is not sent, so each side reads its own default."
             : "A value is sent as its difference from the default, so each side reads another one than was "
               "set.",
         "give it its default back. A program may use another value where it sets the field."});
  }
  return true;
}

// ---- Types.

bool StructComparison::Match(Sides types, Position position) {
  types = {Resolve(types.released), Resolve(types.next)};
  const Type::Reader released = types.released.type, next = types.next.type;
  if (position == Position::kElement && released.isStruct() != next.isStruct() && !IsAnyStruct(released) &&
      !IsAnyStruct(next)) {
    return released.isStruct() ? MatchElementUpgrade(types.next, types.released, true)
                               : MatchElementUpgrade(types.released, types.next, false);
  }
  if (released.isAnyPointer() || next.isAnyPointer()) return MatchAny(types);
  if (IsBytes(released) && IsBytes(next) && released.isData() != next.isData()) return true;
  if (released.which() != next.which()) return false;
  switch (released.which()) {
    case Type::LIST:
      return Match({{released.getList().getElementType(), types.released.bindings},
                    {next.getList().getElementType(), types.next.bindings}},
                   Position::kElement);
    case Type::STRUCT:
      return MatchStructs(types);
    case Type::ENUM:
      return MatchEnums(released.getEnum().getTypeId(), next.getEnum().getTypeId());
    case Type::INTERFACE:
      return versions_.Same(released.getInterface().getTypeId(), next.getInterface().getTypeId());
    default:
      return true;
  }
}

// What is in an AnyPointer is agreed on elsewhere than in the schema, so each type of pointer may be it.
bool StructComparison::MatchAny(const Sides& types) const {
  const Type::Reader released = types.released.type, next = types.next.type;
  if (!IsPointer(released) || !IsPointer(next)) return false;
  if (!released.isAnyPointer()) return MatchAny({types.next, types.released});
  auto pointer = released.getAnyPointer();
  if (pointer.isParameter() && next.isAnyPointer() && next.getAnyPointer().isParameter()) {
    // Neither is bound, which is how a generic struct is declared.
    auto mine = pointer.getParameter(), its = next.getAnyPointer().getParameter();
    return mine.getParameterIndex() == its.getParameterIndex() &&
           versions_.Same(mine.getScopeId(), its.getScopeId());
  }
  if (!pointer.isUnconstrained() || pointer.getUnconstrained().isAnyKind()) return true;
  if (next.isAnyPointer()) {
    auto other = next.getAnyPointer();
    return !other.isUnconstrained() || other.getUnconstrained().isAnyKind() ||
           other.getUnconstrained().which() == pointer.getUnconstrained().which();
  }
  switch (pointer.getUnconstrained().which()) {
    case Type::AnyPointer::Unconstrained::STRUCT:
      return next.isStruct();
    case Type::AnyPointer::Unconstrained::LIST:
      return next.isList();
    default:
      return next.isInterface();
  }
}

bool StructComparison::MatchStructs(const Sides& types) {
  auto released = types.released.type.getStruct(), next = types.next.type.getStruct();
  const Bindings released_bindings = Bind(released.getBrand(), types.released.bindings);
  const Bindings next_bindings = Bind(next.getBrand(), types.next.bindings);
  const bool same = versions_.Same(released.getTypeId(), next.getTypeId());
  if (same && !released_bindings && !next_bindings) return true;

  const std::string key = absl::StrCat(KeyOf(types.released), " ", KeyOf(types.next));
  if (different_.count(key)) return false;
  if (comparing_.count(released.getTypeId()) >= kNestingMax || !compared_.insert(key).second) return true;
  auto comparing = comparing_.insert(released.getTypeId());
  const bool match = Compare(versions_.released.Get(released.getTypeId()), released_bindings,
                             versions_.next.Get(next.getTypeId()), next_bindings)
                         .empty();
  comparing_.erase(comparing);
  if (!match) different_.insert(key);
  return match;
}

bool StructComparison::MatchEnums(uint64_t released, uint64_t next) const {
  if (versions_.Same(released, next)) return true;
  auto old_names = versions_.released.Get(released).getEnum().getEnumerants();
  auto new_names = versions_.next.Get(next).getEnum().getEnumerants();
  if (old_names.size() > new_names.size()) return false;
  for (uint16_t i = 0; i < old_names.size(); ++i) {
    if (!IsNamed(old_names[i].getName().cStr(), new_names[i].getName().cStr(),
                 new_names[i].getAnnotations())) {
      return false;
    }
  }
  return true;
}

// Cap'n Proto reads a list of structs as one of their first field, and the other way round. Not so a list of
// Bool.
bool StructComparison::MatchElementUpgrade(const BoundType& element, const BoundType& structure,
                                           bool struct_is_released) {
  const Nodes& nodes = struct_is_released ? versions_.released : versions_.next;
  const StructLayout layout = LayoutOf(nodes, nodes.Get(structure.type.getStruct().getTypeId()));
  if (element.type.isBool() || layout.empty() || layout.begin()->first != 0) return false;
  if (struct_is_released && layout.size() > 1) return false;  // The other fields are gone.
  const ValueField& first = layout.begin()->second;
  auto slot = first.field.getSlot();
  if (!first.cases.empty() || slot.getOffset() != 0 || slot.getHadExplicitDefault()) return false;
  BoundType field{slot.getType(), Bind(structure.type.getStruct().getBrand(), structure.bindings)};
  return struct_is_released ? Match({field, element}, Position::kField)
                            : Match({element, field}, Position::kField);
}

}  // namespace hawser::codegen
