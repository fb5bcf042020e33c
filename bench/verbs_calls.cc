// What does a call cost a NIC? Both ends run in this process, over a device in memory that executes their
// work requests and counts them (tests/transport/fabric/executing_verbs.h), driven in turn by one thread on a
// clock that stands still. So the counts do not depend on the machine. With --budgets=FILE it fails unless
// each figure is the one that is written there.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/bench.rpc.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/testing/test_clock.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/rings.h"
#include "hawser/transport/runtime.h"

ABSL_FLAG(std::string, budgets, "", "a file with the figures that are expected; empty: none is");

namespace hawser::bench {
namespace {

using Counts = fabric::ExecutingVerbs::Counts;

// Calls that a figure is the mean of. A multiple of the 16 sends of which one is signaled, and of the 32 that
// are in flight.
constexpr int kCalls = 320;

[[noreturn]] void Die(absl::string_view what) {
  fprintf(stderr, "bench: %s\n", std::string(what).c_str());
  exit(1);
}

class Service final : public TargetService {
 public:
  explicit Service(std::shared_ptr<Buffer> source) : source_(std::move(source)) {}

  absl::Status Echo(ServerContext&, Target::EchoParams::Reader request,
                    Target::EchoResults::Builder reply) override {
    reply.setPayload(request.getPayload());
    return absl::OkStatus();
  }
  absl::Status Put(ServerContext&, Target::PutParams::Reader request, Target::PutResults::Builder) override {
    const capnp::Data::Reader payload = request.getPayload();
    return payload[payload.size() - 1] == 's' ? absl::OkStatus() : absl::DataLossError("wrong payload");
  }
  absl::Status Get(ServerContext& context, Target::GetParams::Reader request,
                   Target::GetResults::Builder reply) override {
    reply.adoptPayload(context.Attach(source_->reader().slice(0, request.getBytes()), source_));
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Buffer> source_;
};

// One figure or several, and what they are of.
struct Line {
  std::string what;
  std::vector<double> figures;
};

class Stage {
 public:
  Stage(const char* name, bool client_windows, bool server_windows) : name_(name), verbs_({}) {
    for (Side* side : {&client_, &server_}) {
      const bool windows = side == &client_ ? client_windows : server_windows;
      absl::StatusOr<std::shared_ptr<fabric::Fabric>> fabric = fabric::NewVerbsFabric(
          {.device = "fake0",
           .grants = windows ? fabric::GrantKind::kWindows : fabric::GrantKind::kRegistered,
           .library = &verbs_.library()});
      if (!fabric.ok()) Die(fabric.status().ToString());
      absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime =
          transport::Runtime::CreateOn(*std::move(fabric), {.pollers = 1}, /*start_threads=*/false, clock_);
      if (!runtime.ok()) Die(runtime.status().ToString());
      side->runtime = *std::move(runtime);
    }
    ServerOptions options;
    options.runtime = server_.runtime;
    process_ = std::make_unique<Server>(options);
    service_ = std::make_unique<Service>(Filled(process_->AllocateBuffer(1 << 20)));
    if (absl::Status added = process_->AddService(service_.get()); !added.ok()) Die(added.ToString());
    absl::StatusOr<std::string> uri = process_->Listen("rdma://127.0.0.1:0");
    if (!uri.ok()) Die(uri.status().ToString());
    uri_ = *std::move(uri);
    channel_ = Connect();
    source_ = Filled(channel_->AllocateBuffer(1 << 20));
  }

  ~Stage() {
    source_.reset();
    channel_.reset();
    Until([&] { return client_.runtime.use_count() == 1 && verbs_.queue_pairs().empty(); });
    process_.reset();
    service_.reset();
    Until([&] { return server_.runtime.use_count() == 1; });
  }

  // Connecting another channel, and disconnecting it.
  void MeasureConnecting(std::vector<Line>& lines) {
    Reset();
    Connect().reset();
    Until([&] { return verbs_.queue_pairs().size() == 2; });
    Settle();
    Add("connect", 1, lines);
  }

  void MeasureCalls(std::vector<Line>& lines) {
    Measure(
        "echo_32_B", 1, [this] { return Echo(); }, lines);
    Measure(
        "echo_32_B_by_32", 32, [this] { return Echo(); }, lines);
    MeasureLarge(16, lines);
    MeasureLarge(1024, lines);
  }

