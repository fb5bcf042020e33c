#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/json_writer.h"
#include "hawser/health.rpc.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/health_watcher.h"
#include "hawser/tools/hawser/nearest.h"
#include "hawser/tools/hawser/reflection.h"
#include "hawser/tools/hawser/schemas.h"

namespace hawser::tool {
namespace {

using hawser::health::HealthStub;
using hawser::health::ServingStatus;

absl::string_view ToString(ServingStatus status) {
  switch (status) {
    case ServingStatus::UNKNOWN:
      return "unknown";
    case ServingStatus::SERVING:
      return "serving";
    case ServingStatus::NOT_SERVING:
      return "not serving";
    case ServingStatus::SERVICE_UNKNOWN:
      return "no such service";
  }
  return "a state that this program does not know";
}

absl::Status Explained(const absl::Status& status, const Channel& channel, absl::string_view service) {
  std::string why(status.message());
  if (status.code() == absl::StatusCode::kUnimplemented) {
    why =
        "the server has no health service. Start it with ServerOptions::health, which is on by default, or "
        "update it. It answers, though: `hawser ping` measures how fast";
  } else if (status.code() == absl::StatusCode::kNotFound) {
    absl::StrAppend(&why, " (`hawser list` has the names)");
  }
  return absl::Status(status.code(),
                      absl::StrCat("cannot ask ", channel.peer_address(), " for the health of ",
                                   service.empty() ? "the server" : service, ": ", why));
}

// How soon a server that answers Unavailable is asked again.
constexpr absl::Duration kPause = absl::Seconds(1);

class HealthCommand : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "health", "[SERVICE]", "says whether the server, or a service, serves",
        "SERVICE is a service as `hawser list` names it: kv.capnp:KeyValue. The end of the name is enough if "
        "no other service ends with it: KeyValue. Without it, the server as a whole. Prints serving, not "
        "serving or unknown; the exit status is 0 for serving, else 1.\n"
        "\n"
        "With --watch it goes on: it prints a line with the present state and one at each change, until it "
        "is interrupted or --count lines are printed. If the connection is lost it says so on stderr, "
        "connects again and watches anew; if the server answers UNAVAILABLE it says that, and asks again "
        "after a second. The exit status is that of the last line.\n"
        "\n"
        "With --json: {\"service\", \"status\"}, one a line.",
        "hawser health --target=tcp://kv1:7470\n"
        "hawser health --target=tcp://kv1:7470 KeyValue\n"
        "hawser health --target=tcp://kv1:7470 --watch"};
    return kHelp;
  }

  void AddFlags(Flags& flags) override {
    flags.Switch("watch", "prints each change from now on", &watch_);
    flags.Number("count", "with --watch: ends after so many lines", 1, UINT64_MAX, &left_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    return words.empty() ? absl::OkStatus() : TakeWords(words, {"SERVICE"}, {&service_});
  }

  absl::StatusOr<int> Run(const Session& session) override {
    if (watch_) return Watch(session);
    const auto channel = session.Connect();
    if (!channel.ok()) return channel.status();
    auto reply = Check(*channel);
    if (absl::IsNotFound(reply.status())) {
      if (absl::Status found = FindService(session); !found.ok()) return found;
      reply = Check(*channel);
    }
    if (!reply.ok()) return Explained(reply.status(), **channel, service_);
    ServingStatus status = ServingStatus::UNKNOWN;
    const absl::Status read = reply->Read([&](auto results) { status = results.getStatus(); });
    if (!read.ok()) return Explained(read, **channel, service_);
    Print(session.json, service_, status);
    return status == ServingStatus::SERVING ? 0 : 1;
  }

 private:
  absl::StatusOr<Reply<hawser::health::Health::CheckResults>> Check(
      const std::shared_ptr<Channel>& channel) const {
    auto call = HealthStub(channel).Check();
    call.request().setService(service_);
    return call.Send().Wait();
  }

  // For a name that the server's health does not know: makes it the name of the one service that ends with
  // it. Leaves it as it is if there is none, or the server does not list its services.
  absl::Status FindService(const Session& session) {
    const auto channel = session.Connect(ReflectionOptions());
    if (!channel.ok()) return channel.status();
    const auto services = ListServices(*channel, absl::Now() + session.timeout);
    if (!services.ok()) return absl::OkStatus();
    std::vector<std::string> found;
    for (const ServiceInfo& service : *services) {
      if (Schemas::Names(service_, service.name)) found.push_back(service.name);
    }
    if (found.size() > 1) return SeveralNames(service_, found);
    if (!found.empty()) service_ = found[0];
    return absl::OkStatus();
  }

  static void Print(bool json, absl::string_view service, ServingStatus status) {
    if (json) {
      JsonWriter line;
      line.BeginObject();
      line.Name("service").String(service);
      line.Name("status").String(ToString(status));
      line.EndObject();
      std::cout << std::move(line).Take();
    } else {
      std::cout << ToString(status);
    }
    std::cout << std::endl;
  }

  absl::StatusOr<int> Watch(const Session& session) {
    if (!service_.empty()) {
      // A watch of a name that is not known begins all the same: the service may come.
      const auto channel = session.Connect();
      if (!channel.ok()) return channel.status();
      if (absl::IsNotFound(Check(*channel).status())) {
        if (absl::Status found = FindService(session); !found.ok()) return found;
      }
    }
    HealthWatcher watcher;  // Outlives the channel.
    ChannelOptions options;
    options.services = {&watcher};
    options.on_state_change = [&watcher](ChannelState state, const absl::Status& why) {
      watcher.OnStateChange(state, why);
    };
    const auto channel = session.Connect(std::move(options));
    if (!channel.ok()) return channel.status();
    const absl::StatusOr<int> result = Follow(session, *channel, watcher);
    // Close() does not wait, but no call may use `watcher` after it is destroyed.
    absl::Notification closed;
    (*channel)->OnClosed([&closed] { closed.Notify(); });
    (*channel)->Close();
    closed.WaitForNotification();
    return result;
  }

  absl::StatusOr<int> Follow(const Session& session, const std::shared_ptr<Channel>& channel,
                             HealthWatcher& watcher) {
    uint64_t connections = 0;
    absl::Status failed;
    absl::Time again = absl::InfiniteFuture();
    ServingStatus last = ServingStatus::UNKNOWN;
    while (left_ > 0) {
      const HealthWatcher::News news = watcher.Wait(connections, again);
      const bool asks_again = absl::Now() >= again && news.connections == connections;
      if (asks_again || news.connections > connections) {
        if (asks_again) std::cerr << "hawser health: " << ForPeople(failed) << "; asking again" << std::endl;
        connections = news.connections;
        auto call = HealthStub(channel).Watch();
        call.request().setService(service_);
        const absl::Status status = call.Send().Wait().status();
        again = absl::InfiniteFuture();
        if (!status.ok()) {
          failed = Explained(status, *channel, service_);
          // The connection was lost again, so the channel makes another one, or the server has answered so.
          // The latter is what it is if there is no other connection after a while.
          if (!absl::IsUnavailable(status)) return failed;
          again = absl::Now() + kPause;
        }
      }
      for (const ServingStatus change : news.changes) {
        if (left_ == 0) break;
        --left_;
        last = change;
        Print(session.json, service_, last);
      }
    }
    return last == ServingStatus::SERVING ? 0 : 1;
  }

  std::string service_;
  bool watch_ = false;
  uint64_t left_ = UINT64_MAX;  // Lines that are still to be printed.
};

}  // namespace

std::unique_ptr<Command> NewHealth() { return std::make_unique<HealthCommand>(); }

}  // namespace hawser::tool
