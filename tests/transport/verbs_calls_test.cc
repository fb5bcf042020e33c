// The cost of calls for a device in steady state, counted below verbs_fabric, at the functions of libibverbs.
// Over RDMA only.

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {
namespace {

// The work requests of one ibv_qp.
struct Posted {
  std::map<ibv_wr_opcode, uint64_t> sends;
  uint64_t signaled = 0;
  uint64_t receives = 0;

  uint64_t count(ibv_wr_opcode opcode) const {
    const auto it = sends.find(opcode);
    return it != sends.end() ? it->second : 0;
  }
  uint64_t all_sends() const {
    uint64_t sum = 0;
    for (const auto& [opcode, count] : sends) sum += count;
    return sum;
  }
};

// Counts the work requests that the process posts while this object exists. One at a time, in one thread.
class CountingVerbs {
 public:
  CountingVerbs() {
    real_ = fabric::VerbsLibrary::Load().value();
    library_ = *real_;
    library_.ibv_reg_mr = [](ibv_pd* pd, void* address, size_t length, int access) {
      ++here_->registrations;
      return here_->real_->ibv_reg_mr(pd, address, length, access);
    };
    library_.ibv_open_device = [](ibv_device* device) {
      ibv_context* const context = here_->real_->ibv_open_device(device);
      if (context != nullptr) here_->CountCallsOf(context);
      return context;
    };
    library_.ibv_close_device = [](ibv_context* context) {
      here_->real_ops_.erase(context);
      return here_->real_->ibv_close_device(context);
    };
    here_ = this;
  }

  ~CountingVerbs() { here_ = nullptr; }

  std::shared_ptr<fabric::Fabric> NewFabric(fabric::GrantKind grants) {
    return fabric::NewVerbsFabric({.grants = grants, .library = &library_}).value();
  }

  void Reset() {
    posted.clear();
    registrations = 0;
  }

  std::map<ibv_qp*, Posted> posted;
  uint64_t registrations = 0;

 private:
  void CountCallsOf(ibv_context* context) {
    ibv_context_ops& ops = context->ops;
    real_ops_[context] = ops;
    ops.post_send = [](ibv_qp* qp, ibv_send_wr* chain, ibv_send_wr** bad) {
      Posted& here = here_->posted[qp];
      for (const ibv_send_wr* wr = chain; wr != nullptr; wr = wr->next) {
        ++here.sends[wr->opcode];
        if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) ++here.signaled;
      }
      return here_->real_ops_[qp->context].post_send(qp, chain, bad);
    };
    ops.post_recv = [](ibv_qp* qp, ibv_recv_wr* chain, ibv_recv_wr** bad) {
      for (const ibv_recv_wr* wr = chain; wr != nullptr; wr = wr->next) ++here_->posted[qp].receives;
      return here_->real_ops_[qp->context].post_recv(qp, chain, bad);
    };
  }

  static CountingVerbs* here_;
  const fabric::VerbsLibrary* real_;
  fabric::VerbsLibrary library_;
  std::map<ibv_context*, ibv_context_ops> real_ops_;
};

CountingVerbs* CountingVerbs::here_ = nullptr;

// The device of the tests. It is closed at once, because a fabric with a library of its own would use the
// device as it was opened.
struct DeviceKind {
  DeviceKind() {
    const char* const name = std::getenv("HAWSER_RDMA_DEVICE");
    const auto device =
        fabric::VerbsDevice::Open(*fabric::VerbsLibrary::Load().value(), name != nullptr ? name : "").value();
    iwarp = device->iwarp();
    windows = device->has_windows();
  }
  bool iwarp, windows;
};

class VerbsCallsTest : public ::testing::Test {
 protected:
  // Memory windows as on a NIC; rxe is not one.
  VerbsCallsTest() : VerbsCallsTest(std::nullopt) {}
  explicit VerbsCallsTest(std::optional<fabric::GrantKind> grants)
      : grants_(
            grants.value_or(device_.windows ? fabric::GrantKind::kWindows : fabric::GrantKind::kRegistered)) {
    link_.EchoAll();
  }

  void SetUp() override {
    if (device_.iwarp) GTEST_SKIP() << "over iWARP each send is signaled, to be put in order";
  }

  void Call(size_t body_bytes) {
    PendingCall call;
    link_.Call(call, NewMessage(world_.client.messages(), body_bytes));
    ASSERT_THAT(call.response, IsOk());
  }
  // Counts those after the first eight, which take windows and memory for all.
  void CallEightTimes(size_t body_bytes) {
    for (int i = 0; i < 8; ++i) Call(body_bytes);
    world_.Settle();
    verbs_.Reset();
    for (int i = 0; i < 8; ++i) Call(body_bytes);
    world_.Settle();
  }

  const DeviceKind device_;
  CountingVerbs verbs_;
  const fabric::GrantKind grants_;
  World world_{{}, {}, [this] { return verbs_.NewFabric(grants_); }};
  Link link_{world_};
};

TEST_F(VerbsCallsTest, ASmallCallIsOneSendAndOneReceiveASideAndOneSendInSixteenIsSignaled) {
  for (int i = 0; i < 64; ++i) Call(64);
  world_.Settle();
  verbs_.Reset();
  for (int i = 0; i < 320; ++i) Call(64);
  world_.Settle();
  EXPECT_EQ(verbs_.registrations, 0u);
  ASSERT_EQ(verbs_.posted.size(), 2u);
  for (const auto& [qp, posted] : verbs_.posted) {
    EXPECT_EQ(posted.sends.at(IBV_WR_SEND), 320u);
    EXPECT_EQ(posted.all_sends(), 320u);
    EXPECT_EQ(posted.signaled, 20u);
    EXPECT_EQ(posted.receives, 320u);
  }
}

TEST_F(VerbsCallsTest, ALargeCallRegistersNothing) {
  if (!device_.windows) GTEST_SKIP() << "without memory windows of type 2B each grant is registered";
  constexpr size_t kBytes = 1 << 20;
  CallEightTimes(kBytes);
  EXPECT_EQ(verbs_.registrations, 0u);
  ASSERT_EQ(verbs_.posted.size(), 2u);
  for (const auto& [qp, posted] : verbs_.posted) {
    EXPECT_LE(posted.receives, 16u);  // Posted in chains. Some may be for later calls.
    EXPECT_EQ(posted.count(IBV_WR_SEND) + posted.count(IBV_WR_SEND_WITH_INV), 8u);
    EXPECT_EQ(posted.count(IBV_WR_RDMA_READ), 8 * kBytes / kReadChunkBytes);
    EXPECT_EQ(posted.count(IBV_WR_BIND_MW), 8u);
  }
  // Where a response ends a grant of its request, as on NICs, the other side posts no LOCAL_INV for it.
  const Posted& one = verbs_.posted.begin()->second;
  const Posted& other = verbs_.posted.rbegin()->second;
  EXPECT_EQ(one.count(IBV_WR_LOCAL_INV) + other.count(IBV_WR_SEND_WITH_INV), 8u);
  EXPECT_EQ(other.count(IBV_WR_LOCAL_INV) + one.count(IBV_WR_SEND_WITH_INV), 8u);
}

class SharedCallsTest : public VerbsCallsTest {
 protected:
  SharedCallsTest() : VerbsCallsTest(fabric::GrantKind::kShared) {}
};

TEST_F(SharedCallsTest, WhereKeysAreSharedALargeCallIsNothingButItsSendsAndReads) {
  constexpr size_t kBytes = 1 << 20;
  CallEightTimes(kBytes);
  EXPECT_EQ(verbs_.registrations, 0u);
  ASSERT_EQ(verbs_.posted.size(), 2u);
  for (const auto& [qp, posted] : verbs_.posted) {
    EXPECT_EQ(posted.sends.at(IBV_WR_SEND), 8u);
    EXPECT_EQ(posted.sends.at(IBV_WR_RDMA_READ), 8 * kBytes / kReadChunkBytes);
    EXPECT_EQ(posted.all_sends(), 8 + 8 * kBytes / kReadChunkBytes);
  }
}

TEST(RdmaGrantsTest, OnlyARuntimeThatIsAskedToSharesItsPool) {
  for (RdmaGrants grants : {RdmaGrants::kAutomatic, RdmaGrants::kRegistered, RdmaGrants::kShared}) {
    World world({}, {}, [&] {
      const std::shared_ptr<Runtime> runtime = Runtime::Create("rdma", {.rdma_grants = grants}).value();
      return std::shared_ptr<fabric::Fabric>(runtime, &runtime->fabric());
    });
    Link link(world);
    const Lease memory = world.client.buffers().Acquire(4096).value();
    world.OnClient([&] {
      fabric::QueuePair& queue_pair = link.client_end->queue_pair();
      const fabric::Sge one = {memory.data(), 100, memory.lkey()},
                        other = {memory.data() + 200, 100, memory.lkey()};
      const auto first = queue_pair.Grant(one, fabric::QueuePair::Access::kRead);
      const auto second = queue_pair.Grant(other, fabric::QueuePair::Access::kRead);
      ASSERT_THAT(first, IsOk());
      ASSERT_THAT(second, IsOk());
      EXPECT_EQ(first->rkey == second->rkey, grants == RdmaGrants::kShared);
    });
  }
}

}  // namespace
}  // namespace hawser::transport
