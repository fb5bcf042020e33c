#ifndef HAWSER_TESTS_TRANSPORT_TESTING_TEST_LENDER_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_TEST_LENDER_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/transport/lane/arrivals.h"
#include "hawser/transport/lane/lane_message.h"
#include "hawser/transport/lane/lane_server.h"
#include "hawser/transport/lane/lent_memory.h"

namespace hawser::transport {

// Lends one memory, region 1: any ticket of it is good. Counts what arrives there.
class TestLender final : public LaneServer::Owner {
 public:
  absl::StatusOr<std::shared_ptr<LentMemory>> OnTicket(const LaneTicket& ticket) override {
    ++tickets;
    if (ticket.region != 1) return absl::PermissionDeniedError("the test refuses this ticket");
    if (memory->revoked()) return absl::FailedPreconditionError("revoked");
    return memory;
  }
  void OnLaneGone(LaneServer& lane) override {
    if (lane_server == &lane) lane_server = nullptr;
    ++gone;
  }

  absl::StatusOr<std::shared_ptr<Arrivals>> OnCountedTicket(const LaneTicket&) override {
    if (arrivals->ended()) return absl::FailedPreconditionError("the counter has ended");
    return arrivals;
  }

  absl::Status TakeGrant() override {
    if (grants >= grants_max) return absl::ResourceExhaustedError("all lanes together have too many");
    ++grants;
    return absl::OkStatus();
  }
  void GiveBackGrants(size_t count) override { grants -= static_cast<int>(count); }

  std::shared_ptr<LentMemory> memory;
  const std::shared_ptr<Arrivals> arrivals = std::make_shared<Arrivals>();
  LaneServer* lane_server = nullptr;
  int grants = 0, grants_max = 1000;
  int tickets = 0;
  int gone = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_TEST_LENDER_H_
