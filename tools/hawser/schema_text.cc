#include "hawser/tools/hawser/schema_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/node_check.h"
#include "hawser/tools/hawser/schema_roots.h"
#include "hawser/tools/hawser/to_view.h"
#include "hawser/tools/hawser/value_text.h"

namespace hawser::tool {
namespace {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Node;
using capnp::schema::Type;
using capnp::schema::Value;

constexpr size_t kBytesMax = 16 << 20;
constexpr size_t kMethodBytesMax = 64 << 10;
constexpr size_t kValueBytesMax = 4 << 10;
constexpr uint64_t kIdempotent = 0xb3d1f6c0a5e27c94;  // codegen/hawser/annotations.capnp

// By Type::Which, up to DATA.
constexpr const char* kBuiltIn[] = {"Void",   "Bool",   "Int8",   "Int16",   "Int32",   "Int64", "UInt8",
                                    "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Text",  "Data"};

// Schemas has only identifiers.
std::string Name(kj::StringPtr name) { return std::string(ToView(name)); }

std::string Id(uint64_t id) { return absl::StrFormat("@0x%016x", id); }

std::vector<Field::Reader> InOrder(Node::Reader node) {
  std::vector<Field::Reader> fields;
  for (const Field::Reader field : node.getStruct().getFields()) fields.push_back(field);
  std::stable_sort(fields.begin(), fields.end(),
                   [](Field::Reader a, Field::Reader b) { return a.getCodeOrder() < b.getCodeOrder(); });
  return fields;
}

// Writes declarations. A server may send a name once and refer to it very often: all that is made, pieces of
// a line too, is counted, as is what takes time without making anything. Beyond twice `bytes_max` no more is
// made.
class SchemaWriter {
 public:
  SchemaWriter(const Schemas& schemas, size_t bytes_max)
      : schemas_(schemas), roots_(schemas), bytes_max_(bytes_max) {}

  absl::StatusOr<std::string> File(const std::vector<uint64_t>& ids) {
    if (absl::Status status = roots_.Add(ids); !status.ok()) return status;
    has_roots_ = true;
    absl::StrAppend(&text_, Id(roots_.FileId()), ";\n");
    for (const uint64_t root : roots_.roots()) {
      text_ += '\n';
      Declaration(root, 0);
      if (IsFull()) {
        return absl::ResourceExhaustedError(absl::StrCat("the text has more than ", bytes_max_,
                                                         " bytes; describe one part of it by its name"));
      }
    }
    if (has_idempotent_) {
      absl::StrAppend(&text_, "\nannotation idempotent ", Id(kIdempotent), " (method) :Void;\n",
                      "# Of /hawser/annotations.capnp.\n");
    }
    return std::move(text_);
  }

  std::string Method(uint64_t scope, capnp::schema::Method::Reader method, uint16_t ordinal) {
    std::string text =
        absl::StrCat(Name(method.getName()), " @", ordinal, " ",
                     Params(scope, method.getParamStructType(), method.getParamBrand()), " -> ",
                     Params(scope, method.getResultStructType(), method.getResultBrand()));
    for (const auto annotation : method.getAnnotations()) {
      if (annotation.getId() != kIdempotent) continue;
      text += " $idempotent";
      has_idempotent_ = true;
    }
    return text;
  }

 private:
  // ---- Types.

