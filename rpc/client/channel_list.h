#ifndef HAWSER_RPC_CLIENT_CHANNEL_LIST_H_
#define HAWSER_RPC_CLIENT_CHANNEL_LIST_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/count.h"
#include "hawser/rpc/client/channel_state.h"
#include "hawser/rpc/options.h"

namespace hawser::internal {

// How often channels connected, and how often that failed. Values.
struct ChannelCounts {
  uint64_t connects = 0;
  uint64_t losses = 0;           // Lost connections, for whatever cause; also servers that drain.
  uint64_t failed_attempts = 0;  // At every address of the server.
};

// The channels of this process that dial, for the snapshots of its servers: a server that is slow may wait
// for another.
// Thread: any.
class ChannelList {
 public:
  // One channel's place in the list.
  // Thread: OnEvent() one at a time, the rest any.
  class Entry {
   public:
    // `calls_waiting`: for a connection, or for a slot. Outlives this.
    Entry(std::string address, const Count& calls_waiting);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    // `event` has moved the channel to `to`.
    void OnEvent(ChannelEvent event, ChannelState to);

   private:
    friend class ChannelList;
    const std::string address_;
    const Count& calls_waiting_;
    std::atomic<ChannelState> state_{ChannelState::kConnecting};
    // Counts of one channel: at one attempt each millisecond they last for 50 days, and a channel waits for
    // seconds between two.
    std::atomic<uint32_t> connects_{0}, losses_{0}, failed_attempts_{0};
  };

  struct Channel {
    std::string address;
    ChannelState state = {};
    uint64_t calls_waiting = 0;
    ChannelCounts counts;
  };
  struct View {
    std::vector<Channel> channels;
    uint64_t calls_waiting = 0;  // Summed over the channels that there are.
    ChannelCounts counts;        // Summed over all channels that there ever were.
  };

  // The list of this process: a child made by fork() begins with an empty one.
  static ChannelList& Process();

  // The first `channels_max`, in no order.
  View Look(size_t channels_max, uint64_t& left_out) const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_set<const Entry*> entries_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> connects_{0}, losses_{0}, failed_attempts_{0};
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_LIST_H_
