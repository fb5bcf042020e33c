#include "hawser/transport/fabric/verbs/completion_queue.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {
namespace {

// The number of polls between two looks at the events of the connection manager and the device; a look is a
// system call. A poll that returns something counts for several, because its caller then works on it; a poll
// that finds nothing takes no time. A sleeping thread needs no look: such events wake it.
constexpr uint32_t kPollsPerLook = 256;
constexpr uint32_t kPollsPerBusyPoll = 8;

// The most events of one look, so that the completions get their turn.
constexpr int kEventsPerLook = 64;

// The number of looks at the list of devices after a device was closed, one each second. Until a look finds
// it unlisted, librdmacm keeps the device open, which blocks the program that removes it.
constexpr int kLooks = 30;

constexpr int64_t kNsPerS = 1'000'000'000;
constexpr int64_t kNsPerMs = 1'000'000;

enum EpollData : uint64_t { kWakeData, kCompletionData, kEventData };

absl::Status WhyLost(ibv_event_type event, absl::string_view device) {
  return event == IBV_EVENT_CQ_ERR
             ? absl::InternalError(absl::StrCat("IBV_EVENT_CQ_ERR: a completion queue of RDMA device ",
                                                device, " has overflowed, completions are lost"))
             : absl::UnavailableError(absl::StrCat(
                   "RDMA device ", device,
                   " has failed or was removed (IBV_EVENT_DEVICE_FATAL, RDMA_CM_EVENT_DEVICE_REMOVAL)"));
}

}  // namespace

VerbsCompletionQueue::VerbsCompletionQueue(std::shared_ptr<VerbsDevice> device, uint32_t depth)
    : device_(std::move(device)), cqs_(*device_, depth, *this), sentinel_(device_->verbs()) {}

absl::StatusOr<std::unique_ptr<VerbsCompletionQueue>> VerbsCompletionQueue::Create(
    std::shared_ptr<VerbsDevice> device, uint32_t depth) {
  if (absl::Status status = device->CheckProcess("create a completion queue"); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<VerbsEventChannel>> channel = VerbsEventChannel::Create(device);
  if (!channel.ok()) return channel.status();
  std::unique_ptr<VerbsCompletionQueue> queue(new VerbsCompletionQueue(std::move(device), depth));
  queue->channel_ = *std::move(channel);
  queue->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!queue->epoll_.is_open()) return CompletionQueueError("epoll_create1()", errno);
  queue->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!queue->wake_.is_open()) return CompletionQueueError("eventfd()", errno);
  queue->try_timer_.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!queue->try_timer_.is_open()) return CompletionQueueError("timerfd_create()", errno);
  const std::pair<int, EpollData> watched[] = {{queue->wake_.get(), kWakeData},
                                               {queue->channel_->fd(), kEventData},
                                               {queue->try_timer_.get(), kEventData}};
  for (const auto& [fd, data] : watched) {
    if (absl::Status status = queue->Watch(fd, data); !status.ok()) return status;
  }
  if (absl::Status status = queue->Open(); !status.ok()) return status;
  return queue;
}

VerbsCompletionQueue::~VerbsCompletionQueue() {
  if (device_->in_forked_child()) return;  // A thread that does not exist in the child may hold a lock.
  {
    absl::MutexLock lock(&notes_mutex_);
    notes_mutex_.Await(absl::Condition(
        +[](uint32_t* commands) { return *commands == 0; }, &commands_));
  }
  TakeLeaves();
  if (open_) Close();
}

absl::Status VerbsCompletionQueue::Watch(int fd, uint64_t data) {
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = data}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return CompletionQueueError("epoll_ctl()", errno);
  return absl::OkStatus();
}

// --- The device, which may be removed and return

absl::Status VerbsCompletionQueue::Open() {
  if (absl::Status status = device_->Attach(this); !status.ok()) return status;
  open_ = true;
  const auto fail = [&](absl::Status why) {
    Close();
    return why;
  };
  if (absl::Status status = cqs_.Open(); !status.ok()) return fail(status);
  if (absl::Status status = Watch(cqs_.event_fd(), kCompletionData); !status.ok()) return fail(status);
  if (absl::Status status = Watch(device_->async_fd(), kEventData); !status.ok()) return fail(status);
  absl::StatusOr<ibv_cq*> first = cqs_.Reserve(0);
  return first.ok() ? absl::OkStatus() : fail(first.status());
}

void VerbsCompletionQueue::Close() {
  open_ = false;
  if (device_->in_forked_child()) return;
  sentinel_.Destroy();
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, device_->async_fd(), nullptr);
  if (const int fd = cqs_.event_fd(); fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  cqs_.Close();
  device_->Detach(this);
  // OnAsyncEvent() is not called any more. An error noted before does not apply to the device that may be
  // opened next.
  absl::MutexLock lock(&notes_mutex_);
  lost_ = absl::OkStatus();
}

