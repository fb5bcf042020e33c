// What a server says of itself: ServerCore::FillIn() and stats().
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/server/process_snapshot.h"
#include "hawser/rpc/server/server_core.h"
#include "hawser/rpc/serving/server_report.h"
#include "hawser/tls/context.h"

namespace hawser::internal {
namespace {

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

}  // namespace

ServerStats ServerCore::stats() const {
  ServerStats stats;
  absl::MutexLock lock(&mutex_);
  stats.connections = admission_.open();
  for (const auto& [fabric, pollers] : pollers_) {
    stats.leased_bytes += pollers->runtime->buffers().stats().leased_bytes;
    std::vector<const transport::Poller*> all;
    for (size_t i = 0; i < pollers->runtime->poller_count(); ++i) {
      all.push_back(&pollers->runtime->poller(i));
      stats.pollers.push_back(all.back()->stats());
    }
    // A runtime without threads uses one of these pollers as its front desk.
    if (pollers->front_desk != all[0]) all.push_back(pollers->front_desk);
    for (const transport::Poller* poller : all) {
      for (size_t v = 0; v < kViolationCount; ++v) {
        stats.violations.by_reason[v] += poller->violations().count(static_cast<Violation>(v));
      }
    }
    for (const auto& serving : pollers->serving) {
      stats.calls_running += serving->counters.calls_running.value();
      stats.calls_total += serving->counters.calls_total.value();
    }
  }
  return stats;
}

void ServerCore::FillInMethods(observe::wire::Snapshot::Builder snapshot,
                               const std::vector<NamedPoller>& pollers, const PollerReports& reports) const {
  std::vector<const MethodTable::Entry*> entries = serving_->methods.Entries();
  std::sort(entries.begin(), entries.end(), [](const MethodTable::Entry* a, const MethodTable::Entry* b) {
    return absl::string_view(a->method->name) < absl::string_view(b->method->name);
  });
  auto methods = snapshot.initMethods(static_cast<unsigned>(entries.size()));
  for (unsigned i = 0; i < methods.size(); ++i) {
    const MethodTable::Entry& entry = *entries[i];
    EndedTotals ended;
    uint64_t request_bytes = 0, response_bytes = 0, running = 0;
    for (const NamedPoller& poller : pollers) {
      const MethodCounts* const counts = poller.serving->counters.OfMethod(entry.index);
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

observe::wire::Server::State ServerCore::WireState() const {
  return phase_ == Phase::kServing    ? observe::wire::Server::State::SERVING
         : phase_ == Phase::kDraining ? observe::wire::Server::State::DRAINING
                                      : observe::wire::Server::State::DOWN;
}

void ServerCore::FillInServer(observe::wire::Server::Builder server) const {
  server.setStartedUnixNs(absl::ToUnixNanos(made_));
  const std::vector<std::string> addresses = this->addresses();
  auto listening = server.initAddresses(static_cast<unsigned>(addresses.size()));
  for (unsigned i = 0; i < listening.size(); ++i) listening.set(i, addresses[i].c_str());
  server.setWhyNotRdma(why_not_rdma().c_str());
  server.setConnectionsMax(options_.connections_max);
  server.setConnectionsPerHostMax(options_.connections_per_host_max);
  server.setHasCredentials(options_.credentials.has_value());
  {
    absl::MutexLock lock(&mutex_);
    server.setState(WireState());
  }
  std::vector<std::string> names;
  for (const auto& [id, interface] : serving_->methods.interfaces()) names.emplace_back(interface.name);
  std::sort(names.begin(), names.end());
  auto services = server.initServices(static_cast<unsigned>(names.size()));
  for (unsigned i = 0; i < services.size(); ++i) services.set(i, names[i].c_str());
}

void ServerCore::FillIn(observe::wire::Snapshot::Builder snapshot) {
  HAWSER_CHECK(!transport::Poller::ThisThreadHoldsOne(),
               "Server::FillIn() was called on a poller, which it would wait for");
  const std::vector<NamedPoller> pollers = AllServing();
  const PollerReports reports = GatherReports(pollers);
  snapshot.setTakenUnixNs(absl::ToUnixNanos(environment_.Now()));
  FillInOfProcess(snapshot);
  observe::wire::Server::Builder server = snapshot.initServer();
  FillInServer(server);
  const ServerStats totals = stats();
  server.setConnectionsOpen(totals.connections);
  server.setCallsRunning(totals.calls_running);
  server.setCallsTotal(totals.calls_total);
  FillInMethods(snapshot, pollers, reports);
  std::vector<std::string> fabrics;
  for (const NamedPoller& poller : pollers) fabrics.push_back(poller.fabric);
  FillInConnections(fabrics, reports, snapshot);
  FillInCalls(reports, snapshot);

  std::vector<SlowCalls::Call> slowest;
  auto poller_list = snapshot.initPollers(static_cast<unsigned>(pollers.size()));
  for (unsigned i = 0; i < poller_list.size(); ++i) {
    const NamedPoller& named = pollers[i];
    poller_list[i].setName(named.name.c_str());
    poller_list[i].setFabric(named.fabric.c_str());
    poller_list[i].setReadBytesMax(named.serving->poller.read_budget().bytes_max());
    FillInPoller(named.serving->poller, reports[i].get(), poller_list[i]);
    const std::vector<SlowCalls::Call> slow = named.serving->counters.slow_calls.Take(environment_.NowNs());
    slowest.insert(slowest.end(), slow.begin(), slow.end());
  }
  FillInSlowest(std::move(slowest), snapshot);
  FillInPools(snapshot);
  FillInTls(snapshot.initTls());
  auto refusals = snapshot.initRefusals(kViolationCount + 1);
  for (unsigned i = 0; i < kViolationCount; ++i) {
    const auto violation = static_cast<Violation>(i);
    refusals[i].setReason(ToKj(NameOf(violation)));
    refusals[i].setCount(totals.violations[violation]);
  }
  refusals[kViolationCount].setReason("no room");
  refusals[kViolationCount].setCount(refused_connections_.load(std::memory_order_relaxed));
  FillInSettings(snapshot);
}

void ServerCore::FillInPools(observe::wire::Snapshot::Builder snapshot) const {
  std::vector<std::pair<std::string, std::shared_ptr<transport::Runtime>>> runtimes;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [scheme_and_device, pollers] : pollers_) {
      const auto& [scheme, device] = scheme_and_device;
      runtimes.emplace_back(absl::StrCat(scheme, device.empty() ? "" : " ", device), pollers->runtime);
    }
  }
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

void ServerCore::FillInTls(observe::wire::Tls::Builder out) const {
  absl::MutexLock lock(&mutex_);
  if (tls_ == nullptr) return;
  const tls::Context::Handshakes handshakes = tls_->handshakes(tls::Side::kServer);
  out.setFull(handshakes.full);
  out.setResumed(handshakes.resumed);
  out.setFailed(handshakes.failed);
}

void ServerCore::FillInSettings(observe::wire::Snapshot::Builder snapshot) const {
  const transport::ConnectionOptions& connection = options_.connection;
  const std::pair<const char*, std::string> settings[] = {
      {"ServerOptions::pollers", absl::StrCat(options_.pollers)},
      {"ServerOptions::executor", options_.executor ? "given" : "none: handlers run on pollers"},
      {"ServerOptions::credentials", options_.credentials.has_value() ? "given" : "none"},
      {"ServerOptions::authorize", options_.authorize ? "given" : "none"},
      {"ServerOptions::interceptors", absl::StrCat(options_.interceptors.size())},
      {"ServerOptions::handler_grace", absl::FormatDuration(options_.handler_grace)},
      {"ServerOptions::connections_max", absl::StrCat(options_.connections_max)},
      {"ServerOptions::connections_per_host_max", absl::StrCat(options_.connections_per_host_max)},
      {"ServerOptions::proof_ports",
       options_.proof_ports.first == 0
           ? "any"
           : absl::StrCat(options_.proof_ports.first, " to ", options_.proof_ports.last)},
      {"ServerOptions::reflection", options_.reflection ? "true" : "false"},
      {"ServerOptions::health", options_.health ? "true" : "false"},
      {"ServerOptions::introspection", options_.introspection == Introspection::kNever ? "never"
                                       : options_.introspection == Introspection::kThisMachine
                                           ? "this machine"
                                           : "everyone"},
      {"ServerOptions::perf", options_.perf ? "true" : "false"},
      {"BufferPoolOptions::limit_bytes", absl::StrCat(options_.pool.limit_bytes)},
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
