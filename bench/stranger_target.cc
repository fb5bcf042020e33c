#include "hawser/bench/stranger_target.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/bench.rpc.h"
#include "hawser/tests/strangers/tls_records.h"
#include "hawser/transport/uri.h"

ABSL_FLAG(
    std::string, from, "each",
    "where strangers come from: each from an address of its own, all from one, or the same as the honest "
    "client");

namespace hawser::bench {
namespace {

[[noreturn]] void Die(absl::string_view what) {
  fprintf(stderr, "bench: %s\n", std::string(what).c_str());
  exit(2);
}

strangers::From FromFlag() {
  const std::string from = absl::GetFlag(FLAGS_from);
  if (from == "each") return strangers::From::kEach;
  if (from == "one") return strangers::From::kOne;
  if (from == "same") return strangers::From::kSame;
  Die("--from is each, one or same");
}

}  // namespace

bool AreOverTls(absl::string_view kinds) {
  const std::vector<std::string> names = absl::StrSplit(kinds, '+');
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    const strangers::StrangerKind* const kind = strangers::FindStrangerKind(name);
    return kind != nullptr && kind->over_tls;
  });
}

strangers::CrowdOptions CrowdOf(const ServerProcess& server, absl::string_view kinds, int count,
                                const std::optional<TlsCredentials>& credentials) {
  strangers::CrowdOptions options;
  for (const absl::string_view name : absl::StrSplit(kinds, '+')) {
    const strangers::StrangerKind* const kind = strangers::FindStrangerKind(name);
    if (kind == nullptr) {
      std::string known;
      for (const strangers::StrangerKind& each : strangers::StrangerKinds()) {
        absl::StrAppend(&known, "\n  ", each.name, ": ", each.sentence);
      }
      Die(absl::StrCat("no stranger is called '", name, "'; there are", known));
    }
    options.groups.push_back({kind, count});
  }
  const absl::StatusOr<transport::Uri> uri = transport::ParseUri(server.address());
  if (!uri.ok() || uri->scheme != "tcp") Die("strangers come over TCP");
  options.target.address.sin_family = AF_INET;
  options.target.address.sin_port = htons(uri->port);
  if (inet_pton(AF_INET, uri->host.c_str(), &options.target.address.sin_addr) != 1) {
    Die("strangers come to an IPv4 address");
  }
  options.target.interface_id = TargetStub::kPut.interface_id;
  options.target.put = TargetStub::kPut.ordinal;
  options.target.get = TargetStub::kGet.ordinal;
  if (credentials.has_value()) {
    options.target.tls = strangers::NewTlsClient(*credentials);
    if (options.target.tls == nullptr) Die("strangers cannot use these credentials");
  } else if (AreOverTls(kinds)) {
    Die(absl::StrCat(kinds, " come to a server with credentials"));
  }
  options.from = FromFlag();
  return options;
}

void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace hawser::bench
