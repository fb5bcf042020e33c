// The liar of liar.h against rpc/: a Server with a service that answers in every way there is and calls its
// clients back, and Channels to the liar, which then lies as a server; with an honest client of the Server
// beside.
//
// An input is the script of it all. What must hold, beside what peer_fuzz.cc says of connections:
//  - The victim's process goes on, and so does the honest client: each of its calls is answered, and each
//    push to it arrives, in order.
//  - Each call of the victim ends once, by its deadline; with nothing odd in the answers only as what
//    happened allows. It is sent once, or as often as an idempotent one may; not at all if its Status says
//    so.
//  - Handlers of calls whose caller is gone are told once; channels close once; Shutdown() is in time.
//  - When the liar is gone, the Server has the honest client's connections, and then nothing is left.
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/status.h"
#include "hawser/tests/fuzz/busy_service.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/fuzz/peer_world.h"
#include "hawser/tests/fuzz/rpc_words.h"
#include "tests/sim/ledger.rpc.h"

namespace hawser::fuzz {
namespace {

namespace ledger = sim::ledger;

constexpr char kUri[] = "rdma://10.0.0.1:7470";
constexpr size_t kLinesMax = 8;
constexpr size_t kChannelsMax = 4;
constexpr int kRestartsMax = 2;
constexpr int64_t kShutdownSlackNs = 2 * kSecond;  // For closing what a deadline left.
constexpr size_t kTooLarge = 5 << 20;              // For anybody here.

// The watcher of the honest client: it sees each revision after the one before.
class HonestWatcher final : public ledger::WatcherService {
 public:
  absl::Status Changed(ServerContext&, ledger::Watcher::ChangedParams::Reader request,
                       ledger::Watcher::ChangedResults::Builder) override {
    FUZZ_EXPECT(request.getRevision() == revision + 1, request.getRevision(), " after ", revision);
    ++revision;
    return absl::OkStatus();
  }

  uint64_t revision = 0;
};

// A call of the victim to the liar, or of the honest client, or a push to either.
struct CallRecord {
  uint64_t id = 0;
  int64_t deadline_ns = 0;
  size_t bytes = 0;
  bool honest = false;
  bool cancelled = false;
  int ends = 0;
  absl::Status status;
  std::string answer;                 // That of an honest one.
  absl::AnyInvocable<void()> cancel;  // Until its end.
};

struct ChannelRecord {
  std::shared_ptr<Channel> channel;  // nullptr: let go.
  int closings = 0;
};

class World final : PeerWorld {
 public:
  World(const uint8_t* data, size_t size) : PeerWorld(data, size), on_executor_(script().Below(4) == 1) {
    busy_.allocate = [this](size_t bytes) -> absl::StatusOr<Buffer> {
      if (server_ == nullptr) return absl::UnavailableError("the server is not up");
      return server_->AllocateBuffer(bytes);
    };
    StartServer();
    StartLiar(sim::SimFabric::AddressOf(kVictim, kPort), kLinesMax, &words_);
    ChannelOptions options;
    options.runtime = shared_honest_runtime();
    options.connection = ConnectionOptionsOf();
    options.backoff_max = absl::Milliseconds(100);
    options.services = {&honest_watcher_};
    honest_channel_ = *Channel::Create(kUri, std::move(options));
    WatchHonestly();
  }

  void Run() {
    RunScript();
    Finish();
  }

 private:
  // ---- The server

  void StartServer() {
    ServerOptions options;
    options.runtime = shared_victim_runtime();
    options.connection = ConnectionOptionsOf();
    if (on_executor_) {
      options.executor = [this](absl::AnyInvocable<void()> handler) {
        handlers_.push_back(std::move(handler));
      };
    }
    busy_.stopping = false;
    server_ = std::make_unique<Server>(options);
    FUZZ_EXPECT(server_->AddService(&busy_).ok());
    const auto listening = server_->Listen(kUri);
    FUZZ_EXPECT(listening.ok(), listening.status().ToString());
  }

