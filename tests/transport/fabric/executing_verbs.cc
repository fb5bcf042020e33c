#include "hawser/tests/transport/fabric/executing_verbs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "hawser/base/check.h"

namespace hawser::fabric {
namespace {

// Of enum rdma_cm_event's status at a REJECTED: IB_CM_REJ_INVALID_SERVICE_ID, IB_CM_REJ_CONSUMER_DEFINED.
// Over iWARP it is an errno, and like siw a refused rdma_connect() says itself that nothing listens.
constexpr int kNothingListens = 8;
constexpr int kByProgram = 28;

constexpr uint16_t kFirstPort = 20000;
constexpr int kCqeMax = 1 << 16;

thread_local ExecutingVerbs::Counts* counts = nullptr;

void Command() {
  if (counts != nullptr) ++counts->commands;
}

void Raise(int fd) {
  const uint64_t one = 1;
  HAWSER_CHECK(write(fd, &one, sizeof(one)) == sizeof(one));
}

void Lower(int fd) {
  uint64_t count;
  HAWSER_CHECK(read(fd, &count, sizeof(count)) == sizeof(count));
}

int NewFd() { return eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC); }

// 127.0.0.0/8 and 0.0.0.0.
bool IsOurs(const sockaddr_in& address) {
  const uint32_t host = ntohl(address.sin_addr.s_addr);
  return host == INADDR_ANY || host >> 24 == IN_LOOPBACKNET;
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

class ExecutingVerbs::Device {
 public:
  explicit Device(const Options& options);
  ~Device();

  const VerbsLibrary& library() const { return library_; }
  std::vector<QueuePairState> queue_pairs() const;
  size_t registered_grants() const;
  void FailOnePostAt(size_t work_request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_one_post_at_ = work_request;
  }

 private:
  struct Cq {
    ibv_cq verbs = {};
    std::deque<ibv_wc> completions;
    bool armed = false;
  };
  struct Receive {
    uint64_t wr_id;
    ibv_sge sge;
  };
  struct Id;
  struct Qp {
    ibv_qp verbs = {};
    ibv_qp_cap cap = {};
    ibv_qp_state state = IBV_QPS_RESET;
    bool all_signaled = false;
    bool takes_none = false;  // Work requests: over iWARP, once the program has moved it to IBV_QPS_ERR.
    Qp* peer = nullptr;
    // wr_ids of the send queue: a place is free when a completion of its request, or of a later one, was
    // polled.
    std::deque<uint64_t> sends;
    std::deque<Receive> receives;
    size_t receives_unpolled = 0;  // Completed.
  };
  // What a key reaches.
  struct Range {
    uint64_t address = 0;
    uint64_t length = 0;
    unsigned int access = 0;
    const Qp* only = nullptr;  // A window's.
    // A dma-buf's: the device's own mapping, and where in it the range begins.
    uint8_t* mapped = nullptr;
    uint64_t mapped_offset = 0;
  };
  struct Event {
    rdma_cm_event verbs = {};
    std::string data;
  };
  struct Id {
    rdma_cm_id verbs = {};
    Id* peer = nullptr;
    uint32_t qp_num = 0;
    bool listens = false;
    bool asked = false;      // The peer waits for the answer.
    int unacknowledged = 0;  // Events that the program has taken, and reads.
  };

  static Device& Here() { return *here_; }
  static Id& Of(rdma_cm_id* id) { return *reinterpret_cast<Id*>(id); }
  // The id that rdma_destroy_id() keeps until the event is acknowledged: of a connection request the
  // listener, since no caller knows the new id yet.
  static Id& Told(const rdma_cm_event& event) {
    return Of(event.listen_id != nullptr ? event.listen_id : event.id);
  }

  // libibverbs
  static int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  static int PostReceive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  static int PollCq(ibv_cq* cq, int max, ibv_wc* out);
  static int Arm(ibv_cq* cq, int solicited_only);
  static ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length, int access);
  static ibv_mr* RegisterDmabuf(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                int access);
  static int QueryOnDemand(ibv_context* context, ibv_odp_caps* caps);
  static int DeregisterMemory(ibv_mr* mr);
  static ibv_mw* AllocateWindow(ibv_pd* pd, ibv_mw_type type);
  static int DeallocateWindow(ibv_mw* window);
  static ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr);
  static int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int mask);
  static int DestroyQp(ibv_qp* qp);
  static void FillLibrary(VerbsLibrary& library);

  // With the lock.
  Qp& Of(ibv_qp* qp) { return *queue_pairs_.at(qp->qp_num); }
  ibv_wc_status Execute(Qp& qp, const ibv_send_wr& wr);
  ibv_wc_status Send(Qp& qp, const ibv_send_wr& wr);
  ibv_wc_status Transfer(Qp& qp, const ibv_send_wr& wr);
  ibv_wc_status Atomic(Qp& qp, const ibv_send_wr& wr);
  bool Allowed(const Qp& owner, uint32_t rkey, uint64_t address, uint64_t length, unsigned int access) const;
  void CheckLocal(const ibv_sge& sge, unsigned int access) const;
  // Where the device accesses it. `inlined`: it is not registered.
  uint8_t* Local(const ibv_sge& sge, bool inlined = false) const;
  void End(Qp& qp);
  void Complete(Qp& qp, ibv_cq* cq, const ibv_wc& wc);
  void CompleteReceive(Qp& qp, ibv_wc_status status, uint32_t byte_len, uint32_t invalidated = 0);
  void Invalidate(uint32_t rkey);
  void Notify(Id& id, rdma_cm_event_type type, int status = 0, const void* data = nullptr,
              size_t data_bytes = 0, Id* listener = nullptr, const rdma_conn_param* parameters = nullptr);
  void DropEvents(const Id& id);
  void Part(Id& id);

  static Device* here_;
  VerbsLibrary library_;
  mutable std::mutex mutex_;
  std::condition_variable acknowledged_;  // An event was.
  ibv_device device_ = {};
  ibv_context context_ = {};
  ibv_context cm_context_ = {};
  ibv_pd pd_ = {};
  ibv_device_attr attr_ = {};
  const bool iwarp_;
  const bool dmabufs_;
  const bool on_demand_;
  std::map<uint32_t, std::unique_ptr<Qp>> queue_pairs_;  // By number, which grows.
  std::map<ibv_cq*, std::unique_ptr<Cq>> completion_queues_;
  std::map<ibv_comp_channel*, std::deque<ibv_cq*>> cq_events_;
  std::map<uint32_t, Range> ranges_;   // By key.
  std::map<ibv_mw*, uint32_t> bound_;  // Their keys.
  uint32_t next_key_ = 1;
  std::optional<size_t> fail_one_post_at_;
  uint32_t next_qp_num_ = 100;
  uint16_t next_port_ = kFirstPort;
  std::deque<std::unique_ptr<Event>> cm_events_;
  std::map<rdma_cm_id*, std::unique_ptr<Id>> ids_;
};