  // `missing`: for what the server did not send.
  std::string Reference(uint64_t scope, uint64_t id, Brand::Reader brand, const char* missing) {
    if (IsFull()) return "";
    if (!has_roots_) return Made(schemas_.Has(id) ? roots_.NameOf(id) : missing);
    const std::vector<uint64_t> target = roots_.Chain(id);
    if (target.empty()) return missing;
    const std::vector<uint64_t> scopes = roots_.Chain(scope);
    made_bytes_ +=
        16 * (target.size() + scopes.size());  // Looking up a short name takes longer than writing it.
    std::vector<std::string> parts;
    size_t bound_first = target.size() - 1;
    for (size_t i = 0; i < target.size(); ++i) {
      std::string part = roots_.NameOf(target[i]);
      for (const auto each : brand.getScopes()) {
        if (each.getScopeId() != target[i] || !each.isBind()) continue;
        std::vector<std::string> bound;
        for (const auto binding : each.getBind()) {
          if (IsFull()) return "";
          bound.push_back(binding.isType() ? TypeText(scope, binding.getType()) : "AnyPointer");
        }
        absl::StrAppend(&part, "(", absl::StrJoin(bound, ", "), ")");
        bound_first = std::min(bound_first, i);
      }
      parts.push_back(std::move(part));
    }
    for (size_t from = bound_first + 1; from-- > 0;) {
      if (roots_.LookUp(scopes, roots_.NameOf(target[from])) == target[from]) {
        return Made(absl::StrJoin(parts.begin() + static_cast<ptrdiff_t>(from), parts.end(), "."));
      }
    }
    return Made(absl::StrCat(" .", absl::StrJoin(parts, ".")));  // ":." would be one token.
  }

  std::string TypeText(uint64_t scope, Type::Reader type) {
    switch (type.which()) {
      case Type::LIST:
        return Made(absl::StrCat("List(", TypeText(scope, type.getList().getElementType()), ")"));
      case Type::ENUM:
        return Reference(scope, type.getEnum().getTypeId(), type.getEnum().getBrand(), "UInt16");
      case Type::STRUCT:
        return Reference(scope, type.getStruct().getTypeId(), type.getStruct().getBrand(), "AnyPointer");
      case Type::INTERFACE:
        return Reference(scope, type.getInterface().getTypeId(), type.getInterface().getBrand(),
                         "AnyPointer");
      case Type::ANY_POINTER:
        return AnyPointerText(type.getAnyPointer());
      default: {
        const auto which = static_cast<size_t>(type.which());
        return which < sizeof(kBuiltIn) / sizeof(kBuiltIn[0]) ? kBuiltIn[which] : "AnyPointer";
      }
    }
  }

  std::string AnyPointerText(Type::AnyPointer::Reader type) const {
    if (type.isParameter()) {
      const auto parameters = schemas_.Get(type.getParameter().getScopeId()).getParameters();
      const uint32_t index = type.getParameter().getParameterIndex();
      return index < parameters.size() ? Name(parameters[index].getName()) : "AnyPointer";
    }
    if (!type.isUnconstrained()) return "AnyPointer";
    if (type.getUnconstrained().isStruct()) return "AnyStruct";
    if (type.getUnconstrained().isList()) return "AnyList";
    return "AnyPointer";
  }

  // ---- Declarations.

  std::string DefaultOf(Node::Reader node, Field::Reader field) {
    if (!field.isSlot() || !field.getSlot().getHadExplicitDefault()) return "";
    const Value::Reader value = field.getSlot().getDefaultValue();
    // A short text may have many fields and elements to look at.
    if (value.isList() || value.isStruct()) made_bytes_ += kValueBytesMax;
    std::optional<std::string> text;
    const auto schema = schemas_.SchemaOf(node.getId()).asStruct();
    KJ_IF_MAYBE (known, schema.findFieldByName(field.getName())) {
      text = ValueText(known->getType(), value, kValueBytesMax);
    }
    return !text.has_value() || text->empty() ? "" : absl::StrCat(" = ", *text);
  }

  void Line(int depth, absl::string_view text) {
    if (IsFull()) return;
    const size_t before = text_.size();
    absl::StrAppend(&text_, std::string(2 * depth, ' '), text, "\n");
    made_bytes_ += text_.size() - before;
  }

  std::string ParametersOf(Node::Reader node) const {
    std::vector<std::string> names;
    for (const auto parameter : node.getParameters()) names.push_back(Name(parameter.getName()));
    return names.empty() ? "" : absl::StrCat("(", absl::StrJoin(names, ", "), ")");
  }

