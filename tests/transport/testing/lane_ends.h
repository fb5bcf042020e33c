#ifndef HAWSER_TESTS_TRANSPORT_TESTING_LANE_ENDS_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_LANE_ENDS_H_

// A lane with both of its ends, and memory of the owner's that it reaches.

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/test_lender.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/lane/lane.h"

namespace hawser::transport {

inline constexpr size_t kBytes = 1 << 16;  // Of the memory.

class TestOwner final : public Lane::Owner {
 public:
  void OnLaneReady() override { ready = true; }
  void OnUnsent(LaneOperation& operation, bool was_ready, const absl::Status& why) override;
  void OnLaneGone(Lane&, bool, const absl::Status& why) override { gone = why; }

  bool ready = false;
  int unsent = 0;
  std::optional<absl::Status> gone;
};

class Operation final : public LaneOperation {
 public:
  void OnEnd(const absl::Status& status) override {
    ++ends;
    result = status;
  }
  bool done() const { return ends != 0; }

  int ends = 0;
  absl::Status result;
};

inline void TestOwner::OnUnsent(LaneOperation& operation, bool, const absl::Status& why) {
  ++unsent;
  static_cast<Operation&>(operation).OnEnd(why);
}

// A device in memory, which every test uses: there is one at a time.
inline fabric::ExecutingVerbs& DeviceInMemory() {
  static fabric::ExecutingVerbs* const verbs = new fabric::ExecutingVerbs({});
  return *verbs;
}

inline std::shared_ptr<fabric::Fabric> OverVerbs(bool windows) {
  const auto grants = windows ? fabric::GrantKind::kWindows : fabric::GrantKind::kRegistered;
  const fabric::VerbsLibrary& library = DeviceInMemory().library();
  return fabric::NewVerbsFabric({.device = "fake0", .grants = grants, .library = &library}).value();
}

// Over the fabric of the tests, and over verbs.
enum class Network { kTest, kWindows, kRegistered };

class LaneTest : public ::testing::TestWithParam<Network> {
 protected:
  static std::function<std::shared_ptr<fabric::Fabric>()> NewFabric() {
    if (GetParam() == Network::kTest) return nullptr;
    return [windows = GetParam() == Network::kWindows] { return OverVerbs(windows); };
  }
  // Neither side's processor carries out what the other one posts.
  static bool by_nic() { return GetParam() != Network::kTest || TestScheme() != "tcp"; }

  LaneTest() : world_({}, {}, NewFabric()), listener_(world_, world_.server) {
    lender_->memory = *LentMemory::Map({7, 1}, kBytes, world_.clock);
    EXPECT_THAT(lender_->memory->RegisterWith(world_.server.runtime), IsOk());
    for (size_t i = 0; i < kBytes; ++i) lender_->memory->address()[i] = static_cast<uint8_t>(i * 7 + i / 256);
    listener_.on_peer = [this](PeerRequest request) {
      EXPECT_EQ(request.hello().role, Role::kLane);
      absl::StatusOr<LaneServer*> lane =
          LaneServer::Accept(world_.server.runtime, world_.server.poller(), std::move(request), lender_);
      ASSERT_THAT(lane.status(), IsOk());
      lender_->lane_server = *lane;
    };
    local_ = *world_.client.buffers().Acquire(kBytes);
    memset(local_.data(), 0, kBytes);
  }

  ~LaneTest() override {
    if (lane_ != nullptr && !owner_.gone.has_value()) {
      world_.OnClient([this] { lane_->End(absl::CancelledError("the test ends")); });
    }
    EXPECT_TRUE(world_.RunUntilPastFirstPing(
        [this] { return (lane_ == nullptr || owner_.gone.has_value()) && lender_->lane_server == nullptr; }));
    EXPECT_EQ(lender_->memory->lane_count(), 0u);
    EXPECT_EQ(lender_->grants, 0);
    local_ = Lease();
  }

  void Dial() {
    world_.OnClient([this] {
      Lane::Target target;
      target.address = listener_.address();
      Lane::Owner& owner = owner_;
      absl::StatusOr<Lane*> lane = Lane::Dial(world_.client.poller(), target, absl::Seconds(5), owner);
      ASSERT_THAT(lane.status(), IsOk());
      lane_ = *lane;
    });
  }

  LaneTicket Ticket(uint64_t offset = 0, uint64_t length = kBytes, uint8_t access = 0) {
    LaneTicket ticket;
    ticket.owner = 7;
    ticket.region = 1;
    ticket.offset = offset;
    ticket.length = length;
    const bool has_atomics = world_.server.fabric->atomics() != fabric::Atomics::kNone;
    ticket.access = access != 0 ? access : kLaneRead | kLaneWrite | (has_atomics ? kLaneAtomic : 0);
    return ticket;
  }

  uint32_t Open(const LaneTicket& ticket) {
    uint32_t handle = 0;
    world_.OnClient([&] { handle = lane_->Open(ticket); });
    return handle;
  }

  // Ranges of the remote memory, one behind the other in `local_` from `at` on.
  void Prepare(Operation& operation, bool writes, const std::vector<std::pair<uint64_t, uint32_t>>& ranges,
               size_t at = 0) {
    operation.kind = writes ? LaneOperation::Kind::kWrite : LaneOperation::Kind::kRead;
    for (const auto& [offset, length] : ranges) {
      operation.pieces.push_back({offset, {local_.data() + at, length, local_.lkey()}});
      at += length;
    }
  }
  void Start(Operation& operation, uint32_t handle) {
    world_.OnClient([&] { lane_->Start(operation, handle); });
  }
  absl::Status Run(Operation& operation, uint32_t handle) {
    Start(operation, handle);
    EXPECT_TRUE(world_.RunUntilPastFirstPing([&] { return operation.done(); }));
    EXPECT_EQ(operation.ends, 1);
    return operation.result;
  }
  absl::Status Read(uint32_t handle, uint64_t offset, uint32_t length) {
    Operation operation;
    Prepare(operation, false, {{offset, length}});
    return Run(operation, handle);
  }
  // The calling thread waits in a thread of its own in a program; here the turns go on.
  bool RevokeAndTurn() {
    lender_->memory->Revoke();
    return world_.RunUntilPastFirstPing([this] { return lender_->memory->lane_count() == 0; });
  }
  // A WRITE of which some is posted, and the rest waits, when the memory is revoked; the text says `why`.
  void ExpectCutShort(uint32_t handle, const char* why) {
    ASSERT_THAT(Read(handle, 0, 8), IsOk());
    Operation write;
    Prepare(write, true, std::vector<std::pair<uint64_t, uint32_t>>(50 * Lane::kPostedMax, {0, 8}));
    Start(write, handle);
    world_.client.poller().PollOnce();
    EXPECT_TRUE(RevokeAndTurn());
    ASSERT_TRUE(write.done());
    EXPECT_CODE(write.result, kFailedPrecondition);
    EXPECT_NE(Text(write.result).find(why), std::string::npos) << write.result;
  }

  uint8_t* remote() { return lender_->memory->address(); }

  World world_;
  TestListener listener_;
  const std::shared_ptr<TestLender> lender_ = std::make_shared<TestLender>();
  TestOwner owner_;
  Lane* lane_ = nullptr;
  Lease local_;
};

// The device in memory is no other one beside a device that is there.
inline std::vector<Network> Networks() {
  if (TestScheme() == "rdma") return {Network::kTest};
  return {Network::kTest, Network::kWindows, Network::kRegistered};
}

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_LANE_ENDS_H_
