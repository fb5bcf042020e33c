#ifndef HAWSER_TRANSPORT_POLLER_POLLER_CLIENTS_H_
#define HAWSER_TRANSPORT_POLLER_POLLER_CLIENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "hawser/transport/poller/poller_client.h"

namespace hawser::transport {

// The connections on a poller: which index each has, which of them have something to flush in this turn, and
// which of them end with it.
// Thread:   on the poller.
// Lifetime: part of its Poller. It owns the connections.
class PollerClients {
 public:
  // Takes ownership of `client`, and gives it its index.
  void Adopt(std::unique_ptr<PollerClient> client);
  // Destroys `client`, which has nothing posted.
  void Drop(PollerClient* client);
  // For the next Flush(): flushes `client` once, or destroys it.
  [[gnu::always_inline]] void MarkForFlush(PollerClient* client) {
    if (!std::exchange(client->marked_for_flush_, true)) to_flush_.push_back(client);
  }
  void MarkClosed(PollerClient* client) { closed_.push_back(client); }
  size_t size() const { return count_; }

  // Null: there is none.
  PollerClient* Find(uint32_t index) const {
    return index < clients_.size() ? clients_[index].get() : nullptr;
  }

  // Flushes those that are marked, and destroys those that are closed, until neither kind is left. Returns
  // whether there was one to flush.
  bool Flush() {
    const bool marked = !to_flush_.empty();
    if (marked || !closed_.empty()) FlushMarked();
    return marked;
  }
  void StartTurn() { flushed_at_ = 0; }
  // In the middle of a turn, which has taken so many completions and SENDs: calls FlushIfLong() of those that
  // are marked, once in kLongQueue of them. The chunks of a turn have any length.
  void FlushLongQueues(size_t taken) {
    if (taken - flushed_at_ < PollerClient::kLongQueue) return;
    flushed_at_ = taken;
    FlushLong();
  }

  // The poller ends: disconnects each, then destroys them.
  void Disconnect();
  void Clear() { clients_.clear(); }

 private:
  // There is one to flush, or to destroy.
  void FlushMarked();
  void FlushLong();

  std::vector<std::unique_ptr<PollerClient>> clients_;
  std::vector<uint32_t> free_indexes_;
  size_t count_ = 0;  // Not yet destroyed.
  std::vector<PollerClient*> to_flush_;
  size_t flushed_at_ = 0;  // What this turn had taken at the last FlushLong().
  std::vector<PollerClient*> closed_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_POLLER_CLIENTS_H_
