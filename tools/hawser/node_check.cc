#include "hawser/tools/hawser/node_check.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/to_view.h"

namespace hawser::tool {
namespace {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Node;
using capnp::schema::Type;

// Each of them has a place of 16 bits in the order of the code, which is another one for each.
constexpr uint32_t kMembersMax = 65536;
constexpr uint32_t kSuperclassesMax = 1000;

absl::Status Wrong(absl::string_view what) { return absl::DataLossError(what); }

bool IsIdentifier(absl::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax ||
      absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) {
    return false;
  }
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

// "Entry", or "get$Params".
bool IsScope(absl::string_view name) {
  const size_t dollar = name.find('$');
  return IsIdentifier(name.substr(0, dollar)) &&
         (dollar == name.npos || IsIdentifier(name.substr(dollar + 1)));
}

bool IsDisplayName(absl::string_view name, bool of_file) {
  const size_t file_end = of_file ? name.size() : name.rfind(':');
  if (file_end != name.npos) {
    const absl::string_view file = name.substr(0, file_end);
    if (file.find_first_of("\"{};") != file.npos || EscapePeerText(file) != file) return false;
    if (of_file) return true;
    name.remove_prefix(file_end + 1);
  }
  for (const absl::string_view scope : absl::StrSplit(name, '.')) {
    if (!IsScope(scope)) return false;
  }
  return true;
}

// In the data section. 0: a pointer, or nothing.
uint64_t BitsOf(Type::Reader type) {
  switch (type.which()) {
    case Type::BOOL:
      return 1;
    case Type::INT8:
    case Type::UINT8:
      return 8;
    case Type::INT16:
    case Type::UINT16:
    case Type::ENUM:
      return 16;
    case Type::INT32:
    case Type::UINT32:
    case Type::FLOAT32:
      return 32;
    case Type::INT64:
    case Type::UINT64:
    case Type::FLOAT64:
      return 64;
    default:
      return 0;
  }
}

bool IsPointer(Type::Reader type) {
  switch (type.which()) {
    case Type::TEXT:
    case Type::DATA:
    case Type::LIST:
    case Type::STRUCT:
    case Type::INTERFACE:
    case Type::ANY_POINTER:
      return true;
    default:
      return false;
  }
}

bool IsKnown(Type::Reader type) {
  return type.isVoid() || BitsOf(type) > 0 ||
         (type.isList() ? IsKnown(type.getList().getElementType()) : IsPointer(type));
}

template <typename Members>
absl::Status CheckNames(Members members, absl::string_view of_what) {
  if (members.size() > kMembersMax) return Wrong(absl::StrCat("it has more than 65,536 ", of_what));
  for (const auto member : members) {
    if (!IsIdentifier(ToView(member.getName()))) {
      return Wrong(absl::StrCat("a name of its ", of_what, " is no identifier of at most ", kNameBytesMax,
                                " letters"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStruct(Node::Struct::Reader body) {
  if (absl::Status status = CheckNames(body.getFields(), "fields"); !status.ok()) return status;
  const uint64_t bits = uint64_t{body.getDataWordCount()} * 64;
  if (body.getDiscriminantCount() > 0 && (uint64_t{body.getDiscriminantOffset()} + 1) * 16 > bits) {
    return Wrong("the tag of its union lies outside of it");
  }
  uint32_t in_union = 0;
  for (const Field::Reader field : body.getFields()) {
    if (field.getDiscriminantValue() != Field::NO_DISCRIMINANT) ++in_union;
    if (field.isGroup()) continue;
    if (!field.isSlot() || !IsKnown(field.getSlot().getType())) {
      return Wrong("it has a field of a kind that this program does not know");
    }
    const Type::Reader type = field.getSlot().getType();
    const uint64_t end = uint64_t{field.getSlot().getOffset()} + 1;
    if (BitsOf(type) * end > bits || (IsPointer(type) && end > body.getPointerCount())) {
      return Wrong("a field lies outside of it");
    }
  }
  if (in_union != body.getDiscriminantCount()) {
    return Wrong("its union does not have as many fields as it says");
  }
  return absl::OkStatus();
}

absl::Status CheckInterface(Node::Interface::Reader body) {
  if (body.getSuperclasses().size() > kSuperclassesMax) {
    return Wrong(absl::StrCat("it extends more than ", kSuperclassesMax, " interfaces"));
  }
  if (absl::Status status = CheckNames(body.getMethods(), "methods"); !status.ok()) return status;
  for (const auto method : body.getMethods()) {
    absl::Status status = CheckNames(method.getImplicitParameters(), "methods' type parameters");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The ids in types, as ForEachReference() describes.
class References {
 public:
  explicit References(absl::FunctionRef<void(uint64_t)> visit) : visit_(visit) {}

  bool Of(Node::Reader node) {
    for (const auto nested : node.getNestedNodes()) visit_(nested.getId());
    switch (node.which()) {
      case Node::STRUCT:
        for (const auto field : node.getStruct().getFields()) {
          if (field.isSlot() && !OfType(field.getSlot().getType())) return false;
        }
        return true;
      case Node::INTERFACE:
        for (const auto base : node.getInterface().getSuperclasses()) {
          if (!OfNamed(base.getId(), base.getBrand())) return false;
        }
        for (const auto method : node.getInterface().getMethods()) {
          if (!OfNamed(method.getParamStructType(), method.getParamBrand()) ||
              !OfNamed(method.getResultStructType(), method.getResultBrand())) {
            return false;
          }
        }
        return true;
      case Node::CONST:
        return OfType(node.getConst().getType());
      case Node::ANNOTATION:
        return OfType(node.getAnnotation().getType());
      default:
        return true;
    }
  }

 private:
  bool OfType(Type::Reader type) {
    switch (type.which()) {
      case Type::LIST:
        return OfType(type.getList().getElementType());
      case Type::ENUM:
        return OfNamed(type.getEnum().getTypeId(), type.getEnum().getBrand());
      case Type::STRUCT:
        return OfNamed(type.getStruct().getTypeId(), type.getStruct().getBrand());
      case Type::INTERFACE:
        return OfNamed(type.getInterface().getTypeId(), type.getInterface().getBrand());
      default:
        return true;
    }
  }

  bool OfNamed(uint64_t id, Brand::Reader brand) {
    visit_(id);
    if (brand.getScopes().size() > kScopeDepthMax) return false;
    for (const auto scope : brand.getScopes()) {
      if (!scope.isBind()) continue;
      for (const auto binding : scope.getBind()) {
        if (binding.isType() && !OfType(binding.getType())) return false;
      }
    }
    return true;
  }

  absl::FunctionRef<void(uint64_t)> visit_;
};

}  // namespace

absl::Status CheckNode(Node::Reader node) {
  const absl::string_view name = WithoutFolder(ToView(node.getDisplayName()));
  if (name.size() > kNameBytesMax || !IsDisplayName(name, node.isFile())) {
    return Wrong(absl::StrCat("its name is not that of a file and of scopes in it, of at most ",
                              kNameBytesMax, " letters"));
  }
  absl::Status status = CheckNames(node.getParameters(), "type parameters");
  if (status.ok()) status = CheckNames(node.getNestedNodes(), "nested declarations");
  if (status.ok() && node.isStruct()) status = CheckStruct(node.getStruct());
  if (status.ok() && node.isEnum()) status = CheckNames(node.getEnum().getEnumerants(), "enumerants");
  if (status.ok() && node.isInterface()) status = CheckInterface(node.getInterface());
  if (status.ok() && node.isConst() && !IsKnown(node.getConst().getType())) {
    status = Wrong("it is of a type that this program does not know");
  }
  if (status.ok() && !ForEachReference(node, [](uint64_t) {})) {
    status = Wrong(absl::StrCat("a type in it is bound in more than ", kScopeDepthMax, " scopes"));
  }
  return status;
}

bool ForEachReference(Node::Reader node, absl::FunctionRef<void(uint64_t id)> visit) {
  return References(visit).Of(node);
}

absl::string_view WithoutFolder(absl::string_view display_name) {
  const size_t slash = display_name.substr(0, display_name.rfind(':')).rfind('/');
  return slash == display_name.npos ? display_name : display_name.substr(slash + 1);
}

absl::string_view LocalName(absl::string_view display_name) {
  const size_t before = display_name.find_last_of(".:/");
  const absl::string_view name = before == display_name.npos ? display_name : display_name.substr(before + 1);
  return name.substr(0, name.find('$'));
}

}  // namespace hawser::tool