ExecutingVerbs::Device* ExecutingVerbs::Device::here_ = nullptr;

// --- Work requests

void ExecutingVerbs::Device::Complete(Qp& qp, ibv_cq* verbs, const ibv_wc& wc) {
  Cq& cq = *completion_queues_.at(verbs);
  cq.completions.push_back(wc);
  cq.completions.back().qp_num = qp.verbs.qp_num;
  HAWSER_CHECK(cq.completions.size() <= static_cast<size_t>(verbs->cqe), "a completion queue of ", verbs->cqe,
               " overflows");
  if (!std::exchange(cq.armed, false)) return;
  cq_events_[verbs->channel].push_back(verbs);
  Raise(verbs->channel->fd);
}

void ExecutingVerbs::Device::Invalidate(uint32_t rkey) {
  ranges_.erase(rkey);
  std::erase_if(bound_, [&](const auto& bound) { return bound.second == rkey; });
}

void ExecutingVerbs::Device::CompleteReceive(Qp& qp, ibv_wc_status status, uint32_t byte_len,
                                             uint32_t invalidated) {
  ibv_wc wc = {};
  wc.wr_id = qp.receives.front().wr_id;
  wc.status = status;
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = byte_len;
  if (invalidated != 0) {
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = invalidated;
  }
  qp.receives.pop_front();
  ++qp.receives_unpolled;
  Complete(qp, qp.verbs.recv_cq, wc);
}

// In error: what is posted is flushed. Sends that are posted have completed.
void ExecutingVerbs::Device::End(Qp& qp) {
  qp.state = IBV_QPS_ERR;
  while (!qp.receives.empty()) CompleteReceive(qp, IBV_WC_WR_FLUSH_ERR, 0);
}

void ExecutingVerbs::Device::CheckLocal(const ibv_sge& sge, unsigned int access) const {
  const auto at = ranges_.find(sge.lkey);
  HAWSER_CHECK(at != ranges_.end() && at->second.only == nullptr && sge.addr >= at->second.address &&
                   sge.addr + sge.length <= at->second.address + at->second.length &&
                   (at->second.access & access) == access,
               "lkey ", sge.lkey, " does not reach ", sge.length, " bytes");
}

uint8_t* ExecutingVerbs::Device::Local(const ibv_sge& sge, bool inlined) const {
  const auto at = inlined ? ranges_.end() : ranges_.find(sge.lkey);
  if (at == ranges_.end() || at->second.mapped == nullptr) return reinterpret_cast<uint8_t*>(sge.addr);
  return at->second.mapped + at->second.mapped_offset + (sge.addr - at->second.address);
}

bool ExecutingVerbs::Device::Allowed(const Qp& owner, uint32_t rkey, uint64_t address, uint64_t length,
                                     unsigned int access) const {
  const auto at = ranges_.find(rkey);
  if (at == ranges_.end()) return false;
  const Range& range = at->second;
  return (range.only == nullptr || range.only == &owner) && (range.access & access) != 0 &&
         address >= range.address && length <= range.length &&
         address - range.address <= range.length - length;
}

