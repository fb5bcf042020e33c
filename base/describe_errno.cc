#include "hawser/base/describe_errno.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hawser {

std::string DescribeErrno(int error) {
  const char* name = strerrorname_np(error);
  const char* description = strerrordesc_np(error);
  if (name == nullptr || description == nullptr) return absl::StrCat("errno ", error);
  std::string text = description;
  // "Connection refused" reads better in the middle of a sentence; "RFC ..." or "I/O error" has to stay.
  if (text.size() > 1 && absl::ascii_islower(text[1])) text[0] = absl::ascii_tolower(text[0]);
  return absl::StrCat(text, " (", name, ")");
}

}  // namespace hawser
