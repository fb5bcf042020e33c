#include "hawser/tests/softroce/nic/nic_library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "hawser/tests/softroce/nic/nic_state.h"

namespace hawser::fabric {
namespace {

// The size of a completion queue that begins before page 144 of what libsiw maps, and ends behind it.
constexpr int kSiwEntries = (1 << 15) - 1;

NicLibrary* nic = nullptr;

[[noreturn]] void Broken(const char* call, const char* what, size_t count) {
  fprintf(stderr, "NicLibrary: %s(): %zu %s\n", call, count, what);
  abort();
}

uint64_t PowerOfTwoFrom(uint64_t least) {
  uint64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

}  // namespace

// The functions of the table, and of ibv_context::ops.
struct NicCalls {
  static NicLibrary::State& state() { return *nic->state_; }
  static const VerbsLibrary& real() { return state().real; }
  using Lock = std::lock_guard<std::mutex>;

  // --- The device

  static ibv_context* OpenDevice(ibv_device* device) {
    ibv_context* const context = real().ibv_open_device(device);
    if (context == nullptr) return nullptr;
    Lock lock(state().mutex);
    state().contexts[context] = context->ops;
    context->ops.alloc_mw = AllocMw;
    context->ops.dealloc_mw = DeallocMw;
    context->ops.poll_cq = PollCq;
    context->ops.req_notify_cq = ReqNotifyCq;
    context->ops.post_send = PostSend;
    context->ops.post_recv = PostRecv;
    return context;
  }

  static int CloseDevice(ibv_context* context) {
    {
      Lock lock(state().mutex);
      size_t left = 0;
      for (const auto& [cq, known] : state().cqs) left += cq->context == context;
      for (const auto& [channel, known] : state().comp_channels) left += channel->context == context;
      if (left > 0) Broken("ibv_close_device", "completion queues and channels were not destroyed", left);
      context->ops = state().contexts.at(context);
      state().contexts.erase(context);
    }
    return real().ibv_close_device(context);
  }

  static int QueryDevice(ibv_context* context, ibv_device_attr* attr) {
    const int error = real().ibv_query_device(context, attr);
    if (error != 0) return error;
    const NicBehavior& behavior = state().behavior;
    attr->vendor_id = behavior.vendor_id;
    attr->max_sge = std::min({attr->max_sge, behavior.send_sge_max, behavior.receive_sge_max});
    attr->max_sge_rd =
        attr->max_sge_rd > 0 ? std::min(attr->max_sge_rd, behavior.read_sge_max) : behavior.read_sge_max;
    attr->max_qp_rd_atom = std::min(attr->max_qp_rd_atom, behavior.responder_depth_max);
    attr->max_qp_init_rd_atom = std::min(attr->max_qp_init_rd_atom, behavior.initiator_depth_max);
    if (!behavior.atomics) attr->atomic_cap = IBV_ATOMIC_NONE;
    attr->max_cqe = std::min(attr->max_cqe, behavior.max_cqe);
    attr->max_qp_wr = std::min(attr->max_qp_wr, behavior.max_qp_wr);
    attr->device_cap_flags &= ~unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2A};
    if (!behavior.window_flag) attr->device_cap_flags &= ~unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2B};
    // rxe invalidates a window for the peer, but its completion does not say so to a program, and a second
    // invalidation of the window follows a null pointer in the kernel. siw has no windows.
    attr->device_cap_flags &= ~unsigned{IBV_DEVICE_MEM_MGT_EXTENSIONS};
    return 0;
  }

  static int DeallocPd(ibv_pd* pd) {
    {
      Lock lock(state().mutex);
      size_t left = 0;
      for (const auto& [qp, known] : state().qps) left += known->pd == pd;
      for (const auto& [mr, known] : state().registrations) left += known.pd == pd;
      for (const auto& [mw, of] : state().windows) left += of == pd;
      if (left > 0) Broken("ibv_dealloc_pd", "queue pairs, registrations and windows are left", left);
    }
    return real().ibv_dealloc_pd(pd);
  }

