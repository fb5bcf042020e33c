#include "hawser/rpc/server/server_snapshot.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/base/check.h"
#include "hawser/rpc/server/process_snapshot.h"
#include "hawser/rpc/server/shared_regions.h"
#include "hawser/rpc/server_extension.h"

namespace hawser::internal {
namespace {

// "perf", or "none".
std::string NamesOf(const ServerExtensionList& extensions) {
  if (extensions.empty()) return "none";
  return absl::StrJoin(extensions, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each != nullptr ? each->name : "none");
  });
}

void FillInPoller(transport::Poller& poller, const PollerReport* report, observe::wire::Poller::Builder out) {
  const PollerStats stats = poller.stats();
  constexpr const char* kModes[] = {"adaptive", "spin", "sleep"};
  out.setMode(kModes[static_cast<size_t>(stats.mode)]);
  out.setBusyNs(static_cast<uint64_t>(absl::ToInt64Nanoseconds(stats.busy)));
  out.setSpinNs(static_cast<uint64_t>(absl::ToInt64Nanoseconds(stats.spun)));
  out.setSleepNs(static_cast<uint64_t>(absl::ToInt64Nanoseconds(stats.slept)));
  out.setTurns(stats.turns_of_own_thread + stats.turns_of_waiting_threads);
  out.setSleeps(stats.sleeps);
  out.setSentWhole(stats.sent.whole);
  out.setSentPushed(stats.sent.pushed);
  out.setSentRead(stats.sent.read);
  out.setSentBytes(stats.sent_bytes);
  out.setReceivedWhole(stats.received.whole);
  out.setReceivedPushed(stats.received.pushed);
  out.setReceivedRead(stats.received.read);
  out.setAnswered(report != nullptr);
  if (report != nullptr) {
    uint64_t connections = 0;
    for (const auto& [state, total] : report->by_state) connections += total.count;
    out.setConnections(connections);
    out.setReadBytesInFlight(report->read_bytes_in_flight);
    out.setReadsWaiting(report->reads_waiting);
    out.setMemoryWaiters(report->memory_waiters);
  } else if (const auto held = poller.called_out().Now(); held.has_value()) {
    const absl::Duration time = absl::Nanoseconds(poller.environment().NowNs() - held->since_ns);
    out.setHeldBy(
        ToKj(absl::StrCat(transport::DescribeWithId(*held), ", for ", transport::RoughDuration(time))));
  }
}

void FillInMemory(const SharedRegions::Totals& totals, observe::wire::SharedMemory::Builder out) {
  out.setRegions(totals.regions);
  out.setBytes(totals.bytes);
  out.setTickets(totals.tickets);
  out.setGrants(totals.grants);
  out.setLanes(totals.lanes);
  out.setLanesOpened(totals.lanes_opened);
}

}  // namespace

ServerStats ServerSnapshot::Stats() const {
  ServerStats stats;
  stats.connections = of_.clients.open();
  of_.pollers.AddTo(stats);
  return stats;
}

void ServerSnapshot::FillInMethods(observe::wire::Snapshot::Builder snapshot,
                                   const std::vector<ServerPollers::Named>& pollers,
                                   const PollerReports& reports) const {
  std::vector<const MethodTable::Entry*> entries = of_.methods.Entries();
  std::sort(entries.begin(), entries.end(), [](const MethodTable::Entry* a, const MethodTable::Entry* b) {
    return absl::string_view(a->method->name) < absl::string_view(b->method->name);
  });
  auto methods = snapshot.initMethods(static_cast<unsigned>(entries.size()));
  for (unsigned i = 0; i < methods.size(); ++i) {
    const MethodTable::Entry& entry = *entries[i];
    EndedTotals ended;
    uint64_t request_bytes = 0, response_bytes = 0, running = 0;
    for (const ServerPollers::Named& poller : pollers) {
      const MethodCounts* const counts = poller.serving->counters().OfMethod(entry.index);
      if (counts == nullptr) continue;
      ended.Add(*counts);
      request_bytes += counts->request_bytes.value();
      response_bytes += counts->response_bytes.value();
    }
    for (const auto& report : reports) {
      if (report == nullptr) continue;
      const auto found = report->running.find(entry.method->name);
      if (found != report->running.end()) running += found->second;
    }
    observe::wire::Method::Builder out = methods[i];
    out.setName(entry.method->name);
    out.setInterfaceId(entry.method->interface_id);
    out.setOrdinal(entry.method->ordinal);
    out.setRunning(running);
    out.setRequestBytes(request_bytes);
    out.setResponseBytes(response_bytes);
    FillInEnded(ended, out);
  }
}

