#ifndef HAWSER_CODEGEN_CPP_IDENTIFIERS_H_
#define HAWSER_CODEGEN_CPP_IDENTIFIERS_H_

#include "absl/strings/string_view.h"

// What C++20 takes where generated code repeats a text of a schema.
namespace hawser::codegen {

// Letters, digits and underscores, no digit first; a keyword, too.
bool IsIdentifier(absl::string_view text);

// Whether it is a keyword of C++20, or an alternative token ("and", "not").
bool IsKeyword(absl::string_view identifier);

// Whether the name can be declared: an identifier that is no keyword.
bool IsDeclarable(absl::string_view text);

// "acme::kv": names that can be declared, with "::" between them.
bool IsNamespace(absl::string_view text);

// Whether what generated code needs is not where it looks for it in this namespace, or is declared there
// already: std, or a namespace of Hawser's, Abseil's or kj's own; also "acme::std". "hawser::acme" is fine.
// Not Cap'n Proto's, which its own schemas have.
bool IsTakenNamespace(absl::string_view text);

// Whether a file of this path can be named by #include: UTF-8, and nothing that ends or changes its text
// there.
bool IsIncludable(absl::string_view path);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_CPP_IDENTIFIERS_H_
