#include "hawser/tests/sim/rpc_world.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/connection_group.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/sim/call_record.h"
#include "hawser/tests/sim/channel_record.h"
#include "hawser/tests/sim/one_sided_work.h"
#include "hawser/tests/sim/replay.h"
#include "hawser/tests/sim/watches.h"
#include "hawser/tests/testing/detached.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"

namespace hawser::sim {

namespace {

constexpr char kUri[] = "rdma://10.0.0.1:7470";
constexpr uint16_t kPort = 7470;
constexpr int kClientsMax = 3;
constexpr size_t kChannelsPerClient = 3;
constexpr int kHoardCalls = 12;                    // Calls on each channel.
constexpr int kOneSidedSteps = 3;                  // In each step.
constexpr size_t kHoardBytes = 600'000;            // The size of each call.
constexpr int64_t kShutdownSlackNs = 2 * kSecond;  // Time to close connections after the deadline.

class RpcWorld;

constexpr uint64_t kIdentitySeed = 0x1d, kConnectionsSeed = 0xc0, kOneSidedSeed = 0x15;

// The identities of a world: that of the server, then those of channels. The same ones for all worlds.
class Identities {
 public:
  struct One {
    std::string name;
    TlsCredentials credentials;
    std::shared_ptr<tls::Context> context;  // The one that every user of the credentials gets.
    std::shared_ptr<const PeerIdentity> identity;
  };

  static const std::vector<One>& All() {
    static const auto& all = *new std::vector<One>(Make());
    return all;
  }

 private:
  static std::vector<One> Make() {
    static const auto& authority = *new CertificateAuthority();
    std::vector<One> all;
    for (const char* name : {"server", "a", "b", "c"}) {
      One& one = all.emplace_back();
      one.name = name;
      one.credentials = authority.Issue({.dns = {name}});
      one.context = *tls::Context::Create(one.credentials, nullptr);
      one.identity =
          std::make_shared<PeerIdentity>(PeerIdentity{.is_authenticated = true, .dns_names = {name}});
    }
    return all;
  }
};

class LedgerImpl final : public ledger::LedgerService {
 public:
  explicit LedgerImpl(RpcWorld& world) : world_(world) {}
  absl::Status Add(ServerContext& context, ledger::Entry::Reader request,
                   ledger::Entry::Builder reply) override;
  absl::Status Look(ServerContext& context, ledger::Entry::Reader request,
                    ledger::Entry::Builder reply) override;
  absl::Status Watch(ServerContext& context, ledger::Ledger::WatchParams::Reader request,
                     ledger::Ledger::WatchResults::Builder reply) override;
  absl::Status Grant(ServerContext& context, ledger::Ledger::GrantParams::Reader request,
                     ledger::Ledger::GrantResults::Builder reply) override;

 private:
  RpcWorld& world_;
};

class RpcWorld final : public World {
 public:
  explicit RpcWorld(const WorldOptions& options)
      : World(options, kClientsMax),
        identity_dice_(options.seed ^ kIdentitySeed),
        connections_dice_(options.seed ^ kConnectionsSeed),
        steps_left_(options.steps) {
    with_identities_ = identity_dice_.Chance(0.5);
    if (with_identities_) {
      ProveIdentities();
      for (const auto& one : Identities::All()) network().SetIdentity(one.context.get(), one.identity);
    }
    SetClientPollers(connections_dice_.Chance(0.5) ? 2 : 1);
    if (Dice(options.seed ^ kOneSidedSeed).Chance(0.5)) {
      one_sided_ = std::make_unique<OneSidedWork>(*this, options.seed, [this](const auto& what) {
        const bool blocked = std::exchange(blocked_, true);
        what();
        blocked_ = blocked;
      });
    }
    StartAll();
  }

  WorldResult Run() {
    NextStep();
    while (steps_left_ > 0 && well()) RunFor(10 * kMs);
    Finish();
    result().simulated_ns = now_ns();
    return std::move(result());
  }

