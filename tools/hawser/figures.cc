#include "hawser/tools/hawser/figures.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/json_writer.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/histogram.h"

namespace hawser::tool {
namespace {

namespace wire = observe::wire;

constexpr absl::string_view kOwnMethod = "introspection.capnp:Introspection.snapshot";

// A server sends thousands of methods at most, and hundreds of the rest.
constexpr unsigned kMethodsMax = 10'000;
constexpr unsigned kOthersMax = 1'000;
constexpr unsigned kBucketsMax = 1'000;

absl::string_view View(capnp::Text::Reader text) { return {text.cStr(), text.size()}; }
std::string ToString(capnp::Text::Reader text) {
  return std::string(View(text).substr(0, Figures::kTextMax));
}

template <typename List>
unsigned SizeOf(const List& list, unsigned max = kOthersMax) {
  return std::min<unsigned>(list.size(), max);
}

// Counts do not go back; those of a server that is wrong may.
uint64_t Since(uint64_t before, uint64_t now) { return now > before ? now - before : 0; }

// Counts by length. Empty: there are none, or they make no sense.
struct Histogram {
  std::vector<int64_t> bounds_ns;
  std::vector<uint64_t> counts;

  static Histogram Of(wire::Histogram::Reader from) {
    Histogram histogram;
    const auto bounds = from.getBoundsNs();
    const auto counts = from.getCounts();
    if (bounds.size() != counts.size() || bounds.size() > kBucketsMax) return {};
    for (unsigned i = 0; i < bounds.size(); ++i) {
      if (bounds[i] <= (i == 0 ? 0 : bounds[i - 1])) return {};
      histogram.bounds_ns.push_back(bounds[i]);
      histogram.counts.push_back(counts[i]);
    }
    return histogram;
  }
  void Subtract(const Histogram& before) {
    if (before.bounds_ns != bounds_ns) return;
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = Since(before.counts[i], counts[i]);
  }
  void Add(const Histogram& other) {
    if (counts.empty())
      *this = other;
    else if (other.bounds_ns == bounds_ns) {
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    }
  }
  Figures::Latency Latency() const {
    if (counts.empty()) return {};
    const auto percentile = [&](double percent) { return observe::PercentileNs(bounds_ns, counts, percent); };
    return {percentile(50), percentile(90), percentile(99)};
  }
};

uint64_t ErrorsOf(wire::Method::Reader method) {
  uint64_t errors = 0;
  const auto statuses = method.getStatuses();
  for (unsigned i = 0; i < SizeOf(statuses); ++i) {
    if (statuses[i].getCode() != 0) errors += statuses[i].getCount();
  }
  return errors;
}

void AddMethods(wire::Snapshot::Reader now, const std::optional<wire::Snapshot::Reader>& before,
                Figures& figures) {
  std::map<absl::string_view, wire::Method::Reader> earlier;
  if (before.has_value()) {
    const auto methods = before->getMethods();
    for (unsigned i = 0; i < SizeOf(methods, kMethodsMax); ++i)
      earlier[View(methods[i].getName())] = methods[i];
  }
  Histogram all;
  uint64_t own_running = 0;
  const auto methods = now.getMethods();
  for (unsigned i = 0; i < SizeOf(methods, kMethodsMax); ++i) {
    const wire::Method::Reader from = methods[i];
    if (View(from.getName()) == kOwnMethod) {
      own_running = from.getRunning();
      continue;
    }
    if (from.getCalls() == 0 && from.getRunning() == 0) continue;
    Figures::Method method = {ToString(from.getName()),
                              from.getCalls(),
                              ErrorsOf(from),
                              from.getRequestBytes(),
                              from.getResponseBytes(),
                              from.getRunning(),
                              {}};
    Histogram histogram = Histogram::Of(from.getLatency());
    if (const auto found = earlier.find(View(from.getName())); found != earlier.end()) {
      const wire::Method::Reader was = found->second;
      method.calls = Since(was.getCalls(), method.calls);
      method.errors = Since(ErrorsOf(was), method.errors);
      method.request_bytes = Since(was.getRequestBytes(), method.request_bytes);
      method.response_bytes = Since(was.getResponseBytes(), method.response_bytes);
      histogram.Subtract(Histogram::Of(was.getLatency()));
    }
    method.latency = histogram.Latency();
    all.Add(histogram);
    figures.ended += method.calls;
    figures.errors += method.errors;
    figures.request_bytes += method.request_bytes;
    figures.response_bytes += method.response_bytes;
    figures.methods.push_back(std::move(method));
  }
  figures.latency = all.Latency();
  figures.running = Since(own_running, now.getServer().getCallsRunning());
  std::sort(figures.methods.begin(), figures.methods.end(),
            [](const Figures::Method& a, const Figures::Method& b) {
              return a.calls != b.calls ? a.calls > b.calls : a.name < b.name;
            });
}

void AddPollers(wire::Snapshot::Reader now, const std::optional<wire::Snapshot::Reader>& before,
                Figures& figures) {
  const auto pollers = now.getPollers();
  std::map<absl::string_view, wire::Poller::Reader> earlier;
  if (before.has_value()) {
    const auto each = before->getPollers();
    for (unsigned i = 0; i < SizeOf(each); ++i) earlier.emplace(View(each[i].getName()), each[i]);
  }
  for (unsigned i = 0; i < SizeOf(pollers); ++i) {
    const wire::Poller::Reader from = pollers[i];
    uint64_t busy = from.getBusyNs(), spin = from.getSpinNs(), sleep = from.getSleepNs();
    if (const auto found = earlier.find(View(from.getName())); found != earlier.end()) {
      busy = Since(found->second.getBusyNs(), busy);
      spin = Since(found->second.getSpinNs(), spin);
      sleep = Since(found->second.getSleepNs(), sleep);
    }
    double parts[] = {static_cast<double>(busy), static_cast<double>(spin), static_cast<double>(sleep)};
    // A poller counts a part when it ends. So what is missing is one that goes on: a long sleep, or code that
    // holds it.
    const double missing = figures.seconds * 1e9 - parts[0] - parts[1] - parts[2];
    parts[from.getAnswered() ? 2 : 0] += std::max(0.0, missing);
    const double all = std::max(1.0, parts[0] + parts[1] + parts[2]);
    figures.pollers.push_back({ToString(from.getName()), ToString(from.getHeldBy()), from.getAnswered(),
                               parts[0] / all, parts[1] / all, parts[2] / all});
  }
}

void AddRefusals(wire::Snapshot::Reader now, const std::optional<wire::Snapshot::Reader>& before,
                 Figures& figures) {
  std::map<absl::string_view, uint64_t> earlier;
  if (before.has_value()) {
    const auto refusals = before->getRefusals();
    for (unsigned i = 0; i < SizeOf(refusals); ++i)
      earlier[View(refusals[i].getReason())] = refusals[i].getCount();
  }
  const auto refusals = now.getRefusals();
  for (unsigned i = 0; i < SizeOf(refusals); ++i) {
    const uint64_t count = Since(earlier[View(refusals[i].getReason())], refusals[i].getCount());
    if (count != 0) figures.refusals.push_back({ToString(refusals[i].getReason()), count});
  }
}

template <typename List>
std::vector<Figures::Call> CallsOf(const List& list) {
  std::vector<Figures::Call> calls;
  for (unsigned i = 0; i < SizeOf(list); ++i) {
    const wire::Call::Reader call = list[i];
    if (View(call.getMethod()) == kOwnMethod) continue;
    calls.push_back({ToString(call.getMethod()), ToString(call.getPeer()), ToString(call.getIdentity()),
                     ToString(call.getStage()), call.getAgeNs(), call.getQueuedNs(), call.getHandlerNs(),
                     call.getDeferredNs()});
  }
  return calls;
}

}  // namespace

bool IsSameServer(wire::Snapshot::Reader before, wire::Snapshot::Reader now) {
  return before.getProcess().getPid() == now.getProcess().getPid() &&
         before.getProcess().getHost() == now.getProcess().getHost() &&
         before.getServer().getStartedUnixNs() == now.getServer().getStartedUnixNs() &&
         before.getServer().getCallsTotal() <= now.getServer().getCallsTotal() &&
         before.getTakenUnixNs() < now.getTakenUnixNs();
}

Figures FiguresOf(wire::Snapshot::Reader now, std::optional<wire::Snapshot::Reader> before) {
  Figures figures;
  const wire::Process::Reader process = now.getProcess();
  const wire::Server::Reader server = now.getServer();
  figures.process = ToString(process.getName());
  figures.host = ToString(process.getHost());
  figures.pid = process.getPid();
  figures.state = std::string(observe::server::NameOf(server.getState()));
  figures.taken_unix_ns = now.getTakenUnixNs();
  // As doubles, whose difference does not overflow.
  const auto apart_ns = [](int64_t from, int64_t to) {
    return std::clamp(static_cast<double>(to) - static_cast<double>(from), 0.0, 9e18);
  };
  figures.up_ns = static_cast<int64_t>(apart_ns(server.getStartedUnixNs(), now.getTakenUnixNs()));
  if (before.has_value()) figures.seconds = apart_ns(before->getTakenUnixNs(), now.getTakenUnixNs()) / 1e9;
  figures.connections_open = server.getConnectionsOpen();
  figures.calls = CallsOf(now.getCalls());
  figures.slowest = CallsOf(now.getSlowest());
  AddMethods(now, before, figures);
  AddPollers(now, before, figures);
  AddRefusals(now, before, figures);
  return figures;
}

std::string FiguresAsJson(const Figures& figures) {
  const double seconds = figures.seconds > 0 ? figures.seconds : static_cast<double>(figures.up_ns) / 1e9;
  const auto rate = [&](uint64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; };
  JsonWriter json;
  const auto traffic = [&](uint64_t calls, uint64_t errors, uint64_t in, uint64_t out,
                           const Figures::Latency& latency) {
    json.Name("calls_per_s").Decimal(rate(calls), 3);
    json.Name("errors_per_s").Decimal(rate(errors), 3);
    json.Name("request_bytes_per_s").Decimal(rate(in), 3);
    json.Name("response_bytes_per_s").Decimal(rate(out), 3);
    json.Name("p50_us").Decimal(static_cast<double>(latency.p50_ns) / 1e3, 3);
    json.Name("p90_us").Decimal(static_cast<double>(latency.p90_ns) / 1e3, 3);
    json.Name("p99_us").Decimal(static_cast<double>(latency.p99_ns) / 1e3, 3);
  };
  json.BeginObject();
  json.Name("time").String(absl::FormatTime(absl::FromUnixNanos(figures.taken_unix_ns), absl::UTCTimeZone()));
  json.Name("interval_s").Decimal(seconds, 3);
  json.Name("process").String(figures.process);
  json.Name("pid").Number(figures.pid);
  json.Name("host").String(figures.host);
  json.Name("state").String(figures.state);
  traffic(figures.ended, figures.errors, figures.request_bytes, figures.response_bytes, figures.latency);
  json.Name("in_flight").Number(figures.running);
  json.Name("connections").Number(figures.connections_open);
  json.Name("methods").BeginList();
  for (const Figures::Method& method : figures.methods) {
    json.BeginObject();
    json.Name("name").String(method.name);
    traffic(method.calls, method.errors, method.request_bytes, method.response_bytes, method.latency);
    json.Name("in_flight").Number(method.running);
    json.EndObject();
  }
  json.EndList();
  json.Name("pollers").BeginList();
  for (const Figures::Poller& poller : figures.pollers) {
    json.BeginObject();
    json.Name("name").String(poller.name);
    json.Name("busy").Decimal(poller.busy, 4);
    json.Name("spin").Decimal(poller.spin, 4);
    json.Name("sleep").Decimal(poller.sleep, 4);
    json.Name("answered").Bool(poller.answered);
    json.Name("held_by").String(poller.held_by);
    json.EndObject();
  }
  json.EndList();
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace hawser::tool