ibv_wc_status ExecutingVerbs::Device::Send(Qp& qp, const ibv_send_wr& wr) {
  if (qp.peer == nullptr || qp.peer->state < IBV_QPS_RTR || qp.peer->state == IBV_QPS_ERR) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  Qp& peer = *qp.peer;
  if (peer.receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
  const bool invalidates = wr.opcode == IBV_WR_SEND_WITH_INV;
  const auto ended = ranges_.find(wr.invalidate_rkey);
  if (invalidates && (ended == ranges_.end() || ended->second.only != &peer)) {
    End(peer);
    return IBV_WC_REM_ACCESS_ERR;
  }
  const ibv_sge into = peer.receives.front().sge;
  uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  if (total > into.length) {
    CompleteReceive(peer, IBV_WC_LOC_LEN_ERR, 0);
    End(peer);
    return IBV_WC_REM_INV_REQ_ERR;
  }
  CheckLocal(into, IBV_ACCESS_LOCAL_WRITE);
  uint8_t* out = Local(into);
  for (int i = 0; i < wr.num_sge; ++i) {
    std::memcpy(out, Local(wr.sg_list[i], (wr.send_flags & IBV_SEND_INLINE) != 0), wr.sg_list[i].length);
    out += wr.sg_list[i].length;
  }
  if (invalidates) Invalidate(wr.invalidate_rkey);
  CompleteReceive(peer, IBV_WC_SUCCESS, static_cast<uint32_t>(total), invalidates ? wr.invalidate_rkey : 0);
  return IBV_WC_SUCCESS;
}

ibv_wc_status ExecutingVerbs::Device::Transfer(Qp& qp, const ibv_send_wr& wr) {
  if (qp.peer == nullptr || qp.peer->state < IBV_QPS_RTR || qp.peer->state == IBV_QPS_ERR) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  const bool read = wr.opcode == IBV_WR_RDMA_READ;
  uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  if (!Allowed(*qp.peer, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, total,
               read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE)) {
    End(*qp.peer);
    return IBV_WC_REM_ACCESS_ERR;
  }
  uint64_t remote = wr.wr.rdma.remote_addr;
  for (int i = 0; i < wr.num_sge; ++i) {
    uint8_t* const here = Local(wr.sg_list[i], (wr.send_flags & IBV_SEND_INLINE) != 0);
    auto* const there = reinterpret_cast<uint8_t*>(remote);
    std::memcpy(read ? here : there, read ? there : here, wr.sg_list[i].length);
    remote += wr.sg_list[i].length;
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status ExecutingVerbs::Device::Atomic(Qp& qp, const ibv_send_wr& wr) {
  if (qp.peer == nullptr || qp.peer->state < IBV_QPS_RTR || qp.peer->state == IBV_QPS_ERR) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  constexpr uint32_t kBytes = sizeof(uint64_t);
  HAWSER_CHECK(wr.num_sge == 1 && wr.sg_list->length == kBytes && (wr.send_flags & IBV_SEND_INLINE) == 0,
               "an atomic of ", wr.num_sge, " sges");
  const auto& atomic = wr.wr.atomic;
  if (!Allowed(*qp.peer, atomic.rkey, atomic.remote_addr, kBytes, IBV_ACCESS_REMOTE_ATOMIC)) {
    End(*qp.peer);
    return IBV_WC_REM_ACCESS_ERR;
  }
  if (atomic.remote_addr % kBytes != 0) {
    End(*qp.peer);
    return IBV_WC_REM_INV_REQ_ERR;
  }
  auto* const word = reinterpret_cast<uint64_t*>(atomic.remote_addr);
  const uint64_t before = *word;
  if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    *word += atomic.compare_add;
  } else if (before == atomic.compare_add) {
    *word = atomic.swap;
  }
  std::memcpy(Local(*wr.sg_list), &before, kBytes);
  return IBV_WC_SUCCESS;
}

ibv_wc_status ExecutingVerbs::Device::Execute(Qp& qp, const ibv_send_wr& wr) {
  if (qp.state == IBV_QPS_ERR) return IBV_WC_WR_FLUSH_ERR;
  unsigned int access = 0;
  if (wr.opcode == IBV_WR_RDMA_READ) access = IBV_ACCESS_LOCAL_WRITE | (iwarp_ ? IBV_ACCESS_REMOTE_WRITE : 0);
  const bool is_atomic = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (is_atomic) access = IBV_ACCESS_LOCAL_WRITE;
  for (int i = 0; i < wr.num_sge && (wr.send_flags & IBV_SEND_INLINE) == 0; ++i) {
    CheckLocal(wr.sg_list[i], access);
  }
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_INV:
      return Send(qp, wr);
    case IBV_WR_RDMA_READ:
    case IBV_WR_RDMA_WRITE:
      return Transfer(qp, wr);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return Atomic(qp, wr);
    case IBV_WR_BIND_MW: {
      const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
      const auto region = ranges_.find(info.mr->lkey);
      HAWSER_CHECK(region != ranges_.end() && (region->second.access & IBV_ACCESS_MW_BIND) != 0);
      HAWSER_CHECK(bound_.count(wr.bind_mw.mw) == 0, "a window is bound twice");
      HAWSER_CHECK(wr.bind_mw.rkey >> 8 == wr.bind_mw.mw->rkey >> 8, "another window's rkey");
      ranges_[wr.bind_mw.rkey] = {info.addr, info.length, info.mw_access_flags, &qp};
      bound_[wr.bind_mw.mw] = wr.bind_mw.rkey;
      return IBV_WC_SUCCESS;
    }
    case IBV_WR_LOCAL_INV: {
      const auto range = ranges_.find(wr.invalidate_rkey);
      if (range == ranges_.end() || range->second.only != &qp) return IBV_WC_MW_BIND_ERR;
      Invalidate(wr.invalidate_rkey);
      return IBV_WC_SUCCESS;
    }
    default:
      HAWSER_CHECK(false, "opcode ", static_cast<int>(wr.opcode));
  }
  return IBV_WC_GENERAL_ERR;
}

int ExecutingVerbs::Device::PostSend(ibv_qp* verbs, ibv_send_wr* wr, ibv_send_wr** bad) {
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  Qp& qp = device.Of(verbs);
  if (counts != nullptr) ++counts->doorbells;
  const ibv_send_wr* fails = wr;
  for (size_t i = 0; fails != nullptr && i < device.fail_one_post_at_.value_or(0); ++i) fails = fails->next;
  if (!device.fail_one_post_at_.has_value()) fails = nullptr;
  if (fails != nullptr) device.fail_one_post_at_.reset();
  for (; wr != nullptr; wr = wr->next) {
    if (wr == fails) {
      *bad = wr;
      return ENOMEM;
    }
    if (qp.takes_none || (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR)) {
      *bad = wr;
      return qp.takes_none ? ENOTCONN : EINVAL;
    }
    if (counts != nullptr) ++counts->work_requests;
    qp.sends.push_back(wr->wr_id);
    HAWSER_CHECK(qp.sends.size() <= qp.cap.max_send_wr, "a send queue of ", qp.cap.max_send_wr, " overflows");
    const ibv_wc_status status = device.Execute(qp, *wr);
    if (status != IBV_WC_SUCCESS && qp.state != IBV_QPS_ERR) device.End(qp);
    if (status == IBV_WC_SUCCESS && (wr->send_flags & IBV_SEND_SIGNALED) == 0 && !qp.all_signaled) continue;
    ibv_wc wc = {};
    wc.wr_id = wr->wr_id;
    wc.status = status;
    device.Complete(qp, qp.verbs.send_cq, wc);
  }
  return 0;
}

int ExecutingVerbs::Device::PostReceive(ibv_qp* verbs, ibv_recv_wr* wr, ibv_recv_wr**) {
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  Qp& qp = device.Of(verbs);
  if (counts != nullptr) ++counts->doorbells;
  for (; wr != nullptr; wr = wr->next) {
    if (counts != nullptr) ++counts->work_requests;
    qp.receives.push_back({wr->wr_id, wr->sg_list[0]});
    HAWSER_CHECK(qp.receives.size() + qp.receives_unpolled <= qp.cap.max_recv_wr, "a receive queue of ",
                 qp.cap.max_recv_wr, " overflows");
    if (qp.state == IBV_QPS_ERR) device.CompleteReceive(qp, IBV_WC_WR_FLUSH_ERR, 0);
  }
  return 0;
}

int ExecutingVerbs::Device::PollCq(ibv_cq* verbs, int max, ibv_wc* out) {
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  std::deque<ibv_wc>& completions = device.completion_queues_.at(verbs)->completions;
  int count = 0;
  for (; count < max && !completions.empty(); ++count) {
    out[count] = completions.front();
    completions.pop_front();
    const auto at = device.queue_pairs_.find(out[count].qp_num);
    if (at == device.queue_pairs_.end()) continue;
    Qp& qp = *at->second;
    if (out[count].opcode == IBV_WC_RECV) {
      --qp.receives_unpolled;
      continue;
    }
    const auto sent = std::find(qp.sends.begin(), qp.sends.end(), out[count].wr_id);
    if (sent != qp.sends.end()) qp.sends.erase(qp.sends.begin(), sent + 1);
  }
  if (counts != nullptr) counts->completions += static_cast<uint64_t>(count);
  return count;
}

int ExecutingVerbs::Device::Arm(ibv_cq* verbs, int) {
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  device.completion_queues_.at(verbs)->armed = true;
  return 0;
}

// --- Control

ibv_mr* ExecutingVerbs::Device::RegisterMemory(ibv_pd* pd, void* address, size_t length, int access) {
  Command();
  Device& device = Here();
  constexpr int kChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  HAWSER_CHECK((access & kChanges) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0, "access ", access);
  if ((access & IBV_ACCESS_ON_DEMAND) != 0 && !device.on_demand_) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(device.mutex_);
  auto* const mr = new ibv_mr{};
  *mr = {.context = pd->context, .pd = pd, .addr = address, .length = length};
  mr->lkey = mr->rkey = device.next_key_++ << 8;
  device.ranges_[mr->lkey] = {reinterpret_cast<uint64_t>(address), length, static_cast<unsigned int>(access)};
  return mr;
}

ibv_mr* ExecutingVerbs::Device::RegisterDmabuf(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                               int fd, int access) {
  Device& device = Here();
  if (!device.dmabufs_) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  HAWSER_CHECK((iova - offset) % page_bytes == 0, "a dma-buf at another place of a page: ", offset);
  const uint64_t in_page = offset % page_bytes;
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size < 0 || offset + length > static_cast<uint64_t>(size)) {
    errno = size < 0 ? EBADF : EINVAL;
    return nullptr;
  }
  void* const mapped = mmap(nullptr, in_page + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                            static_cast<off_t>(offset - in_page));
  if (mapped == MAP_FAILED) return nullptr;
  ibv_mr* const mr = RegisterMemory(pd, reinterpret_cast<void*>(iova), length, access);
  const std::lock_guard<std::mutex> lock(device.mutex_);
  Range& range = device.ranges_[mr->lkey];
  range.mapped = static_cast<uint8_t*>(mapped);
  range.mapped_offset = in_page;
  return mr;
}