  void MeasureLarge(uint32_t kib, std::vector<Line>& lines) {
    const uint32_t bytes = kib << 10;
    Measure(
        absl::StrCat("put_", kib, "_KiB"), 1, [=, this] { Put(bytes); }, lines);
    Measure(
        absl::StrCat("get_", kib, "_KiB"), 1, [=, this] { Get(bytes); }, lines);
  }

  // What the NIC pins for the two ends of a connection, in KiB: rings, and the buffers of posted receives.
  void MeasurePinned(std::vector<Line>& lines) {
    for (int i = 0; i < 10; ++i) CallAll(32, 32, [this] { Echo(); });
    AddPinned("busy", lines);
    for (int step = 0; step < 120; ++step) {
      clock_.Advance(absl::Seconds(5));
      Settle();
    }
    AddPinned("idle", lines);
  }

 private:
  struct Side {
    std::shared_ptr<transport::Runtime> runtime;
    Counts counts;
  };

  static std::shared_ptr<Buffer> Filled(absl::StatusOr<Buffer> buffer) {
    if (!buffer.ok()) Die(buffer.status().ToString());
    memset(buffer->data(), 's', buffer->size_bytes());
    return std::make_shared<Buffer>(*std::move(buffer));
  }

  std::shared_ptr<Channel> Connect() {
    ChannelOptions options;
    options.runtime = client_.runtime;
    fabric::ExecutingVerbs::CountIn(&client_.counts);
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Create(uri_, std::move(options));
    if (!channel.ok()) Die(channel.status().ToString());
    Until([&] { return (*channel)->state() == ChannelState::kReady; });
    Settle();
    return *std::move(channel);
  }

  size_t Turn() {
    size_t work = 0;
    for (Side* side : {&client_, &server_}) {
      fabric::ExecutingVerbs::CountIn(&side->counts);
      work += side->runtime->poller(0).PollOnce();
    }
    fabric::ExecutingVerbs::CountIn(&client_.counts);  // For the call that is made next.
    return work;
  }
  void Until(const std::function<bool()>& condition) {
    for (int64_t idle = 0; !condition();) {
      idle = Turn() == 0 ? idle + 1 : 0;
      if (idle > 1'000'000) Die("nothing happens any more");
    }
  }
  // More turns than there are between two looks at the events of connections.
  void Settle() {
    for (int idle = 0; idle < 600;) idle = Turn() == 0 ? idle + 1 : 0;
  }
  void Reset() { client_.counts = server_.counts = {}; }

  void OnEnd(const absl::Status& status) {
    if (!status.ok()) Die(status.ToString());
    ++ended_;
  }
  void Echo() {
    auto call = TargetStub(channel_).Echo();
    memset(call.request().initPayload(32).begin(), 'p', 32);
    call.Send().Then([this](auto reply) { OnEnd(reply.status()); });
  }
  void Put(uint32_t bytes) {
    auto call = TargetStub(channel_).Put();
    call.request().adoptPayload(call.Attach(source_->reader().slice(0, bytes), source_));
    call.Send().Then([this](auto reply) { OnEnd(reply.status()); });
  }
  void Get(uint32_t bytes) {
    auto call = TargetStub(channel_).Get();
    call.request().setBytes(bytes);
    call.Send().Then([this, bytes](auto reply) {
      if (!reply.ok()) return OnEnd(reply.status());
      const capnp::Data::Reader payload = (*reply)->getPayload();
      OnEnd(payload.size() == bytes && payload[bytes - 1] == 's' ? absl::OkStatus()
                                                                 : absl::DataLossError("wrong payload"));
    });
  }

  void CallAll(int calls, int in_flight, const std::function<void()>& call) {
    for (int called = 0; called < calls; called += in_flight) {
      ended_ = 0;
      for (int i = 0; i < in_flight; ++i) call();
      Until([&] { return ended_ == in_flight; });
      Settle();
      // The control thread deregisters grants; where it is far behind, as on a busy machine, a poller does.
      // That of the last response on a slot stays until the slot has its next call.
      while (verbs_.registered_grants() > static_cast<size_t>(in_flight)) std::this_thread::yield();
    }
  }

  void Measure(const std::string& what, int in_flight, const std::function<void()>& call,
               std::vector<Line>& lines) {
    CallAll(kCalls, in_flight, call);  // So that memory, windows and credits are there.
    Reset();
    CallAll(kCalls, in_flight, call);
    Add(what, kCalls, lines);
  }

