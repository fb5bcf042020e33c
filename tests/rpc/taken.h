#ifndef HAWSER_TESTS_RPC_TAKEN_H_
#define HAWSER_TESTS_RPC_TAKEN_H_

#include <capnp/message.h>

#include <map>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/server.h"
#include "tests/rpc/probe.h"

namespace hawser {

// A snapshot, and the memory that it is in.
class Taken {
 public:
  // A server waits for a poller for some milliseconds only, and leaves out what is on one that does not
  // answer.
  enum class Pollers {
    kAnswer,    // Takes snapshots until all pollers have answered: a busy machine may run one late.
    kMayBeHeld  // Takes one: a handler of the test holds a poller.
  };

  explicit Taken(const Server& server, Pollers pollers = Pollers::kAnswer) {
    const auto take = [&] {
      const absl::Time start = absl::Now();
      server.FillIn(message_.emplace().initRoot<observe::wire::Snapshot>());
      took = absl::Now() - start;
      return pollers == Pollers::kMayBeHeld || AllAnswered();
    };
    EXPECT_TRUE(Eventually(take)) << "a poller is held";
  }
  observe::wire::Snapshot::Reader Get() { return message_->getRoot<observe::wire::Snapshot>().asReader(); }

  observe::wire::Method::Reader Method(const std::string& name) {
    for (auto method : Get().getMethods()) {
      if (name == method.getName().cStr()) return method;
    }
    ADD_FAILURE() << "no method " << name;
    return {};
  }
  std::map<std::string, uint64_t> Statuses(const std::string& method) {
    std::map<std::string, uint64_t> statuses;
    for (auto status : Method(method).getStatuses()) statuses[status.getName().cStr()] = status.getCount();
    return statuses;
  }

  absl::Duration took;  // For the last snapshot.

 private:
  bool AllAnswered() {
    for (const auto poller : Get().getPollers()) {
      if (!poller.getAnswered()) return false;
    }
    return true;
  }

  std::optional<capnp::MallocMessageBuilder> message_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_TAKEN_H_
