#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SOURCE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SOURCE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/event_channel.h"

namespace hawser::fabric {

// A queue pair or a listener, as its completion queue sees it. A token in the wr_id of its work requests, and
// in the context of its rdma_cm_id, identifies it, so that late events of a destroyed one are dropped. All
// calls come from inside Poll().
class VerbsSource {
 public:
  virtual ~VerbsSource() = default;

  // May destroy this, or any other source.
  virtual void OnCmEvent(VerbsCmEvent& event) = 0;

  // The work request with `number` has completed. True: `out` is a completion for the caller.
  virtual bool OnCompletion(const ibv_wc&, bool /*receive*/, uint32_t /*number*/, Completion&) {
    return false;
  }

  // For its completions. It changes when the ibv_qp is destroyed.
  virtual uint32_t qp_num() const { return 0; }

  // Once for each Schedule() or Notify(). May destroy this, or any other source.
  virtual void OnTurn() {}

  // The device, or its completion queue, has failed for good: there will be no more completions.
  virtual void OnLost(const absl::Status& /*why*/) {}

  // A second after TryLater().
  virtual void OnTryAgain() {}
};

// The sources of one completion queue, by token.
// Thread:   that of the completion queue.
// Lifetime: a source outlives its registration.
class VerbsSourceTable {
 public:
  // Returns a token, less than 2^31 and not 0, that no other source has, and none of the last ones had.
  uint32_t Add(VerbsSource& source);
  void Remove(uint32_t token);

  // Null: that source was removed, or there was none.
  VerbsSource* Find(uint32_t token) const {
    const uint32_t index = token & kIndexMask;
    if (index >= entries_.size() || entries_[index].generation != token >> kIndexBits) return nullptr;
    return entries_[index].source;
  }

  // Calls `function` with each source. It adds none.
  template <typename Function>
  void ForEach(Function function) const {
    for (const Entry& entry : entries_) {
      if (entry.source != nullptr) function(*entry.source);
    }
  }

 private:
  // A token has an index in its low bits and a generation in its high bits.
  static constexpr uint32_t kIndexBits = 20;
  static constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
  static constexpr uint32_t kGenerationMask = (1u << (31 - kIndexBits)) - 1;

  struct Entry {
    VerbsSource* source = nullptr;
    uint32_t generation = 1;
  };

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_indexes_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SOURCE_H_
