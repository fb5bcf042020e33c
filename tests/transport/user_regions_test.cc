// Memory that a program registers: how it is found, and when it is the program's again.

#include "hawser/transport/memory/user_regions.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/fabric/tcp/fabric.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::transport {
namespace {

using ::testing::HasSubstr;

// Says when it waits, so that a test can go on then.
class WatchedEnvironment final : public Environment {
 public:
  bool Await(absl::Mutex& mutex, absl::CondVar& changed, absl::FunctionRef<bool()> condition,
             absl::Time deadline) override {
    if (!condition()) waits.Notify();
    if (keeps_lock) goes_on.WaitForNotification();
    return Environment::Await(mutex, changed, condition, deadline);
  }
  absl::Notification waits;
  bool keeps_lock = false;  // Until `goes_on`.
  absl::Notification goes_on;
};

class UserRegionsTest : public ::testing::Test {
 protected:
  UserRange Part(size_t offset, size_t length) {
    return {.address = memory_.data() + offset, .length_bytes = length};
  }
  UserRegion* Add(const UserRange& range) {
    absl::StatusOr<UserRegion*> region = regions_.Register(range);
    EXPECT_THAT(region.status(), IsOk());
    return *region;
  }
  // The region that has these bytes. Null: none.
  const UserRegion* Of(size_t offset, size_t length) {
    const UserRegionUse use = regions_.Find(memory_.data() + offset, length).use;
    return use ? &use.region() : nullptr;
  }

  std::vector<uint8_t> memory_ = std::vector<uint8_t>(10000);
  WatchedEnvironment environment_;
  const std::unique_ptr<fabric::Fabric> fabric_ = fabric::CreateTcpFabric();
  UserRegions regions_{*fabric_, environment_};
};

TEST_F(UserRegionsTest, ARegionIsFoundByAnyRangeInIt) {
  EXPECT_FALSE(regions_.any());
  EXPECT_EQ(Of(0, 1), nullptr);
  UserRegion* const low = Add(Part(1000, 1000));
  UserRegion* const high = Add(Part(4000, 1000));
  EXPECT_TRUE(regions_.any());
  EXPECT_EQ(Of(1000, 1000), low);
  EXPECT_EQ(Of(1999, 1), low);
  EXPECT_EQ(Of(4000, 1), high);
  EXPECT_EQ(Of(4999, 1), high);
  EXPECT_EQ(Of(999, 1), nullptr);
  EXPECT_EQ(Of(999, 2), nullptr);
  EXPECT_EQ(Of(1000, 1001), nullptr);
  EXPECT_EQ(Of(2000, 1), nullptr);
  EXPECT_EQ(Of(1999, 2002), nullptr) << "none has all of it";
  EXPECT_TRUE(regions_.Release(low, true));
  EXPECT_EQ(Of(1000, 1), nullptr);
  EXPECT_EQ(Of(4000, 1000), high);
  EXPECT_TRUE(regions_.Release(high, true));
  EXPECT_FALSE(regions_.any());
}

TEST_F(UserRegionsTest, RegionsMayOverlap) {
  UserRegion* const small = Add(Part(100, 10));
  UserRegion* const large = Add(Part(0, 10000));
  UserRegion* const between = Add(Part(50, 200));
  UserRegion* const same = Add(Part(50, 200));
  EXPECT_EQ(Of(0, 10000), large);
  EXPECT_EQ(Of(9000, 10), large);
  const UserRegion* const found = Of(50, 200);
  EXPECT_TRUE(found == between || found == same);
  EXPECT_TRUE(regions_.Release(large, true));
  EXPECT_EQ(Of(0, 50), nullptr);
  EXPECT_NE(Of(60, 100), nullptr);
  EXPECT_TRUE(regions_.Release(between, true));
  EXPECT_EQ(Of(50, 200), same);
  EXPECT_TRUE(regions_.Release(same, true));
  EXPECT_EQ(Of(50, 10), nullptr);
  EXPECT_EQ(Of(100, 10), small);
  EXPECT_TRUE(regions_.Release(small, true));
}

TEST_F(UserRegionsTest, ARegionInUseIsNotReleasedWhereNothingMayWait) {
  UserRegion* const region = Add(Part(0, 100));
  std::optional<UserRegionUse> use = regions_.Find(memory_.data(), 10).use;
  EXPECT_FALSE(regions_.Release(region, false));
  EXPECT_EQ(Of(0, 100), region) << "nothing has changed";
  use.reset();
  EXPECT_TRUE(regions_.Release(region, false));
  EXPECT_EQ(Of(0, 100), nullptr);
}

TEST_F(UserRegionsTest, ReleaseReturnsWhenTheLastUseHasEnded) {
  UserRegion* const region = Add(Part(0, 100));
  UserRegionUse first = regions_.Find(memory_.data(), 10).use;
  UserRegionUse second = regions_.Find(memory_.data() + 20, 10).use;
  std::atomic<bool> released{false};
  std::thread releases([&] {
    EXPECT_TRUE(regions_.Release(region, true));
    released = true;
  });
  environment_.waits.WaitForNotification();
  EXPECT_EQ(Of(0, 10), nullptr) << "nothing new may use it";
  first = {};
  EXPECT_EQ(second.region().range().length_bytes, 100u);
  EXPECT_FALSE(released);
  second = {};
  releases.join();
}

// Memory that the processor does not see must not be copied either, so it is known until the end.
TEST_F(UserRegionsTest, WhatTheProcessorDoesNotSeeIsKnownUntilItIsReleased) {
  fabric::FakeVerbs verbs;
  const auto device = fabric::NewVerbsFabric({.device = "fake0", .library = &verbs.library()}).value();
  UserRegions regions(*device, environment_);
  UserRange range = Part(1000, 1000);
  range.cpu_visible = false;
  UserRegion* const region = *regions.Register(range);
  const auto code = [&](size_t offset, size_t length, bool in_place = true) {
    const UserRegions::Found found = regions.Find(memory_.data() + offset, length, in_place);
    EXPECT_FALSE(found.use);
    return found.copyable.code();
  };
  EXPECT_EQ(code(0, 1000), absl::StatusCode::kOk);
  EXPECT_EQ(code(999, 2), absl::StatusCode::kInvalidArgument) << "it has not all of it";
  EXPECT_EQ(code(1000, 8, false), absl::StatusCode::kInvalidArgument);
  UserRegionUse use = regions.Find(memory_.data() + 1000, 1000).use;
  ASSERT_TRUE(use);
  std::thread releases([&] { EXPECT_TRUE(regions.Release(region, true)); });
  environment_.waits.WaitForNotification();
  EXPECT_TRUE(regions.any());
  EXPECT_EQ(code(1000, 1000), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(1999, 2), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(1000, 8, false), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(2000, 8), absl::StatusCode::kOk);
  // While it is deregistered, too.
  verbs.during["ibv_dereg_mr"] = [&] {
    EXPECT_TRUE(regions.any());
    EXPECT_EQ(code(1000, 1000), absl::StatusCode::kFailedPrecondition);
  };
  use = {};
  releases.join();
  EXPECT_TRUE(verbs.during.empty());
  EXPECT_FALSE(regions.any());
}

TEST_F(UserRegionsTest, AUseMovesWithItsObject) {
  UserRegion* const region = Add(Part(0, 100));
  UserRegionUse one = regions_.Find(memory_.data(), 10).use;
  UserRegionUse other(std::move(one));
  EXPECT_FALSE(one);
  one = std::move(other);
  EXPECT_FALSE(regions_.Release(region, false));
  one = {};
  EXPECT_TRUE(regions_.Release(region, false));
}

TEST_F(UserRegionsTest, WhatIsNoMemoryIsRefused) {
  const auto code = [&](const UserRange& range) { return regions_.Register(range).status().code(); };
  using Kind = UserRange::Kind;
  EXPECT_EQ(code({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.address = memory_.data()}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.length_bytes = 10}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.address = memory_.data(), .length_bytes = UINT64_MAX}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.kind = static_cast<Kind>(3), .address = memory_.data(), .length_bytes = 1}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.kind = Kind::kDmabuf, .address = memory_.data(), .length_bytes = 1}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.kind = Kind::kDmabuf,
                  .address = memory_.data(),
                  .length_bytes = 2,
                  .dmabuf_fd = 0,
                  .dmabuf_offset = UINT64_MAX - 1}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(regions_.any());
}

