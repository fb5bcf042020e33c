#include "hawser/codegen/cpp_clashes.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"
#include "hawser/codegen/cpp_identifiers.h"
#include "hawser/codegen/cpp_names.h"

namespace hawser::codegen {
namespace {

using capnp::schema::Brand;
using capnp::schema::Field;
using capnp::schema::Method;
using capnp::schema::Type;

constexpr const char* kRename = "Rename it, or give it another name in C++ only: $Cxx.name(\"...\").";
constexpr const char* kRenameOne =
    "Rename one of the two, or give one another name in C++ only: $Cxx.name(\"...\").";
constexpr const char* kRenameConstant =
    "Rename it, or what it clashes with. Constants have no other name in C++.";
constexpr const char* kRenameParameter = "Rename it. Type parameters have no other name in C++.";

// Macros of what generated code includes from the C library and the C++ standard, in the shape of the names
// of values ("eof" becomes EOF). capnpc-c++ itself avoids NULL as the name of a value.
const std::set<absl::string_view>& Macros() {
  static const auto* const macros = new std::set<absl::string_view>{"BIG_ENDIAN",   "BUFSIZ",
                                                                    "BYTE_ORDER",   "CHAR_BIT",
                                                                    "CHAR_MAX",     "CHAR_MIN",
                                                                    "CHAR_WIDTH",   "CLOCKS_PER_SEC",
                                                                    "E2BIG",        "EACCES",
                                                                    "EADDRINUSE",   "EADDRNOTAVAIL",
                                                                    "EADV",         "EAFNOSUPPORT",
                                                                    "EAGAIN",       "EALREADY",
                                                                    "EBADE",        "EBADF",
                                                                    "EBADFD",       "EBADMSG",
                                                                    "EBADR",        "EBADRQC",
                                                                    "EBADSLT",      "EBFONT",
                                                                    "EBUSY",        "ECANCELED",
                                                                    "ECHILD",       "ECHRNG",
                                                                    "ECOMM",        "ECONNABORTED",
                                                                    "ECONNREFUSED", "ECONNRESET",
                                                                    "EDEADLK",      "EDEADLOCK",
                                                                    "EDESTADDRREQ", "EDOM",
                                                                    "EDOTDOT",      "EDQUOT",
                                                                    "EEXIST",       "EFAULT",
                                                                    "EFBIG",        "EHOSTDOWN",
                                                                    "EHOSTUNREACH", "EHWPOISON",
                                                                    "EIDRM",        "EILSEQ",
                                                                    "EINPROGRESS",  "EINTR",
                                                                    "EINVAL",       "EIO",
                                                                    "EISCONN",      "EISDIR",
                                                                    "EISNAM",       "EKEYEXPIRED",
                                                                    "EKEYREJECTED", "EKEYREVOKED",
                                                                    "EL2HLT",       "EL2NSYNC",
                                                                    "EL3HLT",       "EL3RST",
                                                                    "ELIBACC",      "ELIBBAD",
                                                                    "ELIBEXEC",     "ELIBMAX",
                                                                    "ELIBSCN",      "ELNRNG",
                                                                    "ELOOP",        "EMEDIUMTYPE",
                                                                    "EMFILE",       "EMLINK",
                                                                    "EMSGSIZE",     "EMULTIHOP",
                                                                    "ENAMETOOLONG", "ENAVAIL",
                                                                    "ENETDOWN",     "ENETRESET",
                                                                    "ENETUNREACH",  "ENFILE",
                                                                    "ENOANO",       "ENOBUFS",
                                                                    "ENOCSI",       "ENODATA",
                                                                    "ENODEV",       "ENOENT",
                                                                    "ENOEXEC",      "ENOKEY",
                                                                    "ENOLCK",       "ENOLINK",
                                                                    "ENOMEDIUM",    "ENOMEM",
                                                                    "ENOMSG",       "ENONET",
                                                                    "ENOPKG",       "ENOPROTOOPT",
                                                                    "ENOSPC",       "ENOSR",
                                                                    "ENOSTR",       "ENOSYS",
                                                                    "ENOTBLK",      "ENOTCONN",
                                                                    "ENOTDIR",      "ENOTEMPTY",
                                                                    "ENOTNAM",      "ENOTRECOVERABLE",
                                                                    "ENOTSOCK",     "ENOTSUP",
                                                                    "ENOTTY",       "ENOTUNIQ",
                                                                    "ENXIO",        "EOF",
                                                                    "EOPNOTSUPP",   "EOVERFLOW",
                                                                    "EOWNERDEAD",   "EPERM",
                                                                    "EPFNOSUPPORT", "EPIPE",
                                                                    "EPROTO",       "EPROTONOSUPPORT",
                                                                    "EPROTOTYPE",   "ERANGE",
                                                                    "EREMCHG",      "EREMOTE",
                                                                    "EREMOTEIO",    "ERESTART",
                                                                    "ERFKILL",      "EROFS",
                                                                    "ESHUTDOWN",    "ESOCKTNOSUPPORT",
                                                                    "ESPIPE",       "ESRCH",
                                                                    "ESRMNT",       "ESTALE",
                                                                    "ESTRPIPE",     "ETIME",
                                                                    "ETIMEDOUT",    "ETOOMANYREFS",
                                                                    "ETXTBSY",      "EUCLEAN",
                                                                    "EUNATCH",      "EUSERS",
                                                                    "EWOULDBLOCK",  "EXDEV",
                                                                    "EXFULL",       "EXIT_FAILURE",
                                                                    "EXIT_SUCCESS", "FILENAME_MAX",
                                                                    "FOPEN_MAX",    "HOST_NAME_MAX",
                                                                    "HUGE_VAL",     "INFINITY",
                                                                    "INT_MAX",      "INT_MIN",
                                                                    "INT_WIDTH",    "IOV_MAX",
                                                                    "LINE_MAX",     "LITTLE_ENDIAN",
                                                                    "LLONG_MAX",    "LLONG_MIN",
                                                                    "LONG_BIT",     "LONG_MAX",
                                                                    "LONG_MIN",     "LONG_WIDTH",
                                                                    "MAXFLOAT",     "MAX_CANON",
                                                                    "MAX_INPUT",    "NAME_MAX",
                                                                    "NAN",          "NULL",
                                                                    "NZERO",        "PATH_MAX",
                                                                    "PDP_ENDIAN",   "PIPE_BUF",
                                                                    "RAND_MAX",     "SCHAR_MAX",
                                                                    "SCHAR_MIN",    "SEEK_CUR",
                                                                    "SEEK_DATA",    "SEEK_END",
                                                                    "SEEK_HOLE",    "SEEK_SET",
                                                                    "SHRT_MAX",     "SHRT_MIN",
                                                                    "SIZE_MAX",     "SOMAXCONN",
                                                                    "SSIZE_MAX",    "TIME_UTC",
                                                                    "TMP_MAX",      "UCHAR_MAX",
                                                                    "UINT_MAX",     "UINT_WIDTH",
                                                                    "ULLONG_MAX",   "ULONG_MAX",
                                                                    "USHRT_MAX",    "WEOF",
                                                                    "WNOHANG",      "WUNTRACED"};
  return *macros;
}

// Names of methods that the Server class of an interface cannot have: keywords that capnpc-c++ does not know
// yet, macros that are more than a name, and what its dispatchCallInternal() uses itself.
const std::map<absl::string_view, const char*>& BadMethods() {
  static const auto* const methods = new std::map<absl::string_view, const char*>{
      {"char8_t", "which is a keyword of C++20"},
      {"co_await", "which is a keyword of C++20"},
      {"co_return", "which is a keyword of C++20"},
      {"co_yield", "which is a keyword of C++20"},
      {"concept", "which is a keyword of C++20"},
      {"consteval", "which is a keyword of C++20"},
      {"constinit", "which is a keyword of C++20"},
      {"requires", "which is a keyword of C++20"},
      {"assert", "which is a macro of the C library"},
      {"errno", "which is a macro of the C library"},
      {"offsetof", "which is a macro of the C library"},
      {"Server", "which capnpc-c++ needs for itself"},
      {"context", "which capnpc-c++ needs for itself"},
      {"internalUnimplemented", "which capnpc-c++ needs for itself"},
      {"methodId", "which capnpc-c++ needs for itself"}};
  return *methods;
}

// fooBar -> FOO_BAR, as capnpc-c++ names enumerants, members of unions and constants.
std::string UpperCase(absl::string_view name) {
  std::string upper;
  for (const char c : name) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !upper.empty()) upper += '_';
    upper += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return upper == "NULL" ? "NULL_" : upper;
}

std::string TitleCase(std::string name) {
  if (!name.empty()) name[0] = absl::ascii_toupper(static_cast<unsigned char>(name[0]));
  return name;
}

template <typename Declaration>
std::string CppName(Declaration declaration) {
  return AnnotationText(declaration.getAnnotations(), kCxxName).value_or(declaration.getName().cStr());
}

class Clashes {
 public:
  Clashes(const Nodes& nodes, Refusals& refusals) : nodes_(nodes), refusals_(refusals) {
    for (Node::Reader node : nodes.all()) {
      if (node.isStruct()) {
        for (Field::Reader field : node.getStruct().getFields()) {
          if (field.isSlot()) Use(field.getSlot().getType());
        }
      } else if (node.isInterface()) {
        for (Method::Reader method : node.getInterface().getMethods()) {
          used_.insert({method.getParamStructType(), method.getResultStructType()});
        }
      } else if (node.isConst()) {
        Use(node.getConst().getType());
      }
    }
  }

