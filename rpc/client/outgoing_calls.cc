#include "hawser/rpc/client/outgoing_calls.h"

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

bool OutgoingCalls::HasChannels(const OfPollers& of_pollers) {
  return std::any_of(of_pollers.targets.begin(), of_pollers.targets.end(),
                     [](const std::shared_ptr<Target>& each) {
                       return each->channels_.load(std::memory_order_acquire) != 0;
                     });
}

bool OutgoingCalls::MakeRoom() {
  auto oldest = targets_.end();
  for (auto at = targets_.begin(); at != targets_.end(); ++at) {
    if (at->first == kOther || at->first == kClients || HasChannels(at->second)) continue;
    if (oldest == targets_.end() || at->second.used < oldest->second.used) oldest = at;
  }
  if (oldest == targets_.end()) return false;
  for (const std::shared_ptr<Target>& each : oldest->second.targets) {
    const Target::OfMethod* of = each->first_.load(std::memory_order_acquire);
    for (; of != nullptr; of = of->next) without_target_.Add(of->calls);
  }
  targets_.erase(oldest);
  return true;
}

OutgoingCalls::Counting OutgoingCalls::To(const std::string& target, const transport::Poller& poller) {
  absl::MutexLock lock(&mutex_);
  auto at = targets_.find(target);
  if (at == targets_.end()) {
    // These two have a place of their own.
    const size_t own = targets_.count(kOther) + targets_.count(kClients);
    // A target with few methods may not be enough.
    while (
        (targets_.size() - own >= kTargetsMax || methods_.load(std::memory_order_relaxed) >= kMethodsMax) &&
        MakeRoom()) {
    }
    const bool has_room = target == kClients || targets_.size() - own < kTargetsMax;
    at = targets_.try_emplace(has_room ? target : kOther).first;
  }
  at->second.used = ++uses_;
  auto& of_pollers = at->second.targets;
  const auto usable = std::find_if(of_pollers.begin(), of_pollers.end(), [&](const auto& each) {
    return each->poller_ == &poller || each->channels_.load(std::memory_order_acquire) == 0;
  });
  Target* const found = usable != of_pollers.end()
                            ? usable->get()
                            : of_pollers.emplace_back(std::make_shared<Target>(methods_)).get();
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
  // The row of what made room comes first, so that it is always there: a count does not go back.
  const bool has_other = without_target.latency.count() != 0 && totals_max != 0;
  if (has_other) view.totals.push_back({kOther, kOther, 0, 0, without_target});
  for (const auto* const targets : {&with_channels, &without_channels}) {
    for (const auto& [target, of_pollers] : *targets) {
      // The same method on several pollers is one, and so are two of the same name, as schemas in different
      // folders may have: Prometheus refuses a series that is there twice.
      std::map<absl::string_view, std::vector<const Target::OfMethod*>> by_name;
      for (const std::shared_ptr<Target>& each : of_pollers.targets) {
        const Target::OfMethod* of = each->first_.load(std::memory_order_acquire);
        for (; of != nullptr; of = of->next) {
          count([of](size_t code) { return of->calls.ended[code].value(); });
          by_name[of->name].push_back(of);
        }
      }
      for (const auto& [name, all] : by_name) {
        if (has_other && target == kOther && name == kOther) {
          for (const Target::OfMethod* const of : all) view.totals[0].ended.Add(of->calls);
          continue;
        }
        if (view.totals.size() == totals_max) {
          ++view.left_out;
          continue;
        }
        Totals totals = {target, std::string(name), all[0]->interface_id, all[0]->ordinal, {}};
        for (const Target::OfMethod* const of : all) totals.ended.Add(of->calls);
        view.totals.push_back(std::move(totals));
      }
    }
  }
  return view;
}

}  // namespace hawser::internal