void ServerSnapshot::FillInServer(observe::wire::Server::Builder server) const {
  server.setStartedUnixNs(absl::ToUnixNanos(made_));
  const std::vector<std::string> addresses = of_.listeners.addresses();
  auto listening = server.initAddresses(static_cast<unsigned>(addresses.size()));
  for (unsigned i = 0; i < listening.size(); ++i) listening.set(i, addresses[i].c_str());
  server.setWhyNotRdma(of_.listeners.why_not_rdma().c_str());
  server.setConnectionsMax(of_.options.connections_max);
  server.setConnectionsPerHostMax(of_.options.connections_per_host_max);
  server.setHasCredentials(of_.options.credentials.has_value());
  std::vector<std::string> names;
  for (const auto& [id, interface] : of_.methods.interfaces()) names.emplace_back(interface.name);
  std::sort(names.begin(), names.end());
  auto services = server.initServices(static_cast<unsigned>(names.size()));
  for (unsigned i = 0; i < services.size(); ++i) services.set(i, names[i].c_str());
}

void ServerSnapshot::FillIn(observe::wire::Snapshot::Builder snapshot) const {
  HAWSER_CHECK(!transport::Poller::ThisThreadHoldsOne(),
               "Server::FillIn() was called on a poller, which it would wait for");
  const std::vector<ServerPollers::Named> pollers = of_.pollers.NamedServing();
  std::vector<PollerReporter*> reporters;
  for (const ServerPollers::Named& poller : pollers) reporters.push_back(&poller.serving->reporter());
  const PollerReports reports = PollerReporter::Gather(reporters);
  snapshot.setTakenUnixNs(absl::ToUnixNanos(of_.environment.Now()));
  FillInOfProcess(snapshot);
  observe::wire::Server::Builder server = snapshot.initServer();
  FillInServer(server);
  const ServerStats totals = Stats();
  server.setConnectionsOpen(totals.connections);
  server.setCallsRunning(totals.calls_running);
  server.setCallsTotal(totals.calls_total);
  FillInMethods(snapshot, pollers, reports);
  std::vector<std::string> fabrics;
  for (const ServerPollers::Named& poller : pollers) fabrics.push_back(poller.fabric);
  FillInConnections(fabrics, reports, snapshot);
  FillInCalls(reports, snapshot);
  FillInPollers(snapshot, pollers, reports);
  FillInPools(snapshot);
  FillInMemory(of_.clients.regions().totals(), snapshot.initMemory());
  of_.credentials.FillIn(snapshot.initTls());
  FillInRefusals(snapshot, totals);
  FillInSettings(snapshot);
}

