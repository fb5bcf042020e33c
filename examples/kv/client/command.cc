#include "examples/kv/client/command.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace kv {

absl::StatusOr<std::shared_ptr<hawser::Channel>> Target::Connect(hawser::ChannelOptions options) const {
  options.default_timeout = timeout;
  options.credentials = credentials;
  return hawser::Channel::Connect(uri, std::move(options));
}

absl::Status TakeWords(const std::vector<std::string>& words, const std::vector<std::string>& names,
                       const std::vector<std::string*>& values) {
  if (words.size() < names.size()) {
    return absl::InvalidArgumentError(absl::StrCat("it needs ", names[words.size()]));
  }
  if (words.size() > names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("do not know what to do with \"", words[names.size()], "\""));
  }
  for (size_t i = 0; i < words.size(); ++i) *values[i] = words[i];
  return absl::OkStatus();
}

}  // namespace kv
