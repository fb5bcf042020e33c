#include "hawser/base/peer_turns.h"

#include <cstddef>

#include "absl/container/flat_hash_map.h"

namespace hawser {

struct PeerTurns::Node {
  Node* parent = nullptr;
  PeerHost network;
  absl::flat_hash_map<PeerHost, std::unique_ptr<Node>> parts;
  std::list<Node*> turns;            // Its parts; the next one first.
  std::list<Node*>::iterator place;  // In the turns of the parent.
  std::list<Entry*> waiting;         // In a host; the one that has waited longest first.
};

PeerTurns::PeerTurns() : all_(std::make_unique<Node>()) {}

PeerTurns::~PeerTurns() = default;

bool PeerTurns::empty() const { return all_->turns.empty(); }

void PeerTurns::Add(Entry& entry, const PeerHost& host) {
  Node* node = all_.get();
  for (size_t i = 0; i < host.networks(); ++i) {
    const PeerHost network = host.Network(i);
    std::unique_ptr<Node>& part = node->parts[network];
    if (part == nullptr) {
      part = std::make_unique<Node>();
      part->parent = node;
      part->network = network;
      part->place = node->turns.insert(node->turns.end(), part.get());
    }
    node = part.get();
  }
  entry.host_ = node;
  entry.place_ = node->waiting.insert(node->waiting.end(), &entry);
}

void PeerTurns::Remove(Entry& entry) {
  if (!entry.waits()) return;
  Node* node = entry.host_;
  entry.host_ = nullptr;
  node->waiting.erase(entry.place_);
  while (node->parent != nullptr && node->waiting.empty() && node->turns.empty()) {
    Node* const parent = node->parent;
    parent->turns.erase(node->place);
    const PeerHost network = node->network;
    parent->parts.erase(network);
    node = parent;
  }
}

PeerTurns::Entry* PeerTurns::TakeNext() {
  Node* node = all_.get();
  if (node->turns.empty()) return nullptr;
  while (!node->turns.empty()) {
    node->turns.splice(node->turns.end(), node->turns, node->turns.begin());
    node = node->turns.back();
  }
  Entry* const next = node->waiting.front();
  Remove(*next);
  return next;
}

}  // namespace hawser
