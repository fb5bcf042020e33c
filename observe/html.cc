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

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  html_ = "<div class=scroll><table><thead><tr>";
  for (const Column& column : columns_) {
    absl::StrAppend(&html_, "<th", ClassOf(column.kind), " scope=col>", column.name, "</th>");
  }
  html_ += "</tr></thead><tbody>";
}

void Table::Row(std::initializer_list<absl::string_view> cells) {
  HAWSER_CHECK(cells.size() == columns_.size(), "a row of another table");
  html_ += "<tr>";
  const Column* column = columns_.data();
  for (absl::string_view cell : cells) {
    absl::StrAppend(&html_, "<td", ClassOf(column->kind), ">",
                    column->kind == Kind::kHtml ? std::string(cell) : EscapeHtml(cell), "</td>");
    ++column;
  }
  html_ += "</tr>";
  ++rows_;
}

std::string Table::Html() const {
  return empty() ? "<p class=soft>None.</p>" : html_ + "</tbody></table></div>";
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
