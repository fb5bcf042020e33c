// A peer of lanes that follows the protocol up to a point and then lies, against the shipping transport/lane:
// as the requester, to an owner that lends it memory, and as the owner, to a requester. Everything runs over
// simulated NICs, in one thread and virtual time. The owner also has an honest requester.
//
// An input is the script of the whole run. What must hold:
//  - The victim's process goes on, and so does the honest requester: each of its READs returns what is there.
//  - As the owner: memory that no ticket is for is neither read nor changed, nor is any after its revocation.
//    Grants are bounded, each is given back, and a lane that does not give revoked memory back ends. A peer
//    that has told no lie is blamed for none.
//  - As the requester: each operation ends once, and soon after it is given up; its memory is not touched
//    after that. The lane ends once, after all of its operations.
//  - The victim itself follows the protocol, whatever it receives (lane_liar.h), and all memory is back in
//    the pool at the end.
#include <string.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/base/violation.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/fuzz/lane_liar.h"
#include "hawser/tests/fuzz/peer_world.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser::fuzz {
namespace {

using sim::SimFabric;
using transport::kNever;
using transport::Lane;
using transport::LaneOperation;
using transport::LaneServer;
using transport::LaneTicket;
using transport::LentMemory;

constexpr int kStepsMax = 300;
constexpr uint8_t kLiarsSteps = 160;  // Those below are the liar's.
constexpr size_t kOperationsMax = 40;
constexpr size_t kLanesMax = 3;  // Of the victim, ever.

constexpr size_t kRegionBytes = 4096;
constexpr size_t kRegions = 4;
constexpr size_t kHonestRegion = 3;
// Fills the memory for which no ticket was given. Nothing else has eight of these bytes in a row.
constexpr uint8_t kSecret = 0x5a;
constexpr uint8_t kShared = 0x11;
// What the victim's own memory has, before an operation and after it.
constexpr uint8_t kBefore = 0x44;
constexpr uint8_t kAfter = 0x33;

struct Range {
  size_t region;
  uint64_t offset;
  uint64_t length;
  uint8_t access;
};

// What the liar has tickets for.
constexpr Range kGiven[] = {
    {0, 1024, 1024, transport::kLaneRead},
    {0, 2048, 512, transport::kLaneWrite},
    {1, 0, kRegionBytes, transport::kLaneAccessAll},
    {2, 8, 8, transport::kLaneAtomic},
    // Beyond the memory: an owner gives no such ticket, but the lane does not rely on that.
    {2, kRegionBytes - 8, 64, transport::kLaneRead},
    {2, 1024, 512, transport::kLaneWrite | transport::kLaneCounted},
};

LaneTicket TicketFor(const Range& range, uint8_t key) {
  LaneTicket ticket;
  ticket.owner = 7;
  ticket.region = range.region + 1;
  ticket.offset = range.offset;
  ticket.length = range.length;
  ticket.access = range.access;
  ticket.key.fill(key);
  return ticket;
}

// Those, and one of another client.
std::vector<LaneTicket> LiarsTickets() {
  std::vector<LaneTicket> tickets;
  uint8_t key = 1;
  for (const Range& range : kGiven) tickets.push_back(TicketFor(range, key++));
  tickets.push_back(TicketFor({kHonestRegion, 0, kRegionBytes, transport::kLaneRead}, 100));
  return tickets;
}

using Bytes = std::array<uint8_t, kRegionBytes>;

class World;

// What the victim lends, to one peer.
class Lender final : public LaneServer::Owner {
 public:
  Lender(World& world, bool is_honest) : world_(world), is_honest_(is_honest) {}

  absl::StatusOr<std::shared_ptr<LentMemory>> OnTicket(const LaneTicket& ticket) override;
  absl::StatusOr<std::shared_ptr<transport::Arrivals>> OnCountedTicket(const LaneTicket& ticket) override;
  absl::Status TakeGrant() override;
  void GiveBackGrants(size_t count) override {
    FUZZ_EXPECT(count <= grants, "grants are given back that were not taken");
    grants -= count;
  }
  void OnLaneGone(LaneServer&) override {
    FUZZ_EXPECT(++gone == 1, "a lane ended twice");
    lane = nullptr;
  }

