#include "hawser/tools/hawser/command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "hawser/base/json_writer.h"
#include "hawser/base/peer_text.h"

namespace hawser::tool {

absl::StatusOr<std::optional<TlsCredentials>> Session::Credentials() const {
  const int given = !tls.certificate.empty() + !tls.key.empty() + !tls.authorities.empty();
  if (given == 0 && tls.server_name.empty()) return std::nullopt;
  if (given == 3) return tls;
  if (given == 0) {
    return absl::InvalidArgumentError(
        "--tls_server_name is for TLS, which needs --tls_certificate, --tls_key and --tls_authorities");
  }
  return absl::InvalidArgumentError("TLS needs all of --tls_certificate, --tls_key and --tls_authorities");
}

absl::StatusOr<ChannelOptions> Session::With(ChannelOptions options) const {
  options.default_timeout = timeout;
  options.connect_timeout = std::min(timeout, options.connect_timeout);
  const auto credentials = Credentials();
  if (!credentials.ok()) return credentials.status();
  options.credentials = *credentials;
  return options;
}

absl::StatusOr<std::shared_ptr<Channel>> Session::Connect(ChannelOptions options) const {
  absl::StatusOr<ChannelOptions> all = With(std::move(options));
  if (!all.ok()) return all.status();
  auto channel = Channel::Connect(target, *std::move(all));
  if (channel.ok()) return channel;
  return Unreachable(channel.status());
}

absl::StatusOr<std::shared_ptr<Channel>> Session::StartToConnect(ChannelOptions options) const {
  // Only an answer tells what it stands for.
  if (absl::StartsWith(target, "auto://")) return Connect(std::move(options));
  absl::StatusOr<ChannelOptions> all = With(std::move(options));
  if (!all.ok()) return all.status();
  return Channel::Create(target, *std::move(all));
}

absl::Status Session::Unreachable(const absl::Status& why) const {
  std::string advice;
  if (absl::IsUnauthenticated(why)) {
    advice = tls.certificate.empty()
                 ? "; --tls_certificate, --tls_key and --tls_authorities give this program credentials"
                 : "; those of this program are --tls_certificate, --tls_key and --tls_authorities, and "
                   "--tls_server_name is the name that it expects of the server";
  } else if (!absl::IsInvalidArgument(why)) {  // Which is about the flags: no way to the server would help.
    advice = absl::StrCat("; `hawser doctor --target=", target, "` says how far it gets");
  }
  absl::string_view reason = why.message();
  absl::ConsumePrefix(&reason, absl::StrCat("connecting to ", target, ": "));
  return absl::Status(why.code(), absl::StrCat("cannot connect to ", target, ": ", reason, advice));
}

absl::Status Command::Take(const std::vector<std::string>& words) { return TakeWords(words, {}, {}); }

absl::Status TakeWords(const std::vector<std::string>& words, const std::vector<std::string>& names,
                       const std::vector<std::string*>& values) {
  if (words.size() < names.size())
    return absl::InvalidArgumentError(absl::StrCat("it needs ", names[words.size()]));
  if (words.size() > names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("do not know what to do with \"", EscapePeerText(words[names.size()]), "\""));
  }
  for (size_t i = 0; i < words.size(); ++i) *values[i] = words[i];
  return absl::OkStatus();
}

std::string ForPeople(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", EscapePeerText(status.message()));
}

std::string ErrorAsJson(const absl::Status& status) {
  JsonWriter json;
  json.BeginObject();
  json.Name("error").BeginObject();
  json.Name("code").String(absl::StatusCodeToString(status.code()));
  json.Name("message").String(status.message());
  json.EndObject();
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace hawser::tool