  void Declaration(uint64_t id, int depth) {
    if (IsFull()) return;
    const Node::Reader node = schemas_.Get(id);
    const std::string head = absl::StrCat(roots_.NameOf(id), " ", Id(id), ParametersOf(node));
    switch (node.which()) {
      case Node::STRUCT:
        Line(depth, absl::StrCat("struct ", head, " {"));
        Fields(id, node, depth + 1);
        break;
      case Node::ENUM: {
        Line(depth, absl::StrCat("enum ", head, " {"));
        std::map<uint32_t, std::string> lines;  // By the order in the code.
        uint32_t ordinal = 0;
        for (const auto enumerant : node.getEnum().getEnumerants()) {
          lines[enumerant.getCodeOrder() << 16 | ordinal] =
              absl::StrCat(Name(enumerant.getName()), " @", ordinal, ";");
          ++ordinal;
        }
        for (const auto& [order, line] : lines) Line(depth + 1, line);
        break;
      }
      case Node::INTERFACE:
        Interface(id, node, head, depth);
        break;
      case Node::CONST: {
        const auto type = schemas_.SchemaOf(id).asConst().getType();
        std::optional<std::string> value = ValueText(type, node.getConst().getValue(), kValueBytesMax);
        if (!value.has_value()) {
          Line(depth, absl::StrCat("# const ", head, ": its value is left out."));
          return;
        }
        if (value->empty()) value = ZeroText(type);
        Line(depth,
             absl::StrCat("const ", head, " :", TypeText(id, node.getConst().getType()), " = ", *value, ";"));
        return;
      }
      case Node::ANNOTATION:
        Line(depth, absl::StrCat("annotation ", head, " (", TargetsOf(node),
                                 ") :", TypeText(id, node.getAnnotation().getType()), ";"));
        return;
      default:
        return;
    }
    for (const uint64_t nested : roots_.Nested(node)) {
      text_ += '\n';
      Declaration(nested, depth + 1);
    }
    Line(depth, "}");
  }

  static std::string TargetsOf(Node::Reader node) {
    const auto annotation = node.getAnnotation();
    const std::pair<bool, const char*> targets[] = {
        {annotation.getTargetsFile(), "file"},           {annotation.getTargetsConst(), "const"},
        {annotation.getTargetsEnum(), "enum"},           {annotation.getTargetsEnumerant(), "enumerant"},
        {annotation.getTargetsStruct(), "struct"},       {annotation.getTargetsField(), "field"},
        {annotation.getTargetsUnion(), "union"},         {annotation.getTargetsGroup(), "group"},
        {annotation.getTargetsInterface(), "interface"}, {annotation.getTargetsMethod(), "method"},
        {annotation.getTargetsParam(), "param"},         {annotation.getTargetsAnnotation(), "annotation"}};
    std::vector<std::string> names;
    for (const auto& [is_target, name] : targets) {
      if (is_target) names.push_back(name);
    }
    return absl::StrJoin(names, ", ");
  }

  void Interface(uint64_t id, Node::Reader node, const std::string& head, int depth) {
    std::vector<std::string> bases;
    for (const auto base : node.getInterface().getSuperclasses()) {
      if (IsFull()) return;
      bases.push_back(Reference(id, base.getId(), base.getBrand(), ""));
      if (bases.back().empty()) bases.pop_back();
    }
    Line(depth,
         absl::StrCat("interface ", head,
                      bases.empty() ? "" : absl::StrCat(" extends(", absl::StrJoin(bases, ", "), ")"), " {"));
    std::map<uint32_t, std::string> lines;
    uint16_t ordinal = 0;
    for (const auto method : node.getInterface().getMethods()) {
      if (IsFull()) return;
      lines[uint32_t{method.getCodeOrder()} << 16 | ordinal] = absl::StrCat(Method(id, method, ordinal), ";");
      ++ordinal;
    }
    for (const auto& [order, line] : lines) Line(depth + 1, line);
  }

