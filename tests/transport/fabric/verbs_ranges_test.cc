// Memory of other kinds than that of the host, registered with a device.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/range_region.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/options.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Kind = MemoryRange::Kind;

constexpr uint32_t kReadsAndWrites = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class VerbsRangesTest : public ::testing::Test {
 protected:
  MemoryRange OnDemand() {
    return {.kind = Kind::kOnDemand, .address = memory_.data(), .length_bytes = memory_.size()};
  }
  // An address that nothing is mapped at: that of another device.
  MemoryRange Dmabuf() {
    return {.kind = Kind::kDmabuf,
            .cpu_visible = false,
            .address = reinterpret_cast<uint8_t*>(uint64_t{1} << 46),
            .length_bytes = 100,
            .dmabuf_fd = file_.get(),
            .dmabuf_offset = 1 << 20};
  }

  std::vector<uint8_t> memory_ = std::vector<uint8_t>(4096);
  UniqueFd file_{memfd_create("dmabuf", MFD_CLOEXEC)};
};

TEST_F(VerbsRangesTest, ADmabufIsRegisteredAsItIsGiven) {
  FakeWorld world;
  {
    const auto region = world.fabric->RegisterRange(Dmabuf());
    ASSERT_THAT(region.status(), IsOk());
    ASSERT_EQ(world.verbs.dmabufs.size(), 1u);
    const FakeVerbs::Dmabuf& registered = world.verbs.dmabufs[0];
    EXPECT_EQ(registered.offset, 1u << 20);
    EXPECT_EQ(registered.length_bytes, 100u);
    EXPECT_EQ(registered.iova, uint64_t{1} << 46);
    // The caller may close its own.
    EXPECT_NE(registered.fd, file_.get());
    EXPECT_EQ(fcntl(registered.fd, F_GETFD), FD_CLOEXEC);
    // Its sges are those of other memory.
    const Sge sge = {Dmabuf().address, 100, (*region)->lkey()};
    SendWorkRequest read = {.wr_id = 1, .opcode = Opcode::kRead, .signaled = true, .sges = {&sge, 1}};
    EXPECT_THAT(world.qp->PostSend({&read, 1}), IsOk());
    const ibv_sge& posted = world.verbs.send_chains.back()[0].sges[0];
    EXPECT_EQ(posted.addr, uint64_t{1} << 46);
    EXPECT_EQ(posted.length, 100u);
    const Sge beyond = {Dmabuf().address + 1, 100, (*region)->lkey()};
    read.sges = {&beyond, 1};
    EXPECT_THAT(world.qp->PostSend({&read, 1}), HasCode(absl::StatusCode::kInvalidArgument));
    world.verbs.CompleteSends(1);
    world.Poll();
  }
  EXPECT_EQ(fcntl(world.verbs.dmabufs[0].fd, F_GETFD), -1) << "it is closed with the region";
}

// Not even where all registered memory can be READ by peers that have its rkey.
TEST_F(VerbsRangesTest, NoPeerReachesMemoryOfAnyKind) {
  for (const GrantKind grants : {GrantKind::kWindows, GrantKind::kRegistered, GrantKind::kShared}) {
    FakeWorld world(FakeVerbs::Options{.grants = grants});
    world.verbs.on_demand = kReadsAndWrites;
    constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    const MemoryRange host = {.address = memory_.data(), .length_bytes = memory_.size()};
    EXPECT_THAT(world.fabric->RegisterRange(host).status(), IsOk());
    EXPECT_EQ(world.verbs.registrations.back(), kLocal);
    EXPECT_THAT(world.fabric->RegisterRange(Dmabuf()).status(), IsOk());
    EXPECT_EQ(world.verbs.registrations.back(), kLocal);
    EXPECT_THAT(world.fabric->RegisterRange(OnDemand()).status(), IsOk());
    EXPECT_EQ(world.verbs.registrations.back(), kLocal | IBV_ACCESS_ON_DEMAND);
  }
}

TEST_F(VerbsRangesTest, MemoryOnDemandIsNotPinned) {
  FakeWorld world;
  world.verbs.on_demand = kReadsAndWrites;
  const auto region = world.fabric->RegisterRange(OnDemand());
  ASSERT_THAT(region.status(), IsOk());
  EXPECT_EQ(world.verbs.registrations.back(),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_ON_DEMAND);
}

