#ifndef HAWSER_TESTS_RPC_PROBE_H_
#define HAWSER_TESTS_RPC_PROBE_H_

#include <sched.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/status.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/rpc/probe.rpc.h"

// A service that does what a test says, and a server of it.
namespace hawser {

// Not met unless something is broken. Less than a small test has, so that it can still say what.
constexpr absl::Duration kLong = absl::Seconds(45);
// A deadline or a timeout that the test waits for, where nothing has to happen before it.
constexpr absl::Duration kExpires = absl::Milliseconds(20);

// Connect() then does not try again what the server refuses for lack of room.
inline ChannelOptions TryingOnce(ChannelOptions options = {}) {
  options.backoff_min = options.backoff_max = absl::Hours(1);
  return options;
}

MATCHER_P(HasCode, code, "") {
  *result_listener << arg.ToString();
  return arg.code() == code;
}

// Waits for what another thread does; false after kLong.
inline bool Eventually(const std::function<bool()>& condition) {
  const absl::Time give_up = absl::Now() + kLong;
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    sched_yield();
  }
  return true;
}

// A value that one thread waits for and another gives.
template <typename T>
class Box {
 public:
  ~Box() { absl::MutexLock lock(&mutex_); }  // Put() may not have returned yet.

  void Put(T value) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    values_.push_back(std::move(value));
    filled_.Signal();
  }
  // Dies with the test if it takes kLong.
  T Take() {
    const absl::Time give_up = absl::Now() + kLong;
    absl::MutexLock lock(&mutex_);
    while (values_.empty()) {
      if (!filled_.WaitWithDeadline(&mutex_, give_up)) continue;
      ADD_FAILURE() << "nothing came";
      std::abort();
    }
    T value = std::move(values_.front());
    values_.erase(values_.begin());
    return value;
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return values_.size();
  }
  void Close() {
    std::vector<T> values;  // Destroyed after the lock.
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    values.swap(values_);
  }

 private:
  absl::Mutex mutex_;
  absl::CondVar filled_;
  bool closed_ = false;
  std::vector<T> values_;
};

class ProbeServiceImpl : public probe::ProbeService {
 public:
  using Doing = std::function<absl::Status(ServerContext& context, uint64_t number)>;

  // Runs in act and actAgain; the reply is the number. By default they return it.
  Doing on_act = [](ServerContext&, uint64_t) { return absl::OkStatus(); };
  std::atomic<int> runs{0};
  // Runs in echo, before it answers.
  std::function<void(probe::Probe::EchoParams::Reader)> on_echo = [](probe::Probe::EchoParams::Reader) {};

  // With the metadata of the request.
  absl::Status Echo(ServerContext& context, probe::Probe::EchoParams::Reader request,
                    probe::Probe::EchoResults::Builder reply) override {
    on_echo(request);
    if (!context.metadata().empty()) context.reply_metadata() = Metadata(context.metadata());
    reply.setData(request.getData());
    return absl::OkStatus();
  }
  absl::Status Act(ServerContext& context, probe::Probe::ActParams::Reader request,
                   probe::Probe::ActResults::Builder reply) override {
    ++runs;
    reply.setNumber(request.getNumber());
    return on_act(context, request.getNumber());
  }
  absl::Status ActAgain(ServerContext& context, probe::Probe::ActAgainParams::Reader request,
                        probe::Probe::ActAgainResults::Builder reply) override {
    ++runs;
    reply.setNumber(request.getNumber());
    return on_act(context, request.getNumber());
  }
  absl::Status Depth(ServerContext&, probe::Nest::Reader request,
                     probe::Probe::DepthResults::Builder reply) override {
    uint32_t depth = 0;
    for (probe::Nest::Reader nest = request; nest.hasInner(); nest = nest.getInner()) ++depth;
    reply.setDepth(depth);
    return absl::OkStatus();
  }
};

// Handlers that do not answer until told to.
class Held {
 public:
  ProbeServiceImpl::Doing Handler() {
    return [this](ServerContext& context, uint64_t) {
      calls_.Put(context.Defer());
      return absl::OkStatus();
    };
  }
  DeferredCall Take() { return calls_.Take(); }

  // Drops the calls that have not been taken, and all later ones.
  void DropAll() { calls_.Close(); }

 private:
  Box<DeferredCall> calls_;
};

struct TestServer {
  explicit TestServer(ServerOptions options = {}, const std::string& address = TestUri())
      : server(std::move(options)) {
    EXPECT_THAT(server.AddService(&probe), IsOk());
    absl::StatusOr<std::string> listening = server.Listen(address);
    EXPECT_THAT(listening.status(), IsOk());
    if (listening.ok()) uri = *listening;
  }

  ~TestServer() { held.DropAll(); }

  std::shared_ptr<Channel> Connect(ChannelOptions options = {}) {
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri, std::move(options));
    EXPECT_THAT(channel.status(), IsOk());
    return channel.ok() ? *channel : nullptr;
  }

  Held held;
  ProbeServiceImpl probe;
  Server server;
  std::string uri;
};

inline PendingCall<probe::Probe::ActResults> SendAct(const std::shared_ptr<Channel>& channel, uint64_t number,
                                                     const CallOptions& options = CallOptions::kNone) {
  auto call = probe::ProbeStub(channel).Act(options);
  call.request().setNumber(number);
  return call.Send();
}

inline absl::Status CallAt(const std::string& uri) {
  absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri);
  if (!channel.ok()) return channel.status();
  return SendAct(*channel, 1).Wait().status();
}

inline PendingCall<probe::Probe::ActAgainResults> SendActAgain(
    const std::shared_ptr<Channel>& channel, uint64_t number,
    const CallOptions& options = CallOptions::kNone) {
  auto call = probe::ProbeStub(channel).ActAgain(options);
  call.request().setNumber(number);
  return call.Send();
}

// Calls the server over `channel`, which offers services, until its handler has the channel that leads back.
inline std::shared_ptr<Channel> WayBack(TestServer& server, const std::shared_ptr<Channel>& channel) {
  auto ways = std::make_shared<Box<std::shared_ptr<Channel>>>();
  server.probe.on_act = [ways](ServerContext& context, uint64_t) {
    if (auto peer = context.peer()) ways->Put(std::move(peer));
    return absl::OkStatus();
  };
  EXPECT_TRUE(Eventually([&] { return SendAct(channel, 1).Wait().ok() && ways->size() > 0; }));
  return ways->Take();
}

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_PROBE_H_
