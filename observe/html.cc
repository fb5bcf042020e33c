#include "hawser/observe/html.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/peer_text.h"

namespace hawser::observe {
namespace {

// A page has many texts of peers.
constexpr size_t kTextMax = 200;
// Longer than what is shown anywhere.
constexpr size_t kCellMax = 400;

const char* ClassOf(Table::Kind kind) {
  switch (kind) {
    case Table::Kind::kLongText:
      return " class=t";
    case Table::Kind::kNumber:
      return " class=n";
    default:
      return "";
  }
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  std::string html;
  const bool is_cut = text.size() > kTextMax;
  for (char c : EscapePeerText(text.substr(0, kTextMax))) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html.push_back(c);
    }
  }
  return is_cut ? html + "..." : html;
}

void Table::Row(std::initializer_list<absl::string_view> cells) {
  HAWSER_CHECK(cells.size() == columns_.size(), "a row of another table");
  std::vector<std::string>& row = rows_.emplace_back();
  for (absl::string_view cell : cells) {
    row.emplace_back(columns_[row.size()].kind == Kind::kHtml ? cell : cell.substr(0, kCellMax));
  }
}

std::string Table::Html() const {
  if (empty()) return "<p class=soft>None.</p>";
  std::string html = "<div class=scroll><table><thead><tr>";
  for (const Column& column : columns_) {
    absl::StrAppend(&html, "<th", ClassOf(column.kind), " scope=col>", column.name, "</th>");
  }
  html += "</tr></thead><tbody>";
  for (const std::vector<std::string>& row : rows_) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      const Kind kind = columns_[i].kind;
      absl::StrAppend(&html, "<td", ClassOf(kind), ">", kind == Kind::kHtml ? row[i] : EscapeHtml(row[i]),
                      "</td>");
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

Slice::Slice(size_t all_rows, size_t from, size_t rows)
    : all(all_rows),
      rows_max(rows),
      first(from < all_rows ? from : all_rows - std::min(all_rows, rows)),
      end(std::min(all_rows, first + rows)) {}

std::string Slice::Links(absl::string_view path) const {
  if (first == 0 && end == all) return "";
  std::string html = absl::StrCat("<p>Rows ", first + 1, " to ", end, " of ", all, ".");
  if (first > 0) {
    absl::StrAppend(&html, " <a href=\"", path, "?from=", first - std::min(first, rows_max), "\">Before</a>");
  }
  if (end < all) absl::StrAppend(&html, " <a href=\"", path, "?from=", end, "\">After</a>");
  return html + "</p>";
}

}  // namespace hawser::observe
