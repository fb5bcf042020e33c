// Where the application's callbacks run: in turns of the driver, never inside a call that the application
// makes, because its caller may hold a lock that the callback takes.

#include <unistd.h>

#include <barrier>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using Act = absl::StatusOr<Reply<probe::Probe::ActResults>>;

class CallbackTest : public testing::Test {
 protected:
  // A call whose result has arrived, because a later call of the same connection has ended.
  PendingCall<probe::Probe::ActResults> AnsweredCall() {
    auto call = SendAct(channel_, 1);
    EXPECT_THAT(SendAct(channel_, 2).Wait(), IsOk());
    return call;
  }

  TestServer server_;
  Driven client_;
  std::shared_ptr<Channel> channel_ = server_.Connect({.runtime = client_.runtime});
};

TEST_F(CallbackTest, ThenRunsNoCallbackOfAResultThatIsThere) {
  auto call = AnsweredCall();
  bool ran = false;
  call.Then([&](Act reply) { ran = reply.ok(); });
  EXPECT_FALSE(ran);
  EXPECT_TRUE(client_.Until([&] { return ran; }));
}

TEST_F(CallbackTest, ThenInACallbackRunsNoOtherCallback) {
  auto call = AnsweredCall();
  bool ran = false, ran_inside = true;
  SendAct(channel_, 3).Then([&](Act) {
    call.Then([&](Act reply) { ran = reply.ok(); });
    ran_inside = ran;
  });
  EXPECT_TRUE(client_.Until([&] { return ran; }));
  EXPECT_FALSE(ran_inside);
}

// The thread that leaves the poller last runs what other threads have posted meanwhile.
TEST_F(CallbackTest, AThreadThatPostsRunsNoCallbackOfOthers) {
  auto call = AnsweredCall();
  Box<bool> held, release;
  std::thread poster([&] {
    client_.poller().Run([&] {
      held.Put(true);
      release.Take();
    });
  });
  held.Take();
  bool ran = false;
  call.Then([&](Act) { ran = true; });
  release.Put(true);
  poster.join();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(client_.Until([&] { return ran; }));
}

