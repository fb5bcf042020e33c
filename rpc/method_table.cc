#include "hawser/rpc/method_table.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hawser {
namespace {

// Interfaces that an error names.
constexpr size_t kNamesMax = 16;

// "kv.capnp:KeyValue" of "kv.capnp:KeyValue.get".
absl::string_view InterfaceOf(const Method& method) {
  const absl::string_view name(method.name);
  return name.substr(0, name.rfind('.'));
}

}  // namespace

void MethodTable::Add(const Method& method, void* self, Handler handler) {
  const auto [entry, added] = entries_.try_emplace({method.interface_id, method.ordinal},
                                                   Entry{.method = &method,
                                                         .self = self,
                                                         .handler = handler,
                                                         .index = static_cast<uint32_t>(entries_.size())});
  interfaces_.try_emplace(method.interface_id, Interface{.name = InterfaceOf(method)});
  if (!added && entry->second.self != self && conflict_ == nullptr) conflict_ = &method;
}

const Method* MethodTable::AddAll(const MethodTable& other) {
  if (other.conflict_ != nullptr) return other.conflict_;
  const std::vector<const Entry*> entries = other.Entries();
  for (const Entry* each : entries) {
    const Entry* const mine = Find(each->method->interface_id, each->method->ordinal);
    if (mine != nullptr && mine->self != each->self) return each->method;
  }
  for (const Entry* each : entries) {
    Add(*each->method, each->self, each->handler);
    entries_[{each->method->interface_id, each->method->ordinal}].on_poller = each->on_poller;
  }
  for (const auto& [id, interface] : other.interfaces_) {
    Interface& mine = interfaces_.try_emplace(id, interface).first->second;
    if (interface.load_schema != nullptr) mine = interface;
  }
  return nullptr;
}

void MethodTable::MarkBuiltIn(bool on_poller) {
  for (auto& [id, entry] : entries_) entry.on_poller = on_poller;
  for (auto& [id, interface] : interfaces_) interface.is_built_in = true;
}

const MethodTable::Entry* MethodTable::Find(uint64_t interface_id, uint16_t ordinal) const {
  const auto entry = entries_.find({interface_id, ordinal});
  return entry == entries_.end() ? nullptr : &entry->second;
}

bool MethodTable::Names(const char* name) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [name](const auto& each) { return each.second.method->name == name; });
}

absl::string_view MethodTable::InterfaceName(uint64_t interface_id) const {
  const auto found = interfaces_.find(interface_id);
  return found == interfaces_.end() ? absl::string_view() : found->second.name;
}

std::string MethodTable::InterfaceNames() const {
  std::vector<absl::string_view> names;
  for (const auto& [id, interface] : interfaces_) {
    if (!interface.is_built_in) names.push_back(interface.name);
  }
  std::sort(names.begin(), names.end());
  const size_t more = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - more);
  return absl::StrCat(absl::StrJoin(names, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

std::vector<const MethodTable::Entry*> MethodTable::Entries() const {
  std::vector<const Entry*> entries(entries_.size());
  for (const auto& [id, entry] : entries_) entries[entry.index] = &entry;
  return entries;
}

std::vector<const Method*> MethodTable::MethodsOf(uint64_t interface_id) const {
  std::vector<const Method*> methods;
  for (const auto& [id, entry] : entries_) {
    if (id.first == interface_id) methods.push_back(entry.method);
  }
  std::sort(methods.begin(), methods.end(),
            [](const Method* a, const Method* b) { return a->ordinal < b->ordinal; });
  return methods;
}

}  // namespace hawser
