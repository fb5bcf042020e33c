#include "hawser/observe/prometheus.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/peer_text.h"

namespace hawser::observe {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// The value of a label. One that is not UTF-8 would make Prometheus drop the whole scrape.
std::string Value(capnp::Text::Reader text) {
  const absl::string_view view(text.cStr(), text.size());
  return IsUtf8(view) ? std::string(view) : EscapePeerText(view);
}

// The families of one answer, in the order in which they were begun.
class Families {
 public:
  class Family {
   public:
    explicit Family(prometheus::MetricFamily& family) : family_(family) {}

    void Add(Labels labels, double value) {
      prometheus::ClientMetric& metric = Metric(std::move(labels));
      if (family_.type == prometheus::MetricType::Counter) {
        metric.counter.value = value;
      } else {
        metric.gauge.value = value;
      }
    }
    prometheus::ClientMetric& Metric(Labels labels) {
      family_.metric.emplace_back();
      family_.metric.back().label = std::move(labels);
      return family_.metric.back();
    }

   private:
    prometheus::MetricFamily& family_;
  };

  Families() { families_.reserve(kMax); }

  Family Counter(const char* name, const char* help) {
    return New(prometheus::MetricType::Counter, name, help);
  }
  Family Gauge(const char* name, const char* help) { return New(prometheus::MetricType::Gauge, name, help); }
  Family Histogram(const char* name, const char* help) {
    return New(prometheus::MetricType::Histogram, name, help);
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  static constexpr size_t kMax = 64;  // So that no Family's reference moves.

  Family New(prometheus::MetricType type, const char* name, const char* help) {
    families_.emplace_back();
    families_.back().name = name;
    families_.back().help = help;
    families_.back().type = type;
    return Family(families_.back());
  }

  std::vector<prometheus::MetricFamily> families_;
};

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// One bound in four: a power of two. The pages have the finer ones.
constexpr unsigned kBucketsOfOne = 4;

void FillIn(wire::Histogram::Reader from, prometheus::ClientMetric::Histogram& to) {
  const auto bounds = from.getBoundsNs();
  const auto counts = from.getCounts();
  for (unsigned i = 0; i < counts.size() && i < bounds.size(); ++i) {
    to.sample_count += counts[i];
    if (i % kBucketsOfOne == 0 && bounds[i] != INT64_MAX) {
      to.bucket.push_back({to.sample_count, Seconds(static_cast<uint64_t>(bounds[i]))});
    }
  }
  // The text format wants a bucket without a bound. Its serializer writes infinity as +Inf.
  to.bucket.push_back({to.sample_count, std::numeric_limits<double>::infinity()});
  to.sample_sum = Seconds(from.getSumNs());
}

void AddServer(wire::Snapshot::Reader snapshot, Families& families) {
  const wire::Server::Reader server = snapshot.getServer();
  families.Gauge("hawser_server_start_time_seconds", "When the server was made, in seconds since 1970.")
      .Add({}, static_cast<double>(server.getStartedUnixNs()) / 1e9);
  families.Gauge("hawser_server_serving", "1 while the server takes calls, 0 from Shutdown() on.")
      .Add({}, server.getState() == wire::Server::State::SERVING ? 1 : 0);
  families.Gauge("hawser_server_connections_open", "Connections, reverse ones included.")
      .Add({}, static_cast<double>(server.getConnectionsOpen()));
  families.Gauge("hawser_server_connections_max", "ServerOptions::connections_max.")
      .Add({}, static_cast<double>(server.getConnectionsMax()));
  families.Gauge("hawser_server_calls_running", "Calls whose handlers have not answered yet.")
      .Add({}, static_cast<double>(server.getCallsRunning()));
  families.Gauge("hawser_server_calls_queued", "Those of them that wait for the executor.")
      .Add({}, static_cast<double>(server.getCallsQueued()));
  families.Counter("hawser_server_requests_total", "Requests that have come, refused ones included.")
      .Add({}, static_cast<double>(server.getCallsTotal()));

  auto connections = families.Gauge("hawser_server_connections", "Clients' connections by fabric and state.");
  auto slots =
      families.Gauge("hawser_server_slots", "Slots of these: the most calls that they can have at once.");
  auto in_use = families.Gauge("hawser_server_slots_in_use", "Those of them that carry a call.");
  auto given = families.Gauge("hawser_server_slots_given",
                              "Those that clients may use now: there are receives for so many requests.");
  auto wanted = families.Gauge("hawser_server_slots_wanted",
                               "Those that are given, and those for which receives wait for memory.");
  for (const auto total : snapshot.getTotals()) {
    const Labels labels = {{"fabric", Value(total.getFabric())}, {"state", Value(total.getState())}};
    connections.Add(labels, static_cast<double>(total.getCount()));
    slots.Add(labels, static_cast<double>(total.getSlots()));
    in_use.Add(labels, static_cast<double>(total.getSlotsInUse()));
    given.Add(labels, static_cast<double>(total.getSlotsGiven()));
    wanted.Add(labels, static_cast<double>(total.getSlotsWanted()));
  }
  auto refusals =
      families.Counter("hawser_server_refusals_total",
                       "Peers that broke the protocol, and connections for which there was no room.");
  for (const auto refusal : snapshot.getRefusals()) {
    refusals.Add({{"reason", Value(refusal.getReason())}}, static_cast<double>(refusal.getCount()));
  }
}

void AddMemory(wire::SharedMemory::Reader memory, Families& families) {
  families.Gauge("hawser_server_shared_memory_bytes", "Memory that clients may reach by themselves.")
      .Add({}, static_cast<double>(memory.getBytes()));
  families.Gauge("hawser_server_shared_memory_regions", "Its regions: Server::Share(), not revoked.")
      .Add({}, static_cast<double>(memory.getRegions()));
  families.Gauge("hawser_server_memory_tickets", "Tickets for it that clients have.")
      .Add({}, static_cast<double>(memory.getTickets()));
  families.Gauge("hawser_server_lanes", "Connections of clients for it that are open.")
      .Add({}, static_cast<double>(memory.getLanes()));
  families.Counter("hawser_server_lanes_opened_total", "Such connections that were accepted.")
      .Add({}, static_cast<double>(memory.getLanesOpened()));
}

void AddRemoteOperations(wire::Snapshot::Reader snapshot, Families& families) {
  auto operations =
      families.Counter("hawser_channel_memory_operations_total",
                       "One-sided operations on the memory of servers that have ended, by kind and status.");
  for (const auto of : snapshot.getRemoteOperations()) {
    for (const auto status : of.getStatuses()) {
      operations.Add({{"kind", Value(of.getKind())}, {"code", Value(status.getName())}},
                     static_cast<double>(status.getCount()));
    }
  }
}

void AddMethods(wire::Snapshot::Reader snapshot, Families& families) {
  auto calls = families.Counter("hawser_server_calls_total", "Calls that have ended, by status.");
  auto running = families.Gauge("hawser_server_method_calls_running", "Calls in flight.");
  auto request_bytes = families.Counter("hawser_server_request_bytes_total", "Bodies of requests.");
  auto response_bytes = families.Counter("hawser_server_response_bytes_total", "Bodies of responses.");
  auto seconds =
      families.Histogram("hawser_server_call_seconds", "From the arrival of a request to its answer.");
  for (const auto method : snapshot.getMethods()) {
    if (method.getCalls() == 0 && method.getRunning() == 0) continue;
    const Labels labels = {{"method", Value(method.getName())}};
    for (const auto status : method.getStatuses()) {
      calls.Add({labels[0], {"code", Value(status.getName())}}, static_cast<double>(status.getCount()));
    }
    running.Add(labels, static_cast<double>(method.getRunning()));
    request_bytes.Add(labels, static_cast<double>(method.getRequestBytes()));
    response_bytes.Add(labels, static_cast<double>(method.getResponseBytes()));
    FillIn(method.getLatency(), seconds.Metric(labels).histogram);
  }
}

void AddPollers(wire::Snapshot::Reader snapshot, Families& families) {
  auto seconds = families.Counter("hawser_poller_seconds_total",
                                  "Where the time of the thread that drives goes: busy, spin or sleep.");
  auto turns = families.Counter("hawser_poller_turns_total", "Turns that found work.");
  auto sleeps = families.Counter("hawser_poller_sleeps_total", "How often the thread slept.");
  auto messages = families.Counter("hawser_poller_messages_total",
                                   "Requests and responses, whole in a SEND, pushed behind it, or READ.");
  auto bytes = families.Counter("hawser_poller_sent_bytes_total", "Bodies of the messages that were sent.");
  auto in_flight = families.Gauge("hawser_poller_read_bytes", "READ bytes in flight.");
  auto budget = families.Gauge("hawser_poller_read_bytes_max", "The budget of these.");
  auto waiting = families.Gauge("hawser_poller_reads_waiting", "Connections that wait for the budget.");
  auto memory =
      families.Gauge("hawser_poller_memory_waiters", "Connections that wait for small buffers of the pool.");
  auto held = families.Gauge("hawser_poller_held", "1 if code of the application held it when it was asked.");
  for (const auto poller : snapshot.getPollers()) {
    const prometheus::ClientMetric::Label name = {"poller", Value(poller.getName())};
    seconds.Add({name, {"part", "busy"}}, Seconds(poller.getBusyNs()));
    seconds.Add({name, {"part", "spin"}}, Seconds(poller.getSpinNs()));
    seconds.Add({name, {"part", "sleep"}}, Seconds(poller.getSleepNs()));
    turns.Add({name}, static_cast<double>(poller.getTurns()));
    sleeps.Add({name}, static_cast<double>(poller.getSleeps()));
    const std::pair<const char*, uint64_t> sent[] = {
        {"whole", poller.getSentWhole()}, {"pushed", poller.getSentPushed()}, {"read", poller.getSentRead()}};
    const std::pair<const char*, uint64_t> received[] = {{"whole", poller.getReceivedWhole()},
                                                         {"pushed", poller.getReceivedPushed()},
                                                         {"read", poller.getReceivedRead()}};
    for (const auto& [way, count] : sent) {
      messages.Add({name, {"direction", "sent"}, {"way", way}}, static_cast<double>(count));
    }
    for (const auto& [way, count] : received) {
      messages.Add({name, {"direction", "received"}, {"way", way}}, static_cast<double>(count));
    }
    bytes.Add({name}, static_cast<double>(poller.getSentBytes()));
    budget.Add({name}, static_cast<double>(poller.getReadBytesMax()));
    held.Add({name}, poller.getAnswered() ? 0 : 1);
    if (!poller.getAnswered()) continue;
    in_flight.Add({name}, static_cast<double>(poller.getReadBytesInFlight()));
    waiting.Add({name}, static_cast<double>(poller.getReadsWaiting()));
    memory.Add({name}, static_cast<double>(poller.getMemoryWaiters()));
  }
}

void AddPools(wire::Snapshot::Reader snapshot, Families& families) {
  auto bytes = families.Gauge("hawser_pool_bytes", "Registered memory: leased, in all, and the limit.");
  auto buffers = families.Gauge("hawser_pool_buffers", "Buffers of one size, registered and leased.");
  for (const auto pool : snapshot.getPools()) {
    const prometheus::ClientMetric::Label name = {"pool", Value(pool.getName())};
    bytes.Add({name, {"kind", "leased"}}, static_cast<double>(pool.getLeasedBytes()));
    bytes.Add({name, {"kind", "registered"}}, static_cast<double>(pool.getRegisteredBytes()));
    bytes.Add({name, {"kind", "limit"}}, static_cast<double>(pool.getLimitBytes()));
    for (const auto of : pool.getClasses()) {
      const prometheus::ClientMetric::Label size = {"size", absl::StrCat(of.getBufferBytes())};
      buffers.Add({name, size, {"kind", "leased"}}, static_cast<double>(of.getLeased()));
      buffers.Add({name, size, {"kind", "registered"}}, static_cast<double>(of.getBuffers()));
    }
  }
}

void AddTls(wire::Tls::Reader tls, Families& families) {
  auto handshakes = families.Counter("hawser_server_tls_handshakes_total",
                                     "TLS handshakes with clients: full, resumed with a ticket, or failed.");
  handshakes.Add({{"result", "full"}}, static_cast<double>(tls.getFull()));
  handshakes.Add({{"result", "resumed"}}, static_cast<double>(tls.getResumed()));
  handshakes.Add({{"result", "failed"}}, static_cast<double>(tls.getFailed()));
}

// The names that Prometheus's own client libraries give these.
void AddProcess(wire::Process::Reader process, Families& families) {
  families.Counter("process_cpu_seconds_total", "Processor time of the process, in user and kernel mode.")
      .Add({}, Seconds(process.getCpuNs()));
  // What is unknown is left out: 0 would be read as a value.
  const auto add = [&families](const char* name, const char* help, uint64_t value) {
    if (value != 0) families.Gauge(name, help).Add({}, static_cast<double>(value));
  };
  add("process_resident_memory_bytes", "Memory of the process that is resident.", process.getResidentBytes());
  add("process_virtual_memory_bytes", "Memory of the process, mapped but not touched included.",
      process.getVirtualBytes());
  add("process_open_fds", "Open file descriptors.", process.getOpenFiles());
  add("process_max_fds", "The limit of these.", process.getOpenFilesMax());
  if (process.getStartedUnixNs() == 0) return;
  families.Gauge("process_start_time_seconds", "When the process began, in seconds since 1970.")
      .Add({}, static_cast<double>(process.getStartedUnixNs()) / 1e9);
}

void AddOutgoing(wire::Snapshot::Reader snapshot, Families& families) {
  auto calls = families.Counter("hawser_channel_calls_total",
                                "Calls that the process has made and that have ended, by target and status.");
  auto seconds = families.Histogram("hawser_channel_call_seconds",
                                    "From when the poller has a call to send to its result.");
  for (const auto outgoing : snapshot.getOutgoing()) {
    const wire::Method::Reader method = outgoing.getMethod();
    const Labels labels = {{"target", Value(outgoing.getTarget())}, {"method", Value(method.getName())}};
    for (const auto status : method.getStatuses()) {
      calls.Add({labels[0], labels[1], {"code", Value(status.getName())}},
                static_cast<double>(status.getCount()));
    }
    FillIn(method.getLatency(), seconds.Metric(labels).histogram);
  }
  families.Gauge("hawser_channel_calls_left_out", "Pairs of target and method that are not shown: too many.")
      .Add({}, static_cast<double>(snapshot.getOutgoingLeftOut()));
}

void AddChannels(wire::Snapshot::Reader snapshot, Families& families) {
  const wire::ChannelCounts::Reader counts = snapshot.getChannelTotals();
  auto events = families.Counter("hawser_channel_events_total",
                                 "Of the channels of the process: connected, lost, and failed attempts.");
  events.Add({{"event", "connected"}}, static_cast<double>(counts.getConnects()));
  events.Add({{"event", "lost"}}, static_cast<double>(counts.getLosses()));
  events.Add({{"event", "failed"}}, static_cast<double>(counts.getFailedAttempts()));
  families
      .Gauge("hawser_channel_calls_waiting",
             "Calls of these channels that wait for a connection, or for a free slot.")
      .Add({}, static_cast<double>(snapshot.getChannelCallsWaiting()));
}

}  // namespace

std::string ToPrometheus(wire::Snapshot::Reader snapshot) {
  Families families;
  if (snapshot.hasServer()) {
    AddServer(snapshot, families);
    AddMethods(snapshot, families);
    AddPollers(snapshot, families);
    AddPools(snapshot, families);
    AddTls(snapshot.getTls(), families);
    AddMemory(snapshot.getMemory(), families);
  }
  AddChannels(snapshot, families);
  AddOutgoing(snapshot, families);
  AddRemoteOperations(snapshot, families);
  AddProcess(snapshot.getProcess(), families);
  return families.Text();
}

}  // namespace hawser::observe