  // ---- The handlers
  absl::Status Handle(ServerContext& context, ledger::Entry::Reader request, ledger::Entry::Builder reply);
  absl::Status HandleWatch(ServerContext& context, uint64_t id, uint64_t* revision);
  absl::Status HandleGrant(ServerContext& context, ledger::Ledger::GrantParams::Reader request,
                           ledger::Ledger::GrantResults::Builder reply) {
    ++process_->runs;
    return one_sided_->Serve(context, request, reply);
  }

 private:
  // ---- Hosts

  struct ServerProcess {
    explicit ServerProcess(RpcWorld& world) : service(world) {}
    LedgerImpl service;
    std::unique_ptr<Server> server;
    uint64_t life = 0;
    uint64_t runs = 0;
    bool stopping = false;
  };

  // If a fault prevents a start, the next step tries again.
  void StartAll() {
    for (int host = kServer; host <= host_count(); ++host) {
      if (network().IsOn(host)) StartRuntime(host);
    }
    if (network().IsOn(kServer) && process_ == nullptr && runtime(kServer) != nullptr) StartServer();
  }

  void StartServer() {
    auto process = std::make_unique<ServerProcess>(*this);
    ServerOptions options;
    options.runtime = runtime(kServer);
    options.connection = AnyConnectionOptions();
    if (with_identities_) options.credentials = Identities::All().front().credentials;
    if (dice().Chance(0.3)) {
      options.executor = [this](absl::AnyInvocable<void()> handler) {
        auto task = std::make_shared<absl::AnyInvocable<void()>>(std::move(handler));
        AtOn(kServer, now_ns() + dice().Between(0, kMs), [task] { std::move (*task)(); });
      };
    }
    process->server = std::make_unique<Server>(options);
    process->life = ++server_lives_;
    if (absl::Status added = process->server->AddService(&process->service); !added.ok()) {
      return Broken(added.ToString());
    }
    watches_.OnServerUp(process->life);
    if (one_sided_ != nullptr) one_sided_->OnServerUp(process->life);
    process_ = std::move(process);  // Clients may call it before Listen() has returned.
    if (const auto listening = process_->server->Listen(kUri); !listening.ok()) {
      Note(kServer, absl::StrCat("cannot listen: ", listening.status().ToString()));
      StopServer();
    }
  }

  // Blocks until the server is down, while time passes.
  void StopServer() {
    blocked_ = true;
    process_->stopping = true;
    watches_.OnServerDown();
    if (one_sided_ != nullptr) one_sided_->OnServerEnding();
    for (Execution& run : runs_) {
      if (run.server_life == process_->life && run.end == Execution::End::kRunning) Drop(run);
    }
    process_->server.reset();
    if (one_sided_ != nullptr) one_sided_->OnServerEnded();
    process_.reset();
    blocked_ = false;
  }

  void DrainServer() {
    const int64_t patience_ns = dice().Chance(0.2) ? 0 : dice().Between(0, 2 * kSecond);
    Note(kServer, absl::StrCat("shuts down, with ", patience_ns, " ns for the calls"));
    blocked_ = true;
    const int64_t deadline_ns = now_ns() + patience_ns;
    const absl::Status status = process_->server->Shutdown(absl::FromUnixNanos(deadline_ns));
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) Broken(status.ToString());
    if (now_ns() > std::max(deadline_ns, excused_until_ns()) + kShutdownSlackNs) {
      Broken(absl::StrCat("Shutdown() took ", now_ns() - deadline_ns, " ns more than it had"));
    }
    for (const Execution& run : runs_) {
      if (status.ok() && run.server_life == process_->life && run.end == Execution::End::kRunning)
        Broken(absl::StrCat("Shutdown() was OK, and the handler of call ", run.call->id, " runs"));
    }
    StopServer();
  }

