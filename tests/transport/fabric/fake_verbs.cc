#include "hawser/tests/transport/fabric/fake_verbs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "hawser/base/memcheck.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {
namespace {

FakeVerbs* fake = nullptr;  // There is one at a time.

void Raise(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof(one));
}

void Lower(int fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd, &count, sizeof(count));
}

int NewFd() { return eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE); }

// True: `call` is to fail, errno is set.
bool Fails(const char* call) {
  if (auto meanwhile = fake->during.extract(call); !meanwhile.empty()) meanwhile.mapped()();
  if (const auto always = fake->fail_always.find(call); always != fake->fail_always.end()) {
    if (always->second != 0) errno = always->second;
    return true;
  }
  const auto it = fake->fail_once.find(call);
  if (it == fake->fail_once.end()) return false;
  if (it->second != 0) errno = it->second;
  fake->fail_once.erase(it);
  return true;
}

}  // namespace

// The functions of the table, and of ibv_context::ops.
struct FakeCalls {
  static int ForkInit() { return 0; }
  static ibv_context** GetDevices(int* count) {
    fake->listed_by.insert(std::this_thread::get_id());
    *count = 0;
    if (Fails("rdma_get_devices")) return nullptr;
    const std::vector<ibv_context*>& before = fake->listed_before;
    auto** list = static_cast<ibv_context**>(calloc(before.size() + 2, sizeof(ibv_context*)));
    std::copy(before.begin(), before.end(), list);
    list[before.size()] = fake->listed != nullptr ? fake->listed : &fake->cm_context;
    *count = static_cast<int>(before.size()) + 1;
    return list;
  }
  static void FreeDevices(ibv_context** list) { free(list); }
  static int QueryDevice(ibv_context* context, ibv_device_attr* attr) {
    if (Fails("ibv_query_device")) return errno;
    *attr = fake->attr;
    if (fake->without_reads.contains(context)) attr->max_qp_rd_atom = 0;
    return 0;
  }
  static int QueryPort(ibv_context*, uint8_t, _compat_ibv_port_attr* attr) {
    reinterpret_cast<ibv_port_attr*>(attr)->state = fake->port_state;
    return 0;
  }
  static ibv_pd* AllocPd(ibv_context* context) {
    if (context == &fake->context) return &fake->pd_;
    return new ibv_pd{.context = context, .handle = 0};
  }
  static int DeallocPd(ibv_pd* pd) {
    if (pd != &fake->pd_) delete pd;
    return 0;
  }
  static ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, int access) {
    if (Fails("ibv_reg_mr")) return nullptr;
    if (!fake->in_trial_) fake->registrations.push_back(access);
    auto* mr = new ibv_mr{};
    *mr = {.context = pd->context, .pd = pd, .addr = address, .length = length};
    mr->lkey = mr->rkey = fake->next_key++ << 8;
    fake->memory_regions.insert(mr);
    return mr;
  }
  static ibv_mr* RegDmabufMr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    if (Fails("ibv_reg_dmabuf_mr")) return nullptr;
    fake->dmabufs.push_back({offset, length, iova, fd, access});
    return RegMr(pd, reinterpret_cast<void*>(iova), length, access);
  }
  static int QueryOnDemand(ibv_context*, ibv_odp_caps* caps) {
    if (Fails("ibv_query_device_ex")) return errno;
    if (fake->on_demand != 0) caps->general_caps = IBV_ODP_SUPPORT;
    caps->per_transport_caps.rc_odp_caps = fake->on_demand;
    return 0;
  }
  static int DeregMr(ibv_mr* mr) {
    if (Fails("ibv_dereg_mr")) return errno;
    for (const auto& [window, to] : fake->bound_) {
      if (to == mr) return EBUSY;
    }
    EXPECT_EQ(fake->memory_regions.erase(mr), 1u);
    delete mr;
    return 0;
  }
  static ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type) {
    if (Fails("ibv_alloc_mw")) return nullptr;
    ++fake->windows_alive;
    return new ibv_mw{
        .context = pd->context, .pd = pd, .rkey = fake->next_key++ << 8, .handle = 0, .type = type};
  }
  // That of libibverbs for providers without.
  static ibv_mw* NoMw(ibv_pd*, ibv_mw_type) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  static int DeallocMw(ibv_mw* window) {
    Fails("ibv_dealloc_mw");
    --fake->windows_alive;
    fake->bound_.erase(window);
    delete window;
    return 0;
  }
  static ibv_comp_channel* CreateCompChannel(ibv_context* context) {
    if (Fails("ibv_create_comp_channel")) return nullptr;
    return new ibv_comp_channel{.context = context, .fd = NewFd(), .refcnt = 0};
  }
  static int DestroyCompChannel(ibv_comp_channel* channel) {
    close(channel->fd);
    delete channel;
    return 0;
  }
  static ibv_cq* CreateCq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                          int vector) {
    if (Fails("ibv_create_cq")) return nullptr;
    if (channel != nullptr) fake->vectors.push_back(vector);
    auto* cq = new ibv_cq{};
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = cq_context;
    cq->cqe = entries;
    fake->cqs_[cq] = {};
    return fake->newest_cq_ = cq;
  }
  static int DestroyCq(ibv_cq* cq) {
    EXPECT_EQ(fake->cqs_[cq].events_unacknowledged, 0u) << "ibv_destroy_cq() would wait for ever";
    std::deque<ibv_cq*>& events = fake->cq_events_[cq->channel];
    for (auto it = events.begin(); it != events.end();) {
      if (*it != cq) {
        ++it;
        continue;
      }
      Lower(cq->channel->fd);
      it = events.erase(it);
    }
    fake->cqs_.erase(cq);
    delete cq;
    return 0;
  }
  static int GetCqEvent(ibv_comp_channel* channel, ibv_cq** cq, void**) {
    std::deque<ibv_cq*>& events = fake->cq_events_[channel];
    if (events.empty()) {
      errno = EAGAIN;
      return -1;
    }
    Lower(channel->fd);
    *cq = events.front();
    events.pop_front();
    ++fake->cqs_[*cq].events_unacknowledged;
    ++fake->cq_events_read;
    return 0;
  }
  static void AckCqEvents(ibv_cq* cq, unsigned int count) { fake->cqs_[cq].events_unacknowledged -= count; }
  static int GetAsyncEvent(ibv_context* context, ibv_async_event* event) {
    fake->contexts_read.insert(context->async_fd);
    if (fake->async_events_.empty()) return -1;
    Lower(fake->context.async_fd);
    *event = fake->async_events_.front();
    fake->async_events_.pop_front();
    fake->async_event_read_ = true;
    if (fake->on_async_event_read) std::exchange(fake->on_async_event_read, nullptr)();
    return 0;
  }
  static void AckAsyncEvent(ibv_async_event*) {
    fake->async_event_read_ = false;
    for (ibv_qp* qp : std::exchange(fake->destroyed_, {})) delete qp;
  }
  static int QueryEce(ibv_qp*, ibv_ece* ece) {
    *ece = fake->ece;
    return fake->ece.vendor_id != 0 ? 0 : EOPNOTSUPP;
  }
  static int SetEce(ibv_qp*, ibv_ece* ece) {
    fake->ece_set.push_back(*ece);
    return ece->vendor_id == fake->ece.vendor_id ? 0 : EINVAL;
  }
  static int SetLocalEce(rdma_cm_id*, ibv_ece* ece) {
    fake->ece_offered.push_back(*ece);
    return 0;
  }
  static int GetRemoteEce(rdma_cm_id*, ibv_ece* ece) {
    *ece = fake->peers_ece;
    return 0;
  }
  static ibv_context* OpenDevice(ibv_device*) {
    if (Fails("ibv_open_device")) return nullptr;
    ++fake->opened;
    return &fake->context;
  }
  static int CloseDevice(ibv_context*) {
    --fake->opened;
    return 0;
  }
  static int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    if (fake->in_trial_) return 0;
    if ((mask & IBV_QP_STATE) != 0) fake->states.push_back(attr->qp_state);
    if (Fails("ibv_modify_qp")) return errno;
    if ((mask & IBV_QP_STATE) != 0 && fake->refuse_state == attr->qp_state) return EINVAL;
    fake->modified.push_back(*attr);
    fake->modified_masks.push_back(mask);
    return 0;
  }
  static int DestroyQp(ibv_qp* qp) {
    Fails("ibv_destroy_qp");
    if (fake->on_destroy_qp) std::exchange(fake->on_destroy_qp, nullptr)();
    fake->in_trial_ = false;
    fake->granted_.erase(qp);
    fake->queue_pairs.erase(qp);
    fake->cqs_[qp->send_cq].places -= qp->handle;
    if (fake->async_event_read_) {
      fake->destroyed_.push_back(qp);
    } else {
      delete qp;
    }
    return 0;
  }
  static int PollCq(ibv_cq* cq, int max, ibv_wc* out) {
    ++fake->polls;
    std::deque<ibv_wc>& completions = fake->cqs_[cq].completions;
    int count = 0;
    for (; count < max && !completions.empty(); ++count) {
      out[count] = completions.front();
      completions.pop_front();
    }
    return count;
  }
  static int ReqNotifyCq(ibv_cq* cq, int) {
    ++fake->polls;
    if (fake->on_arm) std::exchange(fake->on_arm, nullptr)();
    fake->cqs_[cq].armed = true;
    return 0;
  }
  // What the provider makes of a work request.
  static int CheckSend(const ibv_qp& qp, const ibv_send_wr& wr) {
    const ibv_qp_cap& granted = fake->granted_.at(const_cast<ibv_qp*>(&qp));
    if (fake->options_.posts_only_in_rts && qp.state == IBV_QPS_ERR) return EINVAL;
    if (wr.opcode == IBV_WR_BIND_MW || wr.opcode == IBV_WR_LOCAL_INV) return fake->options_.bind_error;
    uint32_t bytes = 0;
    for (int i = 0; i < wr.num_sge; ++i) bytes += wr.sg_list[i].length;
    const bool too_long = (wr.send_flags & IBV_SEND_INLINE) != 0 && bytes > granted.max_inline_data;
    return too_long || static_cast<uint32_t>(wr.num_sge) > granted.max_send_sge ? ENOMEM : 0;
  }
  static int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    if (!fake->in_trial_) fake->send_chains.emplace_back();
    for (; wr != nullptr; wr = wr->next) {
      if (const int error = CheckSend(*qp, *wr); error != 0) {
        *bad = wr;
        return error;
      }
      if (fake->in_trial_) continue;
      if (fake->send_chains.back().size() == fake->fail_send_at) {
        fake->fail_send_at = ~size_t{0};
        *bad = wr;
        return ENOMEM;
      }
      ExpectInitialized(wr, sizeof(*wr));
      ExpectInitialized(wr->sg_list, static_cast<size_t>(wr->num_sge) * sizeof(ibv_sge));
      if (wr->opcode == IBV_WR_SEND) {
        for (int i = 0; i < wr->num_sge; ++i) {
          ExpectInitialized(reinterpret_cast<const void*>(wr->sg_list[i].addr), wr->sg_list[i].length);
        }
      }
      fake->send_chains.back().push_back({*wr, std::vector<ibv_sge>(wr->sg_list, wr->sg_list + wr->num_sge)});
      fake->sends.push_back(wr->wr_id);
      fake->cq_of_[wr->wr_id] = qp->send_cq;
      if (wr->opcode == IBV_WR_BIND_MW) {
        fake->binds_[wr->wr_id] = wr->bind_mw.mw;
        fake->bound_[wr->bind_mw.mw] = wr->bind_mw.bind_info.mr;
      }
      if (wr->opcode == IBV_WR_LOCAL_INV) fake->invalidations_[wr->wr_id] = wr->invalidate_rkey;
      fake->signaled_[wr->wr_id] = (wr->send_flags & IBV_SEND_SIGNALED) != 0 || fake->created.sq_sig_all != 0;
    }
    return 0;
  }
  static int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    fake->receive_chains.push_back(0);
    for (; wr != nullptr; wr = wr->next) {
      if (fake->receive_chains.back() == fake->fail_receive_at) {
        fake->fail_receive_at = ~size_t{0};
        *bad = wr;
        return ENOMEM;
      }
      ++fake->receive_chains.back();
      fake->receives.push_back(wr->wr_id);
      fake->cq_of_[wr->wr_id] = qp->recv_cq;
    }
    return 0;
  }

  static rdma_event_channel* CreateEventChannel() {
    fake->channels.push_back(new rdma_event_channel{.fd = NewFd()});
    return fake->channels.back();
  }
  static void DestroyEventChannel(rdma_event_channel* channel) {
    close(channel->fd);
    delete channel;
  }
  static int GetCmEvent(rdma_event_channel* channel, rdma_cm_event** event) {
    const auto it = std::find_if(fake->cm_events_.begin(), fake->cm_events_.end(),
                                 [&](const FakeVerbs::CmNews& news) { return news.channel == channel; });
    if (it == fake->cm_events_.end()) {
      errno = EAGAIN;
      return -1;
    }
    Lower(channel->fd);
    *event = it->event;
    fake->cm_events_.erase(it);
    return 0;
  }
  static int AckCmEvent(rdma_cm_event* event) {
    delete event;
    return 0;
  }
  static int CreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
    if (Fails("rdma_create_id")) return -1;
    *id = new rdma_cm_id{};
    fake->ids.insert(*id);
    if (context != nullptr) fake->newest_id = *id;  // Of a queue pair or listener.
    (*id)->channel = channel;
    (*id)->context = context;
    (*id)->ps = space;
    return 0;
  }
  static int DestroyId(rdma_cm_id* id) {
    static_cast<void>(Fails("rdma_destroy_id"));
    for (auto it = fake->cm_events_.begin(); it != fake->cm_events_.end();) {
      if (it->event->id != id) {
        ++it;
        continue;
      }
      delete it->event;
      Lower(it->channel->fd);
      it = fake->cm_events_.erase(it);
    }
    EXPECT_EQ(fake->ids.erase(id), 1u);
    delete id;
    return 0;
  }
  static int MigrateId(rdma_cm_id* id, rdma_event_channel* channel) {
    if (Fails("rdma_migrate_id")) return -1;
    fake->migrated.push_back({id, channel});
    id->channel = channel;
    return 0;
  }
  static int SetOption(rdma_cm_id*, int, int name, void* value, size_t) {
    if (name == fake->option_refused) {
      errno = ENOSYS;
      return -1;
    }
    fake->options_set[name] = *static_cast<uint8_t*>(value);
    return 0;
  }
  static int BindAddr(rdma_cm_id* id, sockaddr* address) {
    if (Fails("rdma_bind_addr")) return -1;
    if (id->context == nullptr) {  // Of no listener: the sentinel is none of these tests'.
      errno = EADDRINUSE;
      return -1;
    }
    id->verbs = &fake->cm_context;
    std::memcpy(&id->route.addr.src_storage, address,
                address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    return 0;
  }
  static int Listen(rdma_cm_id* id, int) {
    if (Fails("rdma_listen")) return -1;
    if (fake->options_.ipv6 || id->route.addr.src_addr.sa_family != AF_INET6) return 0;
    errno = EAFNOSUPPORT;
    return -1;
  }
  static int ResolveAddr(rdma_cm_id* id, sockaddr*, sockaddr* peer, int) {
    if (Fails("rdma_resolve_addr")) return -1;
    if (Fails("RDMA_CM_EVENT_ADDR_RESOLVED")) {
      fake->CmEvent(id, RDMA_CM_EVENT_ADDR_ERROR, -errno);
      return 0;
    }
    id->verbs = fake->route_over != nullptr ? fake->route_over : &fake->cm_context;
    std::memcpy(&id->route.addr.dst_storage, peer,
                peer->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    fake->CmEvent(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
  }
  static int ResolveRoute(rdma_cm_id* id, int) {
    fake->CmEvent(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
  }
  static ibv_qp* RefuseQp(int error) {
    if (fake->options_.sets_errno) errno = error;
    return nullptr;
  }
  static ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    if (Fails("ibv_create_qp")) return nullptr;
    const FakeVerbs::Options& options = fake->options_;
    if (!options.reliable || fake->without_reliable.contains(pd->context)) return RefuseQp(EOPNOTSUPP);
    if (options.create_qp_error != 0) return RefuseQp(options.create_qp_error);
    if (attr->cap.max_inline_data > options.inline_max && options.refuses_inline) return RefuseQp(EINVAL);
    attr->cap.max_inline_data = std::min(attr->cap.max_inline_data, options.inline_max);
    if (static_cast<int>(attr->cap.max_send_sge) > options.max_sge ||
        static_cast<int>(attr->cap.max_send_wr) > options.max_qp_wr) {
      return RefuseQp(EINVAL);
    }
    auto* qp = new ibv_qp{};
    qp->context = pd->context;
    qp->pd = pd;
    qp->qp_context = attr->qp_context;
    qp->qp_num = fake->next_qp_num_++;
    qp->send_cq = attr->send_cq;
    qp->recv_cq = attr->recv_cq;
    EXPECT_EQ(qp->send_cq, qp->recv_cq);
    qp->handle = attr->cap.max_send_wr + attr->cap.max_recv_wr;  // Its places.
    FakeVerbs::Cq& cq = fake->cqs_[qp->send_cq];
    cq.places += qp->handle;
    EXPECT_LE(cq.places, static_cast<uint32_t>(qp->send_cq->cqe)) << "it can overflow";
    if (options.inline_granted.has_value()) attr->cap.max_inline_data = *options.inline_granted;
    fake->granted_[qp] = attr->cap;
    fake->in_trial_ = qp->qp_context == nullptr;
    if (fake->in_trial_) {
      ++fake->trials;
      return qp;
    }
    fake->newest_qp_ = qp;
    fake->queue_pairs.insert(qp);
    fake->created = *attr;
    return qp;
  }
  static int InitQpAttr(rdma_cm_id*, ibv_qp_attr*, int* mask) {
    if (Fails("rdma_init_qp_attr")) return -1;
    *mask = IBV_QP_STATE | 7 << 21;  // With the bits of the kernel's own.
    return 0;
  }
  static int Connect(rdma_cm_id* id, rdma_conn_param* parameters) {
    if (Fails("rdma_connect")) return -1;
    if (!fake->options_.ipv6 && id->route.addr.dst_addr.sa_family == AF_INET6) {
      errno = EAFNOSUPPORT;
      return -1;
    }
    ++fake->connects;
    ExpectInitialized(parameters->private_data, parameters->private_data_len);
    fake->connected = *parameters;
    if (fake->silent) return 0;
    if (fake->reject) {
      fake->CmEvent(id, RDMA_CM_EVENT_REJECTED, fake->reject_status,
                    fake->reject_echoes_
                        ? absl::string_view(static_cast<const char*>(parameters->private_data),
                                            parameters->private_data_len)
                        : fake->reject_data);
    } else {
      EXPECT_EQ(parameters->qp_num, fake->newest_qp_->qp_num);
      // An iWARP device has no step of ours between.
      fake->CmEvent(id, fake->options_.iwarp ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE);
    }
    return 0;
  }
  static int Establish(rdma_cm_id*) {
    if (Fails("rdma_establish")) return -1;
    EXPECT_EQ(fake->states.back(), IBV_QPS_RTS);
    return 0;
  }
  static int Accept(rdma_cm_id*, rdma_conn_param* parameters) {
    if (Fails("rdma_accept")) return -1;
    ExpectInitialized(parameters->private_data, parameters->private_data_len);
    fake->accepted = *parameters;
    fake->modified_before_accept = fake->modified.size();
    return 0;
  }
  static int Reject(rdma_cm_id*, const void* private_data, uint8_t length_bytes) {
    ExpectInitialized(private_data, length_bytes);
    fake->rejected.emplace_back(static_cast<const char*>(private_data), length_bytes);
    return 0;
  }
  static int Notify(rdma_cm_id* id, ibv_event_type event) {
    fake->notified.push_back({id, event});
    return 0;
  }
  static int Disconnect(rdma_cm_id*) { return 0; }
};

FakeVerbs::FakeVerbs(const Options& options) : options_(options) {
  EXPECT_EQ(fake, nullptr);
  fake = this;
  std::strcpy(device_.name, "fake0");
  options.folder.copy(device_.ibdev_path, sizeof(device_.ibdev_path) - 1);
  device_.transport_type = !options.reliable ? IBV_TRANSPORT_UNSPECIFIED
                           : options.iwarp   ? IBV_TRANSPORT_IWARP
                                             : IBV_TRANSPORT_IB;
  context.device = &device_;
  context.async_fd = NewFd();
  context.num_comp_vectors = options.num_comp_vectors;
  context.ops.alloc_mw = options.allocates_windows ? FakeCalls::AllocMw : FakeCalls::NoMw;
  context.ops.dealloc_mw = FakeCalls::DeallocMw;
  context.ops.poll_cq = FakeCalls::PollCq;
  context.ops.req_notify_cq = FakeCalls::ReqNotifyCq;
  context.ops.post_send = FakeCalls::PostSend;
  context.ops.post_recv = FakeCalls::PostRecv;
  cm_context.device = &device_;
  cm_context.async_fd = NewFd();
  pd_.context = &context;
  attr.vendor_id = options.vendor_id;
  attr.phys_port_cnt = 1;
  attr.vendor_id = options.vendor_id;
  attr.max_qp_wr = options.max_qp_wr;
  attr.max_cqe = options.max_cqe;
  attr.max_sge = options.max_sge;
  attr.max_sge_rd = options.max_sge_rd;
  attr.max_qp_rd_atom = options.read_depth_max;
  attr.max_qp_init_rd_atom = options.read_depth_max;
  attr.max_mw = 1000;
  attr.atomic_cap = options.atomic_cap;
  attr.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS;
  if (options.windows) attr.device_cap_flags |= IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  library_ = {.ibv_fork_init = FakeCalls::ForkInit,
              .ibv_open_device = FakeCalls::OpenDevice,
              .ibv_close_device = FakeCalls::CloseDevice,
              .ibv_query_device = FakeCalls::QueryDevice,
              .ibv_query_port = FakeCalls::QueryPort,
              .ibv_alloc_pd = FakeCalls::AllocPd,
              .ibv_dealloc_pd = FakeCalls::DeallocPd,
              .ibv_reg_mr = FakeCalls::RegMr,
              .ibv_dereg_mr = FakeCalls::DeregMr,
              .ibv_create_comp_channel = FakeCalls::CreateCompChannel,
              .ibv_destroy_comp_channel = FakeCalls::DestroyCompChannel,
              .ibv_create_cq = FakeCalls::CreateCq,
              .ibv_destroy_cq = FakeCalls::DestroyCq,
              .ibv_get_cq_event = FakeCalls::GetCqEvent,
              .ibv_ack_cq_events = FakeCalls::AckCqEvents,
              .ibv_get_async_event = FakeCalls::GetAsyncEvent,
              .ibv_ack_async_event = FakeCalls::AckAsyncEvent,
              .ibv_create_qp = FakeCalls::CreateQp,
              .ibv_modify_qp = FakeCalls::ModifyQp,
              .ibv_destroy_qp = FakeCalls::DestroyQp,
              .rdma_get_devices = FakeCalls::GetDevices,
              .rdma_free_devices = FakeCalls::FreeDevices,
              .rdma_create_event_channel = FakeCalls::CreateEventChannel,
              .rdma_destroy_event_channel = FakeCalls::DestroyEventChannel,
              .rdma_get_cm_event = FakeCalls::GetCmEvent,
              .rdma_ack_cm_event = FakeCalls::AckCmEvent,
              .rdma_create_id = FakeCalls::CreateId,
              .rdma_destroy_id = FakeCalls::DestroyId,
              .rdma_migrate_id = FakeCalls::MigrateId,
              .rdma_set_option = FakeCalls::SetOption,
              .rdma_bind_addr = FakeCalls::BindAddr,
              .rdma_listen = FakeCalls::Listen,
              .rdma_resolve_addr = FakeCalls::ResolveAddr,
              .rdma_resolve_route = FakeCalls::ResolveRoute,
              .rdma_init_qp_attr = FakeCalls::InitQpAttr,
              .rdma_connect = FakeCalls::Connect,
              .rdma_establish = FakeCalls::Establish,
              .rdma_accept = FakeCalls::Accept,
              .rdma_reject = FakeCalls::Reject,
              .rdma_notify = FakeCalls::Notify,
              .rdma_disconnect = FakeCalls::Disconnect,
              .ibv_query_ece = FakeCalls::QueryEce,
              .ibv_set_ece = FakeCalls::SetEce,
              .rdma_set_local_ece = FakeCalls::SetLocalEce,
              .rdma_get_remote_ece = FakeCalls::GetRemoteEce,
              .ibv_reg_dmabuf_mr = FakeCalls::RegDmabufMr,
              .query_on_demand = FakeCalls::QueryOnDemand,
              .root = options_.root.c_str(),
              .executor = this};
}

FakeVerbs::~FakeVerbs() {
  EXPECT_EQ(opened, 0u);
  EXPECT_EQ(queue_pairs.size(), 0u);
  EXPECT_EQ(ids.size(), 0u);
  EXPECT_EQ(memory_regions.size(), 0u);
  EXPECT_EQ(windows_alive, 0u);
  EXPECT_EQ(cqs_.size(), 0u);
  close(context.async_fd);
  close(cm_context.async_fd);
  fake = nullptr;
}

void FakeVerbs::Run(absl::AnyInvocable<void()> command) {
  commands_.push_back(std::move(command));
  if (!hold_commands) RunCommands();
}

void FakeVerbs::RunCommands(size_t count) {
  for (; count > 0 && !commands_.empty(); --count) {
    absl::AnyInvocable<void()> command = std::move(commands_.front());
    commands_.pop_front();
    command();
  }
}

void FakeVerbs::Complete(uint64_t wr_id, ibv_wc_status status, uint32_t byte_len, uint32_t invalidated) {
  ibv_wc wc = {};
  wc.wr_id = wr_id;
  wc.status = status;
  wc.byte_len = byte_len;
  if (invalidated != 0) {
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = invalidated;
  }
  ibv_cq* const cq = cq_of_[wr_id];
  cqs_[cq].completions.push_back(wc);
  if (!std::exchange(cqs_[cq].armed, false)) return;
  cq_events_[cq->channel].push_back(cq);
  Raise(cq->channel->fd);
}

void FakeVerbs::CompleteSend(uint64_t wr_id, ibv_wc_status status) {
  const bool ok = status == IBV_WC_SUCCESS;
  if (const auto it = binds_.find(wr_id); it != binds_.end() && !ok) bound_.erase(it->second);
  if (const auto it = invalidations_.find(wr_id); it != invalidations_.end() && ok) {
    std::erase_if(bound_, [&](const auto& bound) { return bound.first->rkey == it->second; });
  }
  if (!ok || signaled_[wr_id]) Complete(wr_id, status, 0);
  sends.erase(std::find(sends.begin(), sends.end(), wr_id));
}

void FakeVerbs::CompleteSends(size_t count, ibv_wc_status status) {
  for (; count > 0; --count) CompleteSend(sends.front(), status);
}

void FakeVerbs::CompleteReceives(size_t count, ibv_wc_status status, uint32_t byte_len) {
  for (; count > 0; --count) {
    Complete(receives.front(), status, byte_len);
    receives.pop_front();
  }
}

void FakeVerbs::CompleteReceiveThatInvalidates(uint32_t rkey) {
  std::erase_if(bound_, [&](const auto& bound) { return bound.first->rkey == rkey; });
  Complete(receives.front(), IBV_WC_SUCCESS, 1, rkey);
  receives.pop_front();
}

void FakeVerbs::ClosePort() {
  reject = true;
  reject_status = options_.closed_port_status;
  reject_echoes_ = options_.closed_port_echoes;
  if (!options_.iwarp) reject_data.assign(kRejectPrivateDataMax, '\0');
}

// The kernel pads the private data of InfiniBand and RoCE.
void FakeVerbs::RejectWith(absl::string_view private_data) {
  reject = true;
  reject_status = options_.reject_status;
  reject_data = std::string(private_data);
  if (!options_.iwarp) reject_data.resize(kRejectPrivateDataMax);
}

void FakeVerbs::CmEvent(rdma_cm_id* id, rdma_cm_event_type type, int status, absl::string_view private_data) {
  auto* event = new rdma_cm_event{};
  event->id = id;
  event->event = type;
  event->status = status;
  if (!private_data.empty()) {
    const std::string& kept = private_data_of_.emplace_back(private_data);
    event->param.conn.private_data = kept.data();
    event->param.conn.private_data_len = static_cast<uint8_t>(kept.size());
  }
  if (type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    event->param.conn.initiator_depth = options_.answer.initiator;
    event->param.conn.responder_resources = options_.answer.responder;
  }
  cm_events_.push_back({id->channel, event});
  Raise(id->channel->fd);
}

rdma_cm_id* FakeVerbs::ConnectRequest(rdma_cm_id* listener) {
  auto* const id = new rdma_cm_id{};
  ids.insert(id);
  id->verbs = &cm_context;
  id->channel = listener->channel;
  id->context = listener->context;
  auto& peer = reinterpret_cast<sockaddr_in&>(id->route.addr.dst_storage);
  peer.sin_family = AF_INET;
  peer.sin_addr.s_addr = htonl(0x0a000003);
  auto* const event = new rdma_cm_event{};
  event->id = id;
  event->listen_id = listener;
  event->event = RDMA_CM_EVENT_CONNECT_REQUEST;
  event->param.conn.initiator_depth = options_.request.initiator;
  event->param.conn.responder_resources = options_.request.responder;
  cm_events_.push_back({id->channel, event});
  Raise(id->channel->fd);
  return id;
}

void FakeVerbs::AsyncEvent(ibv_event_type type) {
  ibv_async_event event = {};
  event.event_type = type;
  if (type == IBV_EVENT_CQ_ERR) {
    event.element.cq = newest_cq_;
  } else if (type != IBV_EVENT_DEVICE_FATAL) {
    event.element.qp = newest_qp_;
  }
  async_events_.push_back(event);
  Raise(context.async_fd);
}

SocketAddress FakePeer() {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(7470);
  v4.sin_addr.s_addr = htonl(0x0a000002);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
}

FakeWorld::FakeWorld(const FakeVerbs::Options& options, const QueuePairOptions& queue_pair, bool connect)
    : verbs(options),
      fabric(
          NewVerbsFabric({.device = "fake0", .grants = options.grants, .library = &verbs.library()}).value()),
      completion_queue(fabric->CreateCompletionQueue(64).value()),
      region(fabric->Register(memory.data(), memory.size()).value()),
      qp(fabric->CreateQueuePair(*completion_queue, queue_pair, news).value()) {
  if (!connect) return;
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(7470);
  v4.sin_addr.s_addr = htonl(0x0a000002);
  EXPECT_THAT(qp->Connect(SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)), "hello"), IsOk());
  Poll(1600);
}

FakeWorld::~FakeWorld() {
  verbs.hold_commands = false;
  verbs.RunCommands();
  if (qp == nullptr) return;
  qp->Disconnect();
  Poll();
}

absl::Status FakeWorld::Post(uint64_t wr_id, bool signaled, uint32_t length) {
  const Sge sge = At(0, length);
  const SendWorkRequest request = {.wr_id = wr_id, .signaled = signaled, .sges = {&sge, 1}};
  return qp->PostSend({&request, 1});
}

absl::Status FakeWorld::Receive(uint64_t wr_id) {
  const ReceiveWorkRequest request = {wr_id, At(1000, 100)};
  return qp->PostReceive({&request, 1});
}

void FakeWorld::Poll(int rounds) {
  for (; rounds > 0; --rounds) {
    Completion some[4];
    const size_t count = completion_queue->Poll(some);
    completions.insert(completions.end(), some, some + count);
  }
}

}  // namespace hawser::fabric