int ExecutingVerbs::Device::QueryOnDemand(ibv_context*, ibv_odp_caps* caps) {
  *caps = {};
  if (!Here().on_demand_) return 0;
  caps->general_caps = IBV_ODP_SUPPORT;
  caps->per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  return 0;
}

int ExecutingVerbs::Device::DeregisterMemory(ibv_mr* mr) {
  Command();
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  const Range& range = device.ranges_.at(mr->lkey);
  if (range.mapped != nullptr) munmap(range.mapped, range.mapped_offset + range.length);
  device.ranges_.erase(mr->lkey);
  delete mr;
  return 0;
}

ibv_mw* ExecutingVerbs::Device::AllocateWindow(ibv_pd* pd, ibv_mw_type type) {
  Command();
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  return new ibv_mw{
      .context = pd->context, .pd = pd, .rkey = device.next_key_++ << 8, .handle = 0, .type = type};
}

int ExecutingVerbs::Device::DeallocateWindow(ibv_mw* window) {
  Command();
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  if (const auto at = device.bound_.find(window); at != device.bound_.end()) {
    device.ranges_.erase(at->second);
    device.bound_.erase(at);
  }
  delete window;
  return 0;
}

ibv_qp* ExecutingVerbs::Device::CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  Command();
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  auto qp = std::make_unique<Qp>();
  qp->cap = attr->cap;
  qp->all_signaled = attr->sq_sig_all != 0;
  qp->verbs.context = pd->context;
  qp->verbs.pd = pd;
  qp->verbs.qp_context = attr->qp_context;
  qp->verbs.qp_num = device.next_qp_num_++;
  qp->verbs.send_cq = attr->send_cq;
  qp->verbs.recv_cq = attr->recv_cq;
  Qp& added = *(device.queue_pairs_[qp->verbs.qp_num] = std::move(qp));
  return &added.verbs;
}