absl::Status VerbsCompletionQueue::Enter() {
  TakeLeaves();
  CloseIfLost();
  if (!open_) {
    if (absl::Status status = Open(); !status.ok()) return status;
  }
  if (device_->gone()) {
    return absl::UnavailableError(
        absl::StrCat("RDMA device ", device_->name(), " has failed or was removed"));
  }
  ++inside_;
  return absl::OkStatus();
}

void VerbsCompletionQueue::Leave() {
  if (--inside_ == 0 && !device_->known_present()) device_->MarkGone();
  CloseIfLost();
}

void VerbsCompletionQueue::LeaveSoon() {
  {
    absl::MutexLock lock(&notes_mutex_);
    ++leaves_;
  }
  has_notes_.store(true, std::memory_order_release);
  Wake();
}

void VerbsCompletionQueue::TakeLeaves() {
  uint32_t leaves;
  {
    absl::MutexLock lock(&notes_mutex_);
    leaves = std::exchange(leaves_, 0);
  }
  for (; leaves > 0; --leaves) Leave();
}

void VerbsCompletionQueue::RunCommand(const void* alone, absl::AnyInvocable<void()> command) {
  {
    absl::MutexLock lock(&notes_mutex_);
    ++commands_;
  }
  device_->RunCommand(alone, [this, command = std::move(command)]() mutable {
    command();
    command = nullptr;
    // The last that this thread does here: the destructor waits for it.
    absl::MutexLock lock(&notes_mutex_);
    --commands_;
  });
}

void VerbsCompletionQueue::CloseIfLost() {
  if (!open_ || inside_ != 0 || !device_->gone()) return;
  Close();
  looks_left_ = kLooks;
  SetTryTimer(true);
}

void VerbsCompletionQueue::SetTryTimer(bool on) {
  itimerspec every = {};
  every.it_value.tv_sec = every.it_interval.tv_sec = on ? 1 : 0;
  timerfd_settime(try_timer_.get(), 0, &every, nullptr);
}

// --- Sources

void VerbsCompletionQueue::Unregister(uint32_t token) {
  sources_.Remove(token);
  if (local_.empty()) return;
  local_.erase(
      std::remove_if(local_.begin(), local_.end(), [&](const Local& local) { return local.token == token; }),
      local_.end());
}

void VerbsCompletionQueue::Schedule(uint32_t token) {
  scheduled_.push_back(token);
  if (!polling_) Publish();
}

void VerbsCompletionQueue::Notify(uint32_t token) {
  {
    absl::MutexLock lock(&notes_mutex_);
    notes_.push_back(token);
  }
  has_notes_.store(true, std::memory_order_release);
  Wake();
}

void VerbsCompletionQueue::Deliver(uint32_t token, const Completion& completion) {
  local_.push_back({token, completion});
  if (!polling_) Publish();
}

// Tells Wait() that there is work for Poll(). The eventfd wakes a thread that sleeps, or is about to sleep.
void VerbsCompletionQueue::Publish() {
  const bool work = !local_.empty() || !scheduled_.empty();
  if (has_work_.load(std::memory_order_relaxed) == work) return;
  has_work_.store(work, std::memory_order_seq_cst);
  if (work && !polling_) Wake();
}

void VerbsCompletionQueue::AfterDestruction(ibv_cq* cq, bool exclusive) {
  for (uint32_t token : cqs_.AfterDestruction(cq, exclusive)) Notify(token);
  if (exclusive) Wake();  // A thread may have fallen asleep without arming it.
}

// --- Polling

size_t VerbsCompletionQueue::Poll(absl::Span<Completion> completions) {
  if (device_->in_forked_child()) return 0;
  polling_ = true;
  if (has_notes_.load(std::memory_order_acquire)) TakeNotes();
  RunScheduled();
  size_t count = DeliverLocal(completions);
  count += PollDevice(completions.subspan(count));
  count += DeliverLocal(completions.subspan(count));
  polls_since_look_ += count > 0 ? kPollsPerBusyPoll : 1;
  if (completions.empty() || polls_since_look_ >= kPollsPerLook ||
      look_now_.load(std::memory_order_acquire)) {
    look_now_.store(false, std::memory_order_relaxed);
    polls_since_look_ = 0;
    LookAtEvents();
  }
  polling_ = false;
  Publish();
  return count;
}

size_t VerbsCompletionQueue::DeliverLocal(absl::Span<Completion> out) {
  size_t count = 0;
  for (; count < out.size() && !local_.empty(); ++count) {
    out[count] = local_.front().completion;
    // Find() is never null: Unregister() removes the completions of its source.
    out[count].qp_num = sources_.Find(local_.front().token)->qp_num();
    local_.pop_front();
  }
  return count;
}

size_t VerbsCompletionQueue::PollDevice(absl::Span<Completion> out) {
  size_t count = 0;
  while (count < out.size()) {
    ibv_wc completions[kBatch];
    const int wanted = static_cast<int>(std::min<size_t>(kBatch, out.size() - count));
    const int taken = cqs_.Take(completions, wanted);
    for (int i = 0; i < taken; ++i) {
      const ibv_wc& wc = completions[i];
      VerbsSource* const source = sources_.Find(static_cast<uint32_t>(wc.wr_id >> 32) & 0x7fffffff);
      if (source == nullptr) continue;  // Its queue pair was destroyed.
      if (source->OnCompletion(wc, wc.wr_id >> 63 != 0, static_cast<uint32_t>(wc.wr_id), out[count])) ++count;
    }
    if (taken < wanted) break;
  }
  return count;
}

