#ifndef HAWSER_OBSERVE_FACTS_H_
#define HAWSER_OBSERVE_FACTS_H_

#include <array>
#include <concepts>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/check.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/observe/units.h"

namespace hawser::observe {

// What the rows of a snapshot say in numbers. Each fact that is read from a row is described once: how it is
// read, its unit, what a column with it is called, and which metric it is. /metrics, the pages, `hawser
// status` and `hawser top` are made from these descriptions, each from those that it shows and in its own
// order. What is computed from several, and histograms, are described where they are shown. JSON of a
// snapshot has the names of snapshot.capnp.
//
//   table = Table({{"memory"}, ColumnOf(pool::kLeased)});
//   table.Row({View(row.getName()), pool::kLeased.Text(row)});
//
// Thread: any.

// A metric. Several facts may be values of one, which differ in their labels.
struct Metric {
  enum class Type { kCounter, kGauge };

  const char* name;
  const char* help;
  Type type = Type::kCounter;
};

enum class Unit {
  kCount,
  kBytes,
  kNs,  // Metrics have seconds.
};

// When a value means something.
enum class Known {
  kAlways,
  kOfAnswer,  // If the poller answered.
  kNotZero,   // 0 is unknown.
};

template <typename Row, typename Value = uint64_t>
struct Fact {
  struct Label {
    const char* key = nullptr;  // Null: there is no label.
    const char* value = nullptr;
  };

  Value (Row::*get)() const;
  const char* column = nullptr;  // Null: no table has it.
  Unit unit = Unit::kCount;
  const Metric* metric = nullptr;  // Null: it is none.
  std::array<Label, 2> labels = {};
  Known known = Known::kAlways;

