#include "hawser/tools/hawser/nearest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/base/peer_text.h"

namespace hawser::tool {
namespace {

constexpr size_t kLettersMax = 64;
constexpr size_t kNamesMax = 10'000;

// The optimal string alignment distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      rows[i][j] =
          std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string Nearest(absl::string_view name, const std::vector<std::string>& names) {
  const std::string wanted = absl::AsciiStrToLower(name.substr(0, kLettersMax));
  std::string nearest;
  size_t least = std::max<size_t>(1, wanted.size() / 3) + 1;  // A third may differ.
  for (size_t i = 0; i < std::min(names.size(), kNamesMax); ++i) {
    const size_t distance =
        Distance(wanted, absl::AsciiStrToLower(absl::string_view(names[i]).substr(0, kLettersMax)));
    if (distance < least) {
      least = distance;
      nearest = names[i];
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view name, const std::vector<std::string>& names,
                       absl::string_view otherwise) {
  const std::string nearest = Nearest(name, names);
  return nearest.empty() ? std::string(otherwise)
                         : absl::StrCat("; did you mean \"", EscapePeerText(nearest), "\"?");
}

std::string Listed(const std::vector<std::string>& names, size_t most) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) {
    shown.push_back(EscapePeerText(absl::string_view(names[i]).substr(0, 256)));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (names.size() > most) absl::StrAppend(&text, " and ", names.size() - most, " more");
  return text;
}

absl::Status SeveralNames(absl::string_view name, const std::vector<std::string>& found) {
  return absl::InvalidArgumentError(absl::StrCat("\"", EscapePeerText(name.substr(0, 200)),
                                                 "\" is the end of several names: ", Listed(found),
                                                 "; say which by more of its name"));
}

}  // namespace hawser::tool
