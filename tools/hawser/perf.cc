#include "hawser/services/perf/perf.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/stop_signal.h"
#include "hawser/base/json_writer.h"
#include "hawser/rpc/runtime.h"
#include "hawser/rpc/server.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/perf_floor.h"
#include "hawser/tools/hawser/perf_meter.h"
#include "hawser/tools/hawser/perf_remote.h"
#include "hawser/tools/hawser/perf_text.h"
#include "hawser/transport/uri.h"

namespace hawser::tool {
namespace {

using Kind = PerfTest::Kind;
using Direction = PerfTest::Direction;
using Operation = PerfTest::Operation;
using Way = PerfWay;

constexpr size_t kNotGiven = ~size_t{0};
constexpr PollingMode kModes[] = {PollingMode::kAdaptive, PollingMode::kSpin, PollingMode::kSleep};
constexpr const char* kModeNames[] = {"adaptive", "spin", "sleep"};
// Of --test, from its second choice on.
constexpr Kind kKinds[] = {Kind::kLatency, Kind::kRate, Kind::kBandwidth};
constexpr Direction kDirections[] = {Direction::kTo, Direction::kFrom, Direction::kBoth};

// The least and the greatest receive buffer (ConnectionOptions). The smaller it is, the less fits one SEND.
constexpr uint32_t kReceiveBufferMin = 512, kReceiveBufferMax = 65536;

constexpr uint64_t kFetchAddBytes = 8;

constexpr uint32_t kSlotsMax = 1024;
// The server that `--serve` is has so many: more calls in flight only wait.
constexpr uint32_t kSlotsOfServer = 256;

absl::Status Explained(const absl::Status& status, const std::string& target) {
  if (!absl::IsUnimplemented(status)) return status;
  return absl::UnimplementedError(
      absl::StrCat(target,
                   " does not let clients measure it. Start it with PerfExtension() in "
                   "ServerOptions::extensions (echo_server and kv_server: "
                   "--perf), or run `hawser perf --serve=URI` on that machine. `hawser ping` needs neither"));
}

// What measures one test on one connection.
using Meter = std::function<absl::StatusOr<PerfFigure>(const measure::Extent&)>;

template <typename Made>
absl::StatusOr<Meter> MeterOf(absl::StatusOr<std::unique_ptr<Made>> made) {
  if (!made.ok()) return made.status();
  return [meter = std::shared_ptr<Made>(*std::move(made))](const measure::Extent& extent) {
    return meter->Run(extent);
  };
}

absl::StatusOr<Meter> MeterFor(const std::shared_ptr<Channel>& channel, const PerfTest& test) {
  return test.operation == Operation::kCall ? MeterOf(PerfMeter::Create(channel, test))
                                            : MeterOf(PerfRemote::Create(channel, test));
}

class Perf : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "perf", "", "measures latency and bandwidth, beside what the network alone takes",
        "The server has to allow it: PerfExtension() in ServerOptions::extensions, or it is `hawser perf "
        "--serve=URI`, which serves "
        "nothing else, until it is interrupted.\n"
        "\n"
        "Without --test it measures latency (one call at a time), the rate of small calls, and bandwidth in "
        "each direction. Each figure is printed beside its floor of the same run, which exchanges the same "
        "bytes "
        "between the same two machines, on a port that the server opens for it. Over TCP these are raw "
        "sockets, "
        "whose port a firewall may block. Over RDMA it is a queue pair on the same devices, with nothing "
        "above "
        "it: SENDs there and back, as ib_send_lat does, or READs for bandwidth, as ib_read_bw does (SENDs if "
        "the payloads cross whole). There is no floor with TLS. A ratio is that of a figure to its floor; of "
        "latencies, that of the medians.\n"
        "\n"
        "How payloads crossed is printed, too: `whole` in one SEND, `pushed` behind it by a WRITE (TCP, up "
        "to 128 KiB), or `read` by an RDMA READ. --way makes the payload cross in one of these ways, and "
        "fails where the connection cannot do that.\n"
        "\n"
        "With --read, --write or --fetch_add it measures one-sided operations in place of calls: the client "
        "reaches "
        "memory of the server by itself, without a handler. --size is what each READs or WRITEs, up to 4 "
        "MiB. The floor "
        "over RDMA is the same operations of the raw queue pair, as ib_read_lat, ib_write_lat and "
        "ib_atomic_lat have them; over TCP, where the server's "
        "poller carries them out, a request and its answer between raw sockets.\n"
        "\n"
        "With --json: {\"peer\", \"polling\", \"tests\": [{\"test\", \"direction\", \"bytes\", "
        "\"in_flight\", \"warm_up_calls\", \"calls\", \"seconds\", ..., \"sent\", \"received\", \"floor\", "
        "\"why_no_floor\", \"ratio\"}]}, where the figures are \"min_us\", \"mean_us\", \"p50_us\", "
        "\"p99_us\", \"p999_us\" and \"max_us\" of latency, \"calls_per_s\" and \"bytes_per_s\" of the "
        "others; \"floor\" has the same and \"by\", what has carried the bytes, or is null. One-sided "
        "operations have \"operation\" (\"read\", \"write\", \"fetch-add\") and \"by_nic\" in place of "
        "\"direction\", \"sent\" and \"received\".",
        "hawser perf --serve=rdma://10.0.0.1:7471\n"
        "hawser perf --target=rdma://10.0.0.1:7471\n"
        "hawser perf --target=tcp://kv1:7470 --test=bandwidth --direction=to --size=4MiB --in-flight=8\n"
        "hawser perf --target=tcp://kv1:7470 --test=latency --size=16KiB --duration=10s --json\n"
        "hawser perf --target=rdma://10.0.0.1:7471 --read --size=1KiB"};
    return kHelp;
  }

  Needs needs() const override { return serve_.empty() ? Needs::kTarget : Needs::kMayHaveTarget; }

  void AddFlags(Flags& flags) override {
    flags.Text("serve", "URI", "is the server, on this address (port 0: any), in place of measuring one",
               &serve_);
    flags.Choice("test", "one test only (default: all)", {"all", "latency", "rate", "bandwidth"}, &test_);
    flags.Switch("read", "measures one-sided READs, in place of calls", &read_);
    flags.Switch("write", "measures one-sided WRITEs", &write_);
    flags.Switch("fetch_add", "measures one-sided fetch-and-adds", &fetch_add_);
    flags.Choice("direction",
                 "where the payload goes: to the server, from it, or there and back (default: both, and for "
                 "bandwidth to and from in turn)",
                 {"to", "from", "both"}, &direction_);
    flags.Bytes("size", "of the payload: 4096, 64KiB, 4MiB (default: 32, and 1MiB for bandwidth)", 1,
                (512 << 20) - 1, &size_);
    flags.Number("in-flight", "calls at once (default: 32 for the rate, 4 for bandwidth; latency has 1)", 1,
                 4096, &in_flight_);
    flags.Choice("way", "how the payload has to cross (default: as it comes)", {"send", "write", "read"},
                 &way_);
    flags.Duration("duration", "of each figure (default 1s)", &duration_);
    flags.Duration("warmup", "before each figure, not counted (default 200ms)", &warm_up_);
    flags.Choice("polling", "how this side waits for the network (default adaptive)",
                 {"adaptive", "spin", "sleep"}, &polling_);
    flags.Text("device", "NAME", "the RDMA device of this side, as `ibv_devices` names it", &device_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    if (test_ != 0 && kKinds[test_ - 1] == Kind::kLatency && in_flight_ > 1) {
      return absl::InvalidArgumentError(
          "--in-flight: a latency is that of one call at a time; --test=rate has more");
    }
    if (one_sided() && (direction_ != kNotGiven || way_ != kNotGiven)) {
      return absl::InvalidArgumentError(
          "--direction and --way are for calls, not for one-sided operations (--read, --write, --fetch_add)");
    }
    if (fetch_add_ && size_ != 0 && size_ != kFetchAddBytes) {
      return absl::InvalidArgumentError("--size: a fetch-and-add is on 8 bytes");
    }
    if (fetch_add_ && !read_ && !write_ && test_ != 0 && kKinds[test_ - 1] == Kind::kBandwidth) {
      return absl::InvalidArgumentError(
          "--test=bandwidth: there is none of fetch-and-adds; --test=rate has many");
    }
    return Command::Take(words);
  }

  absl::StatusOr<int> Run(const Session& session) override {
    if (!serve_.empty()) return Serve(session);
    auto peer = FindPeer(session);
    if (!peer.ok()) return peer.status();
    if (!session.json) {
      std::cout << *peer << ", " << kModeNames[polling_] << " polling, " << absl::FormatDuration(duration_)
                << " for each figure" << std::endl;
    }
    JsonWriter json;
    json.BeginObject();
    json.Name("peer").String(*peer);
    json.Name("polling").String(kModeNames[polling_]);
    json.Name("tests").BeginList();
    for (const PerfTest& test : Tests()) {
      if (absl::Status status = Measure(session, *peer, test, json); !status.ok()) {
        return absl::Status(status.code(),
                            absl::StrCat(TitleOf(test), ": ", absl::string_view(status.message())));
      }
    }
    json.EndList();
    json.EndObject();
    if (session.json) std::cout << std::move(json).Take() << std::endl;
    return 0;
  }

 private:
  absl::StatusOr<int> Serve(const Session& session) const {
    if (!session.target.empty())
      return absl::InvalidArgumentError("--serve and --target: it is one side only");
    examples::StopSignal stop;  // Before there are other threads.
    ServerOptions options;
    options.extensions = {PerfExtension()};
    options.poller.mode = kModes[polling_];
    options.connection.slots = kSlotsOfServer;
    options.connection.receive_buffer_bytes = kReceiveBufferMax;
    const auto credentials = session.Credentials();
    if (!credentials.ok()) return credentials.status();
    options.credentials = *credentials;
    if (!device_.empty()) {
      auto runtime = MakeRuntime(serve_);
      if (!runtime.ok()) return runtime.status();
      options.runtime = *std::move(runtime);
    }
    Server server(options);
    if (absl::Status status = server.Listen(serve_).status(); !status.ok()) return status;
    for (const std::string& address : server.addresses()) {
      if (session.json) {
        JsonWriter line;
        line.BeginObject();
        line.Name("listening").String(address);
        line.EndObject();
        std::cout << std::move(line).Take() << std::endl;
      } else {
        std::cout << "listening on " << address << std::endl;
      }
    }
    if (const std::string why = server.why_not_rdma(); !why.empty()) {
      std::cerr << "hawser perf: not over RDMA: " << why << std::endl;
    }
    stop.Wait();
    server.Shutdown(absl::Now() + absl::Seconds(1)).IgnoreError();
    return 0;
  }

  // The runtime of this side, for `uri`. Null: that of the process, which chooses the device by the route.
  absl::StatusOr<std::shared_ptr<Runtime>> MakeRuntime(const std::string& uri) const {
    const auto parsed = transport::ParseUri(uri);
    if (!parsed.ok()) return parsed.status();
    const bool rdma = parsed->scheme == transport::kRdmaScheme;
    if (!device_.empty() && !rdma)
      return absl::InvalidArgumentError("--device names an RDMA device, for an address rdma://...");
    if (rdma && device_.empty() && kModes[polling_] == PollingMode::kAdaptive) return nullptr;
    if (parsed->scheme == transport::kAutoScheme) return nullptr;
    return Runtime::Create(parsed->scheme,
                           {.pollers = 1, .poller = {.mode = kModes[polling_]}, .rdma_device = device_});
  }

  // The address that is measured: what auto:// chose. Fetches the ConnectionOptions of the server.
  absl::StatusOr<std::string> FindPeer(const Session& session) {
    auto runtime = MakeRuntime(session.target);
    if (!runtime.ok()) return runtime.status();
    runtime_ = *std::move(runtime);
    const auto channel = session.Connect({.runtime = runtime_});
    if (!channel.ok()) return channel.status();
    const std::string peer = (*channel)->peer_address();
    const auto limits = perf::PerfStub(*channel).Limits().Send().Wait();
    if (!limits.ok()) return Explained(limits.status(), peer);
    const absl::Status read = limits->Read([&](auto results) {
      message_bytes_max_ = results.getMessageBytesMax();
      receive_buffer_bytes_ = results.getReceiveBufferBytes();
      slots_ = results.getSlots();
    });
    if (!read.ok()) return read;
    if (absl::StartsWith(session.target, transport::kAutoScheme)) {
      auto of_peer = MakeRuntime(peer);
      if (!of_peer.ok()) return of_peer.status();
      runtime_ = *std::move(of_peer);
    }
    return peer;
  }

  bool one_sided() const { return read_ || write_ || fetch_add_; }

  std::vector<PerfTest> Tests() const {
    std::vector<PerfTest> tests;
    if (read_) AddTestsOf(Operation::kRead, tests);
    if (write_) AddTestsOf(Operation::kWrite, tests);
    if (fetch_add_) AddTestsOf(Operation::kFetchAdd, tests);
    if (one_sided()) return tests;
    const auto add = [&](Kind kind, uint64_t bytes, int in_flight, std::vector<Direction> directions) {
      if (test_ != 0 && kKinds[test_ - 1] != kind) return;
      if (direction_ != kNotGiven) directions = {kDirections[direction_]};
      for (const Direction direction : directions) {
        tests.push_back({.kind = kind,
                         .direction = direction,
                         .bytes = size_ != 0 ? size_ : bytes,
                         .in_flight = kind == Kind::kLatency ? 1
                                      : in_flight_ != 0      ? static_cast<int>(in_flight_)
                                                             : in_flight});
      }
    };
    add(Kind::kLatency, 32, 1, {Direction::kBoth});
    add(Kind::kRate, 32, 32, {Direction::kBoth});
    add(Kind::kBandwidth, 1 << 20, 4, {Direction::kTo, Direction::kFrom});
    return tests;
  }

  void AddTestsOf(Operation operation, std::vector<PerfTest>& tests) const {
    const auto add = [&](Kind kind, uint64_t bytes, int in_flight) {
      if (test_ != 0 && kKinds[test_ - 1] != kind) return;
      tests.push_back({.operation = operation,
                       .kind = kind,
                       .bytes = operation == Operation::kFetchAdd ? kFetchAddBytes
                                : size_ != 0                      ? size_
                                                                  : bytes,
                       .in_flight = kind == Kind::kLatency ? 1
                                    : in_flight_ != 0      ? static_cast<int>(in_flight_)
                                                           : in_flight});
    };
    add(Kind::kLatency, 32, 1);
    add(Kind::kRate, 32, 32);
    if (operation != Operation::kFetchAdd) add(Kind::kBandwidth, 1 << 20, 4);
  }

  // One test on a connection of its own. Prints it, or adds it to `json`.
  absl::Status Measure(const Session& session, const std::string& peer, const PerfTest& test,
                       JsonWriter& json) {
    if (test.operation == Operation::kCall && test.bytes > message_bytes_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the server takes messages of ", message_bytes_max_,
                       " bytes at most (ConnectionOptions::message_bytes_max): choose a smaller --size"));
    }
    ChannelOptions options;
    options.runtime = runtime_;
    options.connection.slots = std::clamp<uint32_t>(static_cast<uint32_t>(test.in_flight), 64, kSlotsMax);
    if (way_ != kNotGiven) {
      options.connection.receive_buffer_bytes = way() == Way::kSend ? kReceiveBufferMax
                                                : test.bytes < options.connection.receive_buffer_bytes
                                                    ? kReceiveBufferMin
                                                    : options.connection.receive_buffer_bytes;
    }
    Session to_peer = session;
    to_peer.target = peer;
    const auto channel = to_peer.Connect(options);
    if (!channel.ok()) return channel.status();
    const absl::StatusOr<Meter> meter = MeterFor(*channel, test);
    if (!meter.ok()) return meter.status();
    const absl::StatusOr<PerfFigure> warm_up = (*meter)({.time = warm_up_});
    if (!warm_up.ok()) return warm_up.status();
    if (way_ != kNotGiven && !CrossedBy(way(), test, *warm_up))
      return WhyNot(peer, test, Crossed(test, *warm_up));
    std::string why_no_floor;
    std::optional<PerfFloor> floor;
    if (session.tls.certificate.empty()) {
      floor = MeasureFloor(*channel, test,
                           {.duration = duration_,
                            .polling = kModes[polling_],
                            .runtime = runtime_,
                            .by_send = CrossedBy(Way::kSend, test, *warm_up)},
                           why_no_floor);
    } else {
      why_no_floor = "with TLS there is none: raw connections have no TLS";
    }
    const absl::StatusOr<PerfFigure> figure = (*meter)({.time = duration_});
    if (!figure.ok()) return figure.status();
    if (session.json) {
      WritePerf(test, *warm_up, *figure, floor, why_no_floor, json);
    } else {
      std::cout << PerfText(test, *figure, floor, why_no_floor, slots_) << std::flush;
    }
    return absl::OkStatus();
  }

  Way way() const { return static_cast<Way>(way_); }

  absl::Status WhyNot(const std::string& peer, const PerfTest& test, absl::string_view crossed) const {
    const bool tcp = absl::StartsWith(peer, transport::kTcpScheme);
    const std::string size = BytesText(test.bytes);
    std::string why;
    switch (way()) {
      case Way::kSend:
        why = absl::StrCat(size, " and headers do not fit one SEND: receive buffers of the server have ",
                           receive_buffer_bytes_, " bytes (ConnectionOptions::receive_buffer_bytes)");
        break;
      case Way::kWrite:
        why = !tcp ? "over RDMA nothing is WRITTEN: Hawser grants memory for READs only (rpc/PROTOCOL.md)"
              : test.bytes <= kReceiveBufferMin
                  ? absl::StrCat(size, " fit the smallest receive buffer, so they cross in one SEND")
              : test.bytes > (128 << 10)
                  ? "up to 128 KiB are pushed behind their SEND; larger payloads are READ"
                  : "what is pushed ahead of the server's READs is bounded; try fewer --in-flight";
        break;
      case Way::kRead:
        why = test.bytes <= kReceiveBufferMin
                  ? absl::StrCat(size, " fit the smallest receive buffer, so they cross in one SEND")
                  : "over TCP payloads up to 128 KiB are pushed behind their SEND, not READ";
        break;
    }
    constexpr const char* kNames[] = {"send", "write", "read"};
    return absl::FailedPreconditionError(
        absl::StrCat("--way=", kNames[way_], " cannot be (the payload crossed ", crossed, "): ", why));
  }

  std::string serve_, device_;
  bool read_ = false, write_ = false, fetch_add_ = false;
  size_t test_ = 0, direction_ = kNotGiven, way_ = kNotGiven, polling_ = 0;
  uint64_t size_ = 0, in_flight_ = 0;  // 0: not given.
  absl::Duration duration_ = absl::Seconds(1), warm_up_ = absl::Milliseconds(200);

  std::shared_ptr<Runtime> runtime_;
  // ConnectionOptions of the server.
  uint64_t message_bytes_max_ = 0;
  uint32_t receive_buffer_bytes_ = 0, slots_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewPerf() { return std::make_unique<Perf>(); }

}  // namespace hawser::tool