  void Check(Node::Reader file) { CheckScope(file, {.name = "", .lines = ""}, {}); }

 private:
  // What a scope is called: in messages, and where its lines are looked for, which knows no groups.
  struct Place {
    std::string name;
    std::string lines;
    Place Inside(absl::string_view declared, bool group = false) const {
      return {Join(name, declared), group ? lines : Join(lines, declared)};
    }
    static std::string Join(const std::string& scope, absl::string_view declared) {
      return scope.empty() ? std::string(declared) : absl::StrCat(scope, ".", declared);
    }
  };

  // The names of one class or namespace, with why each is taken.
  struct Names {
    std::map<std::string, std::string> taken;  // By whatever else has them: no other may.
    std::map<std::string, uint64_t> types;     // Declared here; a value may have the name of some.
  };

  // Whether a type is an argument of a template in foo.capnp.h, as List<T>, Orphan<T> and Request<T, U>.
  void Use(Type::Reader type) {
    if (type.isList()) return Use(type.getList().getElementType());
    if (!type.isStruct()) return;
    used_.insert(type.getStruct().getTypeId());
    for (Brand::Scope::Reader scope : type.getStruct().getBrand().getScopes()) {
      if (!scope.isBind()) continue;
      for (Brand::Binding::Reader binding : scope.getBind()) {
        if (binding.isType()) Use(binding.getType());
      }
    }
  }