TEST_F(VerbsRangesTest, ADeviceThatTakesNoPageFaultsOfReadsAndWritesRefusesMemoryOnDemand) {
  FakeWorld world;
  const size_t registered = world.verbs.registrations.size();
  for (const uint32_t has : {0, int{IBV_ODP_SUPPORT_READ}, int{IBV_ODP_SUPPORT_WRITE},
                             int{IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV}}) {
    world.verbs.on_demand = has;
    const absl::Status status = world.fabric->RegisterRange(OnDemand()).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented)) << has;
    EXPECT_THAT(Message(status), HasSubstr("takes no page faults of READs and WRITEs"));
  }
  world.verbs.fail_once["ibv_query_device_ex"] = EOPNOTSUPP;  // An old provider.
  EXPECT_THAT(world.fabric->RegisterRange(OnDemand()).status(), HasCode(absl::StatusCode::kUnimplemented));
  world.verbs.on_demand = kReadsAndWrites;
  world.verbs.fail_once["ibv_query_device_ex"] = EIO;
  const absl::Status broken = world.fabric->RegisterRange(OnDemand()).status();
  EXPECT_THAT(Message(broken), HasSubstr("ibv_query_device_ex()"));
  EXPECT_FALSE(broken.ok());
  EXPECT_EQ(world.verbs.registrations.size(), registered);
  EXPECT_THAT(world.fabric->RegisterRange(OnDemand()).status(), IsOk());
}

TEST_F(VerbsRangesTest, ADriverWithoutDmabufsIsNamed) {
  FakeWorld world;
  world.verbs.fail_once["ibv_reg_dmabuf_mr"] = EOPNOTSUPP;
  const absl::Status none = world.fabric->RegisterRange(Dmabuf()).status();
  EXPECT_THAT(none, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(Message(none), HasSubstr("the driver of the device takes no dma-bufs"));
  world.verbs.fail_once["ibv_reg_dmabuf_mr"] = EINVAL;
  const absl::Status other = world.fabric->RegisterRange(Dmabuf()).status();
  EXPECT_THAT(other, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(other), HasSubstr("is not that of a dma-buf"));
  // What fails leaves nothing: no lkey and no file descriptor.
  const int next = dup(file_.get());
  close(next);
  world.verbs.fail_once["ibv_reg_dmabuf_mr"] = ENOMEM;
  EXPECT_FALSE(world.fabric->RegisterRange(Dmabuf()).ok());
  const int later = dup(file_.get());
  close(later);
  EXPECT_EQ(later, next);
}

TEST_F(VerbsRangesTest, AFileDescriptorThatIsNotOpenIsRefused) {
  FakeWorld world;
  MemoryRange range = Dmabuf();
  range.dmabuf_fd = dup(file_.get());
  close(range.dmabuf_fd);
  const absl::Status status = world.fabric->RegisterRange(range).status();
  EXPECT_THAT(Message(status), HasSubstr("F_DUPFD_CLOEXEC"));
  EXPECT_TRUE(world.verbs.dmabufs.empty());
}

TEST_F(VerbsRangesTest, AddressAndOffsetAreAtTheSamePlaceOfAPage) {
  FakeWorld world;
  MemoryRange range = Dmabuf();
  range.dmabuf_offset += 8;
  const absl::Status status = world.fabric->RegisterRange(range).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Message(status), HasSubstr("different places of a page"));
  range.address += 8;
  EXPECT_THAT(world.fabric->RegisterRange(range).status(), IsOk());
}

// A READ there registers what it fills, by its address.
TEST_F(VerbsRangesTest, OverIwarpOnlyMemoryOfTheHostIsTaken) {
  FakeWorld world(FakeVerbs::Options{.iwarp = true});
  world.verbs.on_demand = kReadsAndWrites;
  for (const MemoryRange& range : {Dmabuf(), OnDemand()}) {
    const absl::Status status = world.fabric->RegisterRange(range).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
    EXPECT_THAT(Message(status), HasSubstr("over iWARP"));
  }
  EXPECT_THAT(
      world.fabric->RegisterRange({.address = memory_.data(), .length_bytes = memory_.size()}).status(),
      IsOk());
}