  // --- Memory

  static ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) {
    state().Command();
    constexpr uint64_t kPage = 4096;
    const uint64_t first = reinterpret_cast<uint64_t>(address) / kPage;
    const uint64_t end = (reinterpret_cast<uint64_t>(address) + length + kPage - 1) / kPage;
    const uint64_t bytes = (end - first) * kPage;
    {
      Lock lock(state().mutex);
      if (!state().Pin(bytes)) return nullptr;
    }
    ibv_mr* const mr = real().ibv_reg_mr(pd, address, length, access);
    const int error = errno;
    {
      Lock lock(state().mutex);
      if (mr != nullptr) {
        state().registrations[mr] = {pd, bytes, reinterpret_cast<uint64_t>(address), length,
                                     static_cast<unsigned int>(access)};
        state().by_lkey[mr->lkey] = mr;
      } else {
        state().pinned_bytes -= bytes;
      }
    }
    errno = error;
    return mr;
  }

  static int DeregMr(ibv_mr* mr) {
    state().Command();
    const uint32_t lkey = mr->lkey;
    Registration known;
    {
      Lock lock(state().mutex);
      known = state().registrations.at(mr);
      state().registrations.erase(mr);
      state().by_lkey.erase(lkey);
    }
    const int error = real().ibv_dereg_mr(mr);
    Lock lock(state().mutex);
    if (error != 0) {
      state().registrations[mr] = known;
      state().by_lkey[lkey] = mr;
    } else {
      state().pinned_bytes -= known.pinned_bytes;
    }
    return error;
  }

  static ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type) {
    state().Command();
    if (!state().behavior.allocates_windows) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    ibv_mw* const mw = OpsOf(pd->context).alloc_mw(pd, type);
    if (mw == nullptr) return nullptr;
    Lock lock(state().mutex);
    state().windows[mw] = pd;
    return mw;
  }

  static int DeallocMw(ibv_mw* mw) {
    state().Command();
    ibv_context* const context = mw->context;
    {
      Lock lock(state().mutex);
      state().windows.erase(mw);
    }
    return OpsOf(context).dealloc_mw(mw);
  }

  static ibv_context_ops OpsOf(ibv_context* context) {
    Lock lock(state().mutex);
    return state().RealOps(context);
  }

  // --- Completion queues

  static ibv_comp_channel* CreateCompChannel(ibv_context* context) {
    ibv_comp_channel* const channel = real().ibv_create_comp_channel(context);
    if (channel == nullptr) return nullptr;
    auto known = std::make_unique<CompChannel>(channel, context);
    ibv_comp_channel* const visible = &known->visible;
    Lock lock(state().mutex);
    state().comp_channels[visible] = std::move(known);
    return visible;
  }

  static int DestroyCompChannel(ibv_comp_channel* visible) {
    std::unique_ptr<CompChannel> known;
    {
      Lock lock(state().mutex);
      const auto it = state().comp_channels.find(visible);
      size_t left = 0;
      for (const auto& [of, cq] : state().cqs) left += cq->channel == it->second.get();
      if (left > 0) Broken("ibv_destroy_comp_channel", "completion queues use it", left);
      known = std::move(it->second);
      state().comp_channels.erase(it);
    }
    return real().ibv_destroy_comp_channel(known->real);
  }

  static ibv_cq* CreateCq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                          int vector) {
    if (entries > state().behavior.max_cqe) {
      errno = EINVAL;
      return nullptr;
    }
    auto known = std::make_unique<Cq>();
    known->pinned_bytes =
        PowerOfTwoFrom(static_cast<uint64_t>(entries) + 1) * state().behavior.completion_entry_bytes;
    {
      Lock lock(state().mutex);
      if (channel != nullptr) known->channel = state().comp_channels.at(channel).get();
      if (!state().Pin(known->pinned_bytes)) return nullptr;
    }
    // With small queues libsiw soon comes to the object that it takes for an error: see
    // VerbsCompletionQueue::Reserve().
    const int real_entries = state().behavior.iwarp ? std::max(entries, kSiwEntries) : entries;
    ibv_cq* const cq =
        real().ibv_create_cq(context, real_entries, cq_context,
                             known->channel != nullptr ? known->channel->real : nullptr, vector);
    const int error = errno;
    if (cq != nullptr) cq->cqe = entries;
    {
      Lock lock(state().mutex);
      if (cq != nullptr) {
        known->cq = cq;
        state().cqs[cq] = std::move(known);
      } else {
        state().pinned_bytes -= known->pinned_bytes;
      }
    }
    errno = error;
    return cq;
  }

  static int DestroyCq(ibv_cq* cq) {
    std::unique_ptr<Cq> known;
    {
      Lock lock(state().mutex);
      const auto it = state().cqs.find(cq);
      Cq& of = *it->second;
      if (of.unacknowledged > 0)
        Broken("ibv_destroy_cq", "events are not acknowledged: it would wait for ever", of.unacknowledged);
      if (of.channel != nullptr) {
        TakeRealEvents(*of.channel);  // They would make ibv_destroy_cq() wait.
        std::deque<Cq*>& events = of.channel->events;
        events.erase(std::remove(events.begin(), events.end(), &of), events.end());
      }
      known = std::move(it->second);
      state().cqs.erase(it);
      if (known->channel != nullptr) state().SetTimer(*known->channel);
    }
    const int error = real().ibv_destroy_cq(cq);
    Lock lock(state().mutex);
    state().pinned_bytes -= known->pinned_bytes;
    return error;
  }

  static int ReqNotifyCq(ibv_cq* cq, int) {
    Lock lock(state().mutex);
    Cq& known = *state().cqs.at(cq);
    state().LookAt(known, state().Now());  // An event that is due is not lost by arming again.
    const int error = state().RealOps(cq->context).req_notify_cq(cq, 0);
    if (error != 0) return error;
    state().Pull(known);  // What came before it was armed makes no event.
    known.armed = true;
    known.armed_ns = state().Now();
    if (state().Dice(8) == 0) known.stray_event_ns = known.armed_ns + state().Dice(kNsPerMs);
    state().LookAt(known, known.armed_ns);
    return 0;
  }

  // The real queue is armed as long as the visible one is.
  static void TakeRealEvents(CompChannel& channel) {
    ibv_cq* of = nullptr;
    void* context = nullptr;
    while (real().ibv_get_cq_event(channel.real, &of, &context) == 0) {
      real().ibv_ack_cq_events(of, 1);
      const auto it = state().cqs.find(of);
      if (it == state().cqs.end()) continue;
      Cq& cq = *it->second;
      state().Pull(cq);
      if (!cq.armed) continue;
      state().RealOps(of->context).req_notify_cq(of, 0);
      state().Pull(cq);
      state().LookAt(cq, state().Now());
    }
  }

  static int GetCqEvent(ibv_comp_channel* visible, ibv_cq** cq, void** cq_context) {
    Lock lock(state().mutex);
    CompChannel& channel = *state().comp_channels.at(visible);
    TakeRealEvents(channel);
    const int64_t now = state().Now();
    for (const auto& [of, known] : state().cqs) {
      if (known->channel == &channel) state().LookAt(*known, now);
    }
    Cq* next = nullptr;
    if (!channel.events.empty()) {
      next = channel.events.front();
      channel.events.pop_front();
    }
    state().SetTimer(channel);
    if (next == nullptr) {
      errno = EAGAIN;
      return -1;
    }
    *cq = next->cq;
    *cq_context = next->cq->cq_context;
    ++next->unacknowledged;
    return 0;
  }

  static void AckCqEvents(ibv_cq* cq, unsigned int count) {
    Lock lock(state().mutex);
    Cq& known = *state().cqs.at(cq);
    if (count > known.unacknowledged) Broken("ibv_ack_cq_events", "events, more than there were", count);
    known.unacknowledged -= count;
  }

  static int PollCq(ibv_cq* cq, int max, ibv_wc* out) {
    Cq* known;
    {
      Lock lock(state().mutex);
      known = state().cqs.at(cq).get();
    }
    ++known->polls;
    CheckRace(*known);
    int count;
    {
      Lock lock(state().mutex);
      count = state().Poll(*known, max, out);
    }
    CheckRace(*known);
    --known->polls;
    return count;
  }

  static void CheckRace(const Cq& cq) {
    if (!state().behavior.destroys_beside_polls || cq.polls == 0 || cq.destroying == 0) return;
    Broken("ibv_destroy_qp", "polls of its completion queue at the same time: it frees what they use",
           static_cast<size_t>(cq.polls));
  }

  // --- Queue pairs

  static ibv_qp* Refuse(int error) {
    errno = state().behavior.silent_errors ? 0 : error;
    return nullptr;
  }

  static ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    state().Command();
    const NicBehavior& behavior = state().behavior;
    const ibv_qp_cap& cap = attr->cap;
    if (cap.max_send_sge > static_cast<uint32_t>(behavior.send_sge_max) ||
        cap.max_recv_sge > static_cast<uint32_t>(behavior.receive_sge_max) ||
        cap.max_send_wr > static_cast<uint32_t>(behavior.max_qp_wr) ||
        cap.max_recv_wr > static_cast<uint32_t>(behavior.max_qp_wr) ||
        (behavior.inline_policy == NicBehavior::Inline::kRefused &&
         cap.max_inline_data > behavior.inline_max)) {
      return Refuse(EINVAL);
    }
    auto known = std::make_unique<Qp>();
    known->pd = pd;
    known->pinned_bytes = PowerOfTwoFrom(uint64_t{cap.max_send_wr} * behavior.send_entry_bytes) +
                          PowerOfTwoFrom(uint64_t{cap.max_recv_wr} * behavior.receive_entry_bytes);
    {
      Lock lock(state().mutex);
      if (!state().Pin(known->pinned_bytes)) return Refuse(ENOMEM);
      known->send_cq = state().cqs.at(attr->send_cq).get();
      known->receive_cq = state().cqs.at(attr->recv_cq).get();
    }
    ibv_qp* const qp = real().ibv_create_qp(pd, attr);
    const int error = errno;
    Lock lock(state().mutex);
    if (qp == nullptr) {
      state().pinned_bytes -= known->pinned_bytes;
      errno = error;
      return nullptr;
    }
    if (behavior.inline_policy != NicBehavior::Inline::kIgnored) {
      attr->cap.max_inline_data = std::min(attr->cap.max_inline_data, behavior.inline_max);
    }
    known->inline_max = attr->cap.max_inline_data;
    known->number = qp->qp_num;
    for (Cq* cq : {known->send_cq, known->receive_cq}) ForgetFlows(*cq, known->number);
    state().by_number[known->number] = known.get();
    state().qps[qp] = std::move(known);
    return qp;
  }

  static void ForgetFlows(Cq& cq, uint32_t number) {
    cq.flows.erase(uint64_t{number} << 1);
    cq.flows.erase(uint64_t{number} << 1 | 1);
  }

  static int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    state().Command();
    if ((mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR) {
      Lock lock(state().mutex);
      state().qps.at(qp)->in_error = true;
    }
    return real().ibv_modify_qp(qp, attr, mask);
  }

  static int DestroyQp(ibv_qp* qp) {
    std::unique_ptr<Qp> known;
    {
      Lock lock(state().mutex);
      const auto it = state().qps.find(qp);
      known = std::move(it->second);
      state().qps.erase(it);
    }
    for (Cq* cq : {known->send_cq, known->receive_cq}) ++cq->destroying;
    CheckRace(*known->send_cq);
    state().Command();
    CheckRace(*known->send_cq);
    {
      // Its completions go with it.
      Lock lock(state().mutex);
      for (Cq* cq : {known->send_cq, known->receive_cq}) {
        state().Pull(*cq);
        ForgetFlows(*cq, known->number);
      }
      state().by_number.erase(known->number);
    }
    const int error = real().ibv_destroy_qp(qp);
    for (Cq* cq : {known->send_cq, known->receive_cq}) --cq->destroying;
    Lock lock(state().mutex);
    state().pinned_bytes -= known->pinned_bytes;
    return error;
  }

  // What the provider says of a work request: 0, or an errno of either sign.
  static int Check(const Qp& qp, const ibv_send_wr& wr) {
    const NicBehavior& behavior = state().behavior;
    if (qp.in_error && behavior.posts_only_in_rts) return EINVAL;
    if (wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV) {
      if (!behavior.binds_windows) return behavior.bind_error;
    }
    const int sge_max = wr.opcode == IBV_WR_RDMA_READ ? std::min(behavior.read_sge_max, behavior.send_sge_max)
                                                      : behavior.send_sge_max;
    if (wr.num_sge > sge_max) return EINVAL;
    if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
      uint64_t bytes = 0;
      for (int i = 0; i < wr.num_sge; ++i) bytes += wr.sg_list[i].length;
      if (bytes > qp.inline_max) return EINVAL;
    }
    if (state().sends_until_failure > 0 && --state().sends_until_failure == 0) return ENOMEM;
    return 0;
  }

  // Over iWARP the answer to a READ is placed as if the peer had written it (RFC 5040, 5.2). siw looks for
  // LOCAL_WRITE only.
  static void CheckSinks(const ibv_send_wr& wr) {
    if (!state().behavior.iwarp || wr.opcode != IBV_WR_RDMA_READ) return;
    for (int i = 0; i < wr.num_sge; ++i) {
      const ibv_sge& sge = wr.sg_list[i];
      const auto at = state().by_lkey.find(sge.lkey);
      const char* what = nullptr;
      if (at == state().by_lkey.end()) {
        what = "is registered by no key of that value";
      } else {
        const Registration& range = state().registrations.at(at->second);
        if (sge.addr < range.begin || sge.length > range.length ||
            sge.addr - range.begin > range.length - sge.length) {
          what = "is not in the range of its key";
        } else if ((range.access & IBV_ACCESS_REMOTE_WRITE) == 0) {
          what =
              "is registered without IBV_ACCESS_REMOTE_WRITE, so an iWARP device could not place the answer";
        }
      }
      if (what == nullptr) continue;
      fprintf(stderr, "NicLibrary: ibv_post_send(): the sink of a READ, %u bytes with lkey 0x%x, %s\n",
              sge.length, sge.lkey, what);
      abort();
    }
  }

  // Posts what comes before the first work request that the provider refuses.
  static int PostSend(ibv_qp* qp, ibv_send_wr* chain, ibv_send_wr** bad) {
    Lock lock(state().mutex);
    const Qp& known = *state().qps.at(qp);
    ibv_send_wr* before = nullptr;
    ibv_send_wr* refused = nullptr;
    int error = 0;
    std::vector<ibv_send_wr*> inlined;
    for (ibv_send_wr* wr = chain; wr != nullptr; before = wr, wr = wr->next) {
      error = Check(known, *wr);
      if (error != 0) {
        refused = wr;
        break;
      }
      CheckSinks(*wr);
      if (state().behavior.inline_policy != NicBehavior::Inline::kIgnored) continue;
      if ((wr->send_flags & IBV_SEND_INLINE) == 0) continue;
      wr->send_flags &= ~unsigned{IBV_SEND_INLINE};
      inlined.push_back(wr);
    }
    int posted = 0;
    if (refused != chain) {
      if (before != nullptr && refused != nullptr) before->next = nullptr;
      posted = state().RealOps(qp->context).post_send(qp, chain, bad);
      if (before != nullptr && refused != nullptr) before->next = refused;
    }
    for (ibv_send_wr* wr : inlined) wr->send_flags |= IBV_SEND_INLINE;
    if (posted != 0 || refused == nullptr) return posted;
    *bad = refused;
    return error;
  }

  static int PostRecv(ibv_qp* qp, ibv_recv_wr* chain, ibv_recv_wr** bad) {
    Lock lock(state().mutex);
    Qp& known = *state().qps.at(qp);
    if (known.in_error && state().behavior.posts_only_in_rts) {
      *bad = chain;
      return EINVAL;
    }
    for (const ibv_recv_wr* wr = chain; wr != nullptr; wr = wr->next) ++known.receives[wr->wr_id];
    const int error = state().RealOps(qp->context).post_recv(qp, chain, bad);
    if (error == 0) return 0;
    for (const ibv_recv_wr* wr = *bad; wr != nullptr; wr = wr->next) {
      if (--known.receives[wr->wr_id] == 0) known.receives.erase(wr->wr_id);
    }
    return error;
  }

  // --- The connection manager

  static rdma_event_channel* CreateEventChannel() {
    rdma_event_channel* const channel = real().rdma_create_event_channel();
    if (channel == nullptr) return nullptr;
    auto known = std::make_unique<CmChannel>(channel);
    rdma_event_channel* const visible = &known->visible;
    Lock lock(state().mutex);
    state().cm_channels[visible] = std::move(known);
    return visible;
  }

  static void DestroyEventChannel(rdma_event_channel* visible) {
    std::unique_ptr<CmChannel> known;
    {
      Lock lock(state().mutex);
      known = std::move(state().cm_channels.at(visible));
      state().cm_channels.erase(visible);
    }
    real().rdma_destroy_event_channel(known->real);
  }

  static CmChannel& Known(rdma_event_channel* visible) {
    Lock lock(state().mutex);
    return *state().cm_channels.at(visible);
  }

  static int GetCmEvent(rdma_event_channel* visible, rdma_cm_event** out) {
    CmChannel& channel = Known(visible);
    for (;;) {
      {
        Lock lock(state().mutex);
        if (rdma_cm_event* const event = state().TakeDue(channel); event != nullptr) {
          *out = event;
          return Arrived(*event);
        }
      }
      rdma_cm_event* event = nullptr;
      if (real().rdma_get_cm_event(channel.real, &event) != 0) return -1;
      {
        Lock lock(state().mutex);
        state().DropDepths(*event);
        if (!state().Postpone(channel, *event)) {
          *out = event;
          return Arrived(*event);
        }
      }
      real().rdma_ack_cm_event(event);
    }
  }

  static int Arrived(const rdma_cm_event& event) {
    if (event.event != RDMA_CM_EVENT_DISCONNECTED) return 0;
    const auto dialog = state().dialogs.find(event.id);
    if (dialog != state().dialogs.end()) state().ArriveNow(dialog->second.qp_num);
    return 0;
  }

  static int AckCmEvent(rdma_cm_event* event) {
    {
      Lock lock(state().mutex);
      if (state().returned.erase(event) != 0) return 0;
    }
    return real().rdma_ack_cm_event(event);
  }

  static int CreateId(rdma_event_channel* visible, rdma_cm_id** id, void* context, rdma_port_space space) {
    return real().rdma_create_id(Known(visible).real, id, context, space);
  }

  static int DestroyId(rdma_cm_id* id) {
    {
      Lock lock(state().mutex);
      for (const auto& [of, channel] : state().cm_channels) {
        std::deque<std::unique_ptr<CmEvent>>& late = channel->late;
        late.erase(std::remove_if(late.begin(), late.end(),
                                  [&](const auto& event) { return event->event.id == id; }),
                   late.end());
        state().SetTimer(*channel);
      }
      state().dialogs.erase(id);
    }
    return real().rdma_destroy_id(id);
  }

  static int MigrateId(rdma_cm_id* id, rdma_event_channel* visible) {
    CmChannel& to = Known(visible);
    if (id->channel == to.real) return 0;
    const int result = real().rdma_migrate_id(id, to.real);
    if (result != 0) return result;
    Lock lock(state().mutex);
    for (const auto& [of, channel] : state().cm_channels) {
      if (channel.get() == &to) continue;
      std::deque<std::unique_ptr<CmEvent>>& late = channel->late;
      for (auto it = late.begin(); it != late.end();) {
        if ((*it)->event.id != id) {
          ++it;
          continue;
        }
        to.late.push_back(std::move(*it));
        it = late.erase(it);
      }
      state().SetTimer(*channel);
    }
    state().SetTimer(to);
    return 0;
  }

  static bool RefusesFamily(const sockaddr& address) {
    if (!state().behavior.ipv4_only || address.sa_family != AF_INET6) return false;
    errno = EAFNOSUPPORT;
    return true;
  }

  static int Listen(rdma_cm_id* id, int backlog) {
    if (RefusesFamily(id->route.addr.src_addr)) return -1;
    return real().rdma_listen(id, backlog);
  }

  static int Connect(rdma_cm_id* id, rdma_conn_param* parameters) {
    if (RefusesFamily(id->route.addr.dst_addr)) return -1;
    Say(id, *parameters, false);
    return real().rdma_connect(id, parameters);
  }

  static int Accept(rdma_cm_id* id, rdma_conn_param* parameters) {
    Say(id, *parameters, true);
    return real().rdma_accept(id, parameters);
  }

  static void Say(rdma_cm_id* id, const rdma_conn_param& parameters, bool accepted) {
    Lock lock(state().mutex);
    state().dialogs[id] = {.qp_num = parameters.qp_num, .accepted = accepted};
  }
};

