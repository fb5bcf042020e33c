#ifndef HAWSER_RPC_SERVING_METHOD_FINDER_H_
#define HAWSER_RPC_SERVING_METHOD_FINDER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/serving/method_counts.h"
#include "hawser/rpc/serving/serving.h"

namespace hawser::internal {

// A method, and what one poller counts of its calls.
struct ServedMethod {
  const MethodTable::Entry* entry = nullptr;
  MethodCounts* counts = nullptr;
};

// Finds the methods that the requests of one connection call.
// Thread:   on the poller.
// Lifetime: owned by its connection.
class MethodFinder {
 public:
  // Without an entry: the server has no such method. The same `serving`, which the usual call does not read,
  // and `counters` in each call.
  ServedMethod Find(const std::shared_ptr<const Serving>& serving, ServingCounters& counters,
                    uint64_t interface_id, uint16_t ordinal) {
    if (IsLast(interface_id, ordinal)) return last_found_;
    const MethodTable::Entry* const found = serving->methods.Find(interface_id, ordinal);
    if (found == nullptr) return {};
    return last_found_ = {found, &counters.ForMethod(found->index)};
  }

  // Find() has found this one last.
  bool IsLast(uint64_t interface_id, uint16_t ordinal) const {
    return last_found_.entry != nullptr && last_found_.entry->method->ordinal == ordinal &&
           last_found_.entry->method->interface_id == interface_id;
  }
  const ServedMethod& last() const { return last_found_; }

  // The error for a method that `serving` has not. Says what there is, if callers may know that.
  static absl::Status Unimplemented(const Serving& serving, uint64_t interface_id, uint16_t ordinal);

 private:
  ServedMethod last_found_;  // A cache: most callers call one method most of the time.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_METHOD_FINDER_H_
