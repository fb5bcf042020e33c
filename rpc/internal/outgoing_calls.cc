#include "hawser/rpc/internal/outgoing_calls.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "hawser/base/fork.h"

namespace hawser::internal {

OutgoingCalls::Target::~Target() {
  for (OfMethod* of = first_.load(std::memory_order_relaxed); of != nullptr;)
    delete std::exchange(of, of->next);
}

OutgoingCalls::Target::OfMethod& OutgoingCalls::Target::Find(const Method& method) {
  OfMethod* const first = first_.load(std::memory_order_acquire);
  OfMethod* of = first;
  const auto is = [&](const OfMethod& each) {
    return each.interface_id == method.interface_id && each.ordinal == method.ordinal;
  };
  while (of != nullptr && !is(*of)) of = of->next;
  if (of == nullptr && methods_ >= kMethodsMax) {
    // The first one beyond the limit has made it.
    for (of = first; of != nullptr && !of->is_other;) of = of->next;
    if (of != nullptr) return *of;
  }
  if (of == nullptr) {
    of = new OfMethod;
    if (methods_++ < kMethodsMax) {
      of->interface_id = method.interface_id;
      of->ordinal = method.ordinal;
      of->name = method.name;
      of->is_other = false;
    }
    of->next = first;
    first_.store(of, std::memory_order_release);
  }
  if (!of->is_other) recent_[PlaceOf(method)].store(of, std::memory_order_relaxed);
  return *of;
}

OutgoingCalls& OutgoingCalls::Process() {
  static constinit PerProcess<OutgoingCalls> calls;
  return calls.Get();
}

std::shared_ptr<OutgoingCalls::Target> OutgoingCalls::To(const std::string& target,
                                                         const transport::Poller& poller) {
  absl::MutexLock lock(&mutex_);
  auto at = targets_.find(target);
  if (at == targets_.end()) at = targets_.try_emplace(targets_.size() < kTargetsMax ? target : kOther).first;
  for (const std::shared_ptr<Target>& each : at->second) {
    if (each->poller_ != &poller && each.use_count() > 1) continue;
    each->poller_ = &poller;
    return each;
  }
  at->second.push_back(std::make_shared<Target>());
  at->second.back()->poller_ = &poller;
  return at->second.back();
}

std::vector<OutgoingCalls::Totals> OutgoingCalls::Look(size_t totals_max, uint64_t& left_out) const {
  std::vector<Totals> all;
  left_out = 0;
  absl::MutexLock lock(&mutex_);
  for (const auto& [target, of_pollers] : targets_) {
    // The same method on several pollers is one, and so are two of the same name, as schemas in different folders may have:
    // Prometheus refuses what has a series twice.
    std::map<absl::string_view, Totals> by_name;
    for (const std::shared_ptr<Target>& each : of_pollers) {
      const Target::OfMethod* of = each->first_.load(std::memory_order_acquire);
      for (; of != nullptr; of = of->next) {
        Totals& totals =
            by_name.try_emplace(of->name, Totals{target, of->name, of->interface_id, of->ordinal, {}})
                .first->second;
        totals.ended.Add(*of);
      }
    }
    for (auto& [name, totals] : by_name) {
      if (all.size() < totals_max) {
        all.push_back(std::move(totals));
      } else {
        ++left_out;
      }
    }
  }
  return all;
}

}  // namespace hawser::internal
