// A server counts the WRITEs of its clients that have arrived.

#include "hawser/rpc/arrival_counter.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/rpc/memory_probe.rpc.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 8 << 20;
constexpr size_t kSlotBytes = 4096;

class Grants final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader request,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    GrantOptions options{.offset = request.getOffset(),
                         .access = static_cast<Access>(request.getAccess()),
                         .counter = counter.load()};
    if (request.getLength() > 0) options.length = request.getLength();
    return context.Grant(*memory, options, reply.initTicket());
  }

  std::optional<SharedMemory> memory;
  std::atomic<const ArrivalCounter*> counter{nullptr};
};

class ArrivalCounterTest : public ::testing::Test {
 protected:
  using Ticket = Reply<memory_probe::MemoryProbe::GrantResults>;

  void SetUp() override {
    server_ = std::make_unique<Server>();
    ASSERT_THAT(server_->AddService(&grants_), IsOk());
    const absl::StatusOr<std::string> uri = server_->Listen(TestUri());
    ASSERT_THAT(uri.status(), IsOk());
    uri_ = *uri;
    absl::StatusOr<SharedMemory> memory = server_->Share(kBytes);
    ASSERT_THAT(memory.status(), IsOk());
    grants_.memory = *std::move(memory);
    counter_.emplace();
    grants_.counter = &*counter_;
  }

  std::shared_ptr<Channel> Connect() {
    const auto channel = Channel::Connect(uri_, {});
    EXPECT_THAT(channel.status(), IsOk());
    return *channel;
  }

  static absl::StatusOr<Ticket> Ask(const std::shared_ptr<Channel>& channel,
                                    Access access = Access::kReadWrite) {
    auto call = memory_probe::MemoryProbeStub(channel).Grant();
    call.request().setAccess(static_cast<uint8_t>(access));
    return call.Send().Wait();
  }
  static RemoteMemory Reach(const std::shared_ptr<Channel>& channel, Access access = Access::kReadWrite) {
    const absl::StatusOr<Ticket> ticket = Ask(channel, access);
    EXPECT_THAT(ticket.status(), IsOk());
    return RemoteMemory(channel, (*ticket)->getTicket());
  }

  static absl::Status Write(RemoteMemory& remote, size_t slot, size_t bytes = kSlotBytes) {
    const std::string text(bytes, 'w');
    return remote.Write(slot * kSlotBytes, {reinterpret_cast<const uint8_t*>(text.data()), text.size()})
        .Wait();
  }

  // How many of the slots from `first` on have all bytes of a WRITE. Others may be on their way.
  size_t SlotsThere(size_t first, size_t count) {
    size_t there = 0;
    for (size_t i = first; i < first + count; ++i) {
      auto* const slot = reinterpret_cast<uint64_t*>(grants_.memory->data() + i * kSlotBytes);
      if (std::all_of(slot, slot + kSlotBytes / sizeof(uint64_t), [](uint64_t& word) {
            return std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed) == 0x7777777777777777;
          })) {
        ++there;
      }
    }
    return there;
  }

  Grants grants_;
  std::unique_ptr<Server> server_;
  std::string uri_;
  std::optional<ArrivalCounter> counter_;
};

TEST_F(ArrivalCounterTest, AThreadThatPollsSeesTheBytesOfWhatIsCounted) {
  constexpr size_t kWrites = 200;
  std::atomic<bool> finished{false};
  absl::Notification looks, has_seen_half;
  std::thread poller([&] {
    while (!finished) {
      const uint64_t counted = counter_->count();
      EXPECT_GE(SlotsThere(0, kWrites), counted);
      if (!looks.HasBeenNotified()) looks.Notify();
      if (counted == kWrites / 2 && !has_seen_half.HasBeenNotified()) has_seen_half.Notify();
      std::this_thread::yield();
    }
  });
  {
    const auto channel = Connect();
    RemoteMemory remote = Reach(channel);
    const std::string text(kSlotBytes, 'w');
    const auto write_half = [&](size_t first) {
      std::deque<RemoteOperation> writes;
      for (size_t i = first; i < first + kWrites / 2; ++i) {
        writes.push_back(
            remote.Write(i * kSlotBytes, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
      }
      for (RemoteOperation& each : writes) EXPECT_THAT(each.Wait(), IsOk());
    };
    looks.WaitForNotification();
    write_half(0);
    EXPECT_TRUE(has_seen_half.WaitForNotificationWithTimeout(absl::Seconds(60)));
    write_half(kWrites / 2);
  }
  finished = true;
  poller.join();
  EXPECT_EQ(counter_->count(), kWrites);
}

TEST_F(ArrivalCounterTest, AWriteThatEndedWellIsCounted) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  for (uint64_t i = 1; i <= 10; ++i) {
    ASSERT_THAT(Write(remote, i), IsOk());
    EXPECT_EQ(counter_->count(), i);
  }
}

TEST_F(ArrivalCounterTest, ALargeWriteCountsOnceWhenAllOfItIsThere) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::atomic<size_t> there{0};
  ASSERT_TRUE(counter_->CallWhen(1, [&] { there = SlotsThere(0, 1024); }));
  EXPECT_THAT(Write(remote, 0, 1024 * kSlotBytes), IsOk());
  EXPECT_EQ(counter_->count(), 1u);
  EXPECT_EQ(there, 1024u);
}

