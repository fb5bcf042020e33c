#include "hawser/transport/poller/watchdog.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hawser/base/thread.h"
#include "hawser/transport/log/log.h"

namespace hawser::transport {
namespace {

std::string Complaint(const CalledOut::Call& call, absl::Duration held) {
  return absl::StrCat(DescribeWithId(call), call.id.connection != 0 ? "," : "", " has held a poller for ",
                      RoughDuration(held), ": nothing else on it moves meanwhile, no call and no deadline; ",
                      call.what->remedy);
}

}  // namespace

Watchdog& Watchdog::Process() {
  static constinit PerProcess<Watchdog> watchdog;
  return watchdog.Get();
}

void Watchdog::Watch(const CalledOut& called, Environment& environment) {
  std::lock_guard<std::mutex> setup(setup_mutex_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    watched_.push_back({&called, &environment, called.turn_ns(), 0, limits_.bound});
    woken_ = true;
    if (!thread_.joinable()) look_ns_ = kNever;  // Without the thread no check was due.
    wake_.notify_one();
  }
  if (thread_.joinable()) return;
  absl::StatusOr<std::thread> started = StartThread("hawser-watchdog", [this] { Run(); });
  if (started.ok()) thread_ = *std::move(started);  // Otherwise the next poller tries again.
}

void Watchdog::Unwatch(const CalledOut& called) {
  std::lock_guard<std::mutex> setup(setup_mutex_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto is_it = [&](const Watched& each) { return each.called == &called; };
    watched_.erase(std::remove_if(watched_.begin(), watched_.end(), is_it), watched_.end());
    if (!watched_.empty() || !thread_.joinable()) return;
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
  thread_ = std::thread();
  stopping_ = false;
}

void Watchdog::Wake() {
  // A child made by fork() has no such thread, and the mutex may be locked there for good.
  if (fork_mark_.in_child()) return;
  asleep_.store(false, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex_);
  look_ns_ = std::min(look_ns_, clock_.NowNs());
  woken_ = true;
  wake_.notify_one();
}

void Watchdog::Run() {
  const auto period = std::chrono::nanoseconds(absl::ToInt64Nanoseconds(limits_.period));
  std::vector<std::string> lines;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lines.clear();
    // Read once: what passes from here on makes the next check late.
    const int64_t now_ns = clock_.NowNs();
    NoteLateLocked(now_ns, lines);
    const bool moves = LookLocked(lines);
    if (!lines.empty()) {
      lock.unlock();
      for (const std::string& line : lines) Log(LogSeverity::kWarning, line);
      lock.lock();
    }
    const auto told = [this] { return stopping_ || woken_; };
    if (!woken_) look_ns_ = kNever;
    if (moves) {
      look_ns_ = After(now_ns, limits_.period);
      asleep_.store(false, std::memory_order_relaxed);
      wake_.wait_for(lock, period, [this] { return stopping_; });
    } else if (!asleep_.exchange(true, std::memory_order_seq_cst)) {
      // One more check finds a call that began before it could see asleep_.
      wake_.wait_for(lock, period, told);
    } else {
      wake_.wait(lock, told);
    }
    woken_ = false;
  }
}

void Watchdog::NoteLateLocked(int64_t now_ns, std::vector<std::string>& lines) {
  if (look_ns_ == kNever) return;
  const absl::Duration late = absl::Nanoseconds(now_ns - look_ns_);
  if (late < limits_.bound) return;
  lines.push_back(absl::StrCat(
      "the watchdog of this process looked ", RoughDuration(late),
      " late: the machine is overloaded, or the process was stopped. Deadlines and answers may be late by as "
      "much, and a handler or callback that held a poller meanwhile may have no line"));
}

bool Watchdog::LookLocked(std::vector<std::string>& lines) {
  bool moves = false;
  for (Watched& each : watched_) {
    const int64_t turn_ns = each.called->turn_ns();
    const std::optional<CalledOut::Call> call = each.called->Now();
    if (call.has_value() || std::exchange(each.turn_ns, turn_ns) != turn_ns) moves = true;
    if (!call.has_value()) continue;
    if (std::exchange(each.reported_turn_ns, call->since_ns) != call->since_ns)
      each.next_bound = limits_.bound;
    const absl::Duration held = absl::Nanoseconds(each.environment->NowNs() - call->since_ns);
    if (held < each.next_bound) continue;
    while (each.next_bound <= held) each.next_bound *= 2;
    lines.push_back(Complaint(*call, held));
  }
  return moves;
}

}  // namespace hawser::transport
