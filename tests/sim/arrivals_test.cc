// Counted WRITEs over the simulated NIC: an owner that has seen the count n sees the bytes of n WRITEs.
#include "hawser/transport/lane/arrivals.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/sim/dice.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/test_lender.h"
#include "hawser/transport/acceptor.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/runtime.h"

namespace hawser::sim {
namespace {

using transport::Arrivals;
using transport::Lane;
using transport::LaneOperation;
using transport::LaneServer;
using transport::LaneTicket;
using transport::LentMemory;
using transport::Runtime;
using transport::TestLender;

constexpr uint64_t kSeeds = 100;
constexpr uint64_t kWrites = 60;
constexpr uint32_t kSlotBytes = 48;  // Each WRITE fills one of its own.
constexpr int kOwner = 1, kClient = 2;
constexpr uint64_t kTurnsMax = 1'000'000;

struct Write final : LaneOperation {
  void OnEnd(const absl::Status& status) override {
    ++ends;
    EXPECT_THAT(status, IsOk());
  }
  int ends = 0;
};

struct Client final : Lane::Owner {
  void OnLaneReady() override {}
  void OnUnsent(LaneOperation&, bool, const absl::Status& why) override { ADD_FAILURE() << why; }
  void OnLaneGone(Lane&, bool, const absl::Status&) override { ++gone; }
  int gone = 0;
};

// How the client says that it has WRITTEN.
enum class How {
  kCounted,             // The WRITEs are counted ones.
  kOnAnotherQueuePair,  // When it posts a WRITE, it counts by a WRITE on another lane, to another place.
};

// An owner and a client, on a clock that moves so slowly that the owner sees each step of a WRITE.
class Stage final : transport::Acceptor::Handler {
 public:
  Stage(uint64_t seed, How how)
      : network_({.seed = seed, .idle_poll_ns = 50}),
        how_(how),
        dice_(seed),
        owner_(NewRuntime(kOwner)),
        client_(NewRuntime(kClient)) {
    lender_->memory = *LentMemory::Map({7, 1}, (kWrites + 1) * kSlotBytes, network_);
    EXPECT_THAT(lender_->memory->RegisterWith(owner_), IsOk());
    owner().Run(
        [this] { acceptor_ = *transport::Acceptor::Listen(owner(), SimFabric::AddressOf(kOwner), *this); });
    const size_t lanes = how == How::kCounted ? 1 : 2;
    client().Run([&] {
      Lane::Target target;
      target.address = acceptor_->address();
      Lane::Owner& as_owner = lane_owner_;
      for (size_t i = 0; i < lanes; ++i) {
        lanes_.push_back(*Lane::Dial(client(), target, absl::Seconds(5), as_owner));
        const bool counts = i + 1 == lanes;
        LaneTicket ticket;
        ticket.owner = 7;
        ticket.region = 1;
        ticket.length = lender_->memory->size_bytes();
        ticket.access = transport::kLaneWrite | (counts ? transport::kLaneCounted : 0);
        handles_.push_back(lanes_.back()->Open(ticket));
      }
    });
    local_ = *client_->buffers().Acquire((kWrites + 1) * kSlotBytes);
    memset(local_.data(), 'w', (kWrites + 1) * kSlotBytes);
  }

  ~Stage() {
    client().Run([this] {
      for (Lane* lane : lanes_) lane->End(absl::CancelledError("the test ends"));
    });
    const int lanes = static_cast<int>(lanes_.size());
    EXPECT_TRUE(RunUntil([&] { return lane_owner_.gone == lanes && lender_->gone == lanes; }));
    EXPECT_EQ(lender_->memory->lane_count(), 0u);
    owner().Run([this] { acceptor_.reset(); });
    local_ = transport::Lease();
  }

  // All WRITEs, some at a time. True: at some time the count was more than what is there.
  bool Deceives() {
    bool deceived = false;
    EXPECT_TRUE(RunUntil([&] {
      deceived = deceived || lender_->arrivals->count() > SlotsThere();
      if (begun_ < kWrites && dice_.Chance(0.3)) Begin(static_cast<uint64_t>(dice_.Between(1, 8)));
      return begun_ == kWrites && lender_->arrivals->count() >= kWrites && AllEnded();
    }));
    EXPECT_EQ(lender_->arrivals->count(), kWrites);
    EXPECT_EQ(SlotsThere(), kWrites);
    return deceived;
  }

 private:
  std::shared_ptr<Runtime> NewRuntime(int host) {
    return *Runtime::CreateOn(std::make_shared<SimFabric>(network_, host), {}, /*start_threads=*/false,
                              network_);
  }
  transport::Poller& owner() { return owner_->poller(0); }
  transport::Poller& client() { return client_->poller(0); }

  void OnPeer(transport::PeerRequest request) override {
    EXPECT_THAT(LaneServer::Accept(owner_, owner(), std::move(request), lender_).status(), IsOk());
  }

  template <typename Condition>
  bool RunUntil(const Condition& condition) {
    for (uint64_t turns = 0; turns < kTurnsMax; ++turns) {
      if (condition()) return true;
      client().PollOnce();
      owner().PollOnce();
    }
    return false;
  }

  void Start(size_t lane, uint64_t slot) {
    Write& write = writes_.emplace_back();
    write.kind = LaneOperation::Kind::kWrite;
    const uint64_t at = slot * kSlotBytes;
    write.pieces.push_back({at, {local_.data() + at, kSlotBytes, local_.lkey()}});
    lanes_[lane]->Start(write, handles_[lane]);
  }

  void Begin(uint64_t count) {
    client().Run([&] {
      for (; count > 0 && begun_ < kWrites; --count) {
        Start(0, begun_++);
        if (how_ == How::kOnAnotherQueuePair) Start(1, kWrites);
      }
    });
  }

  bool AllEnded() const {
    return std::all_of(writes_.begin(), writes_.end(), [](const Write& each) { return each.ends == 1; });
  }
  uint64_t SlotsThere() const {
    uint64_t there = 0;
    for (uint64_t i = 0; i < kWrites; ++i) {
      const uint8_t* const slot = lender_->memory->address() + i * kSlotBytes;
      if (std::all_of(slot, slot + kSlotBytes, [](uint8_t byte) { return byte == 'w'; })) ++there;
    }
    return there;
  }

  Network network_;
  const How how_;
  Dice dice_;
  const std::shared_ptr<TestLender> lender_ = std::make_shared<TestLender>();
  const std::shared_ptr<Runtime> owner_, client_;
  std::unique_ptr<transport::Acceptor> acceptor_;
  Client lane_owner_;
  std::vector<Lane*> lanes_;
  std::vector<uint32_t> handles_;
  transport::Lease local_;
  std::deque<Write> writes_;
  uint64_t begun_ = 0;
};

TEST(ArrivalsSimTest, WhoSeesACountSeesSoManyWrites) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    EXPECT_FALSE(Stage(seed, How::kCounted).Deceives()) << "seed " << seed;
  }
}

// Otherwise the seeds prove nothing: a WRITE that was posted has not arrived, whatever else has.
TEST(ArrivalsSimTest, SomeSeedDeceivesAnOwnerThatIsToldAtThePosting) {
  bool deceived = false;
  for (uint64_t seed = 1; seed <= kSeeds && !deceived; ++seed) {
    deceived = Stage(seed, How::kOnAnotherQueuePair).Deceives();
  }
  EXPECT_TRUE(deceived);
}

}  // namespace
}  // namespace hawser::sim