int ExecutingVerbs::Device::ModifyQp(ibv_qp* verbs, ibv_qp_attr* attr, int mask) {
  Command();
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  if ((mask & IBV_QP_STATE) == 0) return 0;
  Qp& qp = device.Of(verbs);
  if (attr->qp_state == IBV_QPS_ERR) {
    device.End(qp);
    qp.takes_none = device.iwarp_;
  } else {
    qp.state = attr->qp_state;
  }
  return 0;
}

int ExecutingVerbs::Device::DestroyQp(ibv_qp* verbs) {
  Command();
  Device& device = Here();
  const std::lock_guard<std::mutex> lock(device.mutex_);
  Qp& qp = device.Of(verbs);
  if (qp.peer != nullptr) qp.peer->peer = nullptr;
  device.queue_pairs_.erase(verbs->qp_num);
  return 0;
}

// --- The connection manager

void ExecutingVerbs::Device::Notify(Id& id, rdma_cm_event_type type, int status, const void* data,
                                    size_t data_bytes, Id* listener, const rdma_conn_param* parameters) {
  auto event = std::make_unique<Event>();
  event->verbs.id = &id.verbs;
  event->verbs.event = type;
  event->verbs.status = status;
  if (listener != nullptr) event->verbs.listen_id = &listener->verbs;
  if (parameters != nullptr) {
    event->verbs.param.conn.initiator_depth = parameters->initiator_depth;
    event->verbs.param.conn.responder_resources = parameters->responder_resources;
  }
  if (data_bytes != 0) {
    event->data.assign(static_cast<const char*>(data), data_bytes);
    event->verbs.param.conn.private_data = event->data.data();
    event->verbs.param.conn.private_data_len = static_cast<uint8_t>(data_bytes);
  }
  rdma_event_channel* const channel = (listener != nullptr ? listener : &id)->verbs.channel;
  cm_events_.push_back(std::move(event));
  Raise(channel->fd);
}

