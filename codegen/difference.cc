#include "hawser/codegen/difference.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hawser::codegen {
namespace {

using Annotations = capnp::List<capnp::schema::Annotation>::Reader;

std::string Consequence(MemberKind kind, const std::string& released, const std::string& name) {
  switch (kind) {
    case MemberKind::kMethod:
      return absl::StrCat("A released client that calls ", released, " runs ", name,
                          " on a server of this schema; a client of this schema that calls ", name, " runs ",
                          released, " on a released server. Both may see OK.");
    case MemberKind::kField:
      return absl::StrCat("A released peer takes for ", released, " what a peer of this schema sends as ",
                          name, ", and the other way round, without an error.");
    case MemberKind::kEnumerant:
      return absl::StrCat("A released peer takes the ", name, " of a peer of this schema for ", released,
                          ", and the other way round, without an error.");
  }
  return "";
}

// "obsoleteKey"
std::string Obsolete(const std::string& name) {
  std::string capitalized = name;
  capitalized[0] = absl::ascii_toupper(capitalized[0]);
  return absl::StrCat("obsolete", capitalized);
}

}  // namespace

bool IsNamed(const std::string& released, const std::string& name, Annotations annotations) {
  if (released == name) return true;
  for (auto annotation : annotations) {
    if (annotation.getId() == kRenamedFrom && annotation.getValue().getText() == released.c_str())
      return true;
  }
  return false;
}

std::optional<Difference> NameDifference(MemberKind kind, const ReleasedNames& released, uint16_t ordinal,
                                         const std::string& name, Annotations annotations) {
  const std::string& was = released.at(ordinal);
  if (IsNamed(was, name, annotations)) return std::nullopt;
  Difference difference;
  difference.ordinal = ordinal;
  difference.member = absl::StrCat(name, " @", ordinal);
  difference.what = absl::StrCat("was ", was, " in the released schema");
  difference.consequence = Consequence(kind, was, name);
  difference.instead =
      absl::StrCat("give @", ordinal, " its name back, and add ", name, " behind the last ordinal.");
  for (const auto& [released_ordinal, released_name] : released) {
    if (released_name != name) continue;
    absl::StrAppend(&difference.what, ", where ", name, " was @", released_ordinal);
    difference.instead = absl::StrCat("give ", name, " its released ordinal, @", released_ordinal, ".");
  }
  absl::StrAppend(&difference.what, ".");
  absl::StrAppend(&difference.instead, " If it means the same and only its name has changed, say so: ", name,
                  " @", ordinal, " ... $Hawser.renamedFrom(\"", was, "\").");
  return difference;
}

Difference RemovedMember(MemberKind kind, const ReleasedNames& released, uint16_t ordinal) {
  const std::string& was = released.at(ordinal);
  const std::string member = absl::StrCat(was, " @", ordinal);
  Difference difference;
  difference.what = absl::StrCat("has no ", member, " any more, which the released schema has.");
  difference.instead =
      absl::StrCat("keep ", member, ", deprecated in its comment. For another name: ", Obsolete(was), " @",
                   ordinal, " ... $Hawser.renamedFrom(\"", was, "\").");
  switch (kind) {
    case MemberKind::kMethod:
      difference.consequence = absl::StrCat("A released client that calls ", was,
                                            " gets Unimplemented, and the next method that is added gets its "
                                            "calls.");
      break;
    case MemberKind::kField:
      difference.consequence =
          absl::StrCat("What a released peer sends as ", was,
                       " is ignored, it reads the default from peers of this schema, and "
                       "the next field that is added gets its place.");
      break;
    case MemberKind::kEnumerant:
      difference.consequence =
          absl::StrCat("What a released peer sends as ", was,
                       " is a number without a name here, and the next enumerant that is "
                       "added gets it.");
      break;
  }
  return difference;
}

}  // namespace hawser::codegen