TEST_F(UserRegionsTest, WhatTcpCannotUseIsRefusedWithTheReason) {
  UserRange dmabuf = Part(0, 100);
  dmabuf.kind = UserRange::Kind::kDmabuf;
  dmabuf.dmabuf_fd = 0;
  const absl::Status no_dmabuf = regions_.Register(dmabuf).status();
  EXPECT_THAT(no_dmabuf, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(no_dmabuf.message()), HasSubstr("tcp:// the processor copies every byte"));
  UserRange hidden = Part(0, 100);
  hidden.cpu_visible = false;
  const absl::Status no_hidden = regions_.Register(hidden).status();
  EXPECT_THAT(no_hidden, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(no_hidden.message()), HasSubstr("the processor does not see"));
  UserRange on_demand = Part(0, 100);
  on_demand.kind = UserRange::Kind::kOnDemand;
  UserRegion* const region = Add(on_demand);  // Nothing is pinned anyway.
  EXPECT_EQ(Of(0, 100), region);
  EXPECT_THAT(regions_.Find(memory_.data(), 200).copyable, IsOk());
  EXPECT_TRUE(regions_.Release(region, true));
}

// The places of a fabric are the pool's, too.
TEST_F(UserRegionsTest, AProgramCannotTakeAllPlacesOfTheFabric) {
  std::vector<UserRegion*> all;
  for (size_t i = 0; i < UserRegions::kRegionsMax; ++i) all.push_back(Add(Part(i, 1)));
  const absl::Status full = regions_.Register(Part(0, 1)).status();
  EXPECT_THAT(full, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(fabric_->Register(memory_.data(), 1).status(), IsOk());
  EXPECT_TRUE(regions_.Release(all.back(), true));
  all.back() = Add(Part(1, 1));
  for (UserRegion* region : all) EXPECT_TRUE(regions_.Release(region, true));
}

// Another thread has the lock during fork(), so in the child it is never free.
TEST_F(UserRegionsTest, InAChildAUseEndsWithoutTheLock) {
  UserRegion* const region = Add(Part(0, 100));
  std::optional<UserRegionUse> use = regions_.Find(memory_.data(), 10).use;
  environment_.keeps_lock = true;
  std::thread releases([&] { EXPECT_TRUE(regions_.Release(region, true)); });
  environment_.waits.WaitForNotification();
  EXPECT_TRUE(InChild([&] {
    use.reset();
    return true;
  }));
  environment_.goes_on.Notify();
  use.reset();
  releases.join();
}

}  // namespace
}  // namespace hawser::transport