  LaneServer* lane = nullptr;
  size_t grants = 0;
  int gone = 0;

 private:
  World& world_;
  const bool is_honest_;
};

// Of the victim, or of the honest peer.
struct Operation final : LaneOperation {
  void OnEnd(const absl::Status& status) override {
    FUZZ_EXPECT(++ends == 1, "an operation ended twice");
    result = status;
    if (!checked) return;
    // From here on nothing may touch it. That it was touched shows later, and what lies around it at once.
    const uint8_t* const at = memory.data();
    FUZZ_EXPECT(std::all_of(at, at + kGuard, [](uint8_t byte) { return byte == kBefore; }));
    FUZZ_EXPECT(std::all_of(at + kGuard + bytes, at + memory.size_bytes(),
                            [](uint8_t byte) { return byte == kBefore; }));
    memset(memory.data(), kAfter, memory.size_bytes());
  }

  static constexpr size_t kGuard = 64;

  transport::Lease memory;
  size_t bytes = 0;
  bool checked = true;
  uint32_t handle = 0;
  Lane* lane = nullptr;
  int64_t deadline_ns = kNever;
  bool given_up = false;
  int ends = 0;
  absl::Status result;
};

// A lane that the victim dials, or the honest peer.
struct Requester final : Lane::Owner {
  void OnLaneReady() override { ready = true; }
  void OnUnsent(LaneOperation& operation, bool, const absl::Status& why) override {
    static_cast<Operation&>(operation).OnEnd(why);
  }
  void OnLaneGone(Lane& gone_lane, bool, const absl::Status& why) override {
    FUZZ_EXPECT(&gone_lane == lane && ++gone == 1, "a lane ended twice");
    FUZZ_EXPECT(!why.ok() && why.message().size() > 10, why.ToString());
    for (const Operation* each : operations) {
      FUZZ_EXPECT(each->ends == 1, "a lane ended before an operation of it");
    }
    lane = nullptr;
  }

  Lane* lane = nullptr;
  bool ready = false;
  int gone = 0;
  std::vector<std::pair<uint32_t, LaneTicket>> handles;  // Open here.
  std::vector<Operation*> operations;
};

class World final : PeerWorld, transport::Acceptor::Handler {
 public:
  World(const uint8_t* data, size_t size) : PeerWorld(data, size) {
    for (size_t region = 0; region < kRegions; ++region) {
      bytes_.push_back(std::make_unique<Bytes>());
      bytes_[region]->fill(region == kHonestRegion ? kShared : kSecret);
      memory_.push_back(std::make_shared<LentMemory>(LentMemory::Name{7, region + 1}, bytes_[region]->data(),
                                                     kRegionBytes, network()));
      FUZZ_EXPECT(memory_[region]->RegisterWith(shared_victim_runtime()).ok());
    }
    for (const Range& range : kGiven) {
      if (range.offset + range.length > kRegionBytes) continue;
      memset(bytes_[range.region]->data() + range.offset, kShared, range.length);
    }
    for (const auto& bytes : bytes_) before_.push_back(*bytes);
    victim().Run([&] {
      acceptor_ = *transport::Acceptor::Listen(victim(), SimFabric::AddressOf(kVictim, kPort), *this);
    });
    liar_ = std::make_unique<LaneLiar>(network(), kLiar, acceptor_->address(), LiarsTickets());
    honest().Run([&] { Dial(honest_, honest(), acceptor_->address()); });
    RunFor(10 * kMs);
    FUZZ_EXPECT(honest_.ready);
    honest().Run([&] {
      honest_handle_ =
          honest_.lane->Open(TicketFor({kHonestRegion, 0, kRegionBytes, transport::kLaneRead}, 100));
    });
  }

