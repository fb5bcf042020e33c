// The fabric contract over verbs, on the device that HAWSER_RDMA_DEVICE names, or the first one.
//
// Where there is no device the tests are skipped, except when one is named or HAWSER_REQUIRE_RDMA is set:
// then they fail.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/grant_cycles.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/device.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/suitability.h"

namespace hawser::fabric {
namespace {

// The machine's libraries, and the keys of all memory that was registered through them. (The test has one
// thread.)
class KeyRecorder {
 public:
  static KeyRecorder& Here() {
    static KeyRecorder* const here = new KeyRecorder;
    return *here;
  }
  const VerbsLibrary& library() const { return library_; }

  // See FabricUnderTest::device_keys. The last few: memory is registered where other memory was before.
  std::vector<uint32_t> KeysOf(const uint8_t* address) const {
    constexpr size_t kKeysMax = 3;
    std::vector<uint32_t> keys;
    for (auto it = registered_.rbegin(); it != registered_.rend() && keys.size() < kKeysMax; ++it) {
      if (address >= it->begin && address < it->begin + it->length_bytes) keys.insert(keys.begin(), it->rkey);
    }
    return keys;
  }

 private:
  struct Registered {
    const uint8_t* begin;
    size_t length_bytes;
    uint32_t rkey;
  };

  KeyRecorder() : library_(*VerbsLibrary::Load().value()) {
    library_.ibv_reg_mr = [](ibv_pd* pd, void* address, size_t length_bytes, int access) {
      ibv_mr* const mr = VerbsLibrary::Load().value()->ibv_reg_mr(pd, address, length_bytes, access);
      if (mr != nullptr) {
        Here().registered_.push_back({static_cast<const uint8_t*>(address), length_bytes, mr->rkey});
      }
      return mr;
    };
  }

