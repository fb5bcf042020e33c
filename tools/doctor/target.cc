#include "hawser/tools/doctor/target.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/tools/doctor/dialer.h"
#include "hawser/tools/doctor/route.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::doctor {
namespace {

constexpr char kResolve[] = "resolve";
constexpr char kRoute[] = "route";
constexpr char kConnect[] = "connect";
constexpr char kHandshake[] = "handshake";

// As it stands in a GID table.
in6_addr AsGid(const SocketAddress& address) {
  if (address.family() == AF_INET6) return reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  in6_addr mapped = {};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  memcpy(&mapped.s6_addr[12], &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  return mapped;
}

// The port that rdma_cm finds by `route`, and the GID that it takes: "mlx5_0/1, GID 3"; "" if it finds none.
std::string RdmaPortOf(const Route& route, const std::vector<Device>& devices) {
  const in6_addr source = AsGid(route.source);
  std::string by_netdev;
  for (const Device& device : devices) {
    for (const Port& port : device.ports) {
      const bool needs_gid = port.link_layer == "Ethernet" && !device.is_iwarp;
      for (const Gid& gid : port.gids) {
        if (needs_gid && gid.type == port.rdma_cm_gid_type() && IN6_ARE_ADDR_EQUAL(&gid.address, &source)) {
          return absl::StrCat(PortName(device, port), ", GID ", gid.index, " (", RoceName(gid.type), ")");
        }
      }
      if (!needs_gid && !port.netdev.empty() && port.netdev == route.netdev) {
        by_netdev = PortName(device, port);
      }
    }
  }
  return by_netdev;
}

Finding DescribeRoute(const transport::Uri& uri, const SocketAddress& address,
                      const absl::StatusOr<Route>& route, const std::vector<Device>& devices) {
  Finding finding{.check = kRoute, .subject = address.ToString()};
  if (!route.ok()) {
    finding.level = Level::kProblem;
    finding.found = std::string(route.status().message());
    finding.advice = "see `ip route` on this machine";
    return finding;
  }
  SocketAddress source = route->source;
  std::string host = source.ToString();
  host.resize(host.rfind(':'));
  finding.found =
      absl::StrCat("goes out from ", host, " (", route->netdev.empty() ? "no netdev" : route->netdev, ")");
  if (uri.scheme != transport::kRdmaScheme) return finding;
  if (const std::string port = RdmaPortOf(*route, devices); !port.empty()) {
    absl::StrAppend(&finding.found, ", which is ", port);
  } else {
    finding.level = Level::kWarning;
    absl::StrAppend(&finding.found, ", which is no address of an RDMA port");
    finding.advice = "dial an address in the network of the RDMA port (not the loopback), see `ip route`";
  }
  return finding;
}

std::string DescribeAgreed(const transport::Handshake& agreed) {
  return absl::StrCat("done: protocol version ", agreed.version, ", ", agreed.slots,
                      " slots, receive buffer of ", agreed.receive_buffer_bytes, " bytes, messages up to ",
                      agreed.message_bytes_max >> 20, " MiB");
}

// Ends with the failure, if there is one; `*answered` says whether the server answered.
Findings TryAddress(const transport::Uri& uri, const SocketAddress& address, absl::Duration timeout,
                    const absl::StatusOr<std::shared_ptr<transport::Runtime>>& runtime,
                    const std::vector<Device>& devices, bool* answered) {
  *answered = false;
  Findings findings = {DescribeRoute(uri, address, FindRoute(address), devices)};
  if (findings.back().level == Level::kProblem) return findings;
  const std::string name = address.ToString();
  if (!runtime.ok()) {
    findings.push_back({Level::kProblem, kConnect, name,
                        absl::StrCat("the address is routed, but: ", runtime.status().message()),
                        "dial a tcp:// address of the server, if it listens on one"});
    return findings;
  }
  if (uri.scheme == transport::kTcpScheme) {
    const absl::Status connected = TryTcp(address, timeout);
    if (!connected.ok()) {
      findings.push_back({Level::kProblem, kConnect, name,
                          absl::StrCat("the address is routed, but: ", connected.message()),
                          "is the server up, does it listen on this address and port, does a firewall let it "
                          "through?"});
      return findings;
    }
    findings.push_back({Level::kOk, kConnect, name, "connected by TCP", ""});
  }
  const absl::StatusOr<transport::Handshake> agreed = Dialer::Dial(*runtime, address, timeout);
  *answered = agreed.ok() || absl::IsUnauthenticated(agreed.status());
  if (absl::IsUnauthenticated(agreed.status())) {
    findings.push_back({Level::kOk, kHandshake, name,
                        "it answers, and wants credentials, which the doctor does not show: clients need "
                        "ChannelOptions::credentials, other commands of `hawser` --tls_certificate",
                        ""});
  } else if (agreed.ok()) {
    findings.push_back({Level::kOk, kHandshake, name, DescribeAgreed(*agreed), ""});
  } else {
    // By RDMA the handshake travels with the connecting, so it is the error that says which of them failed.
    findings.push_back(
        {Level::kProblem, uri.scheme == transport::kTcpScheme ? kHandshake : kConnect, name,
         absl::StrCat(absl::StatusCodeToString(agreed.status().code()), ": ", agreed.status().message()),
         "is it a Hawser server, of this fabric and of a version that this one understands?"});
  }
  return findings;
}

// Something else works instead.
void SoftenProblems(Findings* findings) {
  for (Finding& finding : *findings) {
    if (finding.level == Level::kProblem) finding.level = Level::kWarning;
  }
}

Findings CheckOneFabric(const transport::Uri& uri, absl::Duration timeout,
                        const std::vector<Device>& devices) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses = transport::Resolve(uri);
  if (!addresses.ok()) {
    return {{Level::kProblem, kResolve, uri.host, std::string(addresses.status().message()),
             "dial a numeric address to do without names"}};
  }
  Findings findings = {
      {Level::kOk, kResolve, uri.host,
       absl::StrJoin(*addresses, ", ",
                     [](std::string* out, const SocketAddress& a) { out->append(a.ToString()); }),
       ""}};
  const absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = transport::Runtime::Create(uri.scheme);
  Findings failed;
  bool answered = false;
  for (const SocketAddress& address : *addresses) {
    Findings of_address = TryAddress(uri, address, timeout, runtime, devices, &answered);
    Append(std::move(of_address), answered ? &findings : &failed);
    if (answered) break;
  }
  if (answered) {  // A channel goes on to the next address as well, so nothing is broken.
    SoftenProblems(&failed);
  }
  findings.insert(findings.begin() + 1, failed.begin(), failed.end());
  return findings;
}

bool HasProblem(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.level == Level::kProblem; });
}

}  // namespace

Findings CheckTarget(const transport::Uri& uri, absl::Duration timeout, const std::vector<Device>& devices) {
  if (uri.scheme != transport::kAutoScheme) return CheckOneFabric(uri, timeout, devices);
  transport::Uri other = uri;
  Findings findings;
  if (!devices.empty()) {
    other.scheme = transport::kRdmaScheme;
    findings = CheckOneFabric(other, timeout, devices);
    if (!HasProblem(findings)) return findings;
    SoftenProblems(&findings);
  }
  other.scheme = transport::kTcpScheme;
  Append(CheckOneFabric(other, timeout, devices), &findings);
  return findings;
}

}  // namespace hawser::doctor
