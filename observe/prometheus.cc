#include "hawser/observe/prometheus.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/check.h"
#include "hawser/base/peer_text.h"
#include "hawser/observe/facts.h"

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
  Families() { families_.reserve(kMax); }

  // The family of `metric`, which begins here if it has not.
  prometheus::MetricFamily& Of(const Metric& metric) {
    for (size_t i = 0; i < begun_.size(); ++i) {
      if (begun_[i] == &metric) return families_[i];
    }
    const bool counts = metric.type == Metric::Type::kCounter;
    return New(metric.name, metric.help,
               counts ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge, &metric);
  }
  // With one value and no label.
  void Gauge(const char* name, const char* help, double value) {
    Append(New(name, help, prometheus::MetricType::Gauge), {}).gauge.value = value;
  }
  prometheus::MetricFamily& Histogram(const char* name, const char* help) {
    return New(name, help, prometheus::MetricType::Histogram);
  }

  static prometheus::ClientMetric& Append(prometheus::MetricFamily& family, Labels labels) {
    family.metric.emplace_back();
    family.metric.back().label = std::move(labels);
    return family.metric.back();
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  static constexpr size_t kMax = 64;  // So that no reference to a family moves.

  prometheus::MetricFamily& New(const char* name, const char* help, prometheus::MetricType type,
                                const Metric* metric = nullptr) {
    begun_.push_back(metric);
    families_.emplace_back();
    families_.back().name = name;
    families_.back().help = help;
    families_.back().type = type;
    return families_.back();
  }

  std::vector<const Metric*> begun_;  // The metric of each family; null: it has none in facts.h.
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

template <typename Row>
const Metric& MetricOf(const Fact<Row>& fact) {
  HAWSER_CHECK(fact.metric != nullptr, "this fact is no metric: ", fact.column == nullptr ? "" : fact.column);
  return *fact.metric;
}

// The values of `facts` that are known, as metrics of `labels` and the facts' own.
template <typename Row>
void AddRow(Row row, const Labels& labels, std::initializer_list<const Fact<Row>*> facts,
            Families& families) {
  for (const Fact<Row>* const fact : facts) {
    if (!fact->IsKnown(row)) continue;
    const uint64_t value = (row.*fact->get)();
    Labels all = labels;
    for (const auto& label : fact->labels) {
      if (label.key != nullptr) all.push_back({label.key, label.value});
    }
    const Metric& described = MetricOf(*fact);
    prometheus::ClientMetric& metric = Families::Append(families.Of(described), std::move(all));
    const double number = fact->unit == Unit::kNs ? Seconds(value) : static_cast<double>(value);
    (described.type == Metric::Type::kCounter ? metric.counter.value : metric.gauge.value) = number;
  }
}

// The same for each row; `labels` gives those of one. The families are there also if there are no rows.
template <typename Row, typename Rows, typename LabelsOf>
void AddRows(const Rows& rows, std::initializer_list<const Fact<Row>*> facts, const LabelsOf& labels,
             Families& families) {
  for (const Fact<Row>* const fact : facts) families.Of(MetricOf(*fact));
  for (const auto row : rows) AddRow(row, labels(row), facts, families);
}

// One label of a row: what a getter gives.
template <typename Row, typename Getter>
auto Label(const char* key, Getter text) {
  return [key, text](Row row) { return Labels{{key, Value((row.*text)())}}; };
}

// What has ended, by status, with the labels of what it was.
void AddStatuses(capnp::List<wire::StatusCount>::Reader statuses, Labels labels,
                 const Fact<wire::StatusCount::Reader>& fact, Families& families) {
  labels.emplace_back();
  for (const auto status : statuses) {
    labels.back() = {"code", Value(status.getName())};
    AddRow(status, labels, {&fact}, families);
  }
}

void AddServer(wire::Snapshot::Reader snapshot, Families& families) {
  const wire::Server::Reader server = snapshot.getServer();
  families.Gauge("hawser_server_start_time_seconds", "When the server was made, in seconds since 1970.",
                 static_cast<double>(server.getStartedUnixNs()) / 1e9);
  families.Gauge("hawser_server_serving", "1 while the server takes calls, 0 from Shutdown() on.",
                 server.getState() == wire::Server::State::SERVING ? 1 : 0);
  AddRow(server, {},
         {&server::kConnections, &server::kConnectionsMax, &server::kRunning, &server::kQueued,
          &server::kRequests},
         families);
  AddRows<total::Row>(
      snapshot.getTotals(),
      {&total::kConnections, &total::kSlots, &total::kInUse, &total::kGiven, &total::kWanted},
      [](total::Row row) {
        return Labels{{"fabric", Value(row.getFabric())}, {"state", Value(row.getState())}};
      },
      families);
  AddRows<refusal::Row>(snapshot.getRefusals(), {&refusal::kPeers},
                        Label<refusal::Row>("reason", &refusal::Row::getReason), families);
}

void AddMemory(shared::Row memory, Families& families) {
  AddRow(memory, {},
         {&shared::kBytes, &shared::kRegions, &shared::kTickets, &shared::kGrants, &shared::kLanes,
          &shared::kLanesOpened},
         families);
}

void AddRemoteOperations(wire::Snapshot::Reader snapshot, Families& families) {
  families.Of(status::kOperationsMetric);
  for (const auto of : snapshot.getRemoteOperations()) {
    AddStatuses(of.getStatuses(), {{"kind", Value(of.getKind())}}, status::kOperations, families);
  }
}

void AddMethods(wire::Snapshot::Reader snapshot, Families& families) {
  families.Of(status::kServedMetric);
  for (const Metric* metric : {&method::kRunningMetric, &method::kInMetric, &method::kOutMetric}) {
    families.Of(*metric);
  }
  auto& seconds =
      families.Histogram("hawser_server_call_seconds", "From the arrival of a request to its answer.");
  for (const auto method : snapshot.getMethods()) {
    if (method.getCalls() == 0 && method.getRunning() == 0) continue;
    const Labels labels = {{"method", Value(method.getName())}};
    AddStatuses(method.getStatuses(), labels, status::kServed, families);
    AddRow(method, labels, {&method::kRunning, &method::kIn, &method::kOut}, families);
    FillIn(method.getLatency(), Families::Append(seconds, labels).histogram);
  }
}

void AddPollers(wire::Snapshot::Reader snapshot, Families& families) {
  const auto name = Label<poller::Row>("poller", &poller::Row::getName);
  AddRows<poller::Row>(
      snapshot.getPollers(),
      {&poller::kBusy, &poller::kSpin, &poller::kSleep, &poller::kTurns, &poller::kSleeps,
       &poller::kSentWhole, &poller::kSentPushed, &poller::kSentRead, &poller::kReceivedWhole,
       &poller::kReceivedPushed, &poller::kReceivedRead, &poller::kSentBytes, &poller::kReadBytes,
       &poller::kReadBytesMax, &poller::kReadsWait, &poller::kWantMemory},
      name, families);
  auto& held = families.Of(poller::kHeldMetric);
  for (const auto poller : snapshot.getPollers()) {
    Families::Append(held, name(poller)).gauge.value = poller.getAnswered() ? 0 : 1;
  }
}

void AddPools(wire::Snapshot::Reader snapshot, Families& families) {
  const auto name = Label<pool::Row>("pool", &pool::Row::getName);
  AddRows<pool::Row>(snapshot.getPools(), {&pool::kLeased, &pool::kRegistered, &pool::kLimit}, name,
                     families);
  families.Of(pool_class::kBuffersMetric);
  for (const auto pool : snapshot.getPools()) {
    AddRows<pool_class::Row>(
        pool.getClasses(), {&pool_class::kLeased, &pool_class::kRegistered},
        [&](pool_class::Row row) {
          Labels labels = name(pool);
          labels.push_back({"size", absl::StrCat(row.getBufferBytes())});
          return labels;
        },
        families);
  }
}

void AddTls(tls::Row tls, Families& families) {
  AddRow(tls, {}, {&tls::kFull, &tls::kResumed, &tls::kFailed}, families);
}

void AddProcess(process::Row process, Families& families) {
  AddRow(process, {},
         {&process::kCpu, &process::kResident, &process::kVirtual, &process::kOpenFiles,
          &process::kOpenFilesMax},
         families);
  if (process.getStartedUnixNs() == 0) return;
  families.Gauge("process_start_time_seconds", "When the process began, in seconds since 1970.",
                 static_cast<double>(process.getStartedUnixNs()) / 1e9);
}

void AddOutgoing(wire::Snapshot::Reader snapshot, Families& families) {
  families.Of(status::kMadeMetric);
  auto& seconds = families.Histogram("hawser_channel_call_seconds",
                                     "From when the poller has a call to send to its result.");
  for (const auto outgoing : snapshot.getOutgoing()) {
    const method::Row method = outgoing.getMethod();
    const Labels labels = {{"target", Value(outgoing.getTarget())}, {"method", Value(method.getName())}};
    AddStatuses(method.getStatuses(), labels, status::kMade, families);
    FillIn(method.getLatency(), Families::Append(seconds, labels).histogram);
  }
  families.Gauge("hawser_channel_calls_left_out", "Pairs of target and method that are not shown: too many.",
                 static_cast<double>(snapshot.getOutgoingLeftOut()));
}

void AddChannels(wire::Snapshot::Reader snapshot, Families& families) {
  AddRow(snapshot.getChannelTotals(), {}, {&channel::kConnected, &channel::kLost, &channel::kFailed},
         families);
  families.Gauge("hawser_channel_calls_waiting",
                 "Calls of these channels that wait for a connection, or for a free slot.",
                 static_cast<double>(snapshot.getChannelCallsWaiting()));
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