void ExecutingVerbs::Device::DropEvents(const Id& id) {
  for (auto it = cm_events_.begin(); it != cm_events_.end();) {
    if ((*it)->verbs.id != &id.verbs && (*it)->verbs.listen_id != &id.verbs) {
      ++it;
      continue;
    }
    Lower((*it)->verbs.id->channel->fd);
    it = cm_events_.erase(it);
  }
}

// The connection of `id`, if it has one, ends.
void ExecutingVerbs::Device::Part(Id& id) {
  Id* const peer = std::exchange(id.peer, nullptr);
  if (peer == nullptr) return;
  peer->peer = nullptr;
  if (id.asked) {
    Notify(*peer, RDMA_CM_EVENT_REJECTED, iwarp_ ? -ECONNRESET : kByProgram);
  } else {
    Notify(*peer, RDMA_CM_EVENT_DISCONNECTED);
  }
}

void ExecutingVerbs::Device::FillLibrary(VerbsLibrary& library) {
  library.ibv_fork_init = [] { return 0; };
  library.ibv_open_device = [](ibv_device*) { return &Here().context_; };
  library.ibv_close_device = [](ibv_context*) { return 0; };
  library.ibv_query_device = [](ibv_context*, ibv_device_attr* attr) {
    *attr = Here().attr_;
    return 0;
  };
  library.ibv_query_port = [](ibv_context*, uint8_t, _compat_ibv_port_attr* attr) {
    reinterpret_cast<ibv_port_attr*>(attr)->state = IBV_PORT_ACTIVE;
    return 0;
  };
  library.ibv_alloc_pd = [](ibv_context*) { return &Here().pd_; };
  library.ibv_dealloc_pd = [](ibv_pd*) { return 0; };
  library.ibv_reg_mr = RegisterMemory;
  library.ibv_dereg_mr = DeregisterMemory;
  library.ibv_reg_dmabuf_mr = RegisterDmabuf;
  library.query_on_demand = QueryOnDemand;
  library.ibv_create_qp = CreateQp;
  library.ibv_modify_qp = ModifyQp;
  library.ibv_destroy_qp = DestroyQp;
  library.ibv_create_comp_channel = [](ibv_context* context) {
    return new ibv_comp_channel{.context = context, .fd = NewFd(), .refcnt = 0};
  };
  library.ibv_destroy_comp_channel = [](ibv_comp_channel* channel) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    Here().cq_events_.erase(channel);
    close(channel->fd);
    delete channel;
    return 0;
  };
  library.ibv_create_cq = [](ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel,
                             int) -> ibv_cq* {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    auto cq = std::make_unique<Cq>();
    cq->verbs.context = context;
    cq->verbs.channel = channel;
    cq->verbs.cq_context = cq_context;
    cq->verbs.cqe = entries;
    ibv_cq* const verbs = &cq->verbs;
    Here().completion_queues_[verbs] = std::move(cq);
    return verbs;
  };
  library.ibv_destroy_cq = [](ibv_cq* cq) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    std::deque<ibv_cq*>& events = Here().cq_events_[cq->channel];
    for (auto it = events.begin(); it != events.end();) {
      if (*it != cq) {
        ++it;
        continue;
      }
      Lower(cq->channel->fd);
      it = events.erase(it);
    }
    Here().completion_queues_.erase(cq);
    return 0;
  };
  library.ibv_get_cq_event = [](ibv_comp_channel* channel, ibv_cq** cq, void**) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    std::deque<ibv_cq*>& events = Here().cq_events_[channel];
    if (events.empty()) {
      errno = EAGAIN;
      return -1;
    }
    Lower(channel->fd);
    *cq = events.front();
    events.pop_front();
    return 0;
  };
  library.ibv_ack_cq_events = [](ibv_cq*, unsigned int) {};
  library.ibv_get_async_event = [](ibv_context*, ibv_async_event*) {
    errno = EAGAIN;
    return -1;
  };
  library.ibv_ack_async_event = [](ibv_async_event*) {};

  library.rdma_get_devices = [](int* count) {
    auto** list = static_cast<ibv_context**>(calloc(2, sizeof(ibv_context*)));
    list[0] = &Here().cm_context_;
    if (count != nullptr) *count = 1;
    return list;
  };
  library.rdma_free_devices = [](ibv_context** list) { free(list); };
  library.rdma_create_event_channel = [] { return new rdma_event_channel{.fd = NewFd()}; };
  library.rdma_destroy_event_channel = [](rdma_event_channel* channel) {
    close(channel->fd);
    delete channel;
  };
  library.rdma_get_cm_event = [](rdma_event_channel* channel, rdma_cm_event** out) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    auto& events = Here().cm_events_;
    const auto at = std::find_if(events.begin(), events.end(),
                                 [&](const auto& event) { return event->verbs.id->channel == channel; });
    if (at == events.end()) {
      errno = EAGAIN;
      return -1;
    }
    Lower(channel->fd);
    Told((*at)->verbs).unacknowledged += 1;
    *out = &at->release()->verbs;
    events.erase(at);
    return 0;
  };
  library.rdma_ack_cm_event = [](rdma_cm_event* event) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    Told(*event).unacknowledged -= 1;
    Here().acknowledged_.notify_all();
    delete reinterpret_cast<Event*>(event);
    return 0;
  };
  library.rdma_create_id = [](rdma_event_channel* channel, rdma_cm_id** out, void* context,
                              rdma_port_space space) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    auto id = std::make_unique<Id>();
    id->verbs.channel = channel;
    id->verbs.context = context;
    id->verbs.ps = space;
    *out = &id->verbs;
    Here().ids_[*out] = std::move(id);
    return 0;
  };
  // As rdma_destroy_id(3) says: it waits for the acknowledgement of what another thread has taken, and reads.
  library.rdma_destroy_id = [](rdma_cm_id* id) {
    std::unique_lock<std::mutex> lock(Here().mutex_);
    Here().acknowledged_.wait(lock, [&] { return Of(id).unacknowledged == 0; });
    Here().DropEvents(Of(id));
    Here().Part(Of(id));
    Here().ids_.erase(id);
    return 0;
  };
  library.rdma_migrate_id = [](rdma_cm_id* id, rdma_event_channel* channel) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    for (const auto& event : Here().cm_events_) {
      if (event->verbs.id != id) continue;
      Lower(id->channel->fd);
      Raise(channel->fd);
    }
    id->channel = channel;
    return 0;
  };
  library.rdma_set_option = [](rdma_cm_id*, int, int, void*, size_t) { return 0; };
  library.rdma_bind_addr = [](rdma_cm_id* id, sockaddr* address) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    if (address->sa_family != AF_INET) {
      errno = EAFNOSUPPORT;
      return -1;
    }
    auto& bound = reinterpret_cast<sockaddr_in&>(id->route.addr.src_storage);
    std::memcpy(&bound, address, sizeof(bound));
    if (!IsOurs(bound)) {
      errno = EADDRNOTAVAIL;
      return -1;
    }
    for (const auto& [other, its] : Here().ids_) {
      if (bound.sin_port == 0 || !its->listens ||
          PortOf(other->route.addr.src_storage) != ntohs(bound.sin_port)) {
        continue;
      }
      errno = EADDRINUSE;
      return -1;
    }
    if (bound.sin_port == 0) bound.sin_port = htons(Here().next_port_++);
    id->verbs = &Here().cm_context_;
    return 0;
  };
  library.rdma_listen = [](rdma_cm_id* id, int) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    Of(id).listens = true;
    return 0;
  };
  library.rdma_resolve_addr = [](rdma_cm_id* id, sockaddr* from, sockaddr* peer, int) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    auto& local = reinterpret_cast<sockaddr_in&>(id->route.addr.src_storage);
    std::memcpy(&local, from != nullptr ? from : peer, sizeof(local));
    if (!IsOurs(local)) {
      errno = from != nullptr ? EADDRNOTAVAIL : ENODEV;
      return -1;
    }
    // As the kernel chooses it for all of 127.0.0.0/8.
    if (from == nullptr) local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    local.sin_port = htons(Here().next_port_++);
    std::memcpy(&id->route.addr.dst_storage, peer, sizeof(sockaddr_in));
    id->verbs = &Here().cm_context_;
    Here().Notify(Of(id), RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
  };
  library.rdma_resolve_route = [](rdma_cm_id* id, int) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    Here().Notify(Of(id), RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
  };
  library.rdma_init_qp_attr = [](rdma_cm_id*, ibv_qp_attr*, int* mask) {
    *mask = IBV_QP_STATE;
    return 0;
  };
  library.rdma_connect = [](rdma_cm_id* id, rdma_conn_param* parameters) {
    Device& device = Here();
    const std::lock_guard<std::mutex> lock(device.mutex_);
    Of(id).qp_num = parameters->qp_num;
    const uint16_t port = PortOf(id->route.addr.dst_storage);
    for (const auto& [listening, listener] : device.ids_) {
      if (!listener->listens || PortOf(listening->route.addr.src_storage) != port) continue;
      auto asked = std::make_unique<Id>();
      asked->verbs.channel = listening->channel;
      asked->verbs.context = listening->context;
      asked->verbs.verbs = &device.cm_context_;
      asked->verbs.route.addr.src_storage = id->route.addr.dst_storage;
      asked->verbs.route.addr.dst_storage = id->route.addr.src_storage;
      asked->peer = &Of(id);
      asked->asked = true;
      Of(id).peer = asked.get();
      device.Notify(*asked, RDMA_CM_EVENT_CONNECT_REQUEST, 0, parameters->private_data,
                    parameters->private_data_len, listener.get(), parameters);
      rdma_cm_id* const added = &asked->verbs;
      device.ids_[added] = std::move(asked);
      return 0;
    }
    if (device.iwarp_) {
      errno = ECONNREFUSED;
      return -1;
    }
    device.Notify(Of(id), RDMA_CM_EVENT_REJECTED, kNothingListens);
    return 0;
  };
  library.rdma_accept = [](rdma_cm_id* id, rdma_conn_param* parameters) {
    Device& device = Here();
    const std::lock_guard<std::mutex> lock(device.mutex_);
    Id& accepted = Of(id);
    if (accepted.peer == nullptr) {
      errno = EINVAL;
      return -1;
    }
    accepted.asked = false;
    accepted.qp_num = parameters->qp_num;
    Qp& here = *device.queue_pairs_.at(accepted.qp_num);
    Qp& there = *device.queue_pairs_.at(accepted.peer->qp_num);
    here.peer = &there;
    there.peer = &here;
    if (device.iwarp_) there.state = IBV_QPS_RTS;
    device.Notify(*accepted.peer, device.iwarp_ ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE,
                  0, parameters->private_data, parameters->private_data_len, nullptr, parameters);
    if (device.iwarp_) device.Notify(accepted, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
  };
  library.rdma_establish = [](rdma_cm_id* id) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    if (Of(id).peer != nullptr) Here().Notify(*Of(id).peer, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
  };
  library.rdma_reject = [](rdma_cm_id* id, const void* data, uint8_t data_bytes) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    Id* const peer = std::exchange(Of(id).peer, nullptr);
    if (peer == nullptr) return 0;
    peer->peer = nullptr;
    Here().Notify(*peer, RDMA_CM_EVENT_REJECTED, Here().iwarp_ ? -ECONNRESET : kByProgram, data, data_bytes);
    return 0;
  };
  library.rdma_notify = [](rdma_cm_id*, ibv_event_type) { return 0; };
  library.rdma_disconnect = [](rdma_cm_id* id) {
    const std::lock_guard<std::mutex> lock(Here().mutex_);
    Here().Part(Of(id));
    return 0;
  };
}