  VerbsLibrary library_;
  std::vector<Registered> registered_;
};

std::function<std::shared_ptr<Fabric>()> With(GrantKind grants) {
  return [grants] {
    return NewVerbsFabric({.grants = grants, .library = &KeyRecorder::Here().library()}).value();
  };
}

std::shared_ptr<VerbsDevice> DeviceOfTests() {
  const char* const name = std::getenv("HAWSER_RDMA_DEVICE");
  return VerbsDevice::Open(KeyRecorder::Here().library(), name != nullptr ? name : "").value();
}

class Nobody : public ListenHandler {
  void OnConnectRequest(std::unique_ptr<ConnectRequest>) override {}
};

// HAWSER_RDMA_ADDRESS, else the first address of this machine that the device serves, as far as the
// connection manager knows.
SocketAddress AddressOf(Fabric& fabric) {
  if (const char* given = std::getenv("HAWSER_RDMA_ADDRESS"); given != nullptr) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    if (inet_pton(AF_INET, given, &v4.sin_addr) == 1) {
      return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
    }
  }
  Nobody nobody;
  std::unique_ptr<CompletionQueue> queue = fabric.CreateCompletionQueue(16).value();
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  SocketAddress found;
  for (const ifaddrs* one = all; one != nullptr && found.family() == AF_UNSPEC; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const SocketAddress address(one->ifa_addr, sizeof(sockaddr_in));
    if (fabric.Listen(*queue, address, nobody).ok()) found = address;
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

std::vector<FabricUnderTest> FabricsUnderTest() {
  absl::StatusOr<std::shared_ptr<Fabric>> fabric = NewVerbsFabric();
  if (!fabric.ok()) return {};
  const SocketAddress address = AddressOf(**fabric);
  if (address.family() == AF_UNSPEC) return {};
  const std::shared_ptr<VerbsDevice> device = DeviceOfTests();
  const char* const stands_in_for = std::getenv("HAWSER_TEST_NIC");
  FabricUnderTest windows = {"Windows", With(GrantKind::kWindows), address, {}};
  FabricUnderTest registrations = {
      "Registrations", With(GrantKind::kRegistered), address, {.rkeys_are_for_everybody = true}};
  FabricUnderTest shared = {"Shared", With(GrantKind::kShared), address, {}};
  shared.grants_are_shared = true;
  for (FabricUnderTest* one : {&windows, &registrations, &shared}) {
    one->real_addresses = true;
    one->atomics = device->atomics() != Atomics::kNone;
    one->posts_inline = one != &shared && PostsInline(device->attr(), device->iwarp());
    one->device_keys = [](const uint8_t* memory) { return KeyRecorder::Here().KeysOf(memory); };
    FabricUnderTest::Shortcomings& shortcomings = one->shortcomings;
    if (absl::StartsWith(device->name(), "rxe") || absl::StartsWith(device->name(), "rx")) {
      shortcomings.codes_are_not_exact = true;
      shortcomings.grants_are_not_confined = one == &windows;
      one->emulated = true;
    }
    shortcomings.dialer_is_not_told_depths =
        absl::StartsWith(stands_in_for != nullptr ? stands_in_for : device->name(), "erdma");
    shortcomings.rnr_is_not_waited_for = device->iwarp();
    shortcomings.read_has_one_sge = device->iwarp() || device->attr().max_sge_rd == 1;
    shortcomings.a_read_may_cut_a_word = device->iwarp();
    if (absl::StartsWith(device->name(), "siw")) {
      shortcomings.connections_max = 30;
      one->emulated = true;
      shortcomings.codes_are_not_exact = shortcomings.requester_is_not_told = true;
      shortcomings.a_read_goes_on_when_revoked = shortcomings.refusals_overtake_reads = true;
    }
  }
  // As on a NIC (tests/softroce): what a program does there.
  if (stands_in_for != nullptr) return {device->uses_windows() ? windows : registrations};
  if (!device->has_windows()) return {registrations, shared};
  return {windows, registrations, shared};
}

TEST(VerbsContractTest, ADeviceIsThereIfItMustBe) {
  const absl::StatusOr<std::shared_ptr<Fabric>> fabric = NewVerbsFabric();
  const bool required =
      std::getenv("HAWSER_REQUIRE_RDMA") != nullptr || std::getenv("HAWSER_RDMA_DEVICE") != nullptr;
  if (!required && !fabric.ok()) {
    GTEST_SKIP() << "the contract was not tested over verbs: " << fabric.status().ToString();
  }
  ASSERT_THAT(fabric, IsOk());
  EXPECT_FALSE(FabricsUnderTest().empty()) << "no IPv4 address leads to the device";
}

// $HAWSER_GRANT_CYCLES: how often. Prints how many of the grants the peer has ended.
TEST(VerbsContractTest, GrantsAreMadeUsedAndRevokedOverAndOver) {
  int cycles = 200;
  if (const char* const wanted = std::getenv("HAWSER_GRANT_CYCLES"); wanted != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wanted, &cycles) && cycles > 0) << "HAWSER_GRANT_CYCLES is " << wanted;
  }
  for (const FabricUnderTest& under_test : FabricsUnderTest()) {
    SCOPED_TRACE(under_test.name);
    FabricWorld world(under_test);
    const GrantCycles done = CycleGrants(world, cycles);
    std::cout << under_test.name << ": " << done.ToString() << std::endl;
    EXPECT_EQ(done.ended, world.fabric().sends_end_grants() ? cycles / 2 : 0);
    EXPECT_EQ(done.revoked + done.ended, cycles);
  }
}

// The drivers do not say which devices need the registrations of VerbsSinks. This test shows it. siw does not
// need them.
TEST(VerbsContractTest, AnIwarpDeviceThatNeedsNoRegistrationOfASinkFillsItAllTheSame) {
  if (std::getenv("HAWSER_TEST_NIC") != nullptr) {
    GTEST_SKIP() << "the stand-in for a NIC stops a process that READs into such a sink over iWARP";
  }
  for (FabricUnderTest under_test : FabricsUnderTest()) {
    if (!DeviceOfTests()->iwarp()) continue;
    under_test.create = [] { return NewVerbsFabric({.sink_registrations = false}).value(); };
    FabricWorld world(under_test);
    FabricWorld::Pair pair = world.Connect();
    pair.b.Fill(0, "filled");
    const Granted granted = pair.b.Grant(pair.b.At(0, 6), QueuePair::Access::kRead);
    ASSERT_THAT(pair.a.Read(1, pair.a.At(100, 6), granted), IsOk());
    HAWSER_UNTIL(world, !pair.a.sends.empty() || pair.a.news().ended());
    const bool filled = !pair.a.sends.empty() && pair.a.sends[0].status == CompletionStatus::kSuccess;
    RecordProperty("sinks_need_registrations", filled ? "no" : "yes");
    EXPECT_EQ(filled, pair.a.Text(100, 6) == "filled");
    if (absl::StartsWith(DeviceOfTests()->name(), "siw")) {
      EXPECT_TRUE(filled);
    }
  }
}

// If its trial failed, the contract would not be tested over windows anywhere.
TEST(VerbsContractTest, SoftwareRoceHasWindows) {
  const char* const name = std::getenv("HAWSER_RDMA_DEVICE");
  if (name == nullptr || !absl::StartsWith(name, "rx")) GTEST_SKIP() << "no device of rxe is named";
  if (std::getenv("HAWSER_TEST_NIC") != nullptr) GTEST_SKIP() << "it is as a NIC, which may have none";
  EXPECT_TRUE(VerbsDevice::Open(*VerbsLibrary::Load().value(), name).value()->has_windows());
}

// Of any fabric, but only what a device orders must be said to ThreadSanitizer (verbs/order.h), which finds a
// race here if it is not.
TEST(VerbsContractTest, WhatAThreadDidBeforeASendIsSeenByTheOneThatPolledItsReceive) {
  for (const FabricUnderTest& under_test : FabricsUnderTest()) {
    FabricWorld world(under_test);
    FabricWorld::Pair pair = world.Connect();
    ASSERT_THAT(pair.b.Receive(1, pair.b.At(0, 100)), IsOk());
    int done = 0;  // Guarded by nothing else.
    std::thread receiver([&] {
      const absl::Time deadline = absl::Now() + absl::Seconds(20);
      Completion completion;
      while (pair.b.completion_queue().Poll({&completion, 1}) == 0) ASSERT_LT(absl::Now(), deadline);
      EXPECT_EQ(done, 1);
    });
    done = 1;
    EXPECT_THAT(pair.a.Send(2, pair.a.At(0, 4)), IsOk());
    receiver.join();
  }
}

}  // namespace hawser::fabric
