#ifndef HAWSER_TOOLS_HAWSER_FIGURES_TEXT_H_
#define HAWSER_TOOLS_HAWSER_FIGURES_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tools/hawser/figures.h"
#include "hawser/tools/hawser/text_table.h"

namespace hawser::tool {

// A snapshot of a server and the figures of it as people read them, in lines of `columns` at most, escaped.
// `target` is what the person typed.

// All of them, under headings.
std::vector<TextLine> StatusLines(const Figures& figures, observe::wire::Snapshot::Reader snapshot,
                                  absl::string_view target, size_t columns);

// In `rows` lines at most: what matters most is first, and each list gets a part of what is left.
std::vector<TextLine> TopLines(const Figures& figures, observe::wire::Snapshot::Reader snapshot,
                               absl::string_view target, size_t columns, size_t rows);

// "0", "0.25", "12.3", "4567", "89.1k", "2.5M": of a second.
std::string RateText(double per_second);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_FIGURES_TEXT_H_