TEST_F(CallbackTest, APostThatFailsInSendRunsNoCallback) {
  server_.probe.on_act = server_.held.Handler();
  bool ran = false;
  absl::Status status;
  SendAct(channel_, 1).Then([&](Act reply) {
    ran = true;
    status = reply.status();
  });
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  client_.fabric->FailPosts(true);
  auto other = SendAct(channel_, 2);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(client_.Until([&] { return ran; }));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(CallbackTest, CloseRunsNoCallback) {
  server_.probe.on_act = server_.held.Handler();
  bool ended = false, closed = false;
  channel_->OnClosed([&] { closed = true; });
  SendAct(channel_, 1).Then([&](Act) { ended = true; });
  ASSERT_TRUE(client_.Until([&] { return server_.probe.runs == 1; }));
  channel_->Close();
  EXPECT_FALSE(ended || closed);
  EXPECT_TRUE(client_.Until([&] { return ended && closed; }));
}

TEST_F(CallbackTest, AnEmptyOnClosedHasNoEffect) {
  bool closed = false;
  channel_->OnClosed(nullptr);
  channel_->OnClosed([&] { closed = true; });
  channel_->Close();
  EXPECT_TRUE(client_.Until([&] { return closed; }));
}

TEST_F(CallbackTest, OnClosedRunsSoonThoughTheChannelHasEndedLongAgo) {
  channel_->Close();
  ASSERT_TRUE(client_.Until([&] { return server_.server.stats().connections == 0; }));
  while (client_.poller().PollOnce() != 0 || client_.poller().connection_count() != 0) {
  }
  bool closed = false;
  channel_->OnClosed([&] { closed = true; });
  channel_.reset();
  EXPECT_FALSE(closed);
  EXPECT_TRUE(client_.Until([&] { return closed; }));
}

// ---- At the server.

class ServerCallbackTest : public testing::Test {
 protected:
  // Sends a call, and returns it as the server's handler has deferred it.
  DeferredCall TakeNext() {
    const int before = server_->probe.runs;
    server_->probe.on_act = server_->held.Handler();
    calls_.push_back(SendAct(channel_, 1));
    EXPECT_TRUE(both_.Until([&] { return server_->probe.runs == before + 1; }));
    return server_->held.Take();
  }

  // The server waits for the end of the connection, which another thread must drive.
  ~ServerCallbackTest() override {
    channel_->Close();
    std::atomic<bool> ended{false};
    std::thread ender([&] {
      server_.reset();
      ended = true;
    });
    EXPECT_TRUE(both_.Until([&] { return ended.load(); }));
    ender.join();
  }

  Driven both_;
  std::unique_ptr<TestServer> server_ = std::make_unique<TestServer>(ServerOptions{.runtime = both_.runtime});
  std::shared_ptr<Channel> channel_ = server_->Connect({.runtime = both_.runtime});
  std::vector<PendingCall<probe::Probe::ActResults>> calls_;
};

TEST_F(ServerCallbackTest, FinishThatLosesTheConnectionRunsNoOnCancelOfOtherCalls) {
  DeferredCall one = TakeNext(), other = TakeNext();
  bool ran = false;
  one.context().OnCancel([&] { ran = true; });
  both_.fabric->FailPosts(true);
  other.Finish();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(both_.Until([&] { return ran; }));
  one.Finish();
}

TEST_F(ServerCallbackTest, OnCancelAfterTheFactRunsInTheNextTurn) {
  DeferredCall deferred = TakeNext();
  calls_.back().Cancel();
  ASSERT_TRUE(both_.Until([&] { return deferred.context().cancelled(); }));
  bool ran = false;
  deferred.context().OnCancel([&] { ran = true; });
  EXPECT_FALSE(ran);
  EXPECT_TRUE(both_.Until([&] { return ran; }));
  deferred.Finish();
}

TEST_F(ServerCallbackTest, OnCancelAfterTheFactDoesNotRunOnceTheCallHasFinished) {
  DeferredCall deferred = TakeNext();
  calls_.back().Cancel();
  ASSERT_TRUE(both_.Until([&] { return deferred.context().cancelled(); }));
  bool ran = false;
  deferred.context().OnCancel([&] { ran = true; });
  deferred.Finish();
  ASSERT_TRUE(both_.Until([&] { return server_->server.stats().calls_running == 0; }));
  while (both_.poller().PollOnce() != 0) {
  }
  EXPECT_FALSE(ran);
}

// ---- The end of a channel whose callbacks may be running.

// A channel on a poller of its own, with a callback that its end must not outrun.
struct Side {
  std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  std::atomic<bool> told_ready{false};
  std::function<void(ChannelState)> on_state_change = [this](ChannelState) { told_ready = true; };
  std::shared_ptr<Channel> channel;

  explicit Side(TestServer& server) {
    ChannelOptions options;
    options.runtime = runtime;
    options.on_state_change = [this](ChannelState state, const absl::Status&) { on_state_change(state); };
    channel = server.Connect(std::move(options));
    EXPECT_TRUE(Eventually([&] { return told_ready.load(); }));  // Before the test replaces the callback.
  }
};

TEST(ChannelEndTest, TwoCallbacksMayDestroyEachOthersChannels) {
  TestServer server;
  Side one(server), other(server);
  std::barrier both_run(2);
  Box<bool> done;
  const auto destroy = [&](std::shared_ptr<Channel>& channel) {
    return [&](Act) {
      both_run.arrive_and_wait();
      channel.reset();
      done.Put(true);
    };
  };
  auto one_call = SendAct(one.channel, 1);
  auto other_call = SendAct(other.channel, 1);
  one_call.Then(destroy(other.channel));
  other_call.Then(destroy(one.channel));
  EXPECT_TRUE(done.Take() && done.Take());
}

TEST(ChannelEndTest, TwoStateChangesMayDestroyEachOthersChannels) {
  TestServer server;
  Side one(server), other(server);
  std::barrier both_run(2);
  Box<bool> done;
  const auto destroy = [&](std::shared_ptr<Channel>& channel) {
    return [&](ChannelState state) {
      if (state != ChannelState::kClosed) return;
      both_run.arrive_and_wait();
      channel.reset();
      done.Put(true);
    };
  };
  one.on_state_change = destroy(other.channel);
  other.on_state_change = destroy(one.channel);
  // Copies: the callbacks may destroy the channels before Close() has returned.
  for (const std::shared_ptr<Channel>& channel : {one.channel, other.channel}) channel->Close();
  EXPECT_TRUE(done.Take() && done.Take());
}

TEST(ChannelEndTest, AStateChangeMayDestroyItsOwnChannel) {
  TestServer server;
  Side side(server);
  Box<bool> done;
  side.on_state_change = [&](ChannelState) {
    side.channel.reset();
    done.Put(true);
  };
  std::shared_ptr<Channel>(side.channel)->Close();
  EXPECT_TRUE(done.Take());
}

// The state of the thread as `ps` shows it: 'R', 'S'.
char StateOfThread(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end_of_name = line.rfind(')');
  return end_of_name == std::string::npos ? '?' : line[end_of_name + 2];
}

TEST(ChannelEndTest, DestroyingAChannelWaitsForAStateChangeThatRuns) {
  TestServer server;
  Side side(server);
  Box<bool> entered, go_on;
  std::atomic<bool> destroyed{false}, outrun{false};
  side.on_state_change = [&](ChannelState) {
    entered.Put(true);
    go_on.Take();
    outrun = destroyed.load();
  };
  side.channel->Close();
  entered.Take();
  std::atomic<pid_t> thread{0};
  std::thread destroyer([&] {
    thread = gettid();
    side.channel.reset();
    destroyed = true;
  });
  EXPECT_TRUE(Eventually([&] { return destroyed || (thread != 0 && StateOfThread(thread) == 'S'); }));
  EXPECT_FALSE(destroyed);
  go_on.Put(true);
  destroyer.join();
  EXPECT_FALSE(outrun);
}

}  // namespace
}  // namespace hawser
