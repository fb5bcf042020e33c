#include "hawser/rpc/serving/server_report.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hawser::internal {
namespace {

constexpr size_t kConnectionsMax = 1000;
constexpr size_t kCallsMax = 200;
constexpr size_t kSlowestMax = 16;

void FillInCall(const CallReport& call, observe::wire::Call::Builder out) {
  out.setMethod(call.method);
  out.setPeer(ToKj(call.peer));
  out.setIdentity(ToKj(call.identity));
  out.setStage(call.stage);
  out.setAgeNs(call.age_ns);
  out.setDeadlineInNs(call.deadline_in_ns);
  out.setRequestBytes(call.request_bytes);
  out.setId(ToKj(call.id));
}

void FillInSlow(const SlowCalls::Call& call, observe::wire::Call::Builder out) {
  out.setMethod(call.method);
  out.setPeer(ToKj(call.peer));
  out.setIdentity(ToKj(call.identity));
  out.setStage(ToKj(absl::StatusCodeToString(call.code)));
  out.setAgeNs(call.all_ns);
  out.setDeadlineInNs(-1);
  out.setQueuedNs(call.queued_ns);
  out.setHandlerNs(call.handler_ns);
  out.setDeferredNs(call.deferred_ns);
  out.setEndedUnixNs(call.ended_unix_ns);
  out.setId(ToKj(call.id));
}

}  // namespace

void PollerReport::Count(const ConnectionReport& connection) {
  Total& total = by_state[connection.state];
  ++total.count;
  total.slots += connection.slots;
  total.slots_in_use += connection.slots_in_use;
  total.slots_given += connection.slots_given;
  total.slots_wanted += connection.slots_wanted;
}

void PollerReport::AddCall(CallReport call) {
  const auto is_older = [](const CallReport& a, const CallReport& b) { return a.age_ns > b.age_ns; };
  if (calls.size() >= kCallsMax) {
    std::pop_heap(calls.begin(), calls.end(), is_older);
    calls.pop_back();
  }
  calls.push_back(std::move(call));
  std::push_heap(calls.begin(), calls.end(), is_older);
}

void FillInConnections(const std::vector<std::string>& fabrics, const PollerReports& reports,
                       observe::wire::Snapshot::Builder snapshot) {
  std::vector<std::pair<const ConnectionReport*, unsigned>> connections;  // With the number of their poller.
  std::map<std::pair<std::string, std::string>, PollerReport::Total> by_state;
  uint64_t in_all = 0;
  for (unsigned i = 0; i < reports.size(); ++i) {
    if (reports[i] == nullptr) continue;
    for (const ConnectionReport& each : reports[i]->connections) connections.emplace_back(&each, i);
    for (const auto& [state, total] : reports[i]->by_state) {
      PollerReport::Total& sum = by_state[{fabrics[i], state}];
      sum.count += total.count;
      sum.slots += total.slots;
      sum.slots_in_use += total.slots_in_use;
      sum.slots_given += total.slots_given;
      sum.slots_wanted += total.slots_wanted;
      in_all += total.count;
    }
  }
  connections.resize(std::min(connections.size(), kConnectionsMax));
  snapshot.setConnectionsLeftOut(in_all - connections.size());
  auto list = snapshot.initConnections(static_cast<unsigned>(connections.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto& [from, poller] = connections[i];
    observe::wire::Connection::Builder to = list[i];
    to.setNumber(from->number);
    to.setPeer(ToKj(from->peer));
    to.setIdentity(ToKj(from->identity));
    to.setFabric(ToKj(fabrics[poller]));
    to.setState(from->state);
    to.setSlots(from->slots);
    to.setSlotsInUse(from->slots_in_use);
    to.setSlotsGiven(from->slots_given);
    to.setSlotsWanted(from->slots_wanted);
    to.setReceivesPosted(from->receives_posted);
    to.setReceiveBytes(from->receive_bytes);
    to.setSinceUnixNs(from->since_unix_ns);
    to.setRequests(from->requests);
    to.setPoller(poller);
  }
  auto totals = snapshot.initTotals(static_cast<unsigned>(by_state.size()));
  unsigned next = 0;
  for (const auto& [fabric_and_state, total] : by_state) {
    observe::wire::ConnectionTotal::Builder to = totals[next++];
    to.setFabric(fabric_and_state.first.c_str());
    to.setState(fabric_and_state.second.c_str());
    to.setCount(total.count);
    to.setSlots(total.slots);
    to.setSlotsInUse(total.slots_in_use);
    to.setSlotsGiven(total.slots_given);
    to.setSlotsWanted(total.slots_wanted);
  }
}

void FillInCalls(const PollerReports& reports, observe::wire::Snapshot::Builder snapshot) {
  std::vector<const CallReport*> calls;
  uint64_t in_all = 0, queued = 0;
  for (const auto& report : reports) {
    if (report == nullptr) continue;
    queued += report->calls_queued;
    for (const CallReport& each : report->calls) calls.push_back(&each);
    for (const auto& [method, running] : report->running) in_all += running;
  }
  std::sort(calls.begin(), calls.end(),
            [](const CallReport* a, const CallReport* b) { return a->age_ns > b->age_ns; });
  calls.resize(std::min(calls.size(), kCallsMax));
  snapshot.setCallsLeftOut(in_all - calls.size());
  snapshot.getServer().setCallsQueued(queued);
  auto list = snapshot.initCalls(static_cast<unsigned>(calls.size()));
  for (unsigned i = 0; i < list.size(); ++i) FillInCall(*calls[i], list[i]);
}

void FillInSlowest(std::vector<SlowCalls::Call> slowest, observe::wire::Snapshot::Builder snapshot) {
  std::sort(slowest.begin(), slowest.end(),
            [](const SlowCalls::Call& a, const SlowCalls::Call& b) { return a.all_ns > b.all_ns; });
  slowest.resize(std::min(slowest.size(), kSlowestMax));
  auto list = snapshot.initSlowest(static_cast<unsigned>(slowest.size()));
  for (unsigned i = 0; i < list.size(); ++i) FillInSlow(slowest[i], list[i]);
}

}  // namespace hawser::internal