TEST_F(ArrivalCounterTest, ReadsCountNothing) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::vector<uint8_t> bytes(64);
  EXPECT_THAT(remote.Read(0, absl::MakeSpan(bytes)).Wait(), IsOk());
  EXPECT_THAT(remote.Read(RemoteStride{0, 8, 16, 8}, absl::MakeSpan(bytes)).Wait(), IsOk());
  EXPECT_EQ(counter_->count(), 0u);
}

TEST_F(ArrivalCounterTest, AllClientsAndGrantsThatNameItAreCounted) {
  const std::vector<std::shared_ptr<Channel>> channels = {Connect(), Connect()};
  std::vector<std::thread> clients;
  for (size_t client = 0; client < channels.size(); ++client) {
    clients.emplace_back([&, client] {
      RemoteMemory remote = Reach(channels[client]);
      for (size_t i = 0; i < 50; ++i) EXPECT_THAT(Write(remote, client * 50 + i), IsOk());
    });
  }
  for (std::thread& each : clients) each.join();
  EXPECT_EQ(counter_->count(), 100u);
  EXPECT_EQ(SlotsThere(0, 100), 100u);
}

TEST_F(ArrivalCounterTest, AnotherCounterOrNoneIsAnotherTicket) {
  const auto channel = Connect();
  RemoteMemory counted = Reach(channel);
  ArrivalCounter other;
  grants_.counter = &other;
  RemoteMemory by_other = Reach(channel);
  grants_.counter = nullptr;
  RemoteMemory uncounted = Reach(channel);
  EXPECT_THAT(Write(counted, 0), IsOk());
  EXPECT_THAT(Write(by_other, 1), IsOk());
  EXPECT_THAT(Write(by_other, 2), IsOk());
  EXPECT_THAT(Write(uncounted, 3), IsOk());
  EXPECT_EQ(counter_->count(), 1u);
  EXPECT_EQ(other.count(), 2u);
}

TEST_F(ArrivalCounterTest, ACallbackRunsOnceWhenItsNumberIsReachedAndNotBefore) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  std::atomic<int> runs{0};
  std::atomic<uint64_t> seen{0};
  ASSERT_TRUE(counter_->CallWhen(3, [&] {
    ++runs;
    seen = counter_->count();
  }));
  for (size_t i = 0; i < 2; ++i) ASSERT_THAT(Write(remote, i), IsOk());
  EXPECT_EQ(runs, 0);
  absl::Notification called;
  ASSERT_TRUE(counter_->CallWhen(4, [&] { called.Notify(); }));
  for (size_t i = 2; i < 5; ++i) ASSERT_THAT(Write(remote, i), IsOk());
  called.WaitForNotification();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(seen, 3u);
  EXPECT_FALSE(counter_->CallWhen(5, [&] { ++runs; }));
  ASSERT_THAT(Write(remote, 5), IsOk());
  EXPECT_EQ(runs, 1);
}

TEST_F(ArrivalCounterTest, WhatACallbackThrowsIsDropped) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  ASSERT_TRUE(counter_->CallWhen(1, [] { throw std::runtime_error("of the program"); }));
  EXPECT_THAT(Write(remote, 0), IsOk());
  EXPECT_THAT(Write(remote, 1), IsOk());
  EXPECT_EQ(counter_->count(), 2u);
}

