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

// Text of a schema as lines for Comment(). A line ends where any tool sees a line end: at \n, \r, \r\n, \v,
// \f, U+0085, U+2028 and U+2029. Blanks at the end of a line are left out, and so are empty lines at the end.
std::vector<std::string> CommentLines(absl::string_view text);

// Each line as a comment. No text leaves its comment or draws a warning of the compiler: lines are those of
// CommentLines(), a backslash or the trigraph for it at the end gets a period, and control characters, what
// changes the direction of text and bytes that are not UTF-8 are escaped as EscapePeerText() does.
std::string Comment(absl::string_view indent, const std::vector<std::string>& lines);

// A declaration of the schema as a comment, in lines of kColumns.
std::string Quotation(absl::string_view indent, absl::string_view declaration);

// The first lines of both files: that it is generated, and from what.
std::string Banner(const FileModel& file);

std::string OpenNamespace(const FileModel& file);
std::string CloseNamespace(const FileModel& file);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_TEXT_H_
