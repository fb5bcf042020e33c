#include "hawser/rpc/serving/handler_gate.h"

#include <optional>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {
namespace {

// Await() returns false if no signal follows when the condition becomes true.
class SignalEnvironment final : public transport::Environment {
 public:
  // Returns when a thread waits, or holds the mutex until it does.
  void UntilAThreadWaits() { waits_.WaitForNotification(); }

  bool Await(absl::Mutex& mutex, absl::CondVar& changed, absl::FunctionRef<bool()> condition,
             absl::Time) override {
    const absl::Time give_up = absl::Now() + absl::Seconds(20);
    while (!condition()) {
      if (!waits_.HasBeenNotified()) waits_.Notify();
      if (changed.WaitWithDeadline(&mutex, give_up)) return false;
    }
    return true;
  }

 private:
  absl::Notification waits_;
};

TEST(HandlerGateTest, TheLastHandlerThatLeavesWakesTheThreadThatWaits) {
  HandlerGate gate;
  SignalEnvironment environment;
  std::optional<HandlerGate::Entry> handler(gate);
  gate.Close();
  bool empty = false;
  std::thread shutdown([&] { empty = gate.AwaitEmpty(environment, absl::InfiniteFuture()); });
  environment.UntilAThreadWaits();
  handler.reset();
  shutdown.join();
  EXPECT_TRUE(empty);
}

}  // namespace
}  // namespace hawser::internal
