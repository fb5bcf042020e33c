#include "hawser/tools/hawser/flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/hawser/nearest.h"

namespace hawser::tool {

Flags& Flags::Add(absl::string_view name, absl::string_view value, absl::string_view text) {
  infos_.push_back({std::string(name), std::string(value), std::string(text)});
  return *this;
}

Flags& Flags::Text(absl::string_view name, absl::string_view value, absl::string_view text,
                   std::string* into) {
  set_.Text(name, into);
  return Add(name, value, text);
}

Flags& Flags::Texts(absl::string_view name, absl::string_view value, absl::string_view text,
                    std::vector<std::string>* into) {
  set_.Texts(name, into);
  return Add(name, value, text);
}

Flags& Flags::Number(absl::string_view name, absl::string_view text, uint64_t min, uint64_t max,
                     uint64_t* into) {
  set_.Number(name, min, max, into);
  return Add(name, "N", text);
}

Flags& Flags::Bytes(absl::string_view name, absl::string_view text, uint64_t min, uint64_t max,
                    uint64_t* into) {
  set_.Bytes(name, min, max, into);
  return Add(name, "BYTES", text);
}

Flags& Flags::Choice(absl::string_view name, absl::string_view text, const std::vector<std::string>& choices,
                     size_t* into) {
  set_.Choice(name, choices, into);
  return Add(name, absl::StrJoin(choices, "|"), text);
}

Flags& Flags::Duration(absl::string_view name, absl::string_view text, absl::Duration* into) {
  set_.Duration(name, into);
  return Add(name, "TIME", text);
}

Flags& Flags::Switch(absl::string_view name, absl::string_view text, bool* into) {
  set_.Switch(name, into);
  return Add(name, "", text);
}

absl::Status Flags::Apply(const examples::CommandLine& line) const {
  std::vector<std::string> names;
  for (const Info& info : infos_) names.push_back(absl::StrCat("--", info.name));
  for (const examples::CommandLine::Flag& flag : line.flags) {
    const std::string given = absl::StrCat("--", flag.name);
    if (std::find(names.begin(), names.end(), given) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no flag ", given, " here", DidYouMean(given, names)));
    }
  }
  return set_.Apply(line);
}

}  // namespace hawser::tool
