#ifndef HAWSER_BENCH_STRANGER_TARGET_H_
#define HAWSER_BENCH_STRANGER_TARGET_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "hawser/bench/process.h"
#include "hawser/tests/strangers/crowd.h"
#include "hawser/tls/credentials.h"

// What benchmarks need to send strangers to their server. Each function exits with a message when it fails.
namespace hawser::bench {

// "stopped+mute": `count` of each, at the Target that `server` serves over TCP, from where --from says.
// `credentials`: what they show a server that has some.
strangers::CrowdOptions CrowdOf(const ServerProcess& server, absl::string_view kinds, int count,
                                const std::optional<TlsCredentials>& credentials = std::nullopt);

// Whether some of these kinds come only to a server with credentials.
bool AreOverTls(absl::string_view kinds);

// Raises the limit of open files, of this process and of those that it starts, as far as allowed.
void RaiseFileLimit();

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_STRANGER_TARGET_H_
