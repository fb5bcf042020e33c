#include "hawser/rpc/client/channel_list.h"

#include <utility>

#include "hawser/base/fork.h"

namespace hawser::internal {

ChannelList::Entry::Entry(std::string address, const Count& calls_waiting)
    : address_(std::move(address)), calls_waiting_(calls_waiting) {
  ChannelList& list = Process();
  absl::MutexLock lock(&list.mutex_);
  list.entries_.insert(this);
}

ChannelList::Entry::~Entry() {
  ChannelList& list = Process();
  absl::MutexLock lock(&list.mutex_);
  list.entries_.erase(this);
}

void ChannelList::Entry::OnEvent(ChannelEvent event, ChannelState to) {
  state_.store(to, std::memory_order_relaxed);
  ChannelList& list = Process();
  const auto add = [](std::atomic<uint32_t>& here, std::atomic<uint64_t>& in_all) {
    here.fetch_add(1, std::memory_order_relaxed);
    in_all.fetch_add(1, std::memory_order_relaxed);
  };
  switch (event) {
    case ChannelEvent::kConnected:
      return add(connects_, list.connects_);
    case ChannelEvent::kLost:
      return add(losses_, list.losses_);
    case ChannelEvent::kAttemptFailed:
      return add(failed_attempts_, list.failed_attempts_);
    case ChannelEvent::kRetry:
    case ChannelEvent::kClose:
      return;
  }
}

ChannelList& ChannelList::Process() {
  static constinit PerProcess<ChannelList> list;
  return list.Get();
}

ChannelList::View ChannelList::Look(size_t channels_max, uint64_t& left_out) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  View view;
  absl::MutexLock lock(&mutex_);
  for (const Entry* const entry : entries_) {
    const uint64_t calls_waiting = entry->calls_waiting_.value();
    view.calls_waiting += calls_waiting;
    if (view.channels.size() == channels_max) continue;
    view.channels.push_back({entry->address_,
                             entry->state_.load(kRelaxed),
                             calls_waiting,
                             {entry->connects_.load(kRelaxed), entry->losses_.load(kRelaxed),
                              entry->failed_attempts_.load(kRelaxed)}});
  }
  view.counts = {connects_.load(kRelaxed), losses_.load(kRelaxed), failed_attempts_.load(kRelaxed)};
  left_out = entries_.size() - view.channels.size();
  return view;
}

}  // namespace hawser::internal
