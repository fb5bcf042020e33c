#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_CONTRACT_SUITES_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_CONTRACT_SUITES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"

// What fabric.h promises, of every fabric, is tested in the files fabric_contract_*.cc. None of them knows
// which one it runs on: that is in the file that defines FabricsUnderTest().
namespace hawser::fabric {

inline constexpr CompletionStatus kSuccess = CompletionStatus::kSuccess;
inline constexpr CompletionStatus kFlushed = CompletionStatus::kFlushed;

class FabricContract : public ::testing::TestWithParam<FabricUnderTest> {
 protected:
  const FabricUnderTest::Shortcomings& shortcomings() const { return GetParam().shortcomings; }

  // Waits until `wr_id`, a READ or WRITE, is refused: the `index`th of the sends that come back.
  void ExpectRefused(Endpoint& requester, size_t index, uint64_t wr_id) {
    if (shortcomings().requester_is_not_told) {
      HAWSER_UNTIL(world_, requester.news().ended());
      return;
    }
    HAWSER_UNTIL(world_, requester.sends.size() > index);
    EXPECT_THAT(requester.sends[index], CompletionIs(wr_id, CompletionStatus::kRemoteAccessError));
  }

  FabricWorld world_{GetParam()};
};

// Those of which everything is tested.
inline std::vector<FabricUnderTest> WholeFabricsUnderTest() {
  std::vector<FabricUnderTest> all = FabricsUnderTest();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const FabricUnderTest& one) { return one.grants_are_shared; }),
            all.end());
  return all;
}

// Of those, the ones that have not the shortcoming.
inline std::vector<FabricUnderTest> Without(bool FabricUnderTest::Shortcomings::*shortcoming,
                                            std::vector<FabricUnderTest> all = WholeFabricsUnderTest()) {
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const FabricUnderTest& one) { return one.shortcomings.*shortcoming; }),
            all.end());
  return all;
}

// Those that can do it.
inline std::vector<FabricUnderTest> Where(bool FabricUnderTest::*ability) {
  std::vector<FabricUnderTest> all = FabricsUnderTest();
  all.erase(
      std::remove_if(all.begin(), all.end(), [&](const FabricUnderTest& one) { return !(one.*ability); }),
      all.end());
  return all;
}

// Those that cannot.
inline std::vector<FabricUnderTest> WhereNot(bool FabricUnderTest::*ability) {
  std::vector<FabricUnderTest> all = FabricsUnderTest();
  all.erase(std::remove_if(all.begin(), all.end(), [&](const FabricUnderTest& one) { return one.*ability; }),
            all.end());
  return all;
}

// A suite of a fixture that is derived from FabricContract, for each of `fabrics`.
#define HAWSER_INSTANTIATE(suite, fabrics)                               \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                  \
  INSTANTIATE_TEST_SUITE_P(Fabrics, suite, ::testing::ValuesIn(fabrics), \
                           [](const auto& fabric) { return fabric.param.name; })

#define HAWSER_SUITE(suite)               \
  class suite : public FabricContract {}; \
  HAWSER_INSTANTIATE(suite, WholeFabricsUnderTest())

// What some software devices cannot do is in suites of its own, so that nothing is ever said to have passed
// or to be skipped that was not tried.
#define HAWSER_SUITE_WITHOUT(suite, shortcoming) \
  class suite : public FabricContract {};        \
  HAWSER_INSTANTIATE(suite, Without(&FabricUnderTest::Shortcomings::shortcoming))

// Bytes that show where they come from.
inline void FillPattern(Endpoint& endpoint, uint32_t seed, size_t length = ~size_t{0}) {
  uint32_t state = seed;
  for (size_t i = 0; i < std::min(length, endpoint.memory_bytes()); ++i) {
    state = state * 1664525 + 1013904223;
    endpoint.memory()[i] = static_cast<uint8_t>(state >> 24);
  }
}

inline std::vector<uint8_t> Snapshot(Endpoint& endpoint) {
  return std::vector<uint8_t>(endpoint.memory(), endpoint.memory() + endpoint.memory_bytes());
}

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_CONTRACT_SUITES_H_