  bool IsKnown(Row row) const {
    if constexpr (requires {
                    { row.getAnswered() } -> std::same_as<bool>;
                  }) {
      if (known == Known::kOfAnswer) return row.getAnswered();
    } else {
      HAWSER_CHECK(known != Known::kOfAnswer, "such a row does not say whether it was answered");
    }
    return known != Known::kNotZero || (row.*get)() != 0;
  }
  // As people read it; "?" if it is not known.
  std::string Text(Row row) const {
    if (!IsKnown(row)) return "?";
    const Value value = (row.*get)();
    switch (unit) {
      case Unit::kBytes:
        return BytesText(static_cast<uint64_t>(value));
      case Unit::kNs:
        return DurationText(static_cast<int64_t>(value));
      case Unit::kCount:
        break;
    }
    return absl::StrCat(value);
  }
};

namespace server {

using Row = wire::Server::Reader;

inline constexpr Metric kConnectionsMetric = {"hawser_server_connections_open",
                                              "Connections, reverse ones included.", Metric::Type::kGauge};
inline constexpr Metric kConnectionsMaxMetric = {"hawser_server_connections_max",
                                                 "ServerOptions::connections_max.", Metric::Type::kGauge};
inline constexpr Metric kRunningMetric = {
    "hawser_server_calls_running", "Calls whose handlers have not answered yet.", Metric::Type::kGauge};
inline constexpr Metric kQueuedMetric = {"hawser_server_calls_queued",
                                         "Those of them that wait for the executor.", Metric::Type::kGauge};
inline constexpr Metric kRequestsMetric = {"hawser_server_requests_total",
                                           "Requests that have come, refused ones included."};

// "serving".
inline absl::string_view NameOf(wire::Server::State state) {
  switch (state) {
    case wire::Server::State::SERVING:
      return "serving";
    case wire::Server::State::DRAINING:
      return "draining";
    case wire::Server::State::DOWN:
      return "down";
  }
  return "in a state that this program does not know";
}

inline constexpr Fact<Row> kConnections = {
    .get = &Row::getConnectionsOpen, .column = "connections", .metric = &kConnectionsMetric};
inline constexpr Fact<Row> kConnectionsMax = {.get = &Row::getConnectionsMax,
                                              .metric = &kConnectionsMaxMetric};
inline constexpr Fact<Row> kRunning = {.get = &Row::getCallsRunning, .metric = &kRunningMetric};
inline constexpr Fact<Row> kQueued = {.get = &Row::getCallsQueued, .metric = &kQueuedMetric};
inline constexpr Fact<Row> kRequests = {.get = &Row::getCallsTotal, .metric = &kRequestsMetric};

}  // namespace server

// Connections of clients by fabric and state.
namespace total {

using Row = wire::ConnectionTotal::Reader;

inline constexpr Metric kConnectionsMetric = {
    "hawser_server_connections", "Clients' connections by fabric and state.", Metric::Type::kGauge};
inline constexpr Metric kSlotsMetric = {"hawser_server_slots",
                                        "Slots of these: the most calls that they can have at once.",
                                        Metric::Type::kGauge};
inline constexpr Metric kInUseMetric = {"hawser_server_slots_in_use", "Those of them that carry a call.",
                                        Metric::Type::kGauge};
inline constexpr Metric kGivenMetric = {
    "hawser_server_slots_given", "Those that clients may use now: there are receives for so many requests.",
    Metric::Type::kGauge};
inline constexpr Metric kWantedMetric = {
    "hawser_server_slots_wanted", "Those that are given, and those for which receives wait for memory.",
    Metric::Type::kGauge};

inline constexpr Fact<Row> kConnections = {
    .get = &Row::getCount, .column = "connections", .metric = &kConnectionsMetric};
inline constexpr Fact<Row> kSlots = {.get = &Row::getSlots, .column = "slots", .metric = &kSlotsMetric};
inline constexpr Fact<Row> kInUse = {.get = &Row::getSlotsInUse, .column = "in use", .metric = &kInUseMetric};
inline constexpr Fact<Row> kGiven = {.get = &Row::getSlotsGiven, .column = "given", .metric = &kGivenMetric};
inline constexpr Fact<Row> kWanted = {
    .get = &Row::getSlotsWanted, .column = "wanted", .metric = &kWantedMetric};

}  // namespace total

// Peers that were refused, by reason.
namespace refusal {

using Row = wire::Refusal::Reader;

inline constexpr Metric kPeersMetric = {
    "hawser_server_refusals_total",
    "Peers that broke the protocol, those that stalled while the server drained, and connections for which "
    "there was no room."};

inline constexpr Fact<Row> kPeers = {.get = &Row::getCount, .column = "peers", .metric = &kPeersMetric};

}  // namespace refusal

// Methods that are served.
namespace method {

using Row = wire::Method::Reader;

inline constexpr Metric kRunningMetric = {"hawser_server_method_calls_running", "Calls in flight.",
                                          Metric::Type::kGauge};
inline constexpr Metric kInMetric = {"hawser_server_request_bytes_total", "Bodies of requests."};
inline constexpr Metric kOutMetric = {"hawser_server_response_bytes_total", "Bodies of responses."};

// Its metric counts by status: see `status`.
inline constexpr Fact<Row> kCalls = {.get = &Row::getCalls, .column = "calls"};
inline constexpr Fact<Row> kRunning = {
    .get = &Row::getRunning, .column = "in flight", .metric = &kRunningMetric};
inline constexpr Fact<Row> kIn = {
    .get = &Row::getRequestBytes, .column = "in", .unit = Unit::kBytes, .metric = &kInMetric};
inline constexpr Fact<Row> kOut = {
    .get = &Row::getResponseBytes, .column = "out", .unit = Unit::kBytes, .metric = &kOutMetric};

}  // namespace method

// What has ended, by status: calls that were served, calls that the process has made, and its one-sided
// operations.
namespace status {

using Row = wire::StatusCount::Reader;

inline constexpr Metric kServedMetric = {"hawser_server_calls_total", "Calls that have ended, by status."};
inline constexpr Metric kMadeMetric = {
    "hawser_channel_calls_total",
    "Calls that the process has made and that have ended, by target and status."};
inline constexpr Metric kOperationsMetric = {
    "hawser_channel_memory_operations_total",
    "One-sided operations on the memory of servers that have ended, by kind and status."};

inline constexpr Fact<Row> kServed = {.get = &Row::getCount, .metric = &kServedMetric};
inline constexpr Fact<Row> kMade = {.get = &Row::getCount, .metric = &kMadeMetric};
inline constexpr Fact<Row> kOperations = {
    .get = &Row::getCount, .column = "operations", .metric = &kOperationsMetric};

}  // namespace status

// Calls in flight, and the slowest of those that have ended.
namespace call {

using Row = wire::Call::Reader;

inline constexpr Fact<Row, int64_t> kAge = {.get = &Row::getAgeNs, .column = "age", .unit = Unit::kNs};
inline constexpr Fact<Row, int64_t> kTook = {.get = &Row::getAgeNs, .column = "took", .unit = Unit::kNs};
inline constexpr Fact<Row> kRequest = {
    .get = &Row::getRequestBytes, .column = "request", .unit = Unit::kBytes};
inline constexpr Fact<Row, int64_t> kQueued = {
    .get = &Row::getQueuedNs, .column = "waited", .unit = Unit::kNs};
inline constexpr Fact<Row, int64_t> kHandler = {
    .get = &Row::getHandlerNs, .column = "handler", .unit = Unit::kNs};
inline constexpr Fact<Row, int64_t> kDeferred = {
    .get = &Row::getDeferredNs, .column = "deferred", .unit = Unit::kNs};

}  // namespace call

namespace poller {

using Row = wire::Poller::Reader;

inline constexpr Metric kSecondsMetric = {
    "hawser_poller_seconds_total", "Where the time of the thread that drives goes: busy, spin or sleep."};
inline constexpr Metric kTurnsMetric = {"hawser_poller_turns_total", "Turns that found work."};
inline constexpr Metric kSleepsMetric = {"hawser_poller_sleeps_total", "How often the thread slept."};
inline constexpr Metric kMessagesMetric = {
    "hawser_poller_messages_total", "Requests and responses, whole in a SEND, pushed behind it, or READ."};
inline constexpr Metric kSentBytesMetric = {"hawser_poller_sent_bytes_total",
                                            "Bodies of the messages that were sent."};
inline constexpr Metric kReadBytesMetric = {"hawser_poller_read_bytes", "READ bytes in flight.",
                                            Metric::Type::kGauge};
inline constexpr Metric kReadBytesMaxMetric = {"hawser_poller_read_bytes_max", "The budget of these.",
                                               Metric::Type::kGauge};
inline constexpr Metric kReadsWaitMetric = {"hawser_poller_reads_waiting",
                                            "Connections that wait for the budget.", Metric::Type::kGauge};
inline constexpr Metric kWantMemoryMetric = {"hawser_poller_memory_waiters",
                                             "Connections that wait for small buffers of the pool.",
                                             Metric::Type::kGauge};

// Whether it answered: 1 if not. A table says what holds it.
inline constexpr Metric kHeldMetric = {
    "hawser_poller_held", "1 if code of the application held it when it was asked.", Metric::Type::kGauge};

// A table shows them as parts of the time.
inline constexpr Fact<Row> kBusy = {.get = &Row::getBusyNs,
                                    .column = "busy",
                                    .unit = Unit::kNs,
                                    .metric = &kSecondsMetric,
                                    .labels = {{{"part", "busy"}}}};
inline constexpr Fact<Row> kSpin = {.get = &Row::getSpinNs,
                                    .column = "spin",
                                    .unit = Unit::kNs,
                                    .metric = &kSecondsMetric,
                                    .labels = {{{"part", "spin"}}}};
inline constexpr Fact<Row> kSleep = {.get = &Row::getSleepNs,
                                     .column = "sleep",
                                     .unit = Unit::kNs,
                                     .metric = &kSecondsMetric,
                                     .labels = {{{"part", "sleep"}}}};
inline constexpr Fact<Row> kTurns = {.get = &Row::getTurns, .column = "turns", .metric = &kTurnsMetric};
inline constexpr Fact<Row> kSleeps = {.get = &Row::getSleeps, .column = "sleeps", .metric = &kSleepsMetric};
inline constexpr Fact<Row> kSentWhole = {.get = &Row::getSentWhole,
                                         .column = "sent whole",
                                         .metric = &kMessagesMetric,
                                         .labels = {{{"direction", "sent"}, {"way", "whole"}}}};
inline constexpr Fact<Row> kSentPushed = {.get = &Row::getSentPushed,
                                          .column = "pushed",
                                          .metric = &kMessagesMetric,
                                          .labels = {{{"direction", "sent"}, {"way", "pushed"}}}};
inline constexpr Fact<Row> kSentRead = {.get = &Row::getSentRead,
                                        .column = "READ by the peer",
                                        .metric = &kMessagesMetric,
                                        .labels = {{{"direction", "sent"}, {"way", "read"}}}};
inline constexpr Fact<Row> kReceivedWhole = {.get = &Row::getReceivedWhole,
                                             .column = "received whole",
                                             .metric = &kMessagesMetric,
                                             .labels = {{{"direction", "received"}, {"way", "whole"}}}};
inline constexpr Fact<Row> kReceivedPushed = {.get = &Row::getReceivedPushed,
                                              .column = "pushed",
                                              .metric = &kMessagesMetric,
                                              .labels = {{{"direction", "received"}, {"way", "pushed"}}}};
inline constexpr Fact<Row> kReceivedRead = {.get = &Row::getReceivedRead,
                                            .column = "READ",
                                            .metric = &kMessagesMetric,
                                            .labels = {{{"direction", "received"}, {"way", "read"}}}};
inline constexpr Fact<Row> kSentBytes = {
    .get = &Row::getSentBytes, .column = "sent", .unit = Unit::kBytes, .metric = &kSentBytesMetric};
inline constexpr Fact<Row> kConnections = {
    .get = &Row::getConnections, .column = "conns", .known = Known::kOfAnswer};
inline constexpr Fact<Row> kReadBytes = {.get = &Row::getReadBytesInFlight,
                                         .column = "READ in flight",
                                         .unit = Unit::kBytes,
                                         .metric = &kReadBytesMetric,
                                         .known = Known::kOfAnswer};
inline constexpr Fact<Row> kReadBytesMax = {
    .get = &Row::getReadBytesMax, .unit = Unit::kBytes, .metric = &kReadBytesMaxMetric};
inline constexpr Fact<Row> kReadsWait = {.get = &Row::getReadsWaiting,
                                         .column = "reads wait",
                                         .metric = &kReadsWaitMetric,
                                         .known = Known::kOfAnswer};
inline constexpr Fact<Row> kWantMemory = {.get = &Row::getMemoryWaiters,
                                          .column = "want memory",
                                          .metric = &kWantMemoryMetric,
                                          .known = Known::kOfAnswer};

}  // namespace poller

// Registered memory.
namespace pool {

using Row = wire::Pool::Reader;

inline constexpr Metric kBytesMetric = {
    "hawser_pool_bytes", "Registered memory: leased, in all, and the limit.", Metric::Type::kGauge};

inline constexpr Fact<Row> kLeased = {.get = &Row::getLeasedBytes,
                                      .column = "in use",
                                      .unit = Unit::kBytes,
                                      .metric = &kBytesMetric,
                                      .labels = {{{"kind", "leased"}}}};
inline constexpr Fact<Row> kRegistered = {.get = &Row::getRegisteredBytes,
                                          .column = "registered",
                                          .unit = Unit::kBytes,
                                          .metric = &kBytesMetric,
                                          .labels = {{{"kind", "registered"}}}};
inline constexpr Fact<Row> kLimit = {.get = &Row::getLimitBytes,
                                     .column = "limit",
                                     .unit = Unit::kBytes,
                                     .metric = &kBytesMetric,
                                     .labels = {{{"kind", "limit"}}}};

}  // namespace pool

// The buffers of one size in a pool.
namespace pool_class {

using Row = wire::PoolClass::Reader;

inline constexpr Metric kBuffersMetric = {
    "hawser_pool_buffers", "Buffers of one size, registered and leased.", Metric::Type::kGauge};

// A metric has it as a label, in bytes.
inline constexpr Fact<Row> kSize = {.get = &Row::getBufferBytes, .column = "size", .unit = Unit::kBytes};
inline constexpr Fact<Row> kLeased = {
    .get = &Row::getLeased, .column = "in use", .metric = &kBuffersMetric, .labels = {{{"kind", "leased"}}}};
inline constexpr Fact<Row> kRegistered = {.get = &Row::getBuffers,
                                          .column = "registered",
                                          .metric = &kBuffersMetric,
                                          .labels = {{{"kind", "registered"}}}};

}  // namespace pool_class

// Memory that clients reach by themselves.
namespace shared {

using Row = wire::SharedMemory::Reader;

inline constexpr Metric kBytesMetric = {"hawser_server_shared_memory_bytes",
                                        "Memory that clients may reach by themselves.", Metric::Type::kGauge};
inline constexpr Metric kRegionsMetric = {"hawser_server_shared_memory_regions",
                                          "Its regions: Server::Share(), not revoked.", Metric::Type::kGauge};
inline constexpr Metric kTicketsMetric = {"hawser_server_memory_tickets", "Tickets for it that clients have.",
                                          Metric::Type::kGauge};
inline constexpr Metric kGrantsMetric = {"hawser_server_memory_grants", "Tickets that are in use on a lane.",
                                         Metric::Type::kGauge};
inline constexpr Metric kLanesMetric = {"hawser_server_lanes", "Connections of clients for it that are open.",
                                        Metric::Type::kGauge};
inline constexpr Metric kLanesOpenedMetric = {"hawser_server_lanes_opened_total",
                                              "Such connections that were accepted."};

inline constexpr Fact<Row> kBytes = {
    .get = &Row::getBytes, .column = "shared memory", .unit = Unit::kBytes, .metric = &kBytesMetric};
inline constexpr Fact<Row> kRegions = {
    .get = &Row::getRegions, .column = "regions", .metric = &kRegionsMetric};
inline constexpr Fact<Row> kTickets = {
    .get = &Row::getTickets, .column = "tickets", .metric = &kTicketsMetric};
inline constexpr Fact<Row> kGrants = {.get = &Row::getGrants, .column = "grants", .metric = &kGrantsMetric};
inline constexpr Fact<Row> kLanes = {.get = &Row::getLanes, .column = "lanes", .metric = &kLanesMetric};
inline constexpr Fact<Row> kLanesOpened = {
    .get = &Row::getLanesOpened, .column = "lanes opened", .metric = &kLanesOpenedMetric};

}  // namespace shared

// Handshakes with clients.
namespace tls {

using Row = wire::Tls::Reader;

inline constexpr Metric kHandshakesMetric = {
    "hawser_server_tls_handshakes_total",
    "TLS handshakes with clients: full, resumed with a ticket, or failed."};

inline constexpr Fact<Row> kFull = {
    .get = &Row::getFull, .metric = &kHandshakesMetric, .labels = {{{"result", "full"}}}};
inline constexpr Fact<Row> kResumed = {
    .get = &Row::getResumed, .metric = &kHandshakesMetric, .labels = {{{"result", "resumed"}}}};
inline constexpr Fact<Row> kFailed = {
    .get = &Row::getFailed, .metric = &kHandshakesMetric, .labels = {{{"result", "failed"}}}};

}  // namespace tls

// Channels to other servers: a table has a row for each, a metric counts all.
namespace channel {

using Row = wire::ChannelCounts::Reader;

inline constexpr Metric kEventsMetric = {
    "hawser_channel_events_total", "Of the channels of the process: connected, lost, and failed attempts."};

inline constexpr Fact<wire::Channel::Reader> kCallsWait = {.get = &wire::Channel::Reader::getCallsWaiting,
                                                           .column = "calls wait"};
inline constexpr Fact<Row> kConnected = {.get = &Row::getConnects,
                                         .column = "connected",
                                         .metric = &kEventsMetric,
                                         .labels = {{{"event", "connected"}}}};
inline constexpr Fact<Row> kLost = {
    .get = &Row::getLosses, .column = "lost", .metric = &kEventsMetric, .labels = {{{"event", "lost"}}}};
inline constexpr Fact<Row> kFailed = {.get = &Row::getFailedAttempts,
                                      .column = "attempts failed",
                                      .metric = &kEventsMetric,
                                      .labels = {{{"event", "failed"}}}};

}  // namespace channel

// The process, by the names that Prometheus's own client libraries give its metrics.
namespace process {

using Row = wire::Process::Reader;

inline constexpr Metric kCpuMetric = {"process_cpu_seconds_total",
                                      "Processor time of the process, in user and kernel mode."};
inline constexpr Metric kResidentMetric = {"process_resident_memory_bytes",
                                           "Memory of the process that is resident.", Metric::Type::kGauge};
inline constexpr Metric kVirtualMetric = {"process_virtual_memory_bytes",
                                          "Memory of the process, mapped but not touched included.",
                                          Metric::Type::kGauge};
inline constexpr Metric kOpenFilesMetric = {"process_open_fds", "Open file descriptors.",
                                            Metric::Type::kGauge};
inline constexpr Metric kOpenFilesMaxMetric = {"process_max_fds", "The limit of these.",
                                               Metric::Type::kGauge};

inline constexpr Fact<Row> kCpu = {.get = &Row::getCpuNs, .unit = Unit::kNs, .metric = &kCpuMetric};
inline constexpr Fact<Row> kResident = {.get = &Row::getResidentBytes,
                                        .unit = Unit::kBytes,
                                        .metric = &kResidentMetric,
                                        .known = Known::kNotZero};
inline constexpr Fact<Row> kVirtual = {
    .get = &Row::getVirtualBytes, .unit = Unit::kBytes, .metric = &kVirtualMetric, .known = Known::kNotZero};
inline constexpr Fact<Row> kOpenFiles = {
    .get = &Row::getOpenFiles, .metric = &kOpenFilesMetric, .known = Known::kNotZero};
inline constexpr Fact<Row> kOpenFilesMax = {
    .get = &Row::getOpenFilesMax, .metric = &kOpenFilesMaxMetric, .known = Known::kNotZero};

}  // namespace process

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_FACTS_H_