  void Add(const std::string& what, int calls, std::vector<Line>& lines) {
    for (const Side* side : {&client_, &server_}) {
      Line& line = lines.emplace_back(Line{Name(what, side == &client_), {}});
      for (const uint64_t count : {side->counts.work_requests, side->counts.completions,
                                   side->counts.doorbells, side->counts.commands}) {
        line.figures.push_back(static_cast<double>(count) / calls);
      }
    }
  }

  void AddPinned(const std::string& what, std::vector<Line>& lines) {
    const std::vector<fabric::ExecutingVerbs::QueuePairState> queue_pairs = verbs_.queue_pairs();
    for (size_t i = 0; i < queue_pairs.size(); ++i) {
      Line& line = lines.emplace_back(Line{Name(what, i == 0), {}});
      for (const uint64_t bytes :
           {fabric::rings::PinnedBytes(queue_pairs[i].shape), queue_pairs[i].receive_bytes}) {
        line.figures.push_back(static_cast<double>(bytes) / 1024);
      }
    }
  }

  std::string Name(const std::string& what, bool client) const {
    return absl::StrCat(name_, " ", what, client ? " client" : " server");
  }

  const std::string name_;
  transport::TestClock clock_;
  fabric::ExecutingVerbs verbs_;
  Side client_, server_;
  std::unique_ptr<Server> process_;
  std::unique_ptr<Service> service_;
  std::string uri_;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<Buffer> source_;
  int ended_ = 0;
};

// "windows echo_32_B client 2 1.0625 2 0": three words, then figures. # begins a comment.
std::map<std::string, std::vector<double>> ReadBudgets(const std::string& path) {
  std::map<std::string, std::vector<double>> budgets;
  std::ifstream file(path);
  if (!file) Die(absl::StrCat("cannot read ", path));
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    std::string grants, what, side;
    if (!(words >> grants >> what >> side) || grants[0] == '#') continue;
    std::vector<double>& figures = budgets[absl::StrCat(grants, " ", what, " ", side)];
    for (double figure; words >> figure;) figures.push_back(figure);
  }
  return budgets;
}

void Print(const Line& line) {
  printf("%-40s", line.what.c_str());
  for (const double figure : line.figures) printf(" %9.10g", figure);
  printf("\n");
}

// False: some figure is another one.
bool Check(const std::vector<Line>& lines, const std::string& path) {
  std::map<std::string, std::vector<double>> budgets = ReadBudgets(path);
  bool right = true;
  for (const Line& line : lines) {
    const std::vector<double> budget = std::exchange(budgets[line.what], {});
    budgets.erase(line.what);
    bool more = budget.size() != line.figures.size(), less = false;
    for (size_t i = 0; !more && i < budget.size(); ++i) {
      more = line.figures[i] > budget[i] + 1e-6;
      less = less || line.figures[i] < budget[i] - 1e-6;
    }
    if (!more && !less) continue;
    right = false;
    printf("%s: %s. Now:\n  ", line.what.c_str(),
           more ? "more than its budget" : "less than its budget, which is to be lowered");
    Print(line);
  }
  for (const auto& [what, budget] : budgets) {
    right = false;
    printf("%s: has a budget, and was not measured\n", what.c_str());
  }
  return right;
}

int Run() {
  std::vector<Line> calls, pinned;
  for (const bool windows : {true, false}) {
    Stage stage(windows ? "windows" : "registered", windows, windows);
    stage.MeasureConnecting(calls);
    stage.MeasureCalls(calls);
    stage.MeasurePinned(pinned);
  }
  Stage("windows_at_client", true, false).MeasureLarge(16, calls);
  printf("%-40s %9s %9s %9s %9s\n", "# of one call: grants, call, side", "requests", "completed", "doorbells",
         "commands");
  for (const Line& line : calls) Print(line);
  printf("%-40s %9s %9s\n", "# of one connection, pinned KiB", "rings", "receives");
  for (const Line& line : pinned) Print(line);
  fflush(stdout);
  if (absl::GetFlag(FLAGS_budgets).empty()) return 0;
  calls.insert(calls.end(), pinned.begin(), pinned.end());
  return Check(calls, absl::GetFlag(FLAGS_budgets)) ? 0 : 1;
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return hawser::bench::Run();
}