  void PowerOff(int host) {
    Resume(host);
    network().SwitchOff(host);
    if (host == kServer) {
      if (process_ != nullptr) StopServer();
    } else {
      for (CallRecord* call : open_calls_) call->abandoned |= call->host == host;
      if (one_sided_ != nullptr) one_sided_->OnPowerOff(host);
      for (ChannelRecord& channel : channels_) {
        if (channel.host != host) continue;
        for (const auto& each : channel.cores) {
          if (const auto core = each.lock(); core != nullptr) core->Close(absl::CancelledError("no power"));
        }
        channel.channel.reset();
      }
    }
    DropRuntime(host);
  }

  // ---- The workload

  void NextStep() {
    At(now_ns() + (dice().Chance(0.8) ? dice().Between(0, 200'000) : dice().Between(0, 100 * kMs)), [this] {
      if (steps_left_ == 0 || !well()) return;
      --steps_left_;
      NextStep();
      Step();
    });
  }

  void Step() {
    if (!blocked_) StartAll();
    for (int i = 0; one_sided_ != nullptr && i < kOneSidedSteps; ++i) one_sided_->Step(OneSidedProcesses());
    if (with_identities_ && identity_dice_.Chance(0.05)) StealSomething();
    if (StallsNow()) return StallSomebody();
    if (TricklesNow()) return Trickle(AnyClient());
    if (HoardsNow()) return Hoard(AnyClient());
    const int64_t what = dice().Between(0, 999);
    if (what < 600) return CallSomething();
    if (what < 700) return NewChannel();
    if (what < 750) return CancelSomething();
    if (what < 780) return CloseSomething();
    if (what < 830) return stalled(kServer) ? void() : watches_.Change();
    if (what < 870) return WatchSomething();
    if (what < 900) return network().Cut(kServer, AnyClient());
    if (what < 950) return network().Heal(kServer, AnyClient());
    if (what < 955) return network().RemoveDevice(AnyHost());
    if (what < 970) return JumpClock();
    if (blocked_) return;
    if (what < 985) return process_ != nullptr && !stalled(kServer) ? DrainServer() : void();
    const int host = AnyHost();
    network().IsOn(host) ? PowerOff(host) : network().SwitchOn(host);
  }

  OneSidedWork::Processes OneSidedProcesses() {
    const bool up = process_ != nullptr && !process_->stopping && !stalled(kServer);
    return {.server = up ? process_->server.get() : nullptr, .channels = Channels(), .may_wait = !blocked_};
  }

  // The network has read what a client said when it connected over RDMA. A host says it again, as it was or
  // with a bit changed. What the server has not got yet would be good once, from that host (rpc/PROTOCOL.md),
  // but not if it is changed.
  void StealSomething() {
    const int thief = static_cast<int>(identity_dice_.Between(kServer + 1, host_count()));
    const std::vector<Network::SeenConnect> all = network().SeenConnects();
    if (all.empty() || !network().IsOn(thief) || runtime(thief) == nullptr || stalled(thief)) return;
    const auto& [seen, lost] =
        all[static_cast<size_t>(identity_dice_.Between(0, static_cast<int64_t>(all.size()) - 1))];
    std::string connect = seen;
    if (lost || identity_dice_.Chance(0.5)) {
      const auto at =
          static_cast<size_t>(identity_dice_.Between(0, static_cast<int64_t>(connect.size()) - 1));
      connect[at] = static_cast<char>(connect[at] ^ (1 << identity_dice_.Between(0, 7)));
    }
    Note(thief, "connects with what it has read on the network");
    Replay(runtime(thief)->poller(0), SimFabric::AddressOf(kServer, kPort), connect,
           [this] { Broken("a server has accepted a proof that was stolen"); });
  }

  // Does not stall the server while a step waits for it.
  void StallSomebody() {
    const int host = AnyHost();
    if (host != kServer || !blocked_) Stall(host);
  }

  void Hoard(int client) {
    if (stalled(client)) return;
    StopServingReads(client);
    for (ChannelRecord* channel : Channels()) {
      for (int i = 0; channel->host == client && i < kHoardCalls; ++i) {
        CallRecord& call = NewCall(*channel);
        call.bytes = kHoardBytes;
        call.answer_bytes = 8;
        call.deadline_ns = now_ns() + 10 * kSecond;
        Send(call, {});
      }
    }
  }

  // The channels of processes that are not stalled.
  std::vector<ChannelRecord*> Channels() {
    std::vector<ChannelRecord*> all;
    for (ChannelRecord& channel : channels_) {
      if (channel.channel != nullptr && !stalled(channel.host)) all.push_back(&channel);
    }
    return all;
  }

  void NewChannel() {
    const int host = AnyClient();
    const auto has_it = [host](const ChannelRecord& each) {
      return each.host == host && each.channel != nullptr;
    };
    const auto count = std::count_if(channels_.begin(), channels_.end(), has_it);
    if (!network().IsOn(host) || runtime(host) == nullptr || stalled(host)) return;
    if (static_cast<size_t>(count) < kChannelsPerClient) Connect(host);
  }

  void Connect(int host) {
    ChannelRecord& record = channels_.emplace_back();
    record.host = host;
    ChannelOptions options;
    options.runtime = runtime(host);
    options.connection = AnyConnectionOptions();
    options.connect_timeout = absl::Nanoseconds(dice().Between(100 * kMs, 3 * kSecond));
    options.backoff_min = absl::Milliseconds(dice().Between(1, 50));
    options.backoff_max = absl::Seconds(1);
    if (with_identities_) {
      const auto& all = Identities::All();
      const auto& one =
          all[static_cast<size_t>(identity_dice_.Between(1, static_cast<int64_t>(all.size()) - 1))];
      record.identity = one.name;
      options.credentials = one.credentials;
    }
    if (dice().Chance(0.6)) {
      record.watcher = watches_.NewService();
      options.services.push_back(record.watcher.get());
    } else if (connections_dice_.Chance(0.5)) {
      options.connections = static_cast<int>(connections_dice_.Between(2, 3));
    }
    options.on_state_change = [this, &record](ChannelState state, const absl::Status& why) {
      if (record.ready) ++record.losses;
      record.ready = state == ChannelState::kReady;
      Note(record.host,
           absl::StrCat("a channel is ", record.ready ? "ready: " : "not ready: ", why.ToString()));
    };
    auto channel = Channel::Create(kUri, std::move(options));
    if (!channel.ok()) return Broken(absl::StrCat("no channel: ", channel.status().ToString()));
    record.channel = *std::move(channel);
    const std::shared_ptr<internal::ChannelCore>& core = record.channel->core();
    if (core->group() == nullptr) {
      record.cores = {core};
    } else {
      const std::vector<std::shared_ptr<internal::ChannelCore>> cores = core->group()->Cores();
      record.cores.assign(cores.begin(), cores.end());
    }
  }

  void CloseSomething() {
    const std::vector<ChannelRecord*> all = Channels();
    if (!all.empty()) Close(*AnyOf(all));
  }

  void Close(ChannelRecord& record) {
    const bool drop = dice().Chance(0.5);
    Note(record.host, drop ? "lets a channel go" : "closes a channel");
    // Calls keep a channel that offers no services connected until they have ended.
    for (CallRecord* call : open_calls_) {
      if (call->channel == &record && (!drop || record.watcher != nullptr)) call->closed = true;
    }
    if (!drop) record.channel->Close();
    record.channel.reset();
  }

  // ---- Calls

  void CallSomething() {
    const std::vector<ChannelRecord*> all = Channels();
    if (all.empty()) return;
    constexpr int64_t kBytesMax[] = {8, 100, 900, 3'900, 5'000, 70'000, 600'000};
    CallRecord& call = NewCall(*AnyOf(all));
    call.once = dice().Chance(0.6);
    call.bytes = static_cast<size_t>(dice().Between(0, kBytesMax[dice().Between(0, 6)]));
    call.answer_bytes = static_cast<size_t>(dice().Between(0, kBytesMax[dice().Between(0, 6)]));
    CallOptions options;
    options.wait_for_ready = call.wait_for_ready = dice().Chance(0.3);
    int64_t timeout_ns = 10 * kSecond;  // The default timeout.
    if (dice().Chance(0.7)) {
      timeout_ns = dice().Between(0, dice().Chance(0.5) ? 5 * kMs : 3 * kSecond);
      options.timeout = absl::Nanoseconds(timeout_ns);
    }
    call.deadline_ns = now_ns() + timeout_ns;
    Send(call, options);
  }

  CallRecord& NewCall(ChannelRecord& channel) {
    CallRecord& call = calls_.emplace_back();
    call.id = calls_.size();
    call.host = channel.host;
    call.channel = &channel;
    ++result().calls;
    return call;
  }

  void Send(CallRecord& record, CallOptions options) {
    const std::shared_ptr<Channel>& channel = record.channel->channel;
    const ledger::LedgerStub stub(channel);
    record.has_metadata = dice().Chance(0.3);
    const Metadata metadata = record.has_metadata ? record.MakeMetadata() : Metadata();
    if (record.has_metadata) options.metadata = &metadata;
    auto call = record.once ? stub.Add(options) : stub.Look(options);
    call.request().setId(record.id);
    call.request().setAnswerBytes(static_cast<uint32_t>(record.answer_bytes));
    const std::string bytes = PatternOf(record.id, record.bytes);
    absl::StatusOr<Buffer> buffer;
    if (dice().Chance(0.5)) buffer = channel->AllocateBuffer(bytes.size());
    if (buffer.ok()) {
      std::memcpy(buffer->data(), bytes.data(), bytes.size());
      call.request().adoptBytes(call.Attach(*std::move(buffer)));
    } else {
      call.request().setBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    }
    Note(record.host, absl::StrCat("calls ", record.id, record.once ? ", once, " : ", ", record.bytes,
                                   " bytes for ", record.answer_bytes));
    open_calls_.push_back(&record);
    if (dice().Chance(0.3)) {
      Await(record, call.Send());
    } else {
      record.pending.emplace(call.Send());
      record.pending->Then(
          [this, &record](absl::StatusOr<Reply<ledger::Entry>> reply) { OnEnd(record, std::move(reply)); });
    }
  }

  Detached Await(CallRecord& record, PendingCall<ledger::Entry> pending) {
    absl::StatusOr<Reply<ledger::Entry>> reply = co_await std::move(pending);
    OnEnd(record, std::move(reply));
  }

  void CancelSomething() {
    if (open_calls_.empty()) return;
    CallRecord& call = *AnyOf(open_calls_);
    if (!call.pending.has_value() || stalled(call.host)) return;
    Note(call.host, absl::StrCat("cancels call ", call.id));
    call.cancelled = true;
    call.pending->Cancel();
  }

  void OnEnd(CallRecord& call, absl::StatusOr<Reply<ledger::Entry>> reply) {
    Note(call.host, absl::StrCat("call ", call.id, " has ended: ", reply.status().ToString()));
    ++call.ends;
    if (call.abandoned || !well()) return;
    std::string broken = reply.ok() ? call.CheckAnswer(*reply) : call.CheckFailure(reply.status(), now_ns());
    for (const auto& each : call.channel->cores) {
      const auto core = each.lock();
      if (!broken.empty() || core == nullptr) continue;
      // Once the connection is lost, there is no peer.
      const PeerIdentity seen = *core->peer_identity();
      if (seen.is_authenticated) broken = call.channel->CheckServer(seen);
    }
    if (!broken.empty()) Broken(broken);
    if (reply.ok()) ++result().answered;
    if (!good_day_ && dice().Chance(0.1)) CallSomething();  // From a callback.
  }

  void CheckTurn() override {
    if (one_sided_ != nullptr) one_sided_->CheckTurn();
    for (size_t i = 0; i < open_calls_.size();) {
      CallRecord& call = *open_calls_[i];
      if (call.ends == 0 && now_ns() > std::max(call.deadline_ns, excused_until_ns(call.host)) + kMs &&
          !call.abandoned) {
        Broken(absl::StrCat("call ", call.id, " lives on after its deadline"));
      }
      if (call.ends == 0 && !call.abandoned) {
        ++i;
        continue;
      }
      call.pending.reset();
      open_calls_[i] = open_calls_.back();
      open_calls_.pop_back();
    }
  }

  // ---- Runs

  void Drop(Execution& run) {
    run.end = Execution::End::kDropped;
    const DeferredCall dropped = std::move(run.deferred);
  }

  void FinishRun(Execution& run) {
    if (run.end != Execution::End::kRunning) return;
    if (!good_day_ && dice().Chance(0.1)) return Drop(run);
    const bool refuse = !good_day_ && dice().Chance(0.1);
    run.end = refuse ? Execution::End::kRefused : Execution::End::kAnswered;
    DeferredCall deferred = std::move(run.deferred);
    deferred.Finish(refuse ? absl::AbortedError("refused, late") : absl::OkStatus());
  }

  void Defer(Execution& run, ServerContext& context) {
    run.deferred = context.Defer();
    context.OnCancel([this, &run] {
      run.cancelled = true;
      if (dice().Chance(0.5)) FinishRun(run);
    });
    if (dice().Chance(0.1)) return;  // Never ends, unless it is cancelled.
    AtOn(kServer, now_ns() + dice().Between(0, dice().Chance(0.8) ? 3 * kMs : 2 * kSecond),
         [this, &run] { FinishRun(run); });
  }

  void WatchSomething() {
    std::vector<ChannelRecord*> able;
    for (ChannelRecord* channel : Channels()) {
      if (channel->watcher != nullptr) able.push_back(channel);
    }
    if (!able.empty()) watches_.Ask(*AnyOf(able));
  }

  // ---- The end

  void Finish() {
    if (!well()) return Dismantle();
    MakePeace();
    StartAll();
    RunFor(8 * kSecond);
    if (well()) CheckPeace();
    if (well()) CheckGoodDay();
    if (well()) CheckEnd();
    Dismantle();
  }

  // Eight quiet seconds are enough to connect, or to give up; to detect that a peer is dead; and to notify
  // handlers whose callers no longer wait.
  void CheckPeace() {
    for (const ChannelRecord* channel : Channels()) {
      if (!channel->ready) Broken(absl::StrCat("a channel of host ", channel->host, " does not come back"));
    }
    uint64_t running = 0;
    for (const Execution& run : runs_) {
      if (run.end != Execution::End::kRunning) continue;
      ++running;
      // The server counts a deadline from the arrival of the request, which may be late.
      const bool just_late = now_ns() < run.call->deadline_ns + 2 * kSecond;
      if ((run.call->ends > 0 || run.call->abandoned) && !run.cancelled && !just_late) {
        Broken(absl::StrCat("nobody told the handler that call ", run.call->id, " has ended"));
      }
    }
    const ServerStats stats = process_->server->stats();
    if (stats.calls_running != running) {
      Broken(absl::StrCat(running, " handlers run, and the server says ", stats.calls_running));
    }
    // The server also counts the calls that it could not receive.
    if (stats.calls_total < process_->runs) {
      Broken(absl::StrCat(process_->runs, " calls were run, and the server says ", stats.calls_total));
    }
    // Each channel has one or several forward connections, and a reverse one if it offers a service. Calls in
    // flight keep a released channel connected. One that reaches memory has a lane, until that breaks.
    uint64_t connections = 0, lanes_max = 0;
    for (const ChannelRecord& channel : channels_) {
      for (const auto& each : channel.cores) {
        const auto core = each.lock();
        if (core == nullptr || core->closed()) continue;
        connections += channel.watcher == nullptr ? 1 : 2;
        if (one_sided_ != nullptr) ++lanes_max;
      }
    }
    if (stats.connections < connections || stats.connections > connections + lanes_max) {
      Broken(absl::StrCat("the server has ", stats.connections, " connections, its clients ", connections));
    }
    watches_.Check();
  }

  // After any history, all calls now succeed, over the old channels and over new ones.
  void CheckGoodDay() {
    good_day_ = true;
    for (Execution& run : runs_) FinishRun(run);
    for (int host = kServer + 1; host <= host_count(); ++host) Connect(host);
    RunFor(kSecond);
    if (one_sided_ != nullptr) one_sided_->AskOnGoodDay(OneSidedProcesses());
    for (ChannelRecord* channel : Channels()) {
      for (const size_t bytes : {64, 300'000, 64}) Demand(*channel, bytes);
    }
    RunFor(kSecond);
    if (one_sided_ != nullptr) one_sided_->ReachOnGoodDay();
    for (int i = 0; i < 40; ++i) {  // More than any queue holds.
      for (ChannelRecord* channel : Channels()) Demand(*channel, 64);
      if (i % 10 == 0) watches_.Change();
      RunFor(kMs / 10);
    }
    RunFor(kSecond);
    for (const CallRecord* call : open_calls_) {
      if (call->demanded) Broken(absl::StrCat("on a good day call ", call->id, " has no end"));
    }
    if (one_sided_ != nullptr) one_sided_->CheckGoodDay();
    watches_.Check();
  }

  void Demand(ChannelRecord& channel, size_t bytes) {
    CallRecord& call = NewCall(channel);
    call.once = true;
    call.bytes = call.answer_bytes = bytes;
    call.deadline_ns = now_ns() + 10 * kSecond;
    call.demanded = true;
    Send(call, {});
  }

  void CheckEnd() {
    if (one_sided_ != nullptr) one_sided_->DropTickets();
    for (ChannelRecord* channel : Channels()) Close(*channel);
    RunFor(2 * kSecond);
    const ServerStats stats = process_->server->stats();
    if (stats.connections != 0)
      Broken(absl::StrCat("the server still has ", stats.connections, " connections"));
    if (stats.calls_running != 0)
      Broken(absl::StrCat("the server still runs ", stats.calls_running, " calls"));
    if (const absl::Status status = process_->server->Shutdown(absl::FromUnixNanos(now_ns() + kSecond));
        !status.ok()) {
      Broken(absl::StrCat("an idle server does not shut down: ", status.ToString()));
    }
    StopServer();
    RunFor(kSecond);
    if (one_sided_ != nullptr) one_sided_->CheckEnd();
    for (const CallRecord& call : calls_) {
      if (call.ends != 1 && !call.abandoned)
        Broken(absl::StrCat("call ", call.id, " ended ", call.ends, " times"));
    }
    CheckNothingIsLeft();
  }

  void Dismantle() {
    for (ChannelRecord& channel : channels_) channel.channel.reset();
    for (CallRecord& call : calls_) call.pending.reset();
    if (process_ != nullptr) StopServer();
    if (one_sided_ != nullptr) one_sided_->Dismantle();
    for (int host = kServer; host <= host_count(); ++host) DropRuntime(host);
  }

  // Its own numbers, so that worlds without identities do not change.
  Dice identity_dice_;
  Dice connections_dice_;  // How many connections, and pollers.
  bool with_identities_ = false;
  int steps_left_;
  uint64_t server_lives_ = 0;
  bool blocked_ = false;   // In StopServer(), while time passes and other steps run.
  bool good_day_ = false;  // There are no faults any more, and the server answers at once.
  std::unique_ptr<ServerProcess> process_;
  std::deque<ChannelRecord> channels_;
  std::deque<CallRecord> calls_;  // In the order of their ids, from 1.
  std::vector<CallRecord*> open_calls_;
  std::deque<Execution> runs_;
  Watches watches_{*this};
  std::unique_ptr<OneSidedWork> one_sided_;  // Null: this world has none.
};

// ---- The handlers

absl::Status RpcWorld::Handle(ServerContext& context, ledger::Entry::Reader request,
                              ledger::Entry::Builder reply) {
  const uint64_t id = request.getId();
  if (id == 0 || id > calls_.size()) {
    Broken(absl::StrCat("a request has the unknown id ", id));
    return absl::InternalError("unknown");
  }
  CallRecord& call = calls_[id - 1];
  if (const std::string broken = call.channel->CheckClient(context.peer_identity()); !broken.empty()) {
    Broken(absl::StrCat("call ", id, ": ", broken));
  }
  const auto bytes = request.getBytes();
  const std::string expected = PatternOf(id, call.bytes);
  if (bytes.size() != expected.size() || std::memcmp(bytes.begin(), expected.data(), expected.size()) != 0) {
    Broken(absl::StrCat("the request of call ", id, " is not what was sent"));
  }
  if (const std::string broken = call.CheckMetadata(context.metadata()); !broken.empty()) Broken(broken);
  if (call.has_metadata) context.reply_metadata() = Metadata(context.metadata());
  Note(kServer, absl::StrCat("runs call ", id));
  ++process_->runs;
  Execution& run = runs_.emplace_back();
  run.call = &call;
  run.server_life = process_->life;
  call.runs.push_back(&run);
  if (const std::string broken = call.CheckRuns(); !broken.empty()) Broken(broken);

  reply.setId(id);
  const std::string answer = PatternOf(~id, call.answer_bytes);
  absl::StatusOr<Buffer> buffer;
  if (dice().Chance(0.5) && !process_->stopping) buffer = process_->server->AllocateBuffer(answer.size());
  if (buffer.ok()) {
    std::memcpy(buffer->data(), answer.data(), answer.size());
    auto owner = std::make_shared<Buffer>(*std::move(buffer));
    reply.adoptBytes(context.Attach(owner->reader(), owner));
  } else {
    reply.setBytes({reinterpret_cast<const uint8_t*>(answer.data()), answer.size()});
  }
  if (!good_day_ && !process_->stopping) {
    if (dice().Chance(0.1)) {
      run.end = Execution::End::kRefused;
      return absl::AbortedError("refused");
    }
    if (dice().Chance(0.03)) {
      run.end = Execution::End::kThrew;
      throw std::runtime_error("thrown");
    }
    if (dice().Chance(0.4)) {
      Defer(run, context);
      return absl::OkStatus();
    }
  }
  run.end = Execution::End::kAnswered;
  return absl::OkStatus();
}

absl::Status RpcWorld::HandleWatch(ServerContext& context, uint64_t id, uint64_t* revision) {
  ++process_->runs;
  return watches_.Serve(context, id, revision);
}

absl::Status LedgerImpl::Add(ServerContext& context, ledger::Entry::Reader request,
                             ledger::Entry::Builder reply) {
  return world_.Handle(context, request, reply);
}
absl::Status LedgerImpl::Look(ServerContext& context, ledger::Entry::Reader request,
                              ledger::Entry::Builder reply) {
  return world_.Handle(context, request, reply);
}
absl::Status LedgerImpl::Watch(ServerContext& context, ledger::Ledger::WatchParams::Reader request,
                               ledger::Ledger::WatchResults::Builder reply) {
  uint64_t revision = 0;
  absl::Status status = world_.HandleWatch(context, request.getWatch(), &revision);
  reply.setRevision(revision);
  return status;
}
absl::Status LedgerImpl::Grant(ServerContext& context, ledger::Ledger::GrantParams::Reader request,
                               ledger::Ledger::GrantResults::Builder reply) {
  return world_.HandleGrant(context, request, reply);
}
}  // namespace

WorldResult RunRpcWorld(const WorldOptions& options) { return RpcWorld(options).Run(); }

}  // namespace hawser::sim