// --- Making it

ExecutingVerbs::Device::Device(const Options& options)
    : iwarp_(options.iwarp), dmabufs_(options.dmabufs), on_demand_(options.on_demand) {
  HAWSER_CHECK(std::exchange(here_, this) == nullptr, "there is another ExecutingVerbs");
  std::strcpy(device_.name, "fake0");
  device_.transport_type = options.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  context_.device = cm_context_.device = &device_;
  context_.async_fd = NewFd();
  cm_context_.async_fd = NewFd();
  context_.ops.alloc_mw = AllocateWindow;
  context_.ops.dealloc_mw = DeallocateWindow;
  context_.ops.poll_cq = PollCq;
  context_.ops.req_notify_cq = Arm;
  context_.ops.post_send = PostSend;
  context_.ops.post_recv = PostReceive;
  pd_.context = &context_;
  attr_.phys_port_cnt = 1;
  attr_.max_qp_wr = 1 << 15;
  attr_.max_cqe = kCqeMax;
  attr_.max_sge = 30;
  attr_.max_sge_rd = options.iwarp ? 1 : 30;
  attr_.max_qp_rd_atom = 16;
  attr_.max_qp_init_rd_atom = 16;
  attr_.atomic_cap = IBV_ATOMIC_HCA;  // Over iWARP it is not used.
  attr_.max_mw = 1 << 20;
  attr_.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS;
  if (options.windows && !options.iwarp) attr_.device_cap_flags |= IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  FillLibrary(library_);
}