  void Refuse(const Place& place, const std::string& cpp, absl::string_view why, const char* instead) {
    refusals_.Add(place.name, absl::StrCat("becomes ", EscapePeerText(cpp), " in C++, ", why, "."), instead,
                  place.lines);
  }

  // A name that $Cxx.name gives is any text.
  bool RefuseNoIdentifier(const Place& place, const std::string& cpp) {
    if (IsIdentifier(cpp)) return false;
    refusals_.Add(place.name,
                  absl::StrCat("has the name \"", EscapePeerText(cpp), "\" in C++, which is no identifier."),
                  "Give $Cxx.name letters, digits and underscores, and no digit first.", place.lines);
    return true;
  }

  // A struct, a group, an interface or a file, and all that it declares. `cpp`: its name. `parameters`: of
  // the scopes around.
  void CheckScope(Node::Reader node, const Place& place, std::set<std::string> parameters,
                  const std::string& cpp = "") {
    Names names;
    if (node.isFile()) {
      ReserveInFile(node, names);
    } else {
      Reserve(node, cpp, names);
      CheckParameters(node, place, names, parameters);
    }
    for (const std::string& parameter : parameters)
      names.taken[parameter] = "which is a type parameter around it";
    if (node.isInterface()) CheckMethods(node, place, names);
    for (auto nested : node.getNestedNodes())
      CheckNested(nodes_.Get(nested.getId()), place, parameters, names);
    if (node.isStruct()) CheckFields(node, place, parameters, names);
    for (auto nested : node.getNestedNodes()) {
      Node::Reader constant = nodes_.Get(nested.getId());
      if (constant.isConst()) CheckConstant(node, constant, place, names);
    }
  }

  // Against what capnpc-c++ declares inside the class.
  void CheckOwnName(Node::Reader node, const Place& place, const std::string& cpp) {
    static const std::set<std::string> kOfStruct = {"Reader", "Builder", "Pipeline",
                                                    "Reads",  "Builds",  "Pipelines"};
    static const std::set<std::string> kOfInterface = {"Client", "Server"};
    const bool bad = (node.isInterface() && kOfInterface.count(cpp)) ||
                     (node.isStruct() && kOfStruct.count(cpp)) || (HasUnion(node) && cpp == "Which");
    if (bad) Refuse(place, cpp, "which capnpc-c++ needs inside it", kRename);
  }

  static bool HasUnion(Node::Reader node) {
    return node.isStruct() && node.getStruct().getDiscriminantCount() > 0;
  }