  void Run() {
    for (int i = 0; i < kStepsMax && !script().empty(); ++i) {
      const uint8_t what = script().Byte();
      what < kLiarsSteps ? liar_->Step(what, script()) : Step(what);
      RunFor(2'000);
      CheckMemory();
    }
    Finish();
  }

  absl::StatusOr<std::shared_ptr<LentMemory>> OnTicket(const LaneTicket& ticket, bool is_honest) {
    const std::vector<LaneTicket> all = LiarsTickets();
    const bool of_honest = ticket.region == kHonestRegion + 1;
    if (std::find(all.begin(), all.end(), ticket) == all.end() || of_honest != is_honest) {
      return absl::PermissionDeniedError("the ticket was not given to this client");
    }
    std::shared_ptr<LentMemory> memory = memory_[ticket.region - 1];
    if (memory->revoked()) return absl::FailedPreconditionError("the owner has revoked the memory");
    return memory;
  }
  const std::shared_ptr<transport::Arrivals>& arrivals() const { return arrivals_; }
  size_t grants() const {
    size_t grants = 0;
    for (const auto& lender : lenders_) grants += lender->grants;
    return grants;
  }

 private:
  void Dial(Requester& requester, transport::Poller& poller, const SocketAddress& address) {
    Lane::Target target;
    target.address = address;
    Lane::Owner& owner = requester;
    const absl::StatusOr<Lane*> lane = Lane::Dial(poller, target, absl::Seconds(1), owner);
    if (lane.ok()) requester.lane = *lane;
  }

  void OnPeer(transport::PeerRequest request) override {
    if (request.hello().role != transport::Role::kLane) return;
    const bool is_honest = SimFabric::HostOf(request.peer_address()) == kHonest;
    const auto lender = std::make_shared<Lender>(*this, is_honest);
    const auto lane = LaneServer::Accept(shared_victim_runtime(), victim(), std::move(request), lender);
    if (!lane.ok()) return;
    lender->lane = *lane;
    lenders_.push_back(lender);
  }

  // ---- What happens

  void Step(uint8_t what) override {
    switch (what % 12) {
      case 0:
        return DialTheLiar();
      case 1:
        return OpenOrClose();
      case 2:
      case 3:
      case 4:
        return Operate();
      case 5:
        return GiveUp();
      case 6: {
        constexpr int64_t kWaits[] = {1'000, 10'000, 100'000, kMs, 5 * kMs, 200 * kMs, kSecond, 11 * kSecond};
        return RunFor(kWaits[script().Byte() % 8]);
      }
      case 7:
        return RevokeSomething();
      case 8:
        return EndSomething();
      case 9:
        return network().Cut(kVictim, kLiar);
      case 10:
        return network().Heal(kVictim, kLiar);
      default:
        return ReadHonestly();
    }
  }

  void DialTheLiar() {
    if (requesters_.size() == kLanesMax) return;
    Requester& requester = requesters_.emplace_back();
    victim().Run([&] { Dial(requester, victim(), liar_->address()); });
  }

  Requester* AnyRequester() {
    std::vector<Requester*> able;
    for (Requester& each : requesters_) {
      if (each.lane != nullptr) able.push_back(&each);
    }
    const uint8_t which = script().Byte();
    return able.empty() ? nullptr : able[which % able.size()];
  }

  void OpenOrClose() {
    Requester* const requester = AnyRequester();
    const uint8_t what = script().Byte();
    const uint16_t bytes = script().U16();
    if (requester == nullptr) return;
    if (what % 4 != 3 || requester->handles.empty()) {
      uint8_t access = 1 + what / 4 % transport::kLaneAccessAll;
      if (what >= 128 && (access & transport::kLaneWrite) != 0) access |= transport::kLaneCounted;
      const LaneTicket ticket = TicketFor({0, 0, 1u + bytes % LaneLiarMemory::kReachableBytes, access}, 9);
      victim().Run([&] { requester->handles.emplace_back(requester->lane->Open(ticket), ticket); });
      return;
    }
    const auto at = requester->handles.begin() + what / 4 % static_cast<int>(requester->handles.size());
    for (const Operation* each : requester->operations) {
      if (each->handle == at->first && each->ends == 0) return;  // It is in use.
    }
    const uint32_t handle = at->first;
    requester->handles.erase(at);
    victim().Run([&] { requester->lane->Close(handle); });
  }

  void Operate() {
    Requester* const requester = AnyRequester();
    const uint8_t what = script().Byte();
    const uint8_t which = script().Byte();
    const uint16_t offset = script().U16();
    const uint8_t length = script().Byte();
    if (requester == nullptr || requester->handles.empty() || operations_.size() == kOperationsMax) return;
    const auto& [handle, ticket] = requester->handles[which % requester->handles.size()];
    constexpr LaneOperation::Kind kKinds[] = {LaneOperation::Kind::kRead, LaneOperation::Kind::kWrite,
                                              LaneOperation::Kind::kCompareSwap,
                                              LaneOperation::Kind::kFetchAdd};
    Operation& operation = operations_.emplace_back();
    operation.kind = kKinds[what % 4];
    const size_t pieces = operation.is_atomic() ? 1 : 1 + what / 4 % 4 * 50;
    const uint32_t piece_bytes = operation.is_atomic() ? 8 : 1 + length % 32;
    operation.bytes = pieces * piece_bytes;
    absl::StatusOr<transport::Lease> memory =
        victim_runtime().buffers().Acquire(operation.bytes + 2 * Operation::kGuard);
    if (!memory.ok()) return operations_.pop_back();
    operation.memory = *std::move(memory);
    memset(operation.memory.data(), kBefore, operation.memory.size_bytes());
    for (size_t piece = 0; piece < pieces; ++piece) {
      uint64_t at = (offset + piece * 64) % (ticket.length + (what >= 224 ? 64 : 0));
      if (operation.is_atomic()) at &= ~uint64_t{7};
      operation.pieces.push_back({at,
                                  {operation.memory.data() + Operation::kGuard + piece * piece_bytes,
                                   piece_bytes, operation.memory.lkey()}});
    }
    constexpr int64_t kDeadlines[] = {kNever, 50'000, kMs, kSecond};
    if (const int64_t wait_ns = kDeadlines[what / 16 % 4]; wait_ns != kNever) {
      operation.deadline_ns = network().NowNs() + wait_ns;
    }
    operation.handle = handle;
    operation.lane = requester->lane;
    requester->operations.push_back(&operation);
    victim().Run([&] { requester->lane->Start(operation, operation.handle); });
  }

  void GiveUp(Operation& operation) {
    operation.given_up = true;
    operation.deadline_ns = std::min(operation.deadline_ns, network().NowNs());
    victim().Run([&] { operation.lane->Abort(operation, absl::DeadlineExceededError("it was given up")); });
  }

  void GiveUp() {
    const uint8_t which = script().Byte();
    if (operations_.empty()) return;
    Operation& operation = operations_[which % operations_.size()];
    if (operation.ends == 0) GiveUp(operation);
  }

  void RevokeSomething() {
    const uint8_t which = script().Byte();
    const std::shared_ptr<LentMemory>& memory = memory_[which % kHonestRegion];
    if (memory->revoked()) return;
    memory->Revoke();
    revoked_ns_[which % kHonestRegion] = network().NowNs();
  }

  void EndSomething() {
    Requester* const requester = AnyRequester();
    if (requester == nullptr) return;
    victim().Run([&] { requester->lane->End(absl::UnavailableError("the channel has connected anew")); });
  }

  void ReadHonestly() {
    FUZZ_EXPECT(honest_.lane != nullptr, "the honest peer has lost its lane");
    Operation operation;
    operation.checked = false;
    absl::StatusOr<transport::Lease> memory = shared_honest_runtime()->buffers().Acquire(kRegionBytes);
    FUZZ_EXPECT(memory.ok());
    operation.memory = *std::move(memory);
    memset(operation.memory.data(), kBefore, kRegionBytes);
    operation.pieces.push_back({0, {operation.memory.data(), kRegionBytes, operation.memory.lkey()}});
    honest().Run([&] { honest_.lane->Start(operation, honest_handle_); });
    const int64_t give_up_ns = network().NowNs() + 6 * kSecond;
    while (operation.ends == 0 && network().NowNs() < give_up_ns) RunFor(kMs / 10);
    FUZZ_EXPECT(operation.ends == 1, "an honest READ has no end");
    FUZZ_EXPECT(operation.result.ok(), operation.result.ToString());
    const uint8_t* const at = operation.memory.data();
    FUZZ_EXPECT(std::all_of(at, at + kRegionBytes, [](uint8_t byte) { return byte == kShared; }));
  }

  bool DoWork() override { return liar_ != nullptr && liar_->Turn() != 0; }

  // ---- What must hold

  void CheckTurn() override {
    const int64_t now_ns = network().NowNs();
    for (Operation& operation : operations_) {
      if (operation.ends == 0 && !operation.given_up && operation.deadline_ns <= now_ns) GiveUp(operation);
      // The flush of what is posted, and then a forced one: see lane_end.cc.
      FUZZ_EXPECT(
          operation.ends == 1 || !operation.given_up || now_ns <= operation.deadline_ns + 36 * kSecond,
          "an operation lives on after it was given up");
    }
    for (const auto& lender : lenders_) {
      FUZZ_EXPECT(lender->grants <= 2 * LaneServer::kHandlesMax, lender->grants);
    }
    for (size_t region = 0; region < kHonestRegion; ++region) {
      if (!memory_[region]->revoked()) continue;
      if (memory_[region]->lane_count() == 0) {
        if (!taken_back_[region]) *bytes_[region] = Filled(kSecret);  // It is the owner's again.
        taken_back_[region] = true;
      }
      // Two seconds to give it back, and then the end of the lane.
      FUZZ_EXPECT(taken_back_[region] || now_ns <= revoked_ns_[region] + 38 * kSecond,
                  "revoked memory is still lent");
    }
    if (liar_ != nullptr) {
      FUZZ_EXPECT(arrivals_->count() <= liar_->announced(), arrivals_->count(), " WRITEs were counted");
      FUZZ_EXPECT(liar_has_lied() || arrivals_->count() >= liar_->counted(),
                  "an answer says that WRITEs were counted, and they were not");
    }
    if (!liar_has_lied()) {
      for (size_t i = 0; i < kViolationCount; ++i) {
        FUZZ_EXPECT(victim().violations().count(static_cast<Violation>(i)) == 0,
                    "blamed, and it did not lie: ", i);
      }
    }
  }

  bool liar_has_lied() const { return liar_ == nullptr || liar_->has_lied(); }

  void CheckMemory() {
    for (size_t region = 0; region < kRegions; ++region) {
      const Bytes& bytes = *bytes_[region];
      if (taken_back(region)) {
        FUZZ_EXPECT(bytes == Filled(kSecret), "memory has changed that was taken back: region ", region);
        continue;
      }
      // What a ticket lets the liar change may be anything.
      Bytes as_before = bytes;
      for (const Range& range : kGiven) {
        if (range.region != region || range.access == transport::kLaneRead) continue;
        memcpy(as_before.data() + range.offset, before_[region].data() + range.offset, range.length);
      }
      FUZZ_EXPECT(as_before == before_[region], "memory has changed that was not lent: region ", region);
    }
    if (liar_ == nullptr) return;
    constexpr std::array<uint8_t, 8> kSecrets = {kSecret, kSecret, kSecret, kSecret,
                                                 kSecret, kSecret, kSecret, kSecret};
    FUZZ_EXPECT(
        memmem(liar_->sink(), LaneLiarMemory::kSinkBytes, kSecrets.data(), kSecrets.size()) == nullptr,
        "memory was READ that was not lent");
  }
  bool taken_back(size_t region) const { return region < kHonestRegion && taken_back_[region]; }
  static Bytes Filled(uint8_t with) {
    Bytes bytes;
    bytes.fill(with);
    return bytes;
  }

  // ---- The end

  void Finish() {
    network().Heal(kVictim, kLiar);
    liar_->Leave();
    RunFor(20 * kSecond);
    // A goodbye may be lost, and a lane sends no pings: it ends with its session, which does.
    const absl::Status ended = absl::UnavailableError("the session has ended");
    victim().Run([&] {
      for (const auto& lender : lenders_) {
        if (lender->lane != nullptr && lender != lenders_.front()) lender->lane->End(ended);
      }
      for (Requester& each : requesters_) {
        if (each.lane != nullptr) each.lane->End(ended);
      }
    });
    RunFor(40 * kSecond);
    CheckMemory();
    for (const auto& lender : lenders_) {
      FUZZ_EXPECT(lender->grants == 0 || lender == lenders_.front(), lender->grants);
      FUZZ_EXPECT(lender->gone == 1 || lender == lenders_.front(), "a lane of a liar who left lives on");
    }
    for (const Requester& requester : requesters_) FUZZ_EXPECT(requester.lane == nullptr, "a lane lives on");
    for (Operation& operation : operations_) {
      FUZZ_EXPECT(operation.ends == 1, "an operation has no end");
      const uint8_t* const at = operation.memory.data();
      FUZZ_EXPECT(
          std::all_of(at, at + operation.memory.size_bytes(), [](uint8_t byte) { return byte == kAfter; }),
          "memory was touched after its operation had ended");
    }
    operations_.clear();
    for (int i = 0; i < 2; ++i) ReadHonestly();
    FUZZ_EXPECT(lenders_.front()->grants == 1, lenders_.front()->grants);

    honest().Run([&] { honest_.lane->End(absl::CancelledError("the run is over")); });
    RunFor(10 * kSecond);
    victim().Run([&] {
      if (lenders_.front()->lane != nullptr) lenders_.front()->lane->End(ended);
    });
    RunFor(10 * kSecond);
    FUZZ_EXPECT(honest_.lane == nullptr && lenders_.front()->gone == 1);
    for (const auto& memory : memory_) FUZZ_EXPECT(memory->lane_count() == 0, memory->lane_count());
    FUZZ_EXPECT(grants() == 0, grants());
    victim().Run([&] { acceptor_.reset(); });
    liar_.reset();
    lenders_.clear();
    memory_.clear();
    CheckNothingIsLeft();
  }

  std::vector<std::unique_ptr<Bytes>> bytes_;  // What is lent.
  std::vector<Bytes> before_;                  // What was there at first.
  std::vector<std::shared_ptr<LentMemory>> memory_;
  std::array<int64_t, kHonestRegion> revoked_ns_ = {};
  std::array<bool, kHonestRegion> taken_back_ = {};
  std::unique_ptr<transport::Acceptor> acceptor_;
  std::vector<std::shared_ptr<Lender>> lenders_;  // The honest peer's first.
  const std::shared_ptr<transport::Arrivals> arrivals_ = std::make_shared<transport::Arrivals>();
  std::unique_ptr<LaneLiar> liar_;
  Requester honest_;
  uint32_t honest_handle_ = 0;
  std::deque<Requester> requesters_;
  std::deque<Operation> operations_;
};

absl::StatusOr<std::shared_ptr<LentMemory>> Lender::OnTicket(const LaneTicket& ticket) {
  return world_.OnTicket(ticket, is_honest_);
}

absl::StatusOr<std::shared_ptr<transport::Arrivals>> Lender::OnCountedTicket(const LaneTicket&) {
  return world_.arrivals();
}

absl::Status Lender::TakeGrant() {
  // Few, so that the bound is met.
  if (!is_honest_ && world_.grants() > 150) return absl::ResourceExhaustedError("all lanes have too many");
  ++grants;
  return absl::OkStatus();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  const auto from = [](std::initializer_list<int> bytes) {
    std::string seed = {'\0', '\1'};
    for (const int byte : bytes) seed.push_back(static_cast<char>(byte));
    return seed;
  };
  // Steps of the victim; see World::Step(): 168 is a multiple of 12. Then those of the liar.
  constexpr int kDialLiar = 168, kOpen = 169, kOperate = 170, kGiveUp = 173, kWait = 174, kRevoke = 175,
                kEnd = 176, kHonest = 179;
  constexpr int kDial = 0, kAsk = 1, kAccess = 3, kAnswer = 5, kRevokeToVictim = 7, kSpoil = 8, kLeave = 9;
  return {
      // Opens what it may READ, and READs it; then closes it.
      {"reads", from({kDial, 0, kWait, 4, kAsk, 0,     0, 0,    kWait, 3, kAccess, 0,     0,
                      1,     0, 0,     0, 1,    kWait, 3, kAsk, 0,     2, 1,       kWait, 3})},
      {"writes_and_atomics", from({kDial,   0, kWait, 4, kAsk, 0,       0, 2, kWait, 3, kAccess, 0, 1,
                                   1,       0, 0,     9, 0,    kAccess, 0, 2, 1,     0, 0,       0, 0,
                                   kAccess, 0, 3,     1, 8,    0,       0, 0, kWait, 3, kHonest})},
      {"beyond",
       from({kDial, 0, kWait, 4, kAsk, 0, 0, 0, kWait, 3, kAccess, 0, 0, 1, 1, 0, 255, 3, kWait, 4})},
      {"revoked",
       from({kDial, 0, kWait, 4, kAsk, 0, 0, 2, kWait, 3, kRevoke, 1, kWait, 3, kAsk, 0, 2, 1, kWait, 4})},
      {"keeps_revoked", from({kDial, 0, kWait,   4, kAsk, 0, 0, 2, kWait, 3, kRevoke, 1, kWait,  6, kWait, 6,
                              kWait, 6, kAccess, 0, 1,    1, 0, 0, 9,     0, kWait,   3, kHonest})},
      {"stolen",
       from({kDial, 0, kWait, 4, kAsk, 0, 0, 6, kWait, 3, kAsk, 0, 28, 0, 1, 0, 0, 0, 0, 0, kWait, 3})},
      {"counts", from({kDial, 4, kWait, 4, kAsk, 0, 0,  5, kWait, 3, kAccess, 0, 1, 1, 0,     0,
                       9,     0, kAsk,  0, 130,  1, 1,  0, kWait, 3, kAccess, 0, 1, 1, 0,     0,
                       9,     0, kAsk,  0, 130,  1, 44, 1, kWait, 3, kAsk,    0, 2, 1, kWait, 3})},
      {"counts_revoked", from({kDial, 4, kWait, 4, kAsk, 0, 0,     5, kWait, 3, kRevoke, 2, kWait, 0,
                               kAsk,  0, 130,   1, 1,    0, kWait, 3, kAsk,  0, 2,       1, kWait, 3})},
      {"counts_on_a_forged_handle",
       from({kDial, 4, kWait, 4, kAsk, 0, 0, 5, kWait, 3, kAsk, 0, 130, 9, 1, 0, kWait, 3, kHonest})},
      {"counts_too_many",
       from({kDial, 4, kWait, 4, kAsk, 0, 0, 5, kWait, 3, kAsk, 0, 130, 1, 255, 255, kWait, 3, kHonest})},
      {"counts_unasked",
       from({kDial, 0, kWait, 4, kAsk, 0, 0, 5, kWait, 3, kAsk, 0, 130, 1, 1, 0, kWait, 3})},
      {"is_counted",
       from({kLeave, 1,       16, 0,      0,     kDialLiar, kWait,    4, kOpen, 0, 132, 0, 8,     kWait,
             3,      kAnswer, 0,  0,      kWait, 3,         kOperate, 0, 1,     0, 0,   0, 9,     kWait,
             3,      kAnswer, 0,  0,      kWait, 3,         kOperate, 0, 1,     0, 0,   0, 9,     kWait,
             3,      kAnswer, 0,  7 + 64, 1,     0,         0,        0, 0,     0, 0,   0, kWait, 3})},
      {"is_not_counted",
       from({kLeave, 1,     16, 0,       0,     kDialLiar, kWait, 4,     kOpen,    0,        132, 0,
             8,      kWait, 3,  kAnswer, 0,     0,         kWait, 3,     kOperate, 0,        1,   0,
             0,      0,     9,  kWait,   3,     kGiveUp,   0,     kWait, 3,        kOperate, 0,   1,
             0,      0,     0,  9,       kWait, 3,         kEnd,  0,     kWait,    6})},
      {"flood", from({kDial, 0, kWait, 4, kAsk, 0, 195, 2, 1, 1, 1, 1, kWait, 4, kHonest})},
      {"spoiled", from({kDial, 0, kWait, 4, kSpoil, 0, 8, kAsk, 0, 0, 0, kWait, 4})},
      {"asked",
       from({kDialLiar, kWait, 4, kOpen, 0, 0,     0, 4, kOperate, 0, 0,     0, 0,       0, 9, kWait, 3,
             kAnswer,   0,     0, kWait, 3, kOpen, 0, 3, 0,        0, kWait, 3, kAnswer, 0, 0, kWait, 3})},
      {"asked_much", from({kDialLiar, kWait, 4,  kOpen,    0, 24, 0, 8,        kWait, 3, kAnswer, 0, 0,
                           kOperate,  0,     13, 0,        0, 0,  9, kOperate, 0,     0, 0,       8, 0,
                           31,        kWait, 3,  kOperate, 0, 3,  0, 8,        0,     0, kWait,   4})},
      {"given_up", from({kDialLiar, kWait, 4,        kOpen, 0,  0, 0, 4, kWait, 3,       kAnswer, 0,     0,
                         kWait,     3,     kOperate, 0,     12, 0, 0, 0, 31,    kGiveUp, 0,       kWait, 6})},
      {"revokes",
       from({kDialLiar, kWait, 4,     kOpen,    0,       0,  0, 4,     kWait, 3,  kAnswer,         0,
             0,         kWait, 3,     kOperate, 0,       12, 0, 0,     0,     31, kRevokeToVictim, 0,
             0,         1,     kWait, 3,        kAnswer, 0,  0, kWait, 3})},
      {"lies_about_rkey", from({kDialLiar, kWait, 4, kOpen, 0, 0,       0, 4,  kOperate, 0,     1, 0,
                                0,         0,     9, kWait, 3, kAnswer, 0, 20, 7,        kWait, 4})},
      {"refuses", from({kDialLiar, kWait, 4, kOpen, 0, 0,       0, 4, kOperate, 0,     0, 0,
                        0,         0,     9, kWait, 3, kAnswer, 0, 5, 6,        kWait, 3})},
      {"silent",
       from({kDialLiar, kWait, 4, kOpen, 0, 0, 0, 4, kOperate, 0, 0, 0, 0, 0, 9, kWait, 7, kHonest})},
      {"ends", from({kDialLiar, kWait, 4, kOpen, 0, 0,  0,      4, kWait, 3,    kAnswer, 0,     0, kOperate,
                     0,         12,    0, 0,     0, 31, kLeave, 4, 0,     kEnd, 0,       kWait, 4})},
  };
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hawser::fuzz::World(data, size).Run();
  return 0;
}