TEST_F(ArrivalCounterTest, ACallbackMayDestroyTheCounter) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  bool also = false;
  absl::Notification destroyed;
  ASSERT_TRUE(counter_->CallWhen(1, [&] {
    counter_.reset();
    destroyed.Notify();
  }));
  ASSERT_TRUE(counter_->CallWhen(1, [&] { also = true; }));
  EXPECT_THAT(Write(remote, 0), IsOk());
  destroyed.WaitForNotification();
  EXPECT_FALSE(counter_.has_value());
  EXPECT_FALSE(also);
  EXPECT_THAT(Write(remote, 1), IsOk());
}

TEST_F(ArrivalCounterTest, ItMayEndBeforeItsGrants) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel), unused = Reach(channel, Access::kWrite);
  ASSERT_THAT(Write(remote, 0), IsOk());
  bool ran = false;
  ASSERT_TRUE(counter_->CallWhen(2, [&] { ran = true; }));
  counter_.reset();
  EXPECT_THAT(Write(remote, 1), IsOk());
  EXPECT_EQ(SlotsThere(1, 1), 1u);
  EXPECT_FALSE(ran);
  const absl::Status is_void = Write(unused, 2);
  EXPECT_THAT(is_void, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(is_void.message()), HasSubstr("counter"));
}

TEST_F(ArrivalCounterTest, ItMayEndAfterTheServer) {
  {
    const auto channel = Connect();
    RemoteMemory remote = Reach(channel);
    ASSERT_THAT(Write(remote, 0), IsOk());
  }
  bool ran = false;
  ASSERT_TRUE(counter_->CallWhen(2, [&] { ran = true; }));
  grants_.memory.reset();
  server_.reset();
  EXPECT_EQ(counter_->count(), 1u);
  counter_.reset();
  EXPECT_FALSE(ran);
}

TEST_F(ArrivalCounterTest, AGrantWithACounterIsForWrites) {
  const auto channel = Connect();
  const absl::Status refused = Ask(channel, Access::kRead).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("counter"));
}

// What stands for it on the wire is not for programs.
TEST_F(ArrivalCounterTest, ThereIsNoAccessForIt) {
  grants_.counter = nullptr;
  const auto channel = Connect();
  EXPECT_THAT(Ask(channel, static_cast<Access>(8 | 2)).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(ArrivalCounterTest, AfterARevocationNothingIsCounted) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  const std::string text(kSlotBytes, 'w');
  std::deque<RemoteOperation> writes;
  for (size_t i = 0; i < 300; ++i) {
    writes.push_back(
        remote.Write(i * kSlotBytes, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  }
  ASSERT_THAT(grants_.memory->Revoke(), IsOk());
  const uint64_t counted = counter_->count();
  EXPECT_GE(SlotsThere(0, 300), counted);
  uint64_t good = 0, perhaps = 0;
  for (RemoteOperation& each : writes) {
    const absl::Status status = each.Wait();
    good += status.ok();
    perhaps += absl::StrContains(status.message(), "may have been counted");
  }
  EXPECT_GE(counted, good);
  EXPECT_LE(counted, good + perhaps);
  EXPECT_FALSE(Write(remote, 0).ok());
  EXPECT_EQ(counter_->count(), counted);
}

// A drain takes no calls, and the WRITEs of clients go on until their connections end.
TEST_F(ArrivalCounterTest, ADrainCountsWhatEndsWell) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  ASSERT_THAT(Write(remote, 0), IsOk());
  uint64_t good = 1, perhaps = 0;
  std::thread client([&] {
    for (size_t slot = 1;; ++slot) {
      const absl::Status status = Write(remote, slot % 1000);
      if (!status.ok()) {
        perhaps = absl::StrContains(status.message(), "may have been counted");
        return;
      }
      ++good;
    }
  });
  absl::Notification ten;
  if (!counter_->CallWhen(10, [&] { ten.Notify(); })) ten.Notify();
  EXPECT_TRUE(ten.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_THAT(server_->Shutdown(absl::Now() + absl::Seconds(20)), IsOk());
  client.join();
  EXPECT_GE(counter_->count(), good);
  EXPECT_LE(counter_->count(), good + perhaps);
}

TEST_F(ArrivalCounterTest, AChildMayDestroyIt) {
  EXPECT_TRUE(InChild([&] {
    counter_.reset();
    return true;
  }));
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  EXPECT_THAT(Write(remote, 0), IsOk());
  EXPECT_EQ(counter_->count(), 1u);
}

TEST_F(ArrivalCounterTest, WithoutACallbackItIsACheck) {
  EXPECT_DEATH((void)counter_->CallWhen(1, nullptr), "without a callback");
}

}  // namespace
}  // namespace hawser
