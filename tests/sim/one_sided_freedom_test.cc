// The simulated NIC makes use of the freedom that one-sided accesses leave a real one: some seed shows each
// surprise. Otherwise seeds would prove nothing of what is built on such accesses.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

#include "gtest/gtest.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {
namespace {

using fabric::CompletionIs;
using fabric::FabricWorld;
using fabric::Granted;
using Access = fabric::QueuePair::Access;

constexpr uint32_t kBytes = 256;
constexpr uint64_t kSeeds = 200;

// Two hosts, and a clock that moves so slowly that the owner of the memory sees every step.
struct Stage {
  explicit Stage(uint64_t seed, fabric::Atomics atomics = fabric::Atomics::kNic)
      : network(
            std::make_shared<Network>(NetworkOptions{.seed = seed, .idle_poll_ns = 50, .atomics = atomics})),
        world({.name = "Sim",
               .create = [this] { return std::make_shared<SimFabric>(*network, 1); },
               .listen_address = SimFabric::AddressOf(1)}),
        pair(world.Connect()),
        granted(
            pair.b.Grant(pair.b.At(0, kBytes), Access::kReadRepeatedly | Access::kWrite | Access::kAtomic)) {}

  // Polls until `count` sends of the peer have completed, and runs `owner` after each poll.
  void Run(size_t count, const std::function<void()>& owner) {
    HAWSER_UNTIL(world, (owner(), pair.a.sends.size() >= count));
  }

  const std::shared_ptr<Network> network;
  FabricWorld world;
  FabricWorld::Pair pair;
  const Granted granted;
};

// Whether a seed shows `surprise`.
bool SomeSeedShows(const std::function<bool(uint64_t seed)>& surprise) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (surprise(seed)) return true;
  }
  return false;
}

TEST(OneSidedFreedomTest, TheWordsOfAReadAreOfDifferentTimesAndEachIsWhole) {
  EXPECT_TRUE(SomeSeedShows([](uint64_t seed) {
    Stage stage(seed);
    auto& [a, b] = stage.pair;
    EXPECT_THAT(a.Read(1, a.At(0, kBytes), stage.granted), IsOk());
    uint8_t version = 0;
    stage.Run(1, [&b = b, &version] { std::memset(b.memory(), ++version, kBytes); });
    bool differ = false;
    for (size_t i = 0; i < kBytes; ++i) {
      EXPECT_EQ(a.memory()[i], a.memory()[i / 8 * 8]);
      differ = differ || a.memory()[i] != a.memory()[0];
    }
    return differ;
  }));
}

TEST(OneSidedFreedomTest, TheLastByteOfAWriteArrivesBeforeItsFirst) {
  EXPECT_TRUE(SomeSeedShows([](uint64_t seed) {
    Stage stage(seed);
    auto& [a, b] = stage.pair;
    std::memset(a.memory(), 7, 9);
    EXPECT_THAT(a.Write(1, a.At(0, 9), stage.granted), IsOk());
    bool seen = false;
    stage.Run(1, [&b = b, &seen] { seen = seen || (b.memory()[8] == 7 && b.memory()[0] == 0); });
    EXPECT_EQ(std::memcmp(a.memory(), b.memory(), 9), 0);
    return seen;
  }));
}

TEST(OneSidedFreedomTest, AReadIsOvertakenByALaterWrite) {
  EXPECT_TRUE(SomeSeedShows([](uint64_t seed) {
    Stage stage(seed);
    auto& [a, b] = stage.pair;
    std::memset(a.memory() + 64, 7, 8);
    EXPECT_THAT(a.Read(1, a.At(0, 8), stage.granted), IsOk());
    EXPECT_THAT(a.Write(2, a.At(64, 8), stage.granted), IsOk());
    stage.Run(2, [] {});
    EXPECT_THAT(a.sends[0], CompletionIs(1, fabric::CompletionStatus::kSuccess));
    return a.memory()[0] == 7 || a.memory()[7] == 7;
  }));
}

// How many of the processor's additions, and of the peer's, are lost.
uint64_t LostAdds(uint64_t seed, fabric::Atomics atomics) {
  constexpr uint64_t kAdds = 8;
  Stage stage(seed, atomics);
  auto& [a, b] = stage.pair;
  std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(b.memory()));
  for (uint64_t i = 0; i < kAdds; ++i) {
    EXPECT_THAT(a.FetchAdd(i, a.At(64 + 8 * i, 8), stage.granted, 0, 1), IsOk());
  }
  uint64_t own = 0;
  stage.Run(kAdds, [&] {
    word.fetch_add(1);
    ++own;
  });
  return kAdds + own - word.load();
}

TEST(OneSidedFreedomTest, AnAdditionOfTheProcessorIsLostToANicsAtomic) {
  EXPECT_TRUE(SomeSeedShows([](uint64_t seed) { return LostAdds(seed, fabric::Atomics::kNic) > 0; }));
}

TEST(OneSidedFreedomTest, NoneIsLostWhereAtomicsAreThoseOfTheProcessor) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(LostAdds(seed, fabric::Atomics::kWithProcessor), 0u) << seed;
  }
}

// What it read and wrote is not of a grant any more once the revocation has completed.
TEST(OneSidedFreedomTest, NothingArrivesAfterARevocationHasCompleted) {
  bool was_cut = false;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Stage stage(seed);
    auto& [a, b] = stage.pair;
    std::memset(a.memory(), 7, kBytes);
    EXPECT_THAT(a.Write(1, a.At(0, kBytes), stage.granted), IsOk());
    EXPECT_THAT(a.FetchAdd(2, a.At(512, 8), stage.granted, 0, 1), IsOk());
    stage.world.PollSome(static_cast<int>(seed % 100));
    b.Revoke(3, stage.granted.rkey);
    HAWSER_UNTIL(stage.world, b.revocations.size() == 1);
    std::memset(b.memory(), 0, kBytes);
    stage.world.ExpectEverythingComesBack(a);
    for (size_t i = 0; i < kBytes; ++i) EXPECT_EQ(b.memory()[i], 0) << "seed " << seed;
    was_cut = was_cut || a.sends[0].status != fabric::CompletionStatus::kSuccess;
  }
  EXPECT_TRUE(was_cut);
}

}  // namespace
}  // namespace hawser::sim
