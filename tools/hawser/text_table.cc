#include "hawser/tools/hawser/text_table.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"

namespace hawser::tool {
namespace {

constexpr size_t kGap = 2;
// What a column that gives way keeps.
constexpr size_t kLeast = 8;
// Accents on one letter; some texts have hundreds.
constexpr size_t kAccentsMax = 2;

// The first character of `text`, which is UTF-8, and its bytes.
struct Character {
  char32_t code;
  size_t bytes;
};
Character First(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t code = bytes == 1 ? first : first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes && i < text.size(); ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  return {code, std::min(bytes, text.size())};
}

// 0 to 2. Negative: the C library does not know it.
int WidthOf(char32_t code) {
  if (code < 0x80) return 1;
  // Not that of the environment, which may know ASCII only.
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  const locale_t before = uselocale(utf8);
  const int width = wcwidth(static_cast<wchar_t>(code));
  uselocale(before);
  return width;
}

constexpr absl::string_view kMore = "..";

// Bytes of `text` that are enough for `columns`: one is escaped to a column at least, unless it is one of
// four of a character or of an accent.
size_t BytesFor(size_t columns) { return 4 * (columns + 1) * (1 + kAccentsMax); }

// The same or less, so that no character is cut.
size_t AtCharacter(absl::string_view text, size_t at) {
  for (int i = 0; i < 3 && at > 0 && at < text.size() && (text[at] & 0xc0) == 0x80; ++i) --at;
  return std::min(at, text.size());
}

// `text`, escaped, with '?' for each character whose width is not known, up to `columns`. `is_cut`: there is
// more.
std::string Shown(absl::string_view text, size_t columns, bool& is_cut) {
  const absl::string_view begins = text.substr(0, AtCharacter(text, BytesFor(columns)));
  const std::string escaped = EscapePeerText(begins);
  std::string shown;
  size_t width = 0, accents = 0;
  absl::string_view rest = escaped;
  while (!rest.empty()) {
    const auto [code, bytes] = First(rest);
    const int own = WidthOf(code);
    const size_t takes = own < 0 ? 1 : static_cast<size_t>(own);
    if (width + takes > columns) break;
    accents = takes == 0 ? accents + 1 : 0;
    if (accents <= kAccentsMax) absl::StrAppend(&shown, own < 0 ? "?" : rest.substr(0, bytes));
    width += takes;
    rest.remove_prefix(bytes);
  }
  is_cut = !rest.empty() || begins.size() < text.size();
  return shown;
}

std::string Spaces(size_t count) { return std::string(count, ' '); }

}  // namespace

size_t WidthOf(absl::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const auto [code, bytes] = First(text);
    const int own = WidthOf(code);
    width += own < 0 ? 1 : static_cast<size_t>(own);
    text.remove_prefix(bytes);
  }
  return width;
}

std::string Fit(absl::string_view text, size_t columns) {
  bool is_cut;
  std::string shown = Shown(text, columns, is_cut);
  if (!is_cut || columns < kMore.size()) return shown;
  return absl::StrCat(Shown(text, columns - kMore.size(), is_cut), kMore);
}

std::string FitEnd(absl::string_view text, size_t columns) {
  bool is_cut;
  std::string whole = Shown(text, columns, is_cut);
  if (!is_cut || columns < kMore.size()) return whole;
  const size_t bytes = BytesFor(columns);
  const absl::string_view ends =
      text.substr(text.size() <= bytes ? 0 : AtCharacter(text, text.size() - bytes));
  whole = Shown(ends, 6 * bytes, is_cut);  // All of it: a byte is escaped to six columns at most.
  absl::string_view rest = whole;
  size_t width = WidthOf(rest);
  while (!rest.empty() && (width > columns - kMore.size() || WidthOf(First(rest).code) == 0)) {
    width -= static_cast<size_t>(WidthOf(First(rest).code));
    rest.remove_prefix(First(rest).bytes);
  }
  return absl::StrCat(kMore, rest);
}

std::vector<TextLine> TextTable::Lines(size_t columns, size_t rows_max) const {
  if (rows_.empty() || rows_max == 0) return {};
  const bool is_cut = rows_.size() > rows_max;
  const size_t shown = is_cut ? rows_max - 1 : rows_.size();

  const auto fit = [&](size_t i, absl::string_view text, size_t width) {
    return columns_[i].keeps_end ? FitEnd(text, width) : Fit(text, width);
  };
  // Cells are cut at the width of the terminal already: they may be long.
  std::vector<std::vector<std::string>> cells(1);
  for (const Column& column : columns_) cells[0].push_back(Fit(column.heading, columns));
  for (size_t row = 0; row < shown; ++row) {
    cells.emplace_back();
    for (size_t i = 0; i < columns_.size(); ++i) cells.back().push_back(fit(i, rows_[row][i], columns));
  }
  std::vector<size_t> widths(columns_.size());
  size_t all = kGap * (columns_.size() - 1);
  for (size_t i = 0; i < widths.size(); ++i) {
    for (const auto& row : cells) widths[i] = std::max(widths[i], WidthOf(row[i]));
    all += widths[i];
  }
  for (size_t i = 0; i < widths.size() && all > columns; ++i) {
    if (!columns_[i].gives_way) continue;
    const size_t least = std::min(widths[i], kLeast);
    const size_t gives = std::min(all - columns, widths[i] - least);
    widths[i] -= gives;
    all -= gives;
  }

  std::vector<TextLine> lines;
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string cell = fit(i, row[i], widths[i]);
      const std::string padding = Spaces(widths[i] - WidthOf(cell));
      if (i > 0) line += Spaces(kGap);
      absl::StrAppend(&line, columns_[i].is_number ? padding : "", cell,
                      columns_[i].is_number ? "" : padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back({Fit(line, columns), lines.empty()});
  }
  if (is_cut) lines.push_back({Fit(absl::StrCat("and ", rows_.size() - shown, " more"), columns)});
  return lines;
}

}  // namespace hawser::tool