TEST_F(VerbsRangesTest, AnOldLibraryIsNamed) {
  FakeVerbs verbs;
  VerbsLibrary old = verbs.library();
  old.ibv_reg_dmabuf_mr = nullptr;
  old.query_on_demand = nullptr;
  const std::shared_ptr<Fabric> fabric = NewVerbsFabric({.library = &old}).value();
  const absl::Status dmabuf = fabric->RegisterRange(Dmabuf()).status();
  EXPECT_THAT(dmabuf, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(Message(dmabuf), HasSubstr("older than rdma-core 34"));
  EXPECT_THAT(fabric->RegisterRange(OnDemand()).status(), HasCode(absl::StatusCode::kUnimplemented));
}

TEST_F(VerbsRangesTest, WhenADeviceIsBackTheSameIsRegisteredAgain) {
  FakeWorld world;
  world.verbs.on_demand = kReadsAndWrites;
  const auto dmabuf = world.fabric->RegisterRange(Dmabuf()).value();
  const auto on_demand = world.fabric->RegisterRange(OnDemand()).value();
  const size_t registered = world.verbs.registrations.size();
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  // What it can do is not known while it is gone.
  EXPECT_THAT(world.fabric->RegisterRange(OnDemand()).status(), HasCode(absl::StatusCode::kUnavailable));
  world.qp.reset();
  NewsRecorder news;
  const auto again = world.fabric->CreateQueuePair(*world.completion_queue, {}, news).value();
  ASSERT_THAT(again->Connect(FakePeer(), "hello"), IsOk());
  world.Poll(1600);
  ASSERT_EQ(world.verbs.dmabufs.size(), 2u);
  EXPECT_EQ(world.verbs.dmabufs[1].fd, world.verbs.dmabufs[0].fd);
  EXPECT_EQ(world.verbs.dmabufs[1].offset, 1u << 20);
  int on_demand_again = 0;
  for (size_t i = registered; i < world.verbs.registrations.size(); ++i) {
    if ((world.verbs.registrations[i] & IBV_ACCESS_ON_DEMAND) != 0) ++on_demand_again;
  }
  EXPECT_EQ(on_demand_again, 1);
  again->Disconnect();
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
}

// Its exporter is gone, or the memlock limit was lowered.
TEST_F(VerbsRangesTest, MemoryOfTheProgramThatCannotBeRegisteredAgainIsLostAlone) {
  FakeWorld world;
  const auto dmabuf = world.fabric->RegisterRange(Dmabuf()).value();
  const MemoryRange host_range = {.address = memory_.data(), .length_bytes = memory_.size()};
  const auto host = world.fabric->RegisterRange(host_range).value();
  std::vector<uint8_t> pool(100);
  const auto late = world.fabric->Register(pool.data(), pool.size()).value();
  const auto usable = [](const std::unique_ptr<MemoryRegion>& region) {
    return dynamic_cast<const RangeRegion&>(*region).Usable();
  };
  EXPECT_THAT(usable(dmabuf), IsOk());
  const auto come_back = [&] {
    world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
    world.Poll();
    world.qp.reset();
    world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
    ASSERT_THAT(world.qp->Connect(FakePeer(), "hello"), IsOk());
    world.Poll(1600);
    ASSERT_EQ(world.news.told.back(), "established");
  };
  const auto read = [&](const MemoryRange& range, const std::unique_ptr<MemoryRegion>& region) {
    const Sge sge = {range.address, 100, region->lkey()};
    const SendWorkRequest request = {
        .wr_id = 1, .opcode = Opcode::kRead, .signaled = true, .sges = {&sge, 1}};
    return world.qp->PostSend({&request, 1});
  };
  const size_t registered = world.verbs.registrations.size();
  world.verbs.fail_once["ibv_reg_dmabuf_mr"] = ENODEV;
  come_back();
  // What the library needs is registered first.
  const std::vector<int> again(world.verbs.registrations.begin() + static_cast<ptrdiff_t>(registered),
                               world.verbs.registrations.end());
  ASSERT_EQ(again.size(), 3u);
  EXPECT_NE(again[0] & IBV_ACCESS_MW_BIND, 0);
  EXPECT_NE(again[1] & IBV_ACCESS_MW_BIND, 0);
  EXPECT_EQ(again[2] & IBV_ACCESS_MW_BIND, 0);
  EXPECT_THAT(usable(host), IsOk());
  EXPECT_THAT(usable(late), IsOk());
  const absl::Status lost = usable(dmabuf);
  EXPECT_THAT(lost, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Message(lost), AllOf(HasSubstr("fake0"), HasSubstr("ENODEV"), HasSubstr("register it anew")));
  EXPECT_THAT(read(Dmabuf(), dmabuf), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(read(host_range, host), IsOk()) << "the queue pair goes on";
  world.verbs.CompleteSends(1);
  world.Poll();
  come_back();
  EXPECT_THAT(usable(dmabuf), IsOk()) << "it is tried again";
  EXPECT_THAT(read(Dmabuf(), dmabuf), IsOk());
  world.verbs.CompleteSends(1);
  world.Poll();
  // What the library needs itself keeps the device away.
  world.verbs.AsyncEvent(IBV_EVENT_DEVICE_FATAL);
  world.Poll();
  world.qp.reset();
  world.qp = world.fabric->CreateQueuePair(*world.completion_queue, {}, world.news).value();
  world.verbs.fail_once["ibv_reg_mr"] = ENOMEM;
  EXPECT_THAT(world.qp->Connect(FakePeer(), "hello"), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace hawser::fabric
