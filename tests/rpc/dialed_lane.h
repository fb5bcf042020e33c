#ifndef HAWSER_TESTS_RPC_DIALED_LANE_H_
#define HAWSER_TESTS_RPC_DIALED_LANE_H_

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/lane_access.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"

namespace hawser {

// Where the lane of `channel`, which is connected, leads.
inline transport::Lane::Target TargetOf(const Channel& channel) {
  std::optional<transport::Lane::Target> target;
  internal::RunAndWait(channel.core()->poller(),
                       [&] { target.emplace(*internal::LaneAccess(*channel.core()).Target()); });
  return *std::move(target);
}

// A lane as a program of transport/ opens it, to wherever it likes.
// Thread:   any; it waits for its poller, the first of `runtime`.
class DialedLane final : transport::Lane::Owner {
 public:
  DialedLane(std::shared_ptr<Runtime> runtime, const transport::Lane::Target& target)
      : runtime_(std::move(runtime)) {
    internal::RunAndWait(runtime_->poller(0), [&] {
      transport::Lane::Owner& owner = *this;
      lane_ = *transport::Lane::Dial(runtime_->poller(0), target, absl::Seconds(60), owner);
    });
    status_ = results_.Take();
  }
  ~DialedLane() {
    internal::RunAndWait(runtime_->poller(0), [this] {
      if (lane_ != nullptr) lane_->End(absl::CancelledError("the test ends"));
    });
    EXPECT_TRUE(Eventually([this] { return gone_.load(); }));
  }

  // OK: the owner has accepted it, and it has accepted the owner.
  const absl::Status& status() const { return status_; }
  // It has ended.
  bool gone() const { return gone_; }

 private:
  void OnLaneReady() override { results_.Put(absl::OkStatus()); }
  void OnUnsent(transport::LaneOperation&, bool, const absl::Status&) override {}
  void OnLaneGone(transport::Lane&, bool was_ready, const absl::Status& why) override {
    lane_ = nullptr;
    if (!was_ready) results_.Put(why);
    gone_ = true;
  }

  const std::shared_ptr<Runtime> runtime_;
  transport::Lane* lane_ = nullptr;
  Box<absl::Status> results_;
  std::atomic<bool> gone_{false};
  absl::Status status_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_DIALED_LANE_H_