  std::string Params(uint64_t scope, uint64_t id, Brand::Reader brand) {
    const Node::Reader node = schemas_.Get(id);
    if (IsFull() || !node.isStruct()) return "()";  // It was not sent.
    if (node.getScopeId() != 0) return Reference(scope, id, brand, "()");
    made_bytes_ += node.getStruct().getFields().size();  // Also for those that are no slots.
    std::vector<std::string> texts;
    for (const Field::Reader field : InOrder(node)) {
      if (IsFull()) break;
      if (!field.isSlot()) continue;
      texts.push_back(Made(absl::StrCat(Name(field.getName()), " :",
                                        TypeText(scope, field.getSlot().getType()), DefaultOf(node, field))));
    }
    return absl::StrCat("(", absl::StrJoin(texts, ", "), ")");
  }

  // `scope`: the struct whose fields, or groups' fields, they are.
  void Fields(uint64_t scope, Node::Reader node, int depth) {
    std::vector<Field::Reader> chosen;
    for (const Field::Reader field : InOrder(node)) {
      if (field.getDiscriminantValue() != Field::NO_DISCRIMINANT) {
        chosen.push_back(field);
      } else {
        OneField(scope, node, field, depth);
      }
    }
    if (chosen.empty()) return;
    Line(depth, "union {");
    for (const Field::Reader field : chosen) OneField(scope, node, field, depth + 1);
    Line(depth, "}");
  }

  void OneField(uint64_t scope, Node::Reader node, Field::Reader field, int depth) {
    if (IsFull()) return;
    const std::string name = Name(field.getName());
    if (field.isGroup()) {
      const Node::Reader group = schemas_.Get(field.getGroup().getTypeId());
      const bool is_union = group.getStruct().getDiscriminantCount() > 0 &&
                            group.getStruct().getDiscriminantCount() == group.getStruct().getFields().size();
      Line(depth, absl::StrCat(name, is_union ? " :union {" : " :group {"));
      if (is_union) {
        for (const Field::Reader each : InOrder(group)) OneField(scope, group, each, depth + 1);
      } else {
        Fields(scope, group, depth + 1);
      }
      Line(depth, "}");
      return;
    }
    const std::string ordinal =
        field.getOrdinal().isExplicit() ? absl::StrCat(" @", field.getOrdinal().getExplicit()) : "";
    Line(depth, absl::StrCat(name, ordinal, " :", TypeText(scope, field.getSlot().getType()),
                             DefaultOf(node, field), ";"));
  }

  bool IsFull() const { return text_.size() > bytes_max_ || made_bytes_ > 2 * bytes_max_; }
  std::string Made(std::string piece) {
    made_bytes_ += piece.size();
    return piece;
  }

  const Schemas& schemas_;
  SchemaRoots roots_;
  const size_t bytes_max_;
  bool has_roots_ = false;  // Else names are short.
  std::string text_;
  size_t made_bytes_ = 0;
  bool has_idempotent_ = false;
};

}  // namespace

absl::StatusOr<std::string> SchemaText(const Schemas& schemas, std::vector<uint64_t> ids) {
  try {
    return SchemaWriter(schemas, kBytesMax).File(ids);
  } catch (const kj::Exception& exception) {
    return absl::DataLossError(absl::StrCat("the server's schemas cannot be used: ",
                                            EscapePeerText(ToView(exception.getDescription()))));
  }
}

std::string MethodText(const Schemas& schemas, capnp::InterfaceSchema::Method method) {
  return SchemaWriter(schemas, kMethodBytesMax)
      .Method(method.getContainingInterface().getProto().getId(), method.getProto(), method.getOrdinal());
}

}  // namespace hawser::tool
