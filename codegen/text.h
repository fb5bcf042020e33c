#ifndef HAWSER_CODEGEN_TEXT_H_
#define HAWSER_CODEGEN_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/codegen/model.h"

// Pieces that the header and the source have in common.
namespace hawser::codegen {

inline constexpr size_t kColumns = 110;

// "<indent><opening><items, separated by commas><closing>\n", in lines of kColumns where possible. `opening`
// ends with a bracket and can be broken at its last space. There is at least one item.
std::string Bracketed(absl::string_view indent, absl::string_view opening,
                      const std::vector<std::string>& items, absl::string_view closing);

// Each line as a comment. A schema's author does not write C++: what would continue the comment is made
// harmless.
std::string Comment(absl::string_view indent, const std::vector<std::string>& lines);

// A declaration of the schema as a comment, in lines of kColumns.
std::string Quotation(absl::string_view indent, absl::string_view declaration);

// The first lines of both files: that it is generated, and from what.
std::string Banner(const FileModel& file);

std::string OpenNamespace(const FileModel& file);
std::string CloseNamespace(const FileModel& file);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_TEXT_H_
