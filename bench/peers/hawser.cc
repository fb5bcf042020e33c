// Hawser as it comes: every option but the credentials has its default.
#include <string.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/peers/peer.h"
#include "hawser/bench/target.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench::peers {
namespace {

// The calling thread waits for one call at a time. Of several, callbacks on the pollers' threads get the
// replies and send the next calls. The observer takes one reply at a time, so callbacks of several pollers
// take turns.
class HawserClient final : public Client {
 public:
  HawserClient(const std::string& address, const ChannelOptions& options, const Load& load,
               Observer& observer)
      : load_(load), observer_(observer), payload_(MakePayload(load.bytes)) {
    for (int i = 0; i < load.connections; ++i) {
      absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(address, options);
      if (!channel.ok()) Die(channel.status().ToString());
      if (source_ == nullptr) source_ = Fill(**channel);
      targets_.emplace_back(*std::move(channel));
    }
  }

  void Send(int call) override {
    if (load_.in_flight == 1) {
      due_ = true;
    } else {
      Call(call);
    }
  }

  void Run() override {
    if (load_.in_flight == 1) {
      while (std::exchange(due_, false)) Call(0);
    } else {
      ended_->WaitForNotification();
      ended_.emplace();
    }
  }

 private:
  std::shared_ptr<Buffer> Fill(Channel& channel) {
    absl::StatusOr<Buffer> buffer = channel.AllocateBuffer(payload_.size());
    if (!buffer.ok()) Die(buffer.status().ToString());
    memcpy(buffer->data(), payload_.data(), payload_.size());
    return std::make_shared<Buffer>(*std::move(buffer));
  }

  void Call(int call) {
    const TargetStub& target = targets_[static_cast<size_t>(load_.ConnectionOf(call))];
    if (load_.method == Method::kPut) {
      auto put = target.Put();
      put.request().adoptPayload(put.Attach(source_->reader(), source_));
      Exchange(call, std::move(put));
    } else if (load_.bytes >= kLargeBytes) {
      auto forward = target.Forward();
      forward.request().adoptPayload(forward.Attach(source_->reader(), source_));
      Exchange(call, std::move(forward));
    } else {
      auto echo = target.Echo();
      echo.request().setPayload({reinterpret_cast<const uint8_t*>(payload_.data()), payload_.size()});
      Exchange(call, std::move(echo));
    }
  }

  template <typename Request>
  void Exchange(int call, Request request) {
    if (load_.in_flight == 1) {
      Check(request.Send().Wait());
      observer_.OnReply(call);
    } else {
      request.Send().Then([this, call](const auto& reply) {
        Check(reply);
        absl::MutexLockMaybe lock(load_.connections > 1 ? &mutex_ : nullptr);
        if (!observer_.OnReply(call)) ended_->Notify();
      });
    }
  }

  template <typename Results>
  void Check(const absl::StatusOr<Reply<Results>>& reply) {
    if (!reply.ok()) Die(reply.status().ToString());
    if constexpr (!std::is_same_v<Results, Target::PutResults>) {
      const capnp::Data::Reader payload = (*reply)->getPayload();
      CheckEcho(load_, payload.begin(), payload.size());
    }
  }

  const Load load_;
  Observer& observer_;
  const std::string payload_;
  std::shared_ptr<Buffer> source_;  // The payload in registered memory.
  std::vector<TargetStub> targets_;
  absl::Mutex mutex_;  // For several connections: held while the observer is told.
  bool due_ = false;   // One call at a time: Run() is to make it.
  std::optional<absl::Notification> ended_{std::in_place};
};

class Hawser final : public Peer {
 public:
  const char* name() const override { return "hawser"; }
  size_t bytes_max() const override { return (512 << 20) - 1; }  // The limit of a Data.
  bool has_tls() const override { return true; }

  void Serve() override {
    TargetOptions defaults;
    defaults.slots = ConnectionOptions().slots;
    defaults.credentials = credentials;
    ServeTarget(defaults);
  }

  std::unique_ptr<Client> Connect(const std::string& address, const Load& load, Observer& observer) override {
    ChannelOptions options;
    options.credentials = credentials;
    return std::make_unique<HawserClient>(address, options, load, observer);
  }
};

}  // namespace
}  // namespace hawser::bench::peers

int main(int argc, char** argv) {
  hawser::bench::peers::Hawser peer;
  return hawser::bench::peers::Main(argc, argv, peer);
}
