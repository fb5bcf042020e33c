#include "hawser/rpc/internal/outgoing_calls.h"

#include <algorithm>

#include "hawser/base/fork.h"

namespace hawser::internal {

OutgoingCalls::Target::~Target() {
  for (OfMethod* of = first_.load(std::memory_order_relaxed); of != nullptr;) {
    delete std::exchange(of, of->next);
    methods_of_all_.fetch_sub(1, std::memory_order_relaxed);
  }
}

OutgoingCalls::Target::OfMethod& OutgoingCalls::Target::New() {
  methods_of_all_.fetch_add(1, std::memory_order_relaxed);
  return *new OfMethod;
}

OutgoingCalls::Target::OfMethod& OutgoingCalls::Target::Find(const Method& method) {
  const std::pair<uint64_t, uint16_t> id(method.interface_id, method.ordinal);
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    return *(recent_[PlaceOf(method)] = found->second);
  }
  const bool is_other = methods_of_all_.load(std::memory_order_relaxed) >= kMethodsMax;
  if (is_other && other_ != nullptr) return *other_;
  OfMethod& of = New();
  if (is_other) {
    other_ = &of;
  } else {
    of.interface_id = method.interface_id;
    of.ordinal = method.ordinal;
    of.name = method.name;
    by_id_.emplace(id, &of);
    recent_[PlaceOf(method)] = &of;
  }
  of.next = first_.load(std::memory_order_relaxed);
  first_.store(&of, std::memory_order_release);
  return of;
}

OutgoingCalls& OutgoingCalls::Process() {
  static constinit PerProcess<OutgoingCalls> calls;
  return calls.Get();
}

bool OutgoingCalls::HasChannels(const OfPollers& targets) {
  return std::any_of(targets.begin(), targets.end(), [](const std::shared_ptr<Target>& each) {
    return each->channels_.load(std::memory_order_acquire) != 0;
  });
}

bool OutgoingCalls::MakeRoom() {
  const auto unused = std::find_if(targets_.begin(), targets_.end(), [](const auto& each) {
    return each.first != kOther && each.first != kClients && !HasChannels(each.second);
  });
  if (unused == targets_.end()) return false;
  for (const std::shared_ptr<Target>& each : unused->second) {
    const Target::OfMethod* of = each->first_.load(std::memory_order_acquire);
    for (; of != nullptr; of = of->next) without_target_.Add(of->calls);
  }
  targets_.erase(unused);
  return true;
}

OutgoingCalls::Counting OutgoingCalls::To(const std::string& target, const transport::Poller& poller) {
  absl::MutexLock lock(&mutex_);
  auto at = targets_.find(target);
  if (at == targets_.end()) {
    const bool has_room = targets_.size() < kTargetsMax || target == kClients || MakeRoom();
    at = targets_.try_emplace(has_room ? target : kOther).first;
  }
  const auto usable = std::find_if(at->second.begin(), at->second.end(), [&](const auto& each) {
    return each->poller_ == &poller || each->channels_.load(std::memory_order_acquire) == 0;
  });
  Target* const found = usable != at->second.end()
                            ? usable->get()
                            : at->second.emplace_back(std::make_shared<Target>(methods_)).get();
  found->poller_ = &poller;
  found->channels_.fetch_add(1, std::memory_order_relaxed);
  return Counting(*found);
}

OutgoingCalls::View OutgoingCalls::Look(size_t totals_max) const {
  // Read without the lock, which pollers wait for when they get a channel.
  std::vector<std::pair<std::string, OfPollers>> with_channels, without_channels;
  View view;
  EndedTotals without_target;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [target, of_pollers] : targets_) {
      (HasChannels(of_pollers) ? with_channels : without_channels).emplace_back(target, of_pollers);
    }
    without_target = without_target_;
  }
  const auto count = [&view](const auto& by_code) {
    for (size_t code = 0; code < kStatusCodes; ++code) {
      view.calls += by_code(code);
      if (code != 0) view.failed += by_code(code);
    }
  };
  count([&](size_t code) { return without_target.by_code[code]; });
  bool has_other = false;
  for (const auto* const targets : {&with_channels, &without_channels}) {
    for (const auto& [target, of_pollers] : *targets) {
      // The same method on several pollers is one, and so are two of the same name, as schemas in different folders may have:
      // Prometheus refuses a series that is there twice.
      std::map<absl::string_view, std::vector<const Target::OfMethod*>> by_name;
      for (const std::shared_ptr<Target>& each : of_pollers) {
        const Target::OfMethod* of = each->first_.load(std::memory_order_acquire);
        for (; of != nullptr; of = of->next) {
          count([of](size_t code) { return of->calls.ended[code].value(); });
          by_name[of->name].push_back(of);
        }
      }
      for (const auto& [name, all] : by_name) {
        if (view.totals.size() == totals_max) {
          ++view.left_out;
          continue;
        }
        Totals totals = {target, std::string(name), all[0]->interface_id, all[0]->ordinal, {}};
        for (const Target::OfMethod* const of : all) totals.ended.Add(of->calls);
        if (target == kOther && name == kOther) {
          has_other = true;
          totals.ended.Add(without_target);
        }
        view.totals.push_back(std::move(totals));
      }
    }
  }
  if (!has_other && without_target.latency.count() != 0)
    view.totals.push_back({kOther, kOther, 0, 0, without_target});
  return view;
}

}  // namespace hawser::internal