ExecutingVerbs::Device::~Device() {
  HAWSER_CHECK(queue_pairs_.empty() && completion_queues_.empty() && ranges_.empty(), queue_pairs_.size(),
               " queue pairs and ", ranges_.size(), " registrations are left");
  close(context_.async_fd);
  close(cm_context_.async_fd);
  here_ = nullptr;
}

std::vector<ExecutingVerbs::QueuePairState> ExecutingVerbs::Device::queue_pairs() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<QueuePairState> all;
  for (const auto& [number, qp] : queue_pairs_) {
    QueuePairState& state = all.emplace_back();
    state.shape = {.sends = qp->cap.max_send_wr,
                   .receives = qp->cap.max_recv_wr,
                   .send_sges = qp->cap.max_send_sge,
                   .receive_sges = qp->cap.max_recv_sge,
                   .inline_bytes = qp->cap.max_inline_data};
    for (const Receive& receive : qp->receives) state.receive_bytes += receive.sge.length;
  }
  return all;
}

size_t ExecutingVerbs::Device::registered_grants() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(ranges_.begin(), ranges_.end(), [](const auto& each) {
    const Range& range = each.second;
    return range.only == nullptr && (range.access & IBV_ACCESS_REMOTE_READ) != 0 &&
           (range.access & IBV_ACCESS_LOCAL_WRITE) == 0;
  });
}

ExecutingVerbs::ExecutingVerbs(const Options& options) : device_(std::make_unique<Device>(options)) {}
ExecutingVerbs::~ExecutingVerbs() = default;
const VerbsLibrary& ExecutingVerbs::library() const { return device_->library(); }
std::vector<ExecutingVerbs::QueuePairState> ExecutingVerbs::queue_pairs() const {
  return device_->queue_pairs();
}
size_t ExecutingVerbs::registered_grants() const { return device_->registered_grants(); }
void ExecutingVerbs::FailOnePostAt(size_t work_request) { device_->FailOnePostAt(work_request); }
void ExecutingVerbs::CountIn(Counts* to) { counts = to; }

}  // namespace hawser::fabric
