#include "hawser/rpc/service.h"

namespace hawser {

void MethodTable::Add(const Method& method, void* self, Handler handler) {
  const auto [entry, added] =
      entries_.try_emplace({method.interface_id, method.ordinal}, Entry{&method, self, handler});
  interfaces_.insert(method.interface_id);
  if (!added && entry->second.self != self && conflict_ == nullptr) conflict_ = &method;
}

const MethodTable::Entry* MethodTable::Find(uint64_t interface_id, uint16_t ordinal,
                                            bool* interface_known) const {
  const auto entry = entries_.find({interface_id, ordinal});
  *interface_known = entry != entries_.end() || interfaces_.contains(interface_id);
  return entry == entries_.end() ? nullptr : &entry->second;
}

}  // namespace hawser