  void StopServer(int64_t patience_ns) {
    const int64_t deadline_ns = network().NowNs() + patience_ns;
    const absl::Status status = server_->Shutdown(absl::FromUnixNanos(deadline_ns));
    FUZZ_EXPECT(status.ok() || absl::IsDeadlineExceeded(status), status.ToString());
    FUZZ_EXPECT(network().NowNs() <= deadline_ns + kShutdownSlackNs, network().NowNs() - deadline_ns);
    busy_.stopping = true;
    busy_.FinishAll();
    server_.reset();
    busy_.clients().clear();
  }

  void Restart() {
    constexpr int64_t kPatience[] = {0, kMs, 100 * kMs, kSecond};
    const int64_t patience_ns = kPatience[script().Below(4)];
    if (++restarts_ > kRestartsMax) return;
    StopServer(patience_ns);
    StartServer();
    RunFor(3 * kSecond);  // Until the honest client knows, even if nobody says goodbye.
    WatchHonestly();
  }

  bool DoWork() override {
    const auto handlers = std::exchange(handlers_, {});
    for (auto handler = handlers.begin(); handler != handlers.end(); ++handler) {
      std::move(const_cast<absl::AnyInvocable<void()>&>(*handler))();
    }
    return !handlers.empty();
  }

  // ---- What happens

