// The tickets for shared memory that clients have, and what is left of them when the memory is revoked.

#include "hawser/rpc/server/client_tickets.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/server/shared_regions.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lent_memory.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

using transport::LaneTicket;
using transport::LentMemory;

PeerHost Host(int number) {
  return PeerHost(*transport::ParseNumericHost(
      absl::StrCat("10.", number / 65'536, ".", number / 256 % 256, ".", number % 256)));
}

class ClientTicketsTest : public ::testing::Test {
 protected:
  std::shared_ptr<LentMemory> Share() {
    absl::StatusOr<std::shared_ptr<LentMemory>> memory =
        LentMemory::Map(regions_->NewName(), 4096, transport::Environment::Real());
    EXPECT_THAT(memory.status(), IsOk());
    regions_->Add(*memory);
    (*memory)->SetOnRevoked([this, region = (*memory)->name().region] { regions_->OnRevoked(region); });
    return *memory;
  }
  std::shared_ptr<ClientTickets> NewClient(int host) {
    return std::make_shared<ClientTickets>(Host(host), regions_);
  }
  // One for a part of `memory` that there is none for.
  static absl::Status Give(ClientTickets& client, const std::shared_ptr<LentMemory>& memory,
                           LaneTicket& ticket,
                           const std::shared_ptr<transport::Arrivals>& arrivals = nullptr) {
    static uint64_t length = 0;
    ticket = {};
    ticket.owner = memory->name().owner;
    ticket.region = memory->name().region;
    ticket.length = ++length;
    return client.Give(memory, arrivals, ticket);
  }
  // How many it gets.
  static uint64_t TakeAll(ClientTickets& client, const std::shared_ptr<LentMemory>& memory) {
    uint64_t count = 0;
    for (LaneTicket ticket; Give(client, memory, ticket).ok();) ++count;
    return count;
  }

  std::shared_ptr<SharedRegions> regions_ = std::make_shared<SharedRegions>(transport::Environment::Real());
};

TEST_F(ClientTicketsTest, IdleClientsWithRevokedTicketsLeaveOtherHostsTheirShare) {
  const std::shared_ptr<LentMemory> memory = Share(), other = Share();
  std::vector<std::shared_ptr<ClientTickets>> idle;
  LaneTicket kept;
  for (int host = 0;; ++host) {
    ASSERT_LT(host, 65'536);
    idle.push_back(NewClient(host));
    ASSERT_THAT(Give(*idle.back(), memory, kept), IsOk());
    if (TakeAll(*idle.back(), memory) < 2) break;  // It has two in all.
  }
  const std::shared_ptr<ClientTickets> late = NewClient(65'536);
  ASSERT_EQ(TakeAll(*late, other), 2u);
  memory->Revoke();
  EXPECT_EQ(regions_->totals().tickets, 2u);
  EXPECT_EQ(TakeAll(*late, other), ClientTickets::kMax - 2);
  EXPECT_THAT(idle.back()->Find(kept).status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ClientTicketsTest, ThoseWhoseCounterHasEndedMakeRoomWhereABoundIsMet) {
  const std::shared_ptr<LentMemory> memory = Share(), other = Share();
  const std::shared_ptr<ClientTickets> client = NewClient(1);
  const auto ended = std::make_shared<transport::Arrivals>(),
             counts = std::make_shared<transport::Arrivals>();
  LaneTicket of_ended, of_counts;
  ASSERT_THAT(Give(*client, other, of_counts, counts), IsOk());
  for (uint32_t i = 1; i < ClientTickets::kMax; ++i) {
    ASSERT_THAT(Give(*client, memory, of_ended, ended), IsOk());
  }
  LaneTicket next;
  ASSERT_THAT(Give(*client, memory, next), HasCode(absl::StatusCode::kResourceExhausted));
  ended->End();
  EXPECT_THAT(client->FindArrivals(of_ended).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(Give(*client, memory, next), IsOk());
  EXPECT_EQ(regions_->totals().tickets, 2u);
  ASSERT_THAT(client->FindArrivals(of_counts), IsOk());
  EXPECT_EQ(*client->FindArrivals(of_counts), counts);
  // The client is known to hold both memories, as before.
  memory->Revoke();
  EXPECT_EQ(regions_->totals().tickets, 1u);
  other->Revoke();
  EXPECT_EQ(regions_->totals().tickets, 0u);
}

TEST_F(ClientTicketsTest, ThoseWhoseCounterHasEndedMakeRoomAtTheBoundOfTheirHost) {
  const std::shared_ptr<LentMemory> memory = Share();
  const auto ended = std::make_shared<transport::Arrivals>();
  const std::shared_ptr<ClientTickets> client = NewClient(1);
  LaneTicket ticket;
  ASSERT_THAT(Give(*client, memory, ticket, ended), IsOk());
  std::vector<std::shared_ptr<ClientTickets>> others;
  do {
    ASSERT_LT(others.size(), 100);
    others.push_back(NewClient(1));
  } while (TakeAll(*others.back(), memory) == ClientTickets::kMax);
  ASSERT_THAT(Give(*client, memory, ticket), HasCode(absl::StatusCode::kResourceExhausted));
  ended->End();
  EXPECT_THAT(Give(*client, memory, ticket), IsOk());
}

// As one that comes to where the other was in memory.
TEST_F(ClientTicketsTest, AClientWhoseTicketsWereForgottenIsNotTakenForALaterOne) {
  const std::shared_ptr<LentMemory> memory = Share(), other = Share();
  const auto ended = std::make_shared<transport::Arrivals>();
  alignas(ClientTickets) std::byte place[sizeof(ClientTickets)];
  const auto new_client = [&] {
    return std::shared_ptr<ClientTickets>(new (place) ClientTickets(Host(1), regions_),
                                          [](ClientTickets* client) { client->~ClientTickets(); });
  };
  std::shared_ptr<ClientTickets> client = new_client();
  LaneTicket ticket;
  ASSERT_THAT(Give(*client, memory, ticket, ended), IsOk());
  ASSERT_EQ(TakeAll(*client, other), ClientTickets::kMax - 1);
  ended->End();
  ASSERT_THAT(Give(*client, other, ticket), IsOk());
  client.reset();
  client = new_client();
  ASSERT_THAT(Give(*client, memory, ticket), IsOk());
  memory->Revoke();
  EXPECT_EQ(regions_->totals().tickets, 0u);
}

TEST_F(ClientTicketsTest, TicketsOfOtherMemoryStayAndVoidOnesAreNotTakenForForgedOnes) {
  const std::shared_ptr<LentMemory> before = Share(), memory = Share(), after = Share();
  const std::shared_ptr<ClientTickets> client = NewClient(1);
  LaneTicket first, revoked, last;
  ASSERT_THAT(Give(*client, before, first), IsOk());
  ASSERT_THAT(Give(*client, memory, revoked), IsOk());
  ASSERT_THAT(Give(*client, after, last), IsOk());
  memory->Revoke();
  EXPECT_THAT(client->Find(first).status(), IsOk());
  EXPECT_THAT(client->Find(last).status(), IsOk());
  EXPECT_THAT(client->Find(revoked).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(client->Give(memory, nullptr, revoked), HasCode(absl::StatusCode::kFailedPrecondition));
  LaneTicket forged = last;
  ++forged.region;  // There is none of this number yet.
  EXPECT_THAT(client->Find(forged).status(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(NewClient(1)->Find(last).status(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(regions_->totals().tickets, 2u);
}

TEST_F(ClientTicketsTest, TheTicketsOfAClientThatIsGoneCountNoMore) {
  const std::shared_ptr<LentMemory> memory = Share(), other = Share();
  for (int i = 0; i < 3; ++i) {
    const std::shared_ptr<ClientTickets> client = NewClient(1);
    EXPECT_EQ(TakeAll(*client, i == 1 ? other : memory), ClientTickets::kMax);
  }
  EXPECT_EQ(regions_->totals().tickets, 0u);
  memory->Revoke();  // Finds none that is gone.
}

TEST_F(ClientTicketsTest, NoTicketIsLeftOfMemoryThatIsRevokedWhileItIsGiven) {
  for (int i = 0; i < 200; ++i) {
    const std::shared_ptr<LentMemory> memory = Share();
    const std::shared_ptr<ClientTickets> client = NewClient(1);
    std::thread giver([&] {
      for (uint64_t length = 1; length <= ClientTickets::kMax; ++length) {
        LaneTicket ticket;
        ticket.owner = memory->name().owner;
        ticket.region = memory->name().region;
        ticket.length = length;
        if (!client->Give(memory, nullptr, ticket).ok()) return;
      }
    });
    memory->Revoke();
    giver.join();
    ASSERT_EQ(regions_->totals().tickets, 0u);
  }
}

}  // namespace
}  // namespace hawser::internal
