#ifndef HAWSER_OBSERVE_HTML_H_
#define HAWSER_OBSERVE_HTML_H_

#include <capnp/blob.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace hawser::observe {

// What the pages are written with. A text that a peer may have chosen reaches a page through EscapeHtml()
// only, which Table does by itself.
// Thread: any.

// `text` as it may stand in HTML, also in an attribute, cut at 200 bytes. Control characters and what is not
// UTF-8 are escaped as by EscapePeerText().
std::string EscapeHtml(absl::string_view text);

inline absl::string_view View(capnp::Text::Reader text) { return {text.cStr(), text.size()}; }

// A table of a page, which scrolls sideways where the screen is narrower; or of the tool (tables.h).
class Table {
 public:
  enum class Kind {
    kText,      // Escaped; stays on one line.
    kLongText,  // Escaped; broken anywhere, so that it cannot widen the page.
    kNumber,    // Escaped; at the right.
    kHtml,      // As it is: a picture.
  };
  struct Column {
    const char* name;
    Kind kind = Kind::kText;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as there are columns. A text is cut where no page and no terminal shows it any more.
  void Row(std::initializer_list<absl::string_view> cells);
  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  bool empty() const { return rows_.empty(); }
  // The table; if it has no rows, a line that says so.
  std::string Html() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

inline constexpr Table::Kind kNumber = Table::Kind::kNumber;

// The rows of a long list that one page shows.
struct Slice {
  // From the row number `from`, of `all`; `rows_max` at most. Where there is no such row: the last slice.
  Slice(size_t all_rows, size_t from, size_t rows_max);

  const size_t all;
  const size_t rows_max;
  const size_t first;
  const size_t end;

  // "Rows 1 to 100 of 250", and links to the slices before and after, as "PATH?from=N". Empty if all rows are
  // shown.
  std::string Links(absl::string_view path) const;
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_HTML_H_