void ServerSnapshot::FillInPollers(observe::wire::Snapshot::Builder snapshot,
                                   const std::vector<ServerPollers::Named>& pollers,
                                   const PollerReports& reports) const {
  std::vector<SlowCalls::Call> slowest;
  auto list = snapshot.initPollers(static_cast<unsigned>(pollers.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const ServerPollers::Named& named = pollers[i];
    list[i].setName(named.name.c_str());
    list[i].setFabric(named.fabric.c_str());
    list[i].setReadBytesMax(named.serving->poller().read_budget().bytes_max());
    FillInPoller(named.serving->poller(), reports[i].get(), list[i]);
    const std::vector<SlowCalls::Call> slow =
        named.serving->counters().slow_calls.Take(of_.environment.NowNs());
    slowest.insert(slowest.end(), slow.begin(), slow.end());
  }
  FillInSlowest(std::move(slowest), snapshot);
}

void ServerSnapshot::FillInRefusals(observe::wire::Snapshot::Builder snapshot,
                                    const ServerStats& totals) const {
  auto refusals = snapshot.initRefusals(kViolationCount + 2);
  for (unsigned i = 0; i < kViolationCount; ++i) {
    const auto violation = static_cast<Violation>(i);
    refusals[i].setReason(ToKj(NameOf(violation)));
    refusals[i].setCount(totals.violations[violation]);
  }
  refusals[kViolationCount].setReason("stalled");
  refusals[kViolationCount].setCount(totals.stalled_in_shutdown);
  refusals[kViolationCount + 1].setReason("no room");
  refusals[kViolationCount + 1].setCount(of_.clients.refused());
}

void ServerSnapshot::FillInPools(observe::wire::Snapshot::Builder snapshot) const {
  const std::vector<std::pair<std::string, std::shared_ptr<transport::Runtime>>> runtimes =
      of_.pollers.NamedRuntimes();
  auto list = snapshot.initPools(static_cast<unsigned>(runtimes.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto& [name, runtime] = runtimes[i];
    const transport::BufferPoolStats stats = runtime->buffers().stats();
    list[i].setName(name.c_str());
    list[i].setLimitBytes(stats.limit_bytes);
    list[i].setRegisteredBytes(stats.mapped_bytes);
    list[i].setLeasedBytes(stats.leased_bytes);
    const std::vector<transport::BufferClassStats> classes = runtime->buffers().classes();
    auto to = list[i].initClasses(static_cast<unsigned>(classes.size()));
    for (unsigned c = 0; c < to.size(); ++c) {
      to[c].setBufferBytes(classes[c].size_bytes);
      to[c].setBuffers(classes[c].buffers);
      to[c].setLeased(classes[c].leased);
    }
  }
}

void ServerSnapshot::FillInSettings(observe::wire::Snapshot::Builder snapshot) const {
  const transport::ConnectionOptions& connection = of_.options.connection;
  const std::pair<const char*, std::string> settings[] = {
      {"ServerOptions::pollers", absl::StrCat(of_.options.pollers)},
      {"ServerOptions::executor", of_.options.executor ? "given" : "none: handlers run on pollers"},
      {"ServerOptions::credentials", of_.options.credentials.has_value() ? "given" : "none"},
      {"ServerOptions::authorize", of_.options.authorize ? "given" : "none"},
      {"ServerOptions::interceptors", absl::StrCat(of_.options.interceptors.size())},
      {"ServerOptions::handler_grace", absl::FormatDuration(of_.options.handler_grace)},
      {"ServerOptions::connections_max", absl::StrCat(of_.options.connections_max)},
      {"ServerOptions::connections_per_host_max", absl::StrCat(of_.options.connections_per_host_max)},
      {"ServerOptions::proof_ports",
       of_.options.proof_ports.first == 0
           ? "any"
           : absl::StrCat(of_.options.proof_ports.first, " to ", of_.options.proof_ports.last)},
      {"ServerOptions::reflection", of_.options.reflection ? "true" : "false"},
      {"ServerOptions::health", of_.options.health ? "true" : "false"},
      {"ServerOptions::introspection", of_.options.introspection == Introspection::kNever ? "never"
                                       : of_.options.introspection == Introspection::kThisMachine
                                           ? "this machine"
                                           : "everyone"},
      {"ServerOptions::extensions", NamesOf(of_.options.extensions)},
      {"BufferPoolOptions::limit_bytes", absl::StrCat(of_.options.pool.limit_bytes)},
      {"ConnectionOptions::slots", absl::StrCat(connection.slots)},
      {"ConnectionOptions::receive_buffer_bytes", absl::StrCat(connection.receive_buffer_bytes)},
      {"ConnectionOptions::message_bytes_max", absl::StrCat(connection.message_bytes_max)},
      {"ConnectionOptions::keepalive_interval", absl::FormatDuration(connection.keepalive_interval)},
      {"ConnectionOptions::keepalive_timeout", absl::FormatDuration(connection.keepalive_timeout)},
  };
  auto list = snapshot.initConfiguration(static_cast<unsigned>(std::size(settings)));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setName(settings[i].first);
    list[i].setValue(settings[i].second.c_str());
  }
}

}  // namespace hawser::internal
