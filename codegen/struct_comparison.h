#ifndef HAWSER_CODEGEN_STRUCT_COMPARISON_H_
#define HAWSER_CODEGEN_STRUCT_COMPARISON_H_

#include <set>
#include <string>
#include <vector>

#include "hawser/codegen/bound_type.h"
#include "hawser/codegen/difference.h"
#include "hawser/codegen/struct_layout.h"
#include "hawser/codegen/versions.h"

namespace hawser::codegen {

// Whether two versions of a struct can be exchanged in both directions: each reads what the other wrote, as
// what it was meant.
class StructComparison {
 public:
  explicit StructComparison(const Versions& versions) : versions_(versions) {}

  // The fields of a struct. A struct that it contains is looked into only where that is another type than
  // before, or has parameters: otherwise what is wrong with it is a difference of its own.
  std::vector<Difference> Compare(Node::Reader released, const Bindings& released_bindings, Node::Reader next,
                                  const Bindings& next_bindings);

 private:
  struct Sides {
    BoundType released;
    BoundType next;
  };
  enum class Position { kField, kElement };

  void CompareNames(const StructLayout& released, const StructLayout& next,
                    std::vector<Difference>& differences) const;
  bool CompareUnion(uint16_t ordinal, const ValueField& released, const ValueField& next,
                    std::vector<Difference>& differences) const;
  // False: what follows the field may be at another place because of it.
  bool CompareType(uint16_t ordinal, const Sides& types, capnp::schema::Field::Reader released,
                   const ValueField& next, std::vector<Difference>& differences);

  bool Match(Sides types, Position position);
  bool MatchAny(const Sides& types) const;
  bool MatchStructs(const Sides& types);
  bool MatchEnums(uint64_t released, uint64_t next) const;
  bool MatchElementUpgrade(const BoundType& element, const BoundType& structure, bool struct_is_released);

  const Versions& versions_;
  std::set<std::string> compared_;     // Pairs of structs inside others: being compared, or equal.
  std::set<std::string> different_;    // Likewise, those that differ.
  std::multiset<uint64_t> comparing_;  // The released ones that are being compared.
};

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_STRUCT_COMPARISON_H_
