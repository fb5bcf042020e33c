#include "hawser/transport/poller/poller_clients.h"

#include <algorithm>

namespace hawser::transport {

void PollerClients::Adopt(std::unique_ptr<PollerClient> client) {
  ++count_;
  if (free_indexes_.empty()) {
    free_indexes_.push_back(static_cast<uint32_t>(clients_.size()));
    clients_.emplace_back();
  }
  client->index_ = free_indexes_.back();
  free_indexes_.pop_back();
  clients_[client->index_] = std::move(client);
}

void PollerClients::Drop(PollerClient* client) {
  --count_;
  to_flush_.erase(std::remove(to_flush_.begin(), to_flush_.end(), client), to_flush_.end());
  free_indexes_.push_back(client->index());
  clients_[client->index()].reset();
}

void PollerClients::FlushMarked() {
  // A flush may require another one, even of the same connection: after a postponed close, or when a send
  // queue has room again. So may destroying a connection, which releases memory.
  do {
    for (size_t i = 0; i < to_flush_.size(); ++i) {
      PollerClient* const client = to_flush_[i];
      client->marked_for_flush_ = false;
      client->Flush();
    }
    to_flush_.clear();
    while (!closed_.empty()) {
      PollerClient* const client = closed_.back();
      closed_.pop_back();
      Drop(client);
    }
  } while (!to_flush_.empty() || !closed_.empty());
}

// The peer starts with these while this turn continues.
void PollerClients::FlushLong() {
  for (size_t i = 0; i < to_flush_.size(); ++i) {
    to_flush_[i]->FlushIfLong();
  }
}

void PollerClients::Disconnect() {
  for (auto& client : clients_) {
    if (client != nullptr) client->Disconnect();
  }
}

}  // namespace hawser::transport
