#include "hawser/tests/sim/replay.h"

#include <memory>
#include <utility>

#include "hawser/transport/clock/timer.h"
#include "hawser/transport/poller/poller_client.h"

namespace hawser::sim {
namespace {

class Thief final : public transport::PollerClient, public fabric::ConnectionHandler {
 public:
  Thief(transport::Poller& poller, std::function<void()> on_accepted)
      : poller_(poller), on_accepted_(std::move(on_accepted)), timer_([this] { End(); }) {}
  ~Thief() override { poller_.timers().Cancel(timer_); }

  void Connect(const SocketAddress& server, const std::string& connect) {
    auto queue_pair = poller_.fabric().CreateQueuePair(poller_.completion_queue(), {}, *this);
    if (!queue_pair.ok()) return End();
    queue_pair_ = *std::move(queue_pair);
    poller_.timers().Set(timer_, transport::After(poller_.environment().NowNs(), absl::Seconds(2)));
    if (!queue_pair_->Connect(server, connect).ok()) End();
  }

 private:
  void OnCompletion(const transport::WorkId&, const fabric::Completion&) override {}
  void Flush() override {}
  void FlushIfLong() override {}
  void Disconnect() override {
    if (queue_pair_ != nullptr) queue_pair_->Disconnect();
  }
  void OnEstablished(absl::string_view) override {
    on_accepted_();
    End();
  }
  void OnConnectFailed(const absl::Status&, absl::string_view) override { End(); }
  void OnDisconnected(const absl::Status&) override { End(); }
  void End() {
    if (std::exchange(ended_, true)) return;
    poller_.timers().Cancel(timer_);
    Disconnect();
    poller_.MarkClosed(this);
  }

  transport::Poller& poller_;
  const std::function<void()> on_accepted_;
  bool ended_ = false;
  transport::Timer timer_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
};

}  // namespace

void Replay(transport::Poller& poller, const SocketAddress& server, const std::string& connect,
            std::function<void()> on_accepted) {
  poller.Run([&] {
    auto owned = std::make_unique<Thief>(poller, std::move(on_accepted));
    Thief& thief = *owned;
    poller.Adopt(std::move(owned));
    thief.Connect(server, connect);
  });
}

}  // namespace hawser::sim