  void Step(uint8_t what) override {
    switch (what % 16) {
      case 0:
      case 1:
      case 2:
        return CallTheLiar();
      case 3:
        return Push();
      case 4:
      case 5: {
        const uint8_t which = script().Byte();
        return busy_.FinishOne(which / 4, which % 4);
      }
      case 6: {
        constexpr int64_t kWaits[] = {1'000, 10'000, 100'000, kMs, 5 * kMs, 20 * kMs, 300 * kMs, kSecond};
        return RunFor(kWaits[script().Below(8)]);
      }
      case 7:
        return CancelSomething();
      case 8:
        return CloseSomething();
      case 9:
        return network().Cut(kVictim, kLiar);
      case 10:
        return network().Heal(kVictim, kLiar);
      case 11:
        return CallHonestly(8 + script().Byte() % 64 * 1'000);
      case 12:
        return EndAClient();
      case 13:
        return Restart();
      case 14:
        return busy_.ForgetRequests();
      default:
        return OpenChannel();
    }
  }

  void OpenChannel() {
    const uint8_t how = script().Byte();
    if (channels_.size() == kChannelsMax) return;
    ChannelRecord& record = channels_.emplace_back();
    ChannelOptions options;
    options.runtime = shared_victim_runtime();
    options.connection = ConnectionOptionsOf();
    options.connect_timeout = absl::Seconds(1);
    options.backoff_max = absl::Seconds(1);
    if (how % 2 == 1) options.services.push_back(&busy_);
    options.on_state_change = [this](ChannelState, const absl::Status& why) {
      FUZZ_EXPECT(!absl::IsDataLoss(why) || liar().HasLied(), "it did not lie: ", why.ToString());
    };
    record.channel =
        *Channel::Create(absl::StrCat("rdma://", liar().address().ToString()), std::move(options));
    record.channel->OnClosed([&record] { FUZZ_EXPECT(++record.closings == 1, "a channel closed twice"); });
  }

  ChannelRecord* AnyChannel() {
    std::vector<ChannelRecord*> open;
    for (ChannelRecord& record : channels_) {
      if (record.channel != nullptr) open.push_back(&record);
    }
    const uint8_t which = script().Byte();
    return open.empty() ? nullptr : open[which % open.size()];
  }

  void CloseSomething() {
    ChannelRecord* const record = AnyChannel();
    const bool close = script().Below(2) == 0;
    if (record == nullptr) return;
    for (CallRecord& call : calls_) call.cancelled |= !call.honest;
    if (close) record->channel->Close();
    record->channel.reset();
  }

  BusyService::Client* AnyClient() {
    const uint8_t which = script().Byte();
    std::deque<BusyService::Client>& clients = busy_.clients();
    return clients.empty() ? nullptr : &clients[which % clients.size()];
  }

  // Ends a client that the server pushes to, unless it is the honest one.
  void EndAClient() {
    BusyService::Client* const client = AnyClient();
    const bool close = script().Below(2) == 0;
    if (client == nullptr || client->peer == nullptr || IsHonest(*client)) return;
    for (CallRecord& call : calls_) call.cancelled |= !call.honest;
    if (close) client->peer->Close();
    client->peer.reset();
  }

  static bool IsHonest(const BusyService::Client& client) {
    return client.peer != nullptr && client.peer->peer_address().find("//10.0.0.2:") != std::string::npos;
  }

  // ---- Calls

  CallRecord& NewCall(int64_t timeout_ns) {
    CallRecord& call = calls_.emplace_back();
    call.id = (calls_.size() << 8) + (calls_.size() % 2);
    call.deadline_ns = network().NowNs() + timeout_ns;
    return call;
  }

  template <typename Params, typename Results, typename OnReply>
  void Send(CallRecord& record, Call<Params, Results> call, OnReply on_reply) {
    auto pending = std::make_shared<PendingCall<Results>>(call.Send());
    record.cancel = [pending] { pending->Cancel(); };
    pending->Then([this, &record, on_reply](absl::StatusOr<Reply<Results>> reply) {
      FUZZ_EXPECT(++record.ends == 1, "a call ended twice");
      record.status = reply.ok() ? reply->Read([&](auto results) { on_reply(results); }) : reply.status();
      CheckEnd(record, reply.ok());
      record.cancel = nullptr;  // Which owns the call whose callback this is.
    });
  }

  CallOptions OptionsOf(const CallRecord& call) {
    return {.timeout = absl::Nanoseconds(call.deadline_ns - network().NowNs())};
  }

  void CallTheLiar() {
    constexpr size_t kBytes[] = {0, 16, 504, 896, 2'000, 70'000, 300'000, kTooLarge};
    constexpr int64_t kTimeouts[] = {0, 50'000, kMs, 10 * kMs, kSecond, 5 * kSecond, 3600 * kSecond, kSecond};
    ChannelRecord* const channel = AnyChannel();
    const uint8_t how = script().Byte();
    const uint8_t timeout = script().Byte();
    if (channel == nullptr) return;
    CallRecord& record = NewCall(kTimeouts[timeout % 8]);
    record.bytes = kBytes[how % 8];
    CallOptions options = OptionsOf(record);
    options.wait_for_ready = timeout >= 128;
    const ledger::LedgerStub stub(channel->channel);
    auto call = how / 8 % 2 == 0 ? stub.Add(options) : stub.Look(options);
    call.request().setId(record.id);
    absl::StatusOr<Buffer> buffer;
    if (how >= 128) buffer = channel->channel->AllocateBuffer(record.bytes);
    if (how >= 128 && buffer.ok()) {
      call.request().adoptBytes(call.Attach(*std::move(buffer)));
    } else {
      call.request().initBytes(record.bytes);
    }
    Send(record, std::move(call), [](ledger::Entry::Reader entry) {
      uint64_t sum = entry.getId() + entry.getAnswerBytes();
      for (const uint8_t byte : entry.getBytes()) sum += byte;
      volatile uint64_t read = sum;  // All of it, or a sanitizer says so.
      (void)read;
    });
  }

  void Push() {
    BusyService::Client* const client = AnyClient();
    if (client != nullptr && client->peer != nullptr) PushTo(*client);
  }

  CallRecord& PushTo(BusyService::Client& client) {
    CallRecord& record = NewCall(5 * kSecond);
    record.honest = IsHonest(client);
    auto call = ledger::WatcherStub(client.peer).Changed(OptionsOf(record));
    call.request().setWatch(record.honest ? 0 : record.id);
    call.request().setRevision(++client.revision);
    Send(record, std::move(call), [](ledger::Watcher::ChangedResults::Reader) {});
    return record;
  }

  void CancelSomething() {
    const uint8_t which = script().Byte();
    if (calls_.empty()) return;
    CallRecord& call = calls_[which % calls_.size()];
    if (call.honest || call.ends != 0) return;
    call.cancelled = true;
    call.cancel();
    RunFor(1'000);
    FUZZ_EXPECT(call.ends == 1, "a call that was cancelled lives on");
  }

  void CheckEnd(const CallRecord& call, bool answered) {
    if (call.honest || call.status.ok() || words_.said_something_odd() || liar().HasLied()) return;
    FUZZ_EXPECT(!answered, "a good answer cannot be read: ", call.status.ToString());
    FUZZ_EXPECT(call.status.message().size() > 20, call.status.ToString());
    bool allowed = false;
    switch (call.status.code()) {
      case absl::StatusCode::kUnavailable:
        allowed = true;
        break;
      case absl::StatusCode::kDeadlineExceeded:
        allowed = network().NowNs() >= call.deadline_ns;
        break;
      case absl::StatusCode::kCancelled:
        allowed = call.cancelled;
        break;
      case absl::StatusCode::kResourceExhausted:
        allowed = tight() || call.bytes == kTooLarge;
        break;
      case absl::StatusCode::kInvalidArgument:
        allowed = call.bytes == kTooLarge;
        break;
      default:
        break;
    }
    FUZZ_EXPECT(allowed, call.status.ToString());
  }

  void CheckTurn() override {
    for (; ended_ < calls_.size() && calls_[ended_].ends != 0; ++ended_) {
    }
    for (size_t i = ended_; i < calls_.size(); ++i) {
      FUZZ_EXPECT(calls_[i].ends != 0 || network().NowNs() <= calls_[i].deadline_ns + kMs,
                  "a call lives on after its deadline");
    }
  }

  // ---- The honest client

  void Await(const CallRecord& call) {
    while (call.ends == 0) RunFor(kMs / 10);  // CheckTurn() sees to its deadline.
    // What is not to be had from little memory may be later.
    FUZZ_EXPECT(call.status.ok() || (tight() && !gone_ && absl::IsResourceExhausted(call.status)),
                call.status.ToString());
  }

  void WatchHonestly() {
    CallRecord& record = NewCall(5 * kSecond);
    record.honest = true;
    CallOptions options = OptionsOf(record);
    options.wait_for_ready = true;
    auto call = ledger::LedgerStub(honest_channel_).Watch(options);
    call.request().setWatch(0);
    Send(record, std::move(call), [](ledger::Ledger::WatchResults::Reader) {});
    Await(record);
    honest_watcher_.revision = 0;
  }

  void CallHonestly(size_t bytes) {
    CallRecord& record = NewCall(5 * kSecond);
    record.honest = true;
    CallOptions options = OptionsOf(record);
    options.wait_for_ready = true;
    auto call = ledger::LedgerStub(honest_channel_).Add(options);
    call.request().setId(record.id);
    call.request().setAnswerBytes(static_cast<uint32_t>(bytes));
    const auto content = static_cast<char>(record.id >> 8);
    std::memset(call.request().initBytes(bytes).begin(), content, bytes);
    Send(record, std::move(call), [&record](ledger::Entry::Reader entry) {
      record.answer.assign(entry.getBytes().asChars().begin(), entry.getBytes().size());
    });
    Await(record);
    FUZZ_EXPECT(!record.status.ok() || record.answer == std::string(bytes, content), "another's answer");
    for (BusyService::Client& client : busy_.clients()) {
      if (!IsHonest(client)) continue;
      Await(PushTo(client));
      FUZZ_EXPECT(tight() || honest_watcher_.revision == client.revision, "a push did not arrive");
    }
  }

  // ---- The end

  void Finish() {
    network().Heal(kVictim, kLiar);
    liar().Leave();
    RunFor(10 * kSecond);
    for (ChannelRecord& record : channels_) record.channel.reset();
    for (CallRecord& call : calls_) {
      call.cancelled = true;
      if (call.ends == 0) call.cancel();
    }
    RunFor(3 * kSecond);
    CheckTheLiarIsGone();
    busy_.ForgetRequests();
    busy_.FinishAll();
    gone_ = true;
    for (const size_t bytes : {64, 50'000, 64}) CallHonestly(bytes);

    honest_channel_.reset();
    RunFor(3 * kSecond);
    FUZZ_EXPECT(server_->stats().connections == 0, server_->stats().connections);
    for (const BusyService::Client& client : busy_.clients()) FUZZ_EXPECT(client.closings == 1);
    StopServer(kSecond);
    RunFor(kSecond);
    CheckNothingIsLeft();
  }

  void CheckTheLiarIsGone() {
    for (const ChannelRecord& record : channels_) {
      FUZZ_EXPECT(record.closings == 1, "a channel that was let go is not closed");
    }
    for (const CallRecord& call : calls_) {
      FUZZ_EXPECT(call.ends == 1, "a call has no end");
      const bool unsent = !call.status.ok() && !WasSent(call.status);
      FUZZ_EXPECT(!unsent || words_.said_not_run() || words_.heard(call.id) == 0,
                  "it was sent, and is said not to be: ", call.status.ToString());
    }
    busy_.ExpectAllCancelled();
    const ServerStats stats = server_->stats();
    FUZZ_EXPECT(stats.calls_running <= busy_.running(), stats.calls_running);
    FUZZ_EXPECT(stats.connections == 2, stats.connections);
  }

  const bool on_executor_;
  BusyService busy_;
  HonestWatcher honest_watcher_;
  RpcWords words_;
  std::vector<absl::AnyInvocable<void()>> handlers_;  // Given to the executor, and not run yet.
  std::unique_ptr<Server> server_;
  std::deque<ChannelRecord> channels_;
  std::deque<CallRecord> calls_;
  size_t ended_ = 0;  // How many of calls_, from the front.
  std::shared_ptr<Channel> honest_channel_;
  int restarts_ = 0;
  bool gone_ = false;  // The liar.
};

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  const auto from = [](std::initializer_list<int> bytes) {
    std::string seed = {'\0', '\1', '\0'};
    for (const int byte : bytes) seed.push_back(static_cast<char>(byte));
    return seed;
  };
  // Steps of the liar, and then of all others.
  constexpr int kDial = 0, kSpoil = 1, kReject = 2, kSend = 3, kRead = 6, kControl = 8, kControlAck = 9;
  constexpr int kCall = 160, kPush = 163, kFinish = 164, kWait = 166, kCancel = 167, kClose = 168,
                kHonest = 171, kEndAClient = 172, kRestart = 173, kOpen = 175;
  constexpr int kAdd = 0, kLook = 2, kWatch = 3;  // Envelopes.
  constexpr int kOk = 0, kError = 4, kNotRun = 5, kRaw = 7;
  const auto entry = [](int id) { return id * 8; };  // Bodies.
  constexpr int kStatus = 3;
  // A message is: line, which one, how long it waits (of a request), shape, envelope, body.
  return {
      {"add", from({kDial, 0, kWait, 3, kSend, 0, 0, 1, 0, kAdd, entry(1), 2, 3, kWait, 3, kHonest, 2})},
      {"add_much", from({kDial, 0, kWait, 3,     kSend, 0,     0, 1, 1,     kAdd, entry(1), 6,
                         3,     3, 0,     kWait, 3,     kRead, 0, 0, kWait, 3,    kHonest,  2})},
      {"deferred", from({kDial, 0, kWait,   3, kSend,    0, 0,     1, 0,     kAdd, entry(7), 2,    3,
                         kWait, 3, kFinish, 0, kWait,    3, kSend, 0, 0,     1,    0,        kAdd, entry(6),
                         2,     3, kWait,   3, kControl, 0, 0,     1, kWait, 3})},
      {"ways_to_fail",
       from({kDial, 0,     kWait, 3,     kSend, 0, 0,    1,         0,         kAdd,      entry(9), 2,
             3,     kWait, 3,     kSend, 0,     0, 1,    0,         kLook,     entry(10), 2,        3,
             kWait, 3,     kSend, 0,     0,     1, 0,    kAdd,      entry(11), 2,         3,        kWait,
             3,     kSend, 0,     0,     1,     0, kAdd, entry(12), 2,         3,         kWait,    3})},
      {"watched",
       from({kDial,    0, kWait, 3,     kDial, 1,     kWait, 3,     kSend, 0,           0, 1, 0, kWatch,
             entry(1), 0, 0,     kWait, 3,     kPush, 1,     kWait, 3,     kSend,       1, 0, 0, kOk,
             entry(0), 0, 0,     kWait, 3,     kPush, 1,     kWait, 3,     kEndAClient, 1, 0})},
      {"called_back",
       from({kDial, 0, kWait, 3, kDial, 1, kWait, 3, kSend, 0,        0, 1, 0,     kAdd, entry(13),
             0,     0, kWait, 3, kSend, 1, 0,     0, kOk,   entry(0), 0, 0, kWait, 3})},
      {"called",
       from({kOpen,    0, kWait, 3,     kCall,    0,     1, 4, kWait, 3,     kSend, 0,      0, 0, kOk,
             entry(0), 0, 0,     kWait, 3,        kCall, 0, 5, 4,     kWait, 3,     kRead,  0, 0, kSend,
             0,        0, 1,     kOk,   entry(0), 0,     3, 3, 0,     kWait, 4,     kClose, 0, 0})},
      {"called_with_offer",
       from({kOpen,    1, kWait, 5,     kCall, 0,     1, 4, kWait, 3,   kSend,    1, 0, 1,     0, 4,
             entry(1), 0, 0,     kWait, 3,     kSend, 0, 0, 0,     kOk, entry(0), 0, 0, kWait, 3})},
      {"refused_unrun", from({kOpen,   0,  kWait,   3,  kCall,  0, 9,       4, kWait, 3, kSend, 0, 0,     0,
                              kNotRun, 13, kStatus, 20, 1,      8, kWait,   3, kCall, 0, 1,     4, kWait, 3,
                              kSend,   0,  0,       0,  kError, 4, kStatus, 9, 3,     8, 8,     8})},
      {"bad_envelope",
       from({kOpen, 0, kWait, 3, kCall, 0, 1, 4, kWait, 3, kSend, 0, 0, 0, kRaw, 2, 9, 9, 9, 9})},
      {"unreadable", from({kOpen, 0, kWait, 3, kCall, 0,   1,   4,  kWait, 3,     kSend, 0,
                           0,     0, kOk,   6, 255,   255, 255, 31, 1,     kWait, 3})},
      {"going_away",
       from({kOpen, 0, kWait, 3,   kCall, 0, 1, 4, kWait, 3,        kControl, 0, 0,     3, kWait,       5,
             kCall, 0, 1,     132, kSend, 0, 0, 0, kOk,   entry(0), 0,        0, kWait, 5, kControlAck, 0})},
      {"cancelled_and_answered",
       from({kOpen,    0, kWait, 3,     kCall, 0,     1, 4, kWait, 3,   kCancel,  1, kSend, 0,     0, 0, kOk,
             entry(0), 0, 0,     kWait, 3,     kSend, 0, 0, 0,     kOk, entry(0), 0, 0,     kWait, 3})},
      {"answered_twice", from({kOpen, 0, kWait, 3, kCall, 0, 1,   4,        kWait, 3, kSpoil, 3,
                               0,     0, kSend, 0, 0,     0, kOk, entry(0), 0,     0, kWait,  3})},
      {"rejected",
       from({kReject, 5, 0, 0, kOpen, 1, kWait, 6, kCall, 0, 1, 132, kReject, 0, 0, 0, kWait, 7})},
      {"restarted", from({kDial, 0, kWait, 3, kSend, 0, 0, 1, 0, kAdd, entry(7), 2, 3, kWait, 3, kRestart, 2,
                          kHonest, 2})},
  };
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hawser::fuzz::World(data, size).Run();
  return 0;
}
