#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/pages.h"
#include "examples/kv/kv.rpc.h"
#include "hawser/rpc/status.h"

namespace kv {
namespace {

// The service that this client offers to the server. It passes pushes to the thread that prints, which
// answers each push after it has printed it. So at most one push waits here, however slowly the lines are
// read.
class Pushes : public WatcherService {
 public:
  absl::Status Push(hawser::ServerContext& context, Watcher::PushParams::Reader request,
                    Watcher::PushResults::Builder) override {
    absl::MutexLock lock(&mutex_);
    pushes_.push_back({context.Defer(), request});
    return absl::OkStatus();
  }

  void OnStateChange(hawser::ChannelState state, const absl::Status& why) {
    absl::MutexLock lock(&mutex_);
    if (connected_ && state != hawser::ChannelState::kClosed) {
      std::cerr << "kv watch: " << why << "; reconnecting" << std::endl;
    }
    connected_ = state == hawser::ChannelState::kReady;
    if (connected_) ++connections_;
  }

  struct Pushed {
    hawser::DeferredCall answer;
    Watcher::PushParams::Reader request;  // Valid until the answer.
  };
  struct News {
    uint64_t connections = 0;  // Connections made so far. After each new one the client watches again.
    std::deque<Pushed> pushes;
  };
  // Blocks until there is a push, or a connection after the first `connections`; or until `again`, if there
  // is a connection then.
  News Wait(uint64_t connections, absl::Time again) {
    const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !pushes_.empty() || connections_ > connections;
    };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithDeadline(absl::Condition(&news), again) && !connected_) {
      mutex_.Await(absl::Condition(&news));
    }
    return {connections_, std::exchange(pushes_, {})};
  }

 private:
  absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t connections_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Pushed> pushes_ ABSL_GUARDED_BY(mutex_);
};

// How soon a server that answers Unavailable is asked again.
constexpr absl::Duration kPause = absl::Seconds(1);

class Watch : public Command {
 public:
  std::string usage() const override { return "watch PREFIX [--count=N]"; }

  void AddFlags(examples::FlagSet& flags) override { flags.Number("count", 1, UINT64_MAX, &left_); }

  absl::Status Take(const std::vector<std::string>& words) override {
    return TakeWords(words, {"PREFIX"}, {&prefix_});
  }

  // Prints a line for each change: "put" or "delete", key, size, revision, with tabs between. A "lost" line
  // makes all earlier lines void: "have" lines list the keys at that revision, and changes continue from
  // there.
  absl::Status Run(const Target& target) override {
    Pushes pushes;  // Outlives the channel.
    hawser::ChannelOptions options;
    options.services = {&pushes};
    options.on_state_change = [&pushes](hawser::ChannelState state, const absl::Status& why) {
      pushes.OnStateChange(state, why);
    };
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect(std::move(options));
    if (!channel.ok()) return channel.status();
    KeyValueStub kv(*channel);
    absl::Status status = Follow(kv, pushes);
    // Close() does not wait, but no call may use `pushes` after it is destroyed.
    absl::Notification closed;
    (*channel)->OnClosed([&closed] { closed.Notify(); });
    (*channel)->Close();
    closed.WaitForNotification();
    return status;
  }

 private:
  // Unavailable means here that the connection was lost again, so the channel makes another one, or that the
  // server has answered so. The latter is what it is if there is no other connection after a while.
  absl::Status Follow(const KeyValueStub& kv, Pushes& pushes) {
    uint64_t connections = 0;
    absl::Status failed;
    absl::Time again = absl::InfiniteFuture();
    const auto goes_on = [&](const absl::Status& status) {
      if (status.ok()) return true;
      failed = status;
      again = absl::Now() + kPause;
      return absl::IsUnavailable(status);
    };
    while (left_ > 0) {
      Pushes::News news = pushes.Wait(connections, again);
      const bool starts_again = absl::Now() >= again && news.connections == connections;
      if (starts_again || news.connections > connections) {
        if (starts_again) std::cerr << "kv watch: " << failed << "; watching again" << std::endl;
        connections = news.connections;
        again = absl::InfiniteFuture();
        if (!goes_on(Start(kv))) return failed;
      }
      for (Pushes::Pushed& pushed : news.pushes) {
        if (!goes_on(Print(kv, pushed.request))) return failed;
        pushed.answer.Finish(pushed.request.getWatch() == watch_
                                 ? absl::OkStatus()
                                 : absl::NotFoundError("that watch has ended"));
      }
    }
    return absl::OkStatus();
  }

  // Starts to watch, or continues after the last printed change. Uses a new number each time, to recognise
  // pushes of an earlier watch.
  absl::Status Start(const KeyValueStub& kv) {
    auto call = kv.Watch();
    call.request().setWatch(++watch_);
    call.request().setPrefix(prefix_);
    call.request().setHistory(history_);
    call.request().setAfter(revision_);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    history_ = (*reply)->getHistory();
    revision_ = (*reply)->getRevision();
    std::cerr << "watching \"" << prefix_ << "\" from revision " << revision_ << std::endl;
    return (*reply)->getLost() || listing_ ? Resynchronize(kv) : absl::OkStatus();
  }

  absl::Status Print(const KeyValueStub& kv, Watcher::PushParams::Reader push) {
    if (push.getWatch() != watch_) return absl::OkStatus();
    // The watch was made twice, because the answer to the first call was lost.
    if (push.getRevision() <= revision_) return absl::OkStatus();
    for (Watcher::Event::Reader event : push.getEvents()) {
      if (event.getRevision() <= revision_) continue;  // The server repeats a push whose answer was lost.
      if (left_ == 0) break;
      --left_;
      const bool put = event.getKind() == Watcher::Event::Kind::PUT;
      PrintLine(put ? "put" : "delete", event.getKey(), event.getSize(), event.getRevision());
    }
    revision_ = push.getRevision();
    if (push.getLost()) return Resynchronize(kv);
    return Flush();
  }

  absl::Status Resynchronize(const KeyValueStub& kv) {
    PrintLine("lost", prefix_, 0, revision_);
    listing_ = true;
    absl::Status status = ForEachEntry(kv, prefix_, [this](KeyValue::Entry::Reader entry) {
      // The server pushes newer ones, too.
      if (entry.getRevision() > revision_) return;
      PrintLine("have", entry.getKey(), entry.getSize(), entry.getRevision());
    });
    if (!status.ok()) return status;
    listing_ = false;
    return Flush();
  }

  static void PrintLine(const char* what, capnp::Text::Reader key, uint64_t size, uint64_t revision) {
    absl::FPrintF(stdout, "%s\t%s\t%d\t%d\n", what, hawser::EscapePeerText({key.begin(), key.size()}), size,
                  revision);
  }

  static absl::Status Flush() {
    if (std::fflush(stdout) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "cannot write to stdout");
  }

  std::string prefix_;
  uint64_t left_ = UINT64_MAX;  // Changes that are still to be printed.
  uint64_t watch_ = 0;
  uint64_t history_ = 0;
  uint64_t revision_ = 0;  // The last printed revision.
  bool listing_ = false;   // The "have" lines behind the last "lost" are not complete.
};

}  // namespace

std::unique_ptr<Command> NewWatch() { return std::make_unique<Watch>(); }

}  // namespace kv
