#ifndef HAWSER_TESTS_RPC_TAKEN_H_
#define HAWSER_TESTS_RPC_TAKEN_H_

#include <capnp/message.h>

#include <map>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/observe/snapshot.capnp.h"
#include "hawser/rpc/server.h"

namespace hawser {

// A snapshot, and the memory that it is in.
class Taken {
 public:
  explicit Taken(const Server& server) {
    const absl::Time start = absl::Now();
    server.FillIn(message_.initRoot<observe::wire::Snapshot>());
    took = absl::Now() - start;
  }
  observe::wire::Snapshot::Reader Get() { return message_.getRoot<observe::wire::Snapshot>().asReader(); }

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

  absl::Duration took;

 private:
  capnp::MallocMessageBuilder message_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_TAKEN_H_
