#ifndef HAWSER_TOOLS_HAWSER_TEXT_TABLE_H_
#define HAWSER_TOOLS_HAWSER_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hawser::tool {

// Text in columns of a terminal, of which a letter takes one, an ideograph two and an accent none. Everything
// is escaped (base/peer_text.h), so it may come from a peer.

// One line, without its end.
struct TextLine {
  std::string text;
  bool is_heading = false;

  friend bool operator==(const TextLine&, const TextLine&) = default;
};

// The columns that `text`, which is escaped, takes.
size_t WidthOf(absl::string_view text);
// `text`, escaped, in `columns` at most: if it is longer, it ends with "..".
std::string Fit(absl::string_view text, size_t columns);
// The same, from the end: it begins with "..".
std::string FitEnd(absl::string_view text, size_t columns);

// Rows of cells under a heading.
class TextTable {
 public:
  struct Column {
    std::string heading;
    bool is_number = false;  // On the right of its column.
    bool gives_way = false;  // Is cut where the table is too wide.
    bool keeps_end = false;  // Cut in front: of "kv.capnp:KeyValue.get" the end says more.
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  size_t rows() const { return rows_.size(); }

  // The heading and the rows, in `columns` at most. With more rows than `rows_max` the last line says how
  // many are left out. No rows: no lines.
  std::vector<TextLine> Lines(size_t columns, size_t rows_max) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_TEXT_TABLE_H_
