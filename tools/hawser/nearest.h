#ifndef HAWSER_TOOLS_HAWSER_NEAREST_H_
#define HAWSER_TOOLS_HAWSER_NEAREST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {

// The one of `names` that differs least from `name`, in letters that are added, left out, exchanged or
// swapped, whatever their case. Empty: none is like it. Looks at the first 64 letters of each, and at the
// first 10,000 names.
std::string Nearest(absl::string_view name, const std::vector<std::string>& names);

// "; did you mean \"get\"?", or if no name is like it `otherwise`, such as the end of the sentence.
std::string DidYouMean(absl::string_view name, const std::vector<std::string>& names,
                       absl::string_view otherwise = "");

// "get, put, remove", or the first `most` and "and 12 more". The names are escaped: a peer may have sent
// them.
std::string Listed(const std::vector<std::string>& names, size_t most = 20);

// InvalidArgument: `name` is the end of several names, of `found`. All are escaped.
absl::Status SeveralNames(absl::string_view name, const std::vector<std::string>& found);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_NEAREST_H_