  // What a class has beside what the schema declares.
  void Reserve(Node::Reader node, const std::string& cpp, Names& names) const {
    for (const char* name : {"Reader", "Builder", "Pipeline"}) {
      if (node.isStruct()) names.taken[name] = "which capnpc-c++ needs for itself there";
    }
    for (const char* name : {"Client", "Server"}) {
      if (node.isInterface()) names.taken[name] = "which capnpc-c++ needs for itself there";
    }
    if (HasUnion(node)) names.taken["Which"] = "which capnpc-c++ needs for the union there";
    names.taken[cpp] = "as the scope around it";
  }

  // $Cxx.name may be that of a namespace.
  void ReserveInFile(Node::Reader file, Names& names) const {
    names.taken["std"] = "which generated code needs for the standard library";
    if (!NamespaceOf(nodes_, file).empty()) return;
    for (const char* name : {"absl", "capnp", "hawser", "kj"}) {
      names.taken[name] = "which is a namespace of what generated code includes";
    }
  }

  // Adds those of a scope to those around it.
  void CheckParameters(Node::Reader node, const Place& place, const Names& names,
                       std::set<std::string>& parameters) {
    for (auto parameter : node.getParameters()) {
      const std::string name = parameter.getName().cStr();
      const auto taken = names.taken.find(name);
      const char* why = Macros().count(name)         ? "which is a macro of the C library"
                        : IsKeyword(name)            ? "which is a keyword of C++20"
                        : parameters.count(name)     ? "which is a type parameter of a scope around it, too"
                        : taken != names.taken.end() ? "which is a class of capnpc-c++ or the type itself"
                                                     : nullptr;
      if (why != nullptr) {
        refusals_.Add(place.name, absl::StrCat("has the type parameter ", name, ", ", why, "."),
                      kRenameParameter, place.lines);
      }
      parameters.insert(name);
    }
  }

  void CheckMethods(Node::Reader interface, const Place& place, Names& names) {
    for (Method::Reader method : interface.getInterface().getMethods()) {
      const Place inside = place.Inside(method.getName().cStr());
      const std::string cpp = CppName(method);
      if (RefuseNoIdentifier(inside, cpp)) continue;
      if (const auto bad = BadMethods().find(cpp); bad != BadMethods().end())
        Refuse(inside, cpp, bad->second, kRename);
      const std::string title = CppMethodName(method);
      CheckMethodStruct(inside, method.getParamStructType(), title + "Params", names);
      CheckMethodStruct(inside, method.getResultStructType(), title + "Results", names);
    }
  }

  // One that the schema compiler has made for a method.
  void CheckMethodStruct(const Place& place, uint64_t id, const std::string& cpp, Names& names) {
    if (!nodes_.Has(id) || nodes_.Get(id).getScopeId() != 0) return;
    names.taken.emplace(cpp, absl::StrCat("which ", place.name, " needs"));
    // Its fields have no line of their own.
    std::set<std::string> seen;
    for (Field::Reader field : nodes_.Get(id).getStruct().getFields()) {
      CheckAccessors(field, {Place::Join(place.name, field.getName().cStr()), place.lines}, seen);
    }
  }

  // The name of getFoo(), setFoo() and so on.
  bool CheckAccessors(Field::Reader field, const Place& place, std::set<std::string>& seen) {
    const std::string cpp = CppName(field);
    if (RefuseNoIdentifier(place, cpp)) return false;
    const bool fits = seen.insert(TitleCase(cpp)).second;
    if (!fits) Refuse(place, cpp, "as another field there does", kRenameOne);
    return fits;
  }

  void CheckNested(Node::Reader node, const Place& scope, const std::set<std::string>& parameters,
                   Names& names) {
    if (!node.isStruct() && !node.isInterface() && !node.isEnum()) return;
    const Place place = scope.Inside(nodes_.LocalName(node));
    const std::string cpp = CppLocalName(nodes_, node);
    if (CheckTypeName(node, place, cpp, names)) CheckOwnName(node, place, cpp);
    if (node.isEnum()) {
      CheckEnumerants(node, place);
    } else {
      CheckScope(node, place, parameters, cpp);
    }
  }

  // Whether the type can have the name in its scope.
  bool CheckTypeName(Node::Reader node, const Place& place, const std::string& cpp, Names& names) {
    if (RefuseNoIdentifier(place, cpp)) return false;
    const auto taken = names.taken.find(cpp);
    if (IsKeyword(cpp)) {
      Refuse(place, cpp, "which is a keyword", kRename);
    } else if (Macros().count(cpp)) {
      Refuse(place, cpp, "which is a macro of the C library", kRename);
    } else if (taken != names.taken.end()) {
      Refuse(place, cpp, taken->second, kRename);
    } else if (!names.types.emplace(cpp, node.getId()).second) {
      Refuse(place, cpp, "as another type there does", kRenameOne);
    } else {
      return true;
    }
    return false;
  }

