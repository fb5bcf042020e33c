#include "hawser/transport/fabric/verbs/source.h"

namespace hawser::fabric {

uint32_t VerbsSourceTable::Add(VerbsSource& source) {
  if (free_indexes_.empty()) {
    free_indexes_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_indexes_.back();
  free_indexes_.pop_back();
  entries_[index].source = &source;
  return entries_[index].generation << kIndexBits | index;
}

void VerbsSourceTable::Remove(uint32_t token) {
  Entry& entry = entries_[token & kIndexMask];
  entry.source = nullptr;
  entry.generation = (entry.generation + 1) & kGenerationMask;
  if (entry.generation == 0) entry.generation = 1;
  // Indexes are taken from the back, so it takes long until a token is reused.
  free_indexes_.insert(free_indexes_.begin(), token & kIndexMask);
}

}  // namespace hawser::fabric