int64_t NicOptions::MonotonicNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * kNsPerS + now.tv_nsec;
}

NicLibrary::NicLibrary(const VerbsLibrary& real, const NicOptions& options)
    : state_(std::make_unique<State>(real, options)), library_(real) {
  if (nic != nullptr) abort();
  nic = this;
  library_.ibv_open_device = NicCalls::OpenDevice;
  library_.ibv_close_device = NicCalls::CloseDevice;
  library_.ibv_query_device = NicCalls::QueryDevice;
  library_.ibv_dealloc_pd = NicCalls::DeallocPd;
  library_.ibv_reg_mr = NicCalls::RegMr;
  library_.ibv_dereg_mr = NicCalls::DeregMr;
  library_.ibv_create_comp_channel = NicCalls::CreateCompChannel;
  library_.ibv_destroy_comp_channel = NicCalls::DestroyCompChannel;
  library_.ibv_create_cq = NicCalls::CreateCq;
  library_.ibv_destroy_cq = NicCalls::DestroyCq;
  library_.ibv_get_cq_event = NicCalls::GetCqEvent;
  library_.ibv_ack_cq_events = NicCalls::AckCqEvents;
  library_.ibv_create_qp = NicCalls::CreateQp;
  library_.ibv_modify_qp = NicCalls::ModifyQp;
  library_.ibv_destroy_qp = NicCalls::DestroyQp;
  library_.rdma_create_event_channel = NicCalls::CreateEventChannel;
  library_.rdma_destroy_event_channel = NicCalls::DestroyEventChannel;
  library_.rdma_get_cm_event = NicCalls::GetCmEvent;
  library_.rdma_ack_cm_event = NicCalls::AckCmEvent;
  library_.rdma_create_id = NicCalls::CreateId;
  library_.rdma_destroy_id = NicCalls::DestroyId;
  library_.rdma_migrate_id = NicCalls::MigrateId;
  library_.rdma_listen = NicCalls::Listen;
  library_.rdma_connect = NicCalls::Connect;
  library_.rdma_accept = NicCalls::Accept;
}

NicLibrary::~NicLibrary() { nic = nullptr; }

void NicLibrary::SetMemlock(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->memlock_bytes = bytes;
}

void NicLibrary::FailSend(uint64_t count) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->sends_until_failure = count;
}

uint64_t NicLibrary::pinned_bytes() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->pinned_bytes;
}

size_t NicLibrary::objects() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  const State& all = *state_;
  return all.contexts.size() + all.comp_channels.size() + all.cm_channels.size() + all.cqs.size() +
         all.qps.size() + all.registrations.size() + all.windows.size();
}

}  // namespace hawser::fabric