  void CheckEnumerants(Node::Reader node, const Place& place) {
    std::set<std::string> seen;
    uint16_t ordinal = 0;
    for (auto enumerant : node.getEnum().getEnumerants()) {
      CheckValue(
          {Place::Join(place.name, enumerant.getName().cStr()), absl::StrCat(place.lines, ".@", ordinal++)},
          CppName(enumerant), nullptr, kRename, seen);
    }
  }

  void CheckFields(Node::Reader node, const Place& scope, const std::set<std::string>& parameters,
                   Names& names) {
    std::set<std::string> accessors, values;
    for (Field::Reader field : node.getStruct().getFields()) {
      const std::string name = field.getName().cStr();
      Place place = scope.Inside(name);
      if (field.getOrdinal().isExplicit()) {
        place.lines = absl::StrCat(scope.lines, ".@", field.getOrdinal().getExplicit());
      }
      if (!CheckAccessors(field, place, accessors)) continue;
      const bool of_union = field.getDiscriminantValue() != Field::NO_DISCRIMINANT;
      if (of_union) CheckValue(place, CppName(field), &names, kRename, values);
      if (!field.isGroup()) continue;
      // Declared last, so that its own member of the union may have its name.
      Node::Reader group = nodes_.Get(field.getGroup().getTypeId());
      const std::string cpp = TitleCase(CppName(field));
      if (CheckTypeName(group, place, cpp, names)) CheckOwnName(group, place, cpp);
      CheckScope(group, {place.name, scope.lines}, parameters, cpp);
    }
  }

  void CheckConstant(Node::Reader scope, Node::Reader constant, const Place& around, Names& names) {
    const Place place = around.Inside(nodes_.LocalName(constant));
    if (scope.getIsGeneric() && IsDefinedOutside(constant)) {
      refusals_.Add(place.name,
                    "is a constant of a generic type, of which capnpc-c++ makes C++ that does not compile.",
                    "Declare it outside of that type.", place.lines);
      return;
    }
    std::set<std::string> seen;
    CheckValue(place, nodes_.LocalName(constant), &names, kRenameConstant, seen);
  }

  // Whether the constant of a class has a definition behind it, too, which for a template lacks "template
  // <typename T>". Newer versions define integers and enumerants in the class only.
  static bool IsDefinedOutside(Node::Reader constant) {
    if (CAPNP_VERSION < 10000) return true;  // 0.10
    const Type::Reader type = constant.getConst().getType();
    const bool is_integer = type.which() >= Type::BOOL && type.which() <= Type::UINT64;
    return !is_integer && !type.isEnum();
  }

  // An enumerant, a member of a union or a constant, whose name is in capital letters. `names`: of the class
  // that it is in.
  void CheckValue(const Place& place, const std::string& name, const Names* names, const char* instead,
                  std::set<std::string>& seen) {
    const std::string cpp = UpperCase(name);
    if (RefuseNoIdentifier(place, cpp)) return;
    if (Macros().count(cpp)) return Refuse(place, cpp, "which is a macro of the C library", instead);
    if (!seen.insert(cpp).second) return Refuse(place, cpp, "as another one there does", kRenameOne);
    if (names == nullptr) return;
    if (const auto taken = names->taken.find(cpp); taken != names->taken.end()) {
      return Refuse(place, cpp, taken->second, instead);
    }
    const auto type = names->types.find(cpp);
    if (type != names->types.end() && HidesBadly(nodes_.Get(type->second))) {
      Refuse(place, cpp, "as a type there does", instead);
    }
  }

  // A value may hide a class of its name, but not an alias, a template, or an argument of templates.
  bool HidesBadly(Node::Reader type) const {
    if (type.isStruct() && type.getStruct().getIsGroup()) return false;
    return !type.isStruct() || type.getParameters().size() > 0 || used_.count(type.getId());
  }

  const Nodes& nodes_;
  Refusals& refusals_;
  std::set<uint64_t> used_;
};

}  // namespace

void RefuseCppClashes(const Nodes& nodes, Node::Reader file, Refusals& refusals) {
  Clashes(nodes, refusals).Check(file);
}

}  // namespace hawser::codegen
