#include <algorithm>

#include "hawser/tests/softroce/nic/nic_state.h"

namespace hawser::fabric {

void NicLibrary::State::Pull(Cq& cq) {
  ibv_wc found[32];
  int count;
  do {
    count = RealOps(cq.cq->context).poll_cq(cq.cq, 32, found);
    for (int i = 0; i < count; ++i) Delay(cq, found[i]);
  } while (count == 32);
}

void NicLibrary::State::Delay(Cq& cq, const ibv_wc& wc) {
  const auto by = by_number.find(wc.qp_num);
  bool receive = false;
  if (by != by_number.end()) {
    const auto posted = by->second->receives.find(wc.wr_id);
    receive = posted != by->second->receives.end();
    if (receive && --posted->second == 0) by->second->receives.erase(posted);
  }
  Flow& flow = cq.flows[uint64_t{wc.qp_num} << 1 | (receive ? 1 : 0)];
  const int64_t now = Now();
  int64_t due_ns = now;
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    if (!flow.flushing) due_ns += Dice(4 * kNsPerMs);
    if (flow.flushing && Dice(4) == 0) due_ns = std::max(due_ns, flow.last_due_ns) + Dice(2 * kNsPerMs);
    flow.flushing = true;
  } else if (const int64_t dice = Dice(16); dice >= 12) {
    due_ns += Dice(dice == 15 ? 500 * kNsPerUs : 50 * kNsPerUs);
  }
  flow.last_due_ns = due_ns = std::max(due_ns, flow.last_due_ns);
  flow.late.push_back({wc, due_ns});
}

void NicLibrary::State::ArriveNow(uint32_t qp_num) {
  const auto by = by_number.find(qp_num);
  if (by == by_number.end()) return;
  const int64_t now = Now();
  for (Cq* cq : {by->second->send_cq, by->second->receive_cq}) {
    Pull(*cq);
    for (uint64_t receive : {0, 1}) {
      Flow& flow = cq->flows[uint64_t{qp_num} << 1 | receive];
      for (Late& late : flow.late) {
        if (late.wc.status == IBV_WC_WR_FLUSH_ERR) break;
        late.due_ns = std::min(late.due_ns, now);
      }
    }
    cq->whole = true;
    LookAt(*cq, now);
  }
}

int64_t NicLibrary::State::NextEvent(const Cq& cq) const {
  if (!cq.armed) return kNever;
  int64_t next_ns = cq.stray_event_ns;
  for (const auto& [key, flow] : cq.flows) {
    for (const Late& late : flow.late) {
      if (late.due_ns <= cq.armed_ns) continue;
      next_ns = std::min(next_ns, late.due_ns);
      break;
    }
  }
  return next_ns;
}

void NicLibrary::State::LookAt(Cq& cq, int64_t now) {
  if (cq.channel == nullptr) return;
  if (NextEvent(cq) <= now) {
    cq.armed = false;
    cq.stray_event_ns = kNever;
    cq.channel->events.push_back(&cq);
  }
  SetTimer(*cq.channel);
}

void NicLibrary::State::SetTimer(CompChannel& channel) {
  int64_t next_ns = channel.events.empty() ? kNever : 1;
  if (channel.events.empty()) {
    for (const auto& [of, cq] : cqs) {
      if (cq->channel == &channel) next_ns = std::min(next_ns, NextEvent(*cq));
    }
  }
  channel.timed.Set(next_ns);
}

int NicLibrary::State::Poll(Cq& cq, int max, ibv_wc* out) {
  Pull(cq);
  const int64_t now = Now();
  if (cq.armed) LookAt(cq, now);
  const int limit = max > 1 && !cq.whole && Dice(4) == 0 ? 1 + static_cast<int>(Dice(max)) : max;
  std::vector<Flow*> due;
  for (auto& [key, flow] : cq.flows) {
    if (!flow.late.empty() && flow.late.front().due_ns <= now) due.push_back(&flow);
  }
  int count = 0;
  while (count < limit && !due.empty()) {
    const size_t chosen = static_cast<size_t>(Dice(static_cast<int64_t>(due.size())));
    Flow& flow = *due[chosen];
    for (int64_t burst = 1 + Dice(4); burst > 0 && count < limit; --burst) {
      out[count++] = flow.late.front().wc;
      Polled(flow.late.front().wc);
      flow.late.pop_front();
      if (flow.late.empty() || flow.late.front().due_ns > now) {
        due.erase(due.begin() + static_cast<ptrdiff_t>(chosen));
        break;
      }
    }
  }
  if (count < max) cq.whole = false;
  if (count < max && !due.empty()) {
    // Less than was asked for says that there is no more now (ibv_poll_cq(3)). So the rest arrives after it.
    const int64_t later = now + kNsPerUs + Dice(20 * kNsPerUs);
    for (Flow* flow : due) {
      for (Late& late : flow->late) late.due_ns = std::max(late.due_ns, later);
      flow->last_due_ns = std::max(flow->last_due_ns, later);
    }
    if (cq.armed && cq.channel != nullptr) SetTimer(*cq.channel);
  }
  return count;
}

void NicLibrary::State::Polled(const ibv_wc& wc) {
  const auto by = by_number.find(wc.qp_num);
  if (by == by_number.end()) return;
  if (wc.status != IBV_WC_SUCCESS) by->second->in_error = true;
  if (by->second->heard || wc.status != IBV_WC_SUCCESS) return;
  if ((wc.opcode & IBV_WC_RECV) == 0) return;
  by->second->heard = true;
  for (const auto& [of, channel] : cm_channels) {
    for (const auto& late : channel->late) {
      const auto dialog = dialogs.find(late->event.id);
      if (dialog == dialogs.end() || dialog->second.qp_num != wc.qp_num) continue;
      late->due_ns = std::min(late->due_ns, Now() + Dice(200 * kNsPerUs));
    }
    SetTimer(*channel);
  }
}

}  // namespace hawser::fabric
