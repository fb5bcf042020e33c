#include "hawser/tools/hawser/perf_port.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/transport/uri.h"

namespace hawser::tool {
namespace {

absl::StatusOr<PerfPort> OpenAt(const std::shared_ptr<Channel>& channel, perf::RawService service,
                                const SocketAddress& address) {
  auto call = perf::PerfStub(channel).OpenRaw();
  call.request().setService(service);
  std::string host = address.ToString();  // "10.0.0.1:7470", "[fd00::1]:7470".
  host.resize(host.rfind(':'));
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  call.request().setAddress(host);
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  PerfPort opened = {.address = address};
  uint16_t port = 0;
  size_t token_bytes = 0;
  const absl::Status read = reply->Read([&](auto results) {
    port = results.getPort();
    token_bytes = results.getToken().size();
    std::copy_n(results.getToken().begin(), std::min(token_bytes, opened.token.size()), opened.token.begin());
  });
  if (!read.ok()) return read;
  // The client sends these bytes to this port: a server must not make it say anything to another one of its
  // machine.
  constexpr uint16_t kFirstFreePort = 1024;
  if (port < kFirstFreePort || token_bytes != opened.token.size()) {
    return absl::DataLossError(absl::StrCat("the server's raw port makes no sense: port ", port,
                                            ", a token of ", token_bytes, " bytes"));
  }
  opened.address.set_port(port);
  return opened;
}

}  // namespace

absl::Status OpenPerfPort(const std::shared_ptr<Channel>& channel, perf::RawService service,
                          absl::FunctionRef<absl::Status(const PerfPort&)> connect) {
  const auto uri = transport::ParseUri(channel->peer_address());
  if (!uri.ok()) return uri.status();
  const auto addresses = transport::Resolve(*uri);
  if (!addresses.ok()) return addresses.status();
  absl::Status status = absl::UnavailableError("no address");
  for (const SocketAddress& address : *addresses) {
    const absl::StatusOr<PerfPort> port = OpenAt(channel, service, address);
    status = port.ok() ? connect(*port) : port.status();
    if (!absl::IsUnavailable(status)) return status;
  }
  return status;
}

}  // namespace hawser::tool
