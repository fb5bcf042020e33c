// A VersionedCell whose owner writes while the simulated NIC READs it.
#include "hawser/rpc/versioned_cell.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/tests/testing/cell_outcome.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::sim {
namespace {

using fabric::FabricWorld;
using fabric::Granted;
using Access = fabric::QueuePair::Access;

constexpr size_t kValueBytes = 90;
constexpr uint32_t kCellBytes = VersionedCell::CellBytes(kValueBytes);
constexpr uint64_t kSeeds = 300;

// Each byte of a version's value tells it from those of the versions around it, and from its other bytes.
std::vector<uint8_t> ValueOf(uint64_t version) {
  std::vector<uint8_t> value(kValueBytes);
  const uint64_t fill = version * 31 + version / 256 * 7;
  for (size_t i = 0; i < kValueBytes; ++i) value[i] = static_cast<uint8_t>(fill + i);
  return value;
}

// READs `cell_bytes` with each seed, while `write` runs between its steps with the next version. `decode` is
// asked what the READ has brought.
CellOutcome Try(uint32_t cell_bytes, const std::function<void(absl::Span<uint8_t>, uint64_t version)>& write,
                const std::function<std::optional<uint64_t>(absl::Span<const uint8_t> read,
                                                            absl::Span<uint8_t> value)>& decode) {
  CellOutcome outcome;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    // A clock that moves so slowly that the owner sees each step of a READ. It writes at each, or rarely.
    const auto network = std::make_shared<Network>(NetworkOptions{.seed = seed, .idle_poll_ns = 50});
    const uint64_t steps_a_write = uint64_t{1} << seed % 12;
    FabricWorld world({.name = "Sim",
                       .create = [&network] { return std::make_shared<SimFabric>(*network, 1); },
                       .listen_address = SimFabric::AddressOf(1)});
    auto pair = world.Connect();
    auto& [client, owner] = pair;
    const Granted granted = owner.Grant(owner.At(0, cell_bytes), Access::kReadRepeatedly);
    const absl::Span<uint8_t> memory(owner.memory(), cell_bytes);
    uint64_t version = 1;
    write(memory, version);
    EXPECT_THAT(client.Read(1, client.At(0, cell_bytes), granted), IsOk());
    uint64_t step = 0;
    const auto owner_goes_on = [&] {
      if (++step % steps_a_write == 0) write(memory, ++version);
    };
    HAWSER_UNTIL(world, (owner_goes_on(), !pair.a.sends.empty()));
    std::vector<uint8_t> value(kValueBytes);
    const auto decoded = decode({client.memory(), cell_bytes}, absl::MakeSpan(value));
    outcome.Count(decoded, value, version, [](uint64_t each) { return ValueOf(each); });
  }
  return outcome;
}

TEST(VersionedCellSimTest, NoSeedReadsAMixture) {
  const CellOutcome outcome = Try(
      kCellBytes,
      [](absl::Span<uint8_t> memory, uint64_t version) {
        EXPECT_EQ(VersionedCell(memory).Write(ValueOf(version)).value(), version);
      },
      VersionedCell::Decode);
  EXPECT_EQ(outcome.deceived, 0);
  EXPECT_GT(outcome.whole, 0);
  EXPECT_GT(outcome.refused, 0);
}

// Otherwise the seeds prove nothing: a version at both ends of the value does not show each mixture.
TEST(VersionedCellSimTest, SomeSeedDeceivesAVersionAtHeadAndTail) {
  const CellOutcome outcome = Try(
      kValueBytes + 16,
      [](absl::Span<uint8_t> memory, uint64_t version) {
        const std::vector<uint8_t> value = ValueOf(version);
        std::memcpy(memory.data(), &version, 8);
        std::copy(value.begin(), value.end(), memory.data() + 8);
        std::memcpy(memory.data() + 8 + kValueBytes, &version, 8);
      },
      [](absl::Span<const uint8_t> read, absl::Span<uint8_t> value) -> std::optional<uint64_t> {
        uint64_t head, tail;
        std::memcpy(&head, read.data(), 8);
        std::memcpy(&tail, read.data() + 8 + kValueBytes, 8);
        std::copy_n(read.data() + 8, kValueBytes, value.data());
        return head == tail ? std::optional(head) : std::nullopt;
      });
  EXPECT_GT(outcome.deceived, 0);
}

}  // namespace
}  // namespace hawser::sim
