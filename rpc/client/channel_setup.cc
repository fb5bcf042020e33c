#include "hawser/rpc/client/channel_setup.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/option_range.h"
#include "hawser/rpc/service.h"
#include "hawser/rpc/serving/serving.h"
#include "hawser/rpc/wire/credentials.h"
#include "hawser/rpc/wire/interception.h"
#include "hawser/rpc/wire/read_limits.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/fabrics.h"

namespace hawser::internal {
namespace {

// Each connection has receives at both sides, and more of them than a server has pollers, or a network has
// paths, only take memory. A server admits 16384 connections of one host.
constexpr int64_t kConnectionsMax = 16;

absl::StatusOr<std::shared_ptr<Serving>> MakeOffers(const ChannelOptions& options) {
  if (options.services.empty()) return nullptr;
  auto offers = std::make_shared<Serving>();
  offers->read = options.read;
  offers->interceptors = options.interceptors;
  for (Service* service : options.services) {
    if (service == nullptr)
      return absl::InvalidArgumentError("ChannelOptions::services: one of them is null");
    service->AddMethods(offers->methods);
  }
  if (const Method* method = offers->methods.conflict(); method != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("ChannelOptions::services: two of them implement ", method->name));
  }
  return offers;
}

// What the server sends goes over the reverse connection of one session, and a session has one forward
// connection.
absl::Status CheckOneSession(const ChannelOptions& options) {
  if (options.connections == 1 || options.services.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ChannelOptions::connections is ", options.connections,
                   ", and ChannelOptions::services is not empty: services belong to the session of one "
                   "connection; offer them on a channel "
                   "of their own, which has one"));
}

absl::Status CheckRanges(const ChannelOptions& options) {
  constexpr absl::Duration kBackoffMost = absl::Hours(24 * 365);
  return FirstError(
      CheckOption("ChannelOptions::default_timeout", options.default_timeout, absl::Microseconds(1),
                  absl::InfiniteDuration(), "infinite: no deadline"),
      CheckOption("ChannelOptions::connect_timeout", options.connect_timeout, absl::Milliseconds(1),
                  absl::InfiniteDuration()),
      CheckOption("ChannelOptions::backoff_min", options.backoff_min, absl::Milliseconds(1), kBackoffMost),
      CheckOption("ChannelOptions::backoff_max", options.backoff_max, absl::Milliseconds(1), kBackoffMost),
      CheckOption("ChannelOptions::connections", int64_t{options.connections}, int64_t{1}, kConnectionsMax),
      transport::Connection::CheckOptions(options.connection),
      CheckReadLimits(options.read, "ChannelOptions::read"), CheckOneSession(options));
}

// With several devices: the device of the local address, or of the route to the target. Names are not looked
// up for this, because a lookup blocks.
std::string DeviceTo(const transport::Uri& uri, const std::string& local_address) {
  const absl::StatusOr<SocketAddress> local = transport::ParseNumericHost(local_address);
  const absl::StatusOr<SocketAddress> remote = transport::ParseNumericHost(uri.host);
  if (!local.ok() && !remote.ok()) return "";
  return transport::DeviceFor(uri.scheme, local.value_or(SocketAddress()), remote.value_or(SocketAddress()));
}

// Over which the connections of `runtime`, which carries no TLS, are proved.
absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeToProveOver(const transport::Runtime& runtime) {
  if (runtime.prove_over() != nullptr) return runtime.prove_over();
  return transport::Runtime::Default(transport::kProvingScheme);
}

}  // namespace

absl::StatusOr<ChannelSetup> ChannelSetup::From(absl::string_view uri, ChannelOptions options) {
  absl::StatusOr<transport::Uri> parsed = transport::ParseUri(uri);
  if (!parsed.ok()) return parsed.status();
  if (parsed->port == 0) {
    if (absl::Status known = transport::CheckScheme(parsed->scheme); !known.ok()) return known;
    return absl::InvalidArgumentError(
        absl::StrCat(uri, ": port 0 is for listening; which one to connect to?"));
  }
  if (absl::Status in_range = CheckRanges(options); !in_range.ok()) return in_range;
  absl::Status intercepts = CheckInterceptors(options.interceptors, "ChannelOptions::interceptors");
  if (!intercepts.ok()) return intercepts;
  absl::StatusOr<std::shared_ptr<Serving>> offers = MakeOffers(options);
  if (!offers.ok()) return offers.status();
  // Checked before the runtime is made: without RDMA devices the caller should read that require_encryption
  // refuses rdma://, not that there is no device.
  transport::Security security;
  if (options.credentials.has_value()) {
    absl::Status secure =
        transport::CheckSchemeIsSecure(parsed->scheme, options.credentials->require_encryption);
    if (!secure.ok()) return secure;
    absl::StatusOr<std::shared_ptr<tls::Context>> tls =
        LoadCredentials(*options.credentials, "ChannelOptions::credentials", tls::Side::kClient);
    if (!tls.ok()) return tls.status();
    security.tls = *std::move(tls);
    security.host = parsed->host;
  }
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = RuntimeFor(*parsed, options);
  if (!runtime.ok()) return runtime.status();
  if (security.tls != nullptr && !(*runtime)->carries_tls()) {
    absl::StatusOr<std::shared_ptr<transport::Runtime>> over = RuntimeToProveOver(**runtime);
    if (!over.ok()) return over.status();
    security.prove_over = *std::move(over);
    security.runtime = *runtime;
  }
  if (!(*runtime)->poller(0).usable_in_this_process()) {
    return absl::FailedPreconditionError(
        "this process is a child made by fork() after the runtime of the channel's options was; make one "
        "here");
  }
  options.runtime = nullptr;  // The channel holds its reference in another member.
  const std::string address = parsed->ToString();
  return ChannelSetup{*std::move(parsed),  address,           std::move(options), *std::move(runtime),
                      std::move(security), *std::move(offers)};
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ChannelSetup::RuntimeFor(const transport::Uri& uri,
                                                                             const ChannelOptions& options) {
  if (options.runtime == nullptr) {
    const std::string device = DeviceTo(uri, options.connection.local_address);
    if (options.server != nullptr) return options.server->RuntimeOn(uri.scheme, device);
    return transport::Runtime::Default(uri.scheme, device);
  }
  if (absl::Status status = options.runtime->CheckServes(uri.scheme); !status.ok()) return status;
  return options.runtime;
}

std::string ChannelSetup::NameOf(int number) const {
  if (options.connections == 1) return address;
  return absl::StrCat(address, " (connection ", number + 1, " of ", options.connections, ")");
}

}  // namespace hawser::internal