void VerbsCompletionQueue::RunScheduled() {
  if (scheduled_.empty()) return;
  running_.swap(scheduled_);
  for (uint32_t token : running_) {
    if (VerbsSource* source = sources_.Find(token); source != nullptr) source->OnTurn();
  }
  running_.clear();
}

void VerbsCompletionQueue::TakeNotes() {
  has_notes_.store(false, std::memory_order_relaxed);
  absl::Status lost;
  {
    absl::MutexLock lock(&notes_mutex_);
    scheduled_.insert(scheduled_.end(), notes_.begin(), notes_.end());
    notes_.clear();
    std::swap(lost, lost_);
  }
  if (!lost.ok()) NotifyLost(lost);
  TakeLeaves();
}

void VerbsCompletionQueue::NotifyLost(const absl::Status& lost) {
  cqs_.Retire();  // Later queue pairs use another one.
  // OnLost() calls no other code, so the table stays as it is.
  sources_.ForEach([&lost](VerbsSource& source) { source.OnLost(lost); });
  CloseIfLost();
}

void VerbsCompletionQueue::OnAsyncEvent(ibv_event_type event) {
  {
    absl::MutexLock lock(&notes_mutex_);
    lost_ = WhyLost(event, device_->name());
  }
  has_notes_.store(true, std::memory_order_release);
  Wake();
}

void VerbsCompletionQueue::LookAtEvents() {
  pollfd fds[] = {{channel_->fd(), POLLIN, 0},
                  {open_ ? device_->async_fd() : -1, POLLIN, 0},
                  {try_timer_.get(), POLLIN, 0}};
  if (poll(fds, 3, 0) <= 0) return;
  if (fds[1].revents != 0) device_->HandleAsyncEvents();
  if (fds[2].revents != 0) TryAgain();
  if (fds[0].revents == 0) return;
  for (int i = 0; i < kEventsPerLook; ++i) {
    std::optional<VerbsCmEvent> event = channel_->Next();
    if (!event.has_value()) return;
    const uint32_t token = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(event->context));
    if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL && open_ && device_->Is(event->device)) {
      device_->MarkGone();
    }
    if (VerbsSource* source = sources_.Find(token); source != nullptr) {
      source->OnCmEvent(*event);
    } else if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      device_->verbs().rdma_destroy_id(event->id);  // Its listener was destroyed. This rejects the request.
    }
  }
}

void VerbsCompletionQueue::TryAgain() {
  uint64_t times;
  if (read(try_timer_.get(), &times, sizeof(times)) < 0) return;
  SetTryTimer(false);
  if (!open_ && looks_left_ > 0) {
    --looks_left_;
    device_->CloseUnused();
    SetTryTimer(true);
  }
  sources_.ForEach([](VerbsSource& source) { source.OnTryAgain(); });
}

// --- Waiting

void VerbsCompletionQueue::WaitUntil(int64_t when_ns) {
  if (device_->in_forked_child()) return;
  if (has_work_.load(std::memory_order_seq_cst) || has_notes_.load(std::memory_order_seq_cst) ||
      cqs_.ArmAndCheck())
    return;
  epoll_event events[4];
  int count;
  if (when_ns == kNoEnd) {
    count = epoll_wait(epoll_.get(), events, 4, -1);
  } else {
    const int64_t left_ns = std::max<int64_t>(0, when_ns - MonotonicNs());
    const timespec limit = {.tv_sec = left_ns / kNsPerS, .tv_nsec = left_ns % kNsPerS};
    count = epoll_pwait2(epoll_.get(), events, 4, &limit, nullptr);  // Linux 5.11
    if (count < 0 && errno == ENOSYS) {
      const int64_t left_ms = std::min<int64_t>(left_ns / kNsPerMs + (left_ns % kNsPerMs != 0), 1 << 30);
      count = epoll_wait(epoll_.get(), events, 4, static_cast<int>(left_ms));
    }
  }
  for (int i = 0; i < count; ++i) {
    switch (events[i].data.u64) {
      case kWakeData: {
        // Reads the eventfd before it clears `woken_`. A Wake() in between is for this Wait(), which ends
        // now.
        uint64_t wakes;
        [[maybe_unused]] const ssize_t n = read(wake_.get(), &wakes, sizeof(wakes));
        woken_.exchange(false, std::memory_order_acq_rel);
        break;
      }
      case kCompletionData:
        cqs_.ReadEvent();
        break;
      case kEventData:
        look_now_.store(true, std::memory_order_release);
        break;
    }
  }
}

void VerbsCompletionQueue::Wake() {
  if (woken_.exchange(true, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof(one));
}

}  // namespace hawser::fabric
