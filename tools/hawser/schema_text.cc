#include "hawser/tools/hawser/schema_text.h"

#include <capnp/dynamic.h>
#include <capnp/pretty-print.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hawser/base/peer_text.h"

namespace hawser::tool {
namespace {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Node;
using capnp::schema::Type;
using capnp::schema::Value;

constexpr size_t kBytesMax = 16 << 20;
constexpr uint64_t kIdempotent = 0xb3d1f6c0a5e27c94;  // codegen/hawser/annotations.capnp

// By Type::Which, up to DATA.
constexpr const char* kBuiltIn[] = {"Void",   "Bool",   "Int8",   "Int16",   "Int32",   "Int64", "UInt8",
                                    "UInt16", "UInt32", "UInt64", "Float32", "Float64", "Text",  "Data"};

absl::string_view ToView(kj::StringPtr text) { return {text.begin(), text.size()}; }
std::string Name(kj::StringPtr name) { return EscapePeerText(ToView(name)); }

std::string LocalName(Node::Reader node) {
  absl::string_view name = ToView(node.getDisplayName());
  name.remove_prefix(std::min<size_t>(node.getDisplayNamePrefixLength(), name.size()));
  return EscapePeerText(name);
}

std::string Id(uint64_t id) { return absl::StrFormat("@0x%016x", id); }

// As the schema language has it. Bytes, not characters, are escaped: it takes both.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return out + "\"";
}

template <typename Float>
std::string FloatText(Float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

std::vector<Field::Reader> InOrder(Node::Reader node) {
  std::vector<Field::Reader> fields;
  for (const Field::Reader field : node.getStruct().getFields()) fields.push_back(field);
  std::stable_sort(fields.begin(), fields.end(),
                   [](Field::Reader a, Field::Reader b) { return a.getCodeOrder() < b.getCodeOrder(); });
  return fields;
}

class Writer {
 public:
  explicit Writer(const Schemas& schemas) : schemas_(schemas) {}

  absl::StatusOr<std::string> File(const std::vector<uint64_t>& ids) {
    for (const uint64_t id : ids) AddRoot(id);
    // AddRoot() adds to what is walked.
    for (size_t i = 0; i < roots_.size(); ++i) Walk(roots_[i]);
    NameRoots();
    absl::StrAppend(&text_, Id(FileId()), ";\n");
    for (const uint64_t root : roots_) {
      if (root_names_.count(root) == 0) continue;
      text_ += '\n';
      Declaration(root, 0);
      if (text_.size() > kBytesMax) {
        return absl::ResourceExhaustedError(absl::StrCat("the text has more than ", kBytesMax,
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
  // ---- What is declared at the top of the file.

  // Whether `id`, or a scope around it, is one of roots_.
  bool IsInRoot(uint64_t id) const {
    for (; id != 0 && schemas_.Has(id); id = schemas_.Get(id).getScopeId()) {
      if (is_root_.count(id) != 0) return true;
    }
    return false;
  }

  void AddRoot(uint64_t id) {
    if (!schemas_.Has(id) || schemas_.Get(id).isFile()) return;
    // What is inside a generic type, or a group, is declared with that.
    for (uint64_t outer = id; outer != 0 && schemas_.Has(outer); outer = schemas_.Get(outer).getScopeId()) {
      const Node::Reader node = schemas_.Get(outer);
      if (node.getIsGeneric() && !node.isFile()) id = outer;
      if (node.isStruct() && node.getStruct().getIsGroup()) id = node.getScopeId();
    }
    if (IsInRoot(id)) return;
    roots_.push_back(id);
    is_root_.insert(id);
  }

  void Refer(Type::Reader type) {
    if (references_left_ == 0) return;
    --references_left_;
    switch (type.which()) {
      case Type::LIST:
        return Refer(type.getList().getElementType());
      case Type::ENUM:
        return AddRoot(type.getEnum().getTypeId());
      case Type::STRUCT:
        ReferBrand(type.getStruct().getBrand());
        return AddRoot(type.getStruct().getTypeId());
      case Type::INTERFACE:
        ReferBrand(type.getInterface().getBrand());
        return AddRoot(type.getInterface().getTypeId());
      default:
        return;
    }
  }
  void ReferBrand(Brand::Reader brand) {
    for (const auto scope : brand.getScopes()) {
      if (!scope.isBind()) continue;
      for (const auto binding : scope.getBind()) {
        if (binding.isType()) Refer(binding.getType());
      }
    }
  }

  void Walk(uint64_t id) {
    const Node::Reader node = schemas_.Get(id);
    switch (node.which()) {
      case Node::STRUCT:
        WalkFields(node);
        break;
      case Node::INTERFACE:
        for (const auto base : node.getInterface().getSuperclasses()) {
          ReferBrand(base.getBrand());
          AddRoot(base.getId());
        }
        for (const auto method : node.getInterface().getMethods()) {
          WalkParams(method.getParamStructType(), method.getParamBrand());
          WalkParams(method.getResultStructType(), method.getResultBrand());
        }
        break;
      case Node::CONST:
        Refer(node.getConst().getType());
        break;
      case Node::ANNOTATION:
        Refer(node.getAnnotation().getType());
        break;
      default:
        break;
    }
    for (const uint64_t nested : Nested(node)) Walk(nested);
  }
  void WalkFields(Node::Reader node) {
    for (const auto field : node.getStruct().getFields()) {
      if (field.isGroup()) {
        WalkFields(schemas_.Get(field.getGroup().getTypeId()));
      } else {
        Refer(field.getSlot().getType());
      }
    }
  }
  void WalkParams(uint64_t id, Brand::Reader brand) {
    const Node::Reader node = schemas_.Get(id);
    ReferBrand(brand);
    if (!node.isStruct()) return;
    if (node.getScopeId() == 0) {
      WalkFields(node);
    } else {
      AddRoot(id);
    }
  }

  // Those that say so themselves: so this is a tree (Schemas::Check()).
  std::vector<uint64_t> Nested(Node::Reader node) const {
    std::vector<uint64_t> ids;
    std::set<uint64_t> seen;
    for (const auto nested : node.getNestedNodes()) {
      const Node::Reader inner = schemas_.Get(nested.getId());
      if (schemas_.Has(nested.getId()) && !inner.isFile() && inner.getScopeId() == node.getId() &&
          seen.insert(nested.getId()).second) {
        ids.push_back(nested.getId());
      }
    }
    return ids;
  }

  void NameRoots() {
    std::set<std::string> taken;
    for (const uint64_t root : roots_) {
      if (IsInRoot(schemas_.Get(root).getScopeId())) continue;  // It is declared inside another one.
      const std::string name = LocalName(schemas_.Get(root));
      std::string unique = name;
      for (int i = 2; !taken.insert(unique).second; ++i) unique = absl::StrCat(name, i);
      root_names_[root] = unique;
      root_ids_[unique] = root;
    }
  }

  uint64_t FileId() const {
    for (const uint64_t root : roots_) {
      for (uint64_t id = root; id != 0; id = schemas_.Get(id).getScopeId()) {
        const bool is_file = !schemas_.Has(id) || schemas_.Get(id).isFile();
        if (is_file && id >> 63 != 0) return id;
      }
    }
    return 0xffffffffffffffff;
  }

  // ---- Types.

  std::string NameOf(uint64_t id) const {
    const auto root = root_names_.find(id);
    return root != root_names_.end() ? root->second : LocalName(schemas_.Get(id));
  }

  // From the declaration at the top of the file to `id`. Empty: it is in none.
  std::vector<uint64_t> Chain(uint64_t id) const {
    std::vector<uint64_t> chain;
    for (; id != 0 && schemas_.Has(id); id = schemas_.Get(id).getScopeId()) {
      chain.push_back(id);
      if (root_names_.count(id) != 0) {
        std::reverse(chain.begin(), chain.end());
        return chain;
      }
    }
    return {};
  }

  // What is declared in a scope, by name; 0: a parameter of its type.
  const std::map<std::string, uint64_t>& NamesIn(uint64_t scope) const {
    const auto known = names_in_.find(scope);
    if (known != names_in_.end()) return known->second;
    std::map<std::string, uint64_t>& names = names_in_[scope];
    const Node::Reader node = schemas_.Get(scope);
    for (const uint64_t nested : Nested(node)) names.emplace(LocalName(schemas_.Get(nested)), nested);
    for (const auto parameter : node.getParameters()) names.emplace(Name(parameter.getName()), 0);
    return names;
  }

  // What `name` means in the innermost of `scopes`.
  uint64_t LookUp(const std::vector<uint64_t>& scopes, const std::string& name) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      const auto& names = NamesIn(*scope);
      if (const auto found = names.find(name); found != names.end()) return found->second;
    }
    const auto root = root_ids_.find(name);
    return root == root_ids_.end() ? 0 : root->second;
  }

  // `missing`: for what the server did not send.
  std::string Reference(uint64_t scope, uint64_t id, Brand::Reader brand, const char* missing) const {
    if (root_names_.empty()) return schemas_.Has(id) ? LocalName(schemas_.Get(id)) : missing;
    const std::vector<uint64_t> target = Chain(id);
    if (target.empty()) return missing;
    const std::vector<uint64_t> scopes = Chain(scope);
    std::vector<std::string> parts;
    size_t bound_first = target.size() - 1;
    for (size_t i = 0; i < target.size(); ++i) {
      std::string part = NameOf(target[i]);
      for (const auto each : brand.getScopes()) {
        if (each.getScopeId() != target[i] || !each.isBind()) continue;
        std::vector<std::string> bound;
        for (const auto binding : each.getBind()) {
          bound.push_back(binding.isType() ? TypeText(scope, binding.getType()) : "AnyPointer");
        }
        absl::StrAppend(&part, "(", absl::StrJoin(bound, ", "), ")");
        bound_first = std::min(bound_first, i);
      }
      parts.push_back(std::move(part));
    }
    for (size_t from = bound_first + 1; from-- > 0;) {
      if (LookUp(scopes, NameOf(target[from])) == target[from]) {
        return absl::StrJoin(parts.begin() + static_cast<ptrdiff_t>(from), parts.end(), ".");
      }
    }
    return absl::StrCat(" .", absl::StrJoin(parts, "."));  // ":." would be one token.
  }

  std::string TypeText(uint64_t scope, Type::Reader type) const {
    switch (type.which()) {
      case Type::LIST:
        return absl::StrCat("List(", TypeText(scope, type.getList().getElementType()), ")");
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

  // ---- Values. Empty: zero, or nothing.

  std::string ValueText(capnp::Type type, Value::Reader value) const {
    switch (value.which()) {
      case Value::BOOL:
        return value.getBool() ? "true" : "";
      case Value::INT8:
        return NumberText(value.getInt8());
      case Value::INT16:
        return NumberText(value.getInt16());
      case Value::INT32:
        return NumberText(value.getInt32());
      case Value::INT64:
        return NumberText(value.getInt64());
      case Value::UINT8:
        return NumberText(value.getUint8());
      case Value::UINT16:
        return NumberText(value.getUint16());
      case Value::UINT32:
        return NumberText(value.getUint32());
      case Value::UINT64:
        return NumberText(value.getUint64());
      case Value::FLOAT32:
        return value.getFloat32() == 0 ? "" : FloatText(value.getFloat32());
      case Value::FLOAT64:
        return value.getFloat64() == 0 ? "" : FloatText(value.getFloat64());
      case Value::TEXT:
        return value.hasText() ? Quoted(ToView(value.getText())) : "";
      case Value::DATA: {
        if (!value.hasData()) return "";
        std::string text = "0x\"";
        for (const uint8_t byte : value.getData()) absl::StrAppendFormat(&text, "%02x", byte);
        return text + "\"";
      }
      case Value::ENUM: {
        if (value.getEnum() == 0 || !type.isEnum()) return "";
        const auto enumerants = type.asEnum().getEnumerants();
        return value.getEnum() < enumerants.size() ? Name(enumerants[value.getEnum()].getProto().getName())
                                                   : "";
      }
      case Value::LIST:
        if (!value.hasList() || !type.isList()) return "";
        return EscapePeerText(kj::str(value.getList().getAs<capnp::DynamicList>(type.asList())).cStr());
      case Value::STRUCT:
        if (!value.hasStruct() || !type.isStruct()) return "";
        return EscapePeerText(kj::str(value.getStruct().getAs<capnp::DynamicStruct>(type.asStruct())).cStr());
      default:
        return "";
    }
  }
  template <typename Number>
  static std::string NumberText(Number number) {
    return number == 0
               ? ""
               : absl::StrCat(static_cast<std::conditional_t<(sizeof(number) < 4), int, Number>>(number));
  }

  std::string DefaultOf(Node::Reader node, Field::Reader field) const {
    if (!field.isSlot() || !field.getSlot().getHadExplicitDefault()) return "";
    std::string text;
    const auto schema = schemas_.SchemaOf(node.getId()).asStruct();
    KJ_IF_MAYBE (known, schema.findFieldByName(field.getName())) {
      text = ValueText(known->getType(), field.getSlot().getDefaultValue());
    }
    return text.empty() ? "" : absl::StrCat(" = ", text);
  }

  // ---- Declarations.

  void Line(int depth, absl::string_view text) {
    absl::StrAppend(&text_, std::string(2 * depth, ' '), text, "\n");
  }

  std::string ParametersOf(Node::Reader node) const {
    std::vector<std::string> names;
    for (const auto parameter : node.getParameters()) names.push_back(Name(parameter.getName()));
    return names.empty() ? "" : absl::StrCat("(", absl::StrJoin(names, ", "), ")");
  }

  void Declaration(uint64_t id, int depth) {
    if (text_.size() > kBytesMax) return;
    const Node::Reader node = schemas_.Get(id);
    const std::string head = absl::StrCat(NameOf(id), " ", Id(id), ParametersOf(node));
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
        std::string value = ValueText(type, node.getConst().getValue());
        if (value.empty()) value = ZeroOf(type);
        Line(depth,
             absl::StrCat("const ", head, " :", TypeText(id, node.getConst().getType()), " = ", value, ";"));
        return;
      }
      case Node::ANNOTATION:
        Line(depth, absl::StrCat("annotation ", head, " (", TargetsOf(node),
                                 ") :", TypeText(id, node.getAnnotation().getType()), ";"));
        return;
      default:
        return;
    }
    for (const uint64_t nested : Nested(node)) {
      text_ += '\n';
      Declaration(nested, depth + 1);
    }
    Line(depth, "}");
  }

  static std::string ZeroOf(capnp::Type type) {
    if (type.isText() || type.isData()) return "\"\"";
    if (type.isList()) return "[]";
    if (type.isStruct()) return "()";
    if (type.isBool()) return "false";
    if (type.isVoid()) return "void";
    if (type.isEnum() && type.asEnum().getEnumerants().size() > 0) {
      return Name(type.asEnum().getEnumerants()[0].getProto().getName());
    }
    return "0";
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
      bases.push_back(Reference(id, base.getId(), base.getBrand(), ""));
      if (bases.back().empty()) bases.pop_back();
    }
    Line(depth,
         absl::StrCat("interface ", head,
                      bases.empty() ? "" : absl::StrCat(" extends(", absl::StrJoin(bases, ", "), ")"), " {"));
    std::map<uint32_t, std::string> lines;
    uint16_t ordinal = 0;
    for (const auto method : node.getInterface().getMethods()) {
      lines[uint32_t{method.getCodeOrder()} << 16 | ordinal] = absl::StrCat(Method(id, method, ordinal), ";");
      ++ordinal;
    }
    for (const auto& [order, line] : lines) Line(depth + 1, line);
  }

  std::string Params(uint64_t scope, uint64_t id, Brand::Reader brand) const {
    const Node::Reader node = schemas_.Get(id);
    if (!node.isStruct()) return "()";  // It was not sent.
    if (node.getScopeId() != 0) return Reference(scope, id, brand, "()");
    std::vector<std::string> texts;
    for (const Field::Reader field : InOrder(node)) {
      if (!field.isSlot()) continue;
      texts.push_back(absl::StrCat(Name(field.getName()), " :", TypeText(scope, field.getSlot().getType()),
                                   DefaultOf(node, field)));
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
    if (text_.size() > kBytesMax) return;
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

  const Schemas& schemas_;
  std::vector<uint64_t> roots_;
  std::set<uint64_t> is_root_;
  std::map<uint64_t, std::string> root_names_;  // Of those that no other one contains.
  std::map<std::string, uint64_t> root_ids_;
  mutable std::map<uint64_t, std::map<std::string, uint64_t>> names_in_;  // NamesIn(), so far.
  std::string text_;
  size_t references_left_ = 1 << 20;  // References that are followed.
  bool has_idempotent_ = false;
};

}  // namespace

absl::StatusOr<std::string> SchemaText(const Schemas& schemas, std::vector<uint64_t> ids) {
  try {
    return Writer(schemas).File(ids);
  } catch (const kj::Exception& exception) {
    return absl::DataLossError(absl::StrCat("the server's schemas cannot be used: ",
                                            EscapePeerText(ToView(exception.getDescription()))));
  }
}

std::string MethodText(const Schemas& schemas, capnp::InterfaceSchema::Method method) {
  return Writer(schemas).Method(method.getContainingInterface().getProto().getId(), method.getProto(),
                                method.getOrdinal());
}

}  // namespace hawser::tool
