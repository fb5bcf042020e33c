// Over a device of a few lines, which completes what a test says.

#include "hawser/tests/softroce/nic/nic_library.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hawser::fabric {
namespace {

using ::testing::ElementsAre;

constexpr auto kPatience = std::chrono::seconds(20);

// A clock that stands still until a test moves it.
int64_t still_ns = 0;

NicOptions WithStillClock() {
  still_ns = NicOptions::MonotonicNs();
  NicOptions options;
  options.now_ns = [] { return still_ns; };
  return options;
}

constexpr int64_t kSecondNs = 1'000'000'000;

// A device with one completion queue, and a connection manager with one channel.
struct Device {
  Device() {
    here = this;
    context.device = &device;
    context.ops.poll_cq = [](ibv_cq*, int max, ibv_wc* out) {
      int count = 0;
      for (; count < max && !here->completions.empty(); ++count) {
        out[count] = here->completions.front();
        here->completions.pop_front();
      }
      return count;
    };
    context.ops.req_notify_cq = [](ibv_cq*, int) {
      here->armed = true;
      return 0;
    };
    context.ops.post_send = [](ibv_qp*, ibv_send_wr* chain, ibv_send_wr**) {
      for (; chain != nullptr; chain = chain->next) here->sends.push_back(*chain);
      return 0;
    };
    context.ops.post_recv = [](ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; };
    context.ops.alloc_mw = [](ibv_pd*, ibv_mw_type) { return &here->window; };
    context.ops.dealloc_mw = [](ibv_mw*) { return 0; };
    library.ibv_open_device = [](ibv_device*) { return &here->context; };
    library.ibv_close_device = [](ibv_context*) { return 0; };
    library.ibv_query_device = [](ibv_context*, ibv_device_attr* attr) {
      *attr = {};
      attr->max_sge = attr->max_sge_rd = 32;
      attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 128;
      attr->max_cqe = 32767;
      attr->max_qp_wr = 16384;
      attr->device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
      return 0;
    };
    library.ibv_dealloc_pd = [](ibv_pd*) { return 0; };
    library.ibv_reg_mr = [](ibv_pd*, void* address, size_t length, int) {
      auto* const mr = new ibv_mr{};
      mr->addr = address;
      mr->length = length;
      mr->lkey = mr->rkey = here->next_key++;
      return mr;
    };
    library.ibv_dereg_mr = [](ibv_mr* mr) {
      delete mr;
      return 0;
    };
    library.ibv_create_comp_channel = [](ibv_context*) { return &here->channel; };
    library.ibv_destroy_comp_channel = [](ibv_comp_channel*) { return 0; };
    library.ibv_create_cq = [](ibv_context*, int, void*, ibv_comp_channel*, int) { return &here->cq; };
    library.ibv_destroy_cq = [](ibv_cq*) { return 0; };
    library.ibv_get_cq_event = [](ibv_comp_channel* of, ibv_cq** out, void** cq_context) {
      uint64_t count;
      if (read(of->fd, &count, sizeof(count)) < 0) return -1;
      *out = &here->cq;
      *cq_context = nullptr;
      return 0;
    };
    library.ibv_ack_cq_events = [](ibv_cq*, unsigned int) {};
    library.ibv_create_qp = [](ibv_pd*, ibv_qp_init_attr*) {
      auto* const qp = new ibv_qp{};
      qp->context = &here->context;
      qp->qp_num = here->next_number++;
      return qp;
    };
    library.ibv_modify_qp = [](ibv_qp*, ibv_qp_attr*, int) { return 0; };
    library.ibv_destroy_qp = [](ibv_qp* qp) {
      delete qp;
      return 0;
    };
    library.rdma_create_event_channel = [] { return &here->cm_channel; };
    library.rdma_destroy_event_channel = [](rdma_event_channel*) {};
    library.rdma_get_cm_event = [](rdma_event_channel* of, rdma_cm_event** event) {
      uint64_t count;
      if (read(of->fd, &count, sizeof(count)) < 0) return -1;
      *event = here->cm_events.front();
      here->cm_events.pop_front();
      return 0;
    };
    library.rdma_ack_cm_event = [](rdma_cm_event* event) {
      ++here->cm_events_acknowledged;
      delete event;
      return 0;
    };
    library.rdma_destroy_id = [](rdma_cm_id*) { return 0; };
    library.rdma_connect = [](rdma_cm_id*, rdma_conn_param*) { return 0; };
    library.rdma_accept = [](rdma_cm_id*, rdma_conn_param*) { return 0; };
    library.rdma_listen = [](rdma_cm_id*, int) { return 0; };
    cq.context = &context;
    channel.fd = eventfd(0, EFD_NONBLOCK);
    cm_channel.fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
  }
  ~Device() {
    close(channel.fd);
    close(cm_channel.fd);
  }

  static void Raise(int fd) {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd, &one, sizeof(one)), ssize_t{sizeof(one)});
  }

  void Complete(const ibv_qp& qp, uint64_t wr_id, ibv_wc_opcode opcode,
                ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc = {};
    wc.wr_id = wr_id;
    wc.qp_num = qp.qp_num;
    wc.opcode = opcode;
    wc.status = status;
    completions.push_back(wc);
    if (std::exchange(armed, false)) Raise(channel.fd);
  }

  void CmEvent(rdma_cm_id& id, rdma_cm_event_type type) {
    auto* const event = new rdma_cm_event{};
    event->id = &id;
    event->event = type;
    event->param.conn.initiator_depth = 3;
    event->param.conn.responder_resources = 5;
    cm_events.push_back(event);
    Raise(cm_channel.fd);
  }

  static Device* here;
  VerbsLibrary library;
  ibv_device device = {};
  ibv_context context = {};
  ibv_pd pd = {.context = &context};
  ibv_mw window = {.context = &context};
  ibv_comp_channel channel = {};
  ibv_cq cq = {};
  rdma_event_channel cm_channel = {};
  std::deque<ibv_wc> completions;
  std::deque<rdma_cm_event*> cm_events;
  int cm_events_acknowledged = 0;
  std::vector<ibv_send_wr> sends;
  bool armed = false;
  uint32_t next_number = 100;
  uint32_t next_key = 1000;
};

Device* Device::here = nullptr;

// What a program has opened and made.
struct Program {
  explicit Program(const char* name, NicOptions options = {})
      : nic(device.library, [&] {
          options.behavior = *FindNicBehavior(name);
          return options;
        }()) {
    context = verbs.ibv_open_device(&device.device);
    channel = verbs.ibv_create_comp_channel(context);
    cq = verbs.ibv_create_cq(context, 100, nullptr, channel, 0);
    cm_channel = verbs.rdma_create_event_channel();
  }
  ~Program() {
    for (ibv_qp* qp : queue_pairs) verbs.ibv_destroy_qp(qp);
    if (events > 0) verbs.ibv_ack_cq_events(cq, events);
    verbs.ibv_destroy_cq(cq);
    verbs.ibv_destroy_comp_channel(channel);
    verbs.rdma_destroy_event_channel(cm_channel);
    verbs.ibv_dealloc_pd(&device.pd);
    verbs.ibv_close_device(context);
    EXPECT_EQ(nic.objects(), 0u);
    EXPECT_EQ(nic.pinned_bytes(), 0u);
  }

  ibv_qp* NewQueuePair(const ibv_qp_cap& cap = {
                           .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = cap;
    ibv_qp* const qp = verbs.ibv_create_qp(&device.pd, &attr);
    if (qp != nullptr) queue_pairs.push_back(qp);
    granted = attr.cap;
    return qp;
  }

  void PostReceive(ibv_qp* qp, uint64_t wr_id) {
    ibv_recv_wr wr = {.wr_id = wr_id};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
  }

  // Polls until there are so many, and no more.
  std::vector<ibv_wc> Poll(size_t count) {
    std::vector<ibv_wc> all;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (all.size() < count && std::chrono::steady_clock::now() < deadline) {
      ibv_wc some[8];
      const int found = ibv_poll_cq(cq, 8, some);
      all.insert(all.end(), some, some + found);
    }
    EXPECT_EQ(all.size(), count);
    return all;
  }

  // The next event of the completion queue.
  bool Event() {
    ibv_cq* of = nullptr;
    void* cq_context = nullptr;
    if (!Until(channel->fd, [&] { return verbs.ibv_get_cq_event(channel, &of, &cq_context) == 0; }))
      return false;
    ++events;
    return of == cq;
  }

  // The next event of the connection manager.
  rdma_cm_event Cm() {
    rdma_cm_event* event = nullptr;
    if (!Until(cm_channel->fd, [&] { return verbs.rdma_get_cm_event(cm_channel, &event) == 0; })) return {};
    const rdma_cm_event copy = *event;
    verbs.rdma_ack_cm_event(event);
    return copy;
  }

  // Tries when `fd` is readable. False: in vain for kPatience.
  static bool Until(int fd, const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd readable = {fd, POLLIN, 0};
      if (poll(&readable, 1, 1000) == 1 && done()) return true;
    }
    return false;
  }

  Device device;
  NicLibrary nic;
  const VerbsLibrary& verbs = nic.library();
  ibv_context* context;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  rdma_event_channel* cm_channel;
  std::vector<ibv_qp*> queue_pairs;
  ibv_qp_cap granted = {};
  unsigned int events = 0;
};

TEST(NicLibraryTest, CompletionsOfOneQueueKeepTheirOrderAndThoseOfSeveralDoNot) {
  Program program("mlx5");
  ibv_qp* const one = program.NewQueuePair();
  ibv_qp* const other = program.NewQueuePair();
  for (uint64_t i = 0; i < 200; ++i) {
    program.PostReceive(one, 1000 + i);
    program.device.Complete(*one, i, IBV_WC_SEND);
    program.device.Complete(*other, i, IBV_WC_SEND);
    program.device.Complete(*one, 1000 + i, IBV_WC_RECV);
  }
  std::map<std::pair<uint32_t, bool>, uint64_t> next;
  size_t ahead = 0;
  for (const ibv_wc& wc : program.Poll(600)) {
    const bool receive = wc.opcode == IBV_WC_RECV;
    uint64_t& expected = next[{wc.qp_num, receive}];
    EXPECT_EQ(wc.wr_id, expected + (receive ? 1000 : 0));
    ++expected;
    for (const auto& [queue, count] : next) ahead += count + 1 < expected;
  }
  EXPECT_EQ(next.size(), 3u);
  EXPECT_GT(ahead, 0u);  // In the order of the device no queue is two completions ahead of another.
}

TEST(NicLibraryTest, WhatIsFlushedArrivesInPieces) {
  Program program("mlx5", WithStillClock());
  ibv_qp* const qp = program.NewQueuePair();
  for (uint64_t i = 0; i < 100; ++i) program.device.Complete(*qp, i, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR);
  size_t pieces = 0, all = 0;
  for (int round = 0; round < 1000; ++round, still_ns += 100'000) {
    ibv_wc wc[100];
    const int found = ibv_poll_cq(program.cq, 100, wc);
    pieces += found > 0;
    all += static_cast<size_t>(found);
  }
  EXPECT_EQ(all, 100u);
  EXPECT_GT(pieces, 10u);
}

TEST(NicLibraryTest, ACompletionThatArrivesAfterArmingMakesAnEventAlsoIfItIsLate) {
  Program program("mlx5");
  ibv_qp* const qp = program.NewQueuePair();
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
    program.device.Complete(*qp, i, IBV_WC_SEND);
    ibv_wc wc = {};
    do {  // Some events come for nothing.
      ASSERT_TRUE(program.Event());
      ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
    } while (ibv_poll_cq(program.cq, 1, &wc) == 0);
    EXPECT_EQ(wc.wr_id, i);
  }
  EXPECT_GT(program.events, 200u);
}

TEST(NicLibraryTest, TheDeviceHasTheLimitsOfTheNic) {
  Program program("erdma");
  ibv_device_attr attr = {};
  ASSERT_EQ(program.verbs.ibv_query_device(program.context, &attr), 0);
  EXPECT_EQ(attr.max_sge, 1);
  EXPECT_EQ(attr.max_sge_rd, 1);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  EXPECT_NE(program.NewQueuePair({.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 6, .max_recv_sge = 1}),
            nullptr);
  EXPECT_EQ(program.NewQueuePair({.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 7, .max_recv_sge = 1}),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(
      program.NewQueuePair(
          {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 97}),
      nullptr);
}

TEST(NicLibraryTest, WhereTheDeviceBelowHasLessThanTheNicItsLimitApplies) {
  ibv_device_attr attr = {};
  {
    Program program("hns");
    ASSERT_EQ(program.verbs.ibv_query_device(program.context, &attr), 0);
    EXPECT_EQ(attr.max_sge, 32);
    EXPECT_EQ(attr.max_cqe, 32767);
    EXPECT_EQ(attr.max_qp_wr, 16384);
  }
  Program program("mana");
  ASSERT_EQ(program.verbs.ibv_query_device(program.context, &attr), 0);
  EXPECT_EQ(attr.max_sge, 15);
  EXPECT_EQ(attr.max_cqe, 2048);
  EXPECT_EQ(attr.max_qp_wr, 2048);
  EXPECT_EQ(attr.max_qp_rd_atom, 16);
}

// mana_ib_post_send() and mana_ib_post_recv() look at the state that the provider knows.
TEST(NicLibraryTest, SomeTakeNoWorkRequestsOnAQueuePairInError) {
  for (const char* name : {"mana", "mlx5"}) {
    SCOPED_TRACE(name);
    const int expected = FindNicBehavior(name)->posts_only_in_rts ? EINVAL : 0;
    EXPECT_EQ(expected, name == std::string("mana") ? EINVAL : 0);
    for (const bool by_program : {true, false}) {
      Program program(name);
      ibv_qp* const qp = program.NewQueuePair();
      ibv_send_wr send = {.wr_id = 1, .opcode = IBV_WR_SEND};
      ibv_send_wr* bad = nullptr;
      ibv_recv_wr receive = {.wr_id = 2};
      ibv_recv_wr* bad_receive = nullptr;
      EXPECT_EQ(ibv_post_send(qp, &send, &bad), 0);
      EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
      if (by_program) {
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_ERR;
        ASSERT_EQ(program.verbs.ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
      } else {
        program.device.Complete(*qp, 1, IBV_WC_SEND, IBV_WC_REM_ACCESS_ERR);
        EXPECT_EQ(ibv_post_send(qp, &send, &bad), 0) << "the provider does not know of it yet";
        EXPECT_EQ(program.Poll(1)[0].status, IBV_WC_REM_ACCESS_ERR);
      }
      EXPECT_EQ(ibv_post_send(qp, &send, &bad), expected);
      EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), expected);
      if (expected != 0) {
        EXPECT_EQ(bad, &send);
        EXPECT_EQ(bad_receive, &receive);
      }
    }
  }
}

TEST(NicLibraryTest, AProviderMayFailWithoutErrno) {
  Program program("bnxt_re");
  errno = 7;
  EXPECT_EQ(
      program.NewQueuePair(
          {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 97}),
      nullptr);
  EXPECT_EQ(errno, 0);
}

TEST(NicLibraryTest, WindowsThatTheKernelNamesAndTheProviderDoesNotHaveAreRefused) {
  Program program("bnxt_re");
  ibv_device_attr attr = {};
  ASSERT_EQ(program.verbs.ibv_query_device(program.context, &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  EXPECT_EQ(ibv_alloc_mw(&program.device.pd, IBV_MW_TYPE_2), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// rxe would do it, without a word to the program.
TEST(NicLibraryTest, NoPeerIsToInvalidateAWindow) {
  Program program("mlx5");
  ibv_device_attr attr = {};
  ASSERT_EQ(program.verbs.ibv_query_device(program.context, &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS, 0u);
}

TEST(NicLibraryTest, WhatTheProviderRefusesEndsTheChainBeforeIt) {
  Program program("mana");
  ibv_qp* const qp = program.NewQueuePair();
  ibv_send_wr bind = {.wr_id = 2, .opcode = IBV_WR_BIND_MW};
  ibv_send_wr send = {.wr_id = 1, .next = &bind, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
  EXPECT_EQ(bad, &bind);
  ASSERT_EQ(program.device.sends.size(), 1u);
  EXPECT_EQ(program.device.sends[0].send_flags, 0u);  // This one reads the memory when it executes.
  EXPECT_EQ(send.send_flags, unsigned{IBV_SEND_INLINE});
  EXPECT_EQ(send.next, &bind);
}

TEST(NicLibraryTest, TheChosenSendFailsForWantOfMemory) {
  Program program("mlx5");
  program.nic.FailSend(2);
  ibv_qp* const qp = program.NewQueuePair();
  ibv_send_wr second = {.wr_id = 2, .opcode = IBV_WR_SEND};
  ibv_send_wr first = {.wr_id = 1, .next = &second, .opcode = IBV_WR_SEND};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &first, &bad), ENOMEM);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(program.device.sends.size(), 1u);
  EXPECT_EQ(ibv_post_send(qp, &second, &bad), 0);
}

TEST(NicLibraryTest, RingsAndRegistrationsShareTheMemlockLimit) {
  Program program("mlx5");
  program.nic.SetMemlock(64 * 1024);
  // 128 entries of 64 bytes; 8 sends of 448 bytes and 8 receives of 32.
  ASSERT_NE(program.NewQueuePair(), nullptr);
  EXPECT_EQ(program.nic.pinned_bytes(), 8192u + 4096u + 256u);
  alignas(4096) static uint8_t memory[64 * 1024];
  EXPECT_EQ(program.verbs.ibv_reg_mr(&program.device.pd, memory, sizeof(memory), 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* const mr = program.verbs.ibv_reg_mr(&program.device.pd, memory + 4095, 2, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(program.nic.pinned_bytes(), 8192u + 4096u + 256u + 8192u);
  EXPECT_EQ(
      program.NewQueuePair({.max_send_wr = 128, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}),
      nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(program.verbs.ibv_dereg_mr(mr), 0);
}

TEST(NicLibraryTest, DepthsThatADriverDoesNotCarryArriveAsZero) {
  rdma_cm_id dialer = {};
  rdma_conn_param parameters = {};
  {
    Program program("erdma");
    program.device.CmEvent(dialer, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(program.Cm().param.conn.responder_resources, 5);
    ASSERT_EQ(program.verbs.rdma_connect(&dialer, &parameters), 0);
    program.device.CmEvent(dialer, RDMA_CM_EVENT_ESTABLISHED);
    const rdma_cm_event reply = program.Cm();
    EXPECT_EQ(reply.param.conn.initiator_depth, 0);
    EXPECT_EQ(reply.param.conn.responder_resources, 0);
  }
  Program program("irdma_iwarp");
  program.device.CmEvent(dialer, RDMA_CM_EVENT_CONNECT_REQUEST);
  const rdma_cm_event request = program.Cm();
  EXPECT_EQ(request.param.conn.initiator_depth, 3);
  EXPECT_EQ(request.param.conn.responder_resources, 0);
}

TEST(NicLibraryTest, TheSideThatAcceptsIsEstablishedAfterItsFirstReceive) {
  Program program("mlx5", WithStillClock());
  ibv_qp* const qp = program.NewQueuePair();
  rdma_cm_id id = {};
  rdma_conn_param parameters = {};
  parameters.qp_num = qp->qp_num;
  ASSERT_EQ(program.verbs.rdma_accept(&id, &parameters), 0);
  program.PostReceive(qp, 1);
  program.device.CmEvent(id, RDMA_CM_EVENT_ESTABLISHED);
  rdma_cm_event* event = nullptr;
  EXPECT_NE(program.verbs.rdma_get_cm_event(program.cm_channel, &event), 0);
  EXPECT_EQ(program.device.cm_events_acknowledged, 1);  // Or rdma_destroy_id() would wait.
  program.device.Complete(*qp, 1, IBV_WC_RECV);
  ibv_wc wc = {};
  while (ibv_poll_cq(program.cq, 1, &wc) == 0) still_ns += 1000;
  still_ns += kSecondNs / 1000;
  EXPECT_EQ(program.Cm().event, RDMA_CM_EVENT_ESTABLISHED);
}

TEST(NicLibraryTest, EventsOfOneIdKeepTheirOrder) {
  Program program("mlx5", WithStillClock());
  ibv_qp* const qp = program.NewQueuePair();
  rdma_cm_id id = {};
  rdma_conn_param parameters = {};
  parameters.qp_num = qp->qp_num;
  ASSERT_EQ(program.verbs.rdma_accept(&id, &parameters), 0);
  program.device.CmEvent(id, RDMA_CM_EVENT_ESTABLISHED);
  program.device.CmEvent(id, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(program.Cm().event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(program.Cm().event, RDMA_CM_EVENT_DISCONNECTED);
}

// Whether the peer's last messages are late is a matter of dice, so this is done often.
TEST(NicLibraryTest, WhatSucceededBeforeThePeerDisconnectedIsPolledAfterTheEventOfThat) {
  for (const char* const name : {"mlx5", "erdma"}) {
    Program program(name, WithStillClock());
    for (int time = 0; time < 100; ++time) {
      ibv_qp* const qp = program.NewQueuePair();
      rdma_cm_id id = {};
      rdma_conn_param parameters = {};
      parameters.qp_num = qp->qp_num;
      ASSERT_EQ(program.verbs.rdma_connect(&id, &parameters), 0);
      for (uint64_t receive = 1; receive <= 3; ++receive) {
        program.PostReceive(qp, receive);
        program.device.Complete(*qp, receive, IBV_WC_RECV);
      }
      program.device.CmEvent(id, RDMA_CM_EVENT_DISCONNECTED);
      ASSERT_EQ(program.Cm().event, RDMA_CM_EVENT_DISCONNECTED);
      ibv_wc wc[8] = {};
      ASSERT_EQ(ibv_poll_cq(program.cq, 8, wc), 3) << name << ", time " << time;
      ASSERT_EQ(ibv_poll_cq(program.cq, 8, wc), 0);
      ASSERT_EQ(program.verbs.rdma_destroy_id(&id), 0);
    }
  }
}

TEST(NicLibraryTest, AnIdThatIsDestroyedTakesItsLateEventsWithIt) {
  Program program("mlx5", WithStillClock());
  ibv_qp* const qp = program.NewQueuePair();
  rdma_cm_id id = {}, other = {};
  rdma_conn_param parameters = {};
  parameters.qp_num = qp->qp_num;
  ASSERT_EQ(program.verbs.rdma_accept(&id, &parameters), 0);
  program.device.CmEvent(id, RDMA_CM_EVENT_ESTABLISHED);
  rdma_cm_event* event = nullptr;
  EXPECT_NE(program.verbs.rdma_get_cm_event(program.cm_channel, &event), 0);
  ASSERT_EQ(program.verbs.rdma_destroy_id(&id), 0);
  still_ns += kSecondNs;
  program.device.CmEvent(other, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(program.Cm().id, &other);
}

TEST(NicLibraryTest, SomeHaveNoIpv6) {
  Program program("erdma");
  rdma_cm_id id = {};
  id.route.addr.src_addr.sa_family = AF_INET6;
  EXPECT_EQ(program.verbs.rdma_listen(&id, 1), -1);
  EXPECT_EQ(errno, EAFNOSUPPORT);
  id.route.addr.src_addr.sa_family = AF_INET;
  EXPECT_EQ(program.verbs.rdma_listen(&id, 1), 0);
}

// Posts a READ into `length` bytes that begin `offset` bytes into memory that is registered with `access`;
// `lkey`: rather than that one's.
int ReadInto(Program& program, uint64_t offset, uint32_t length, int access, uint32_t lkey = 0) {
  static uint8_t memory[4096];
  ibv_mr* const mr = program.verbs.ibv_reg_mr(&program.device.pd, memory + 1000, 2000, access);
  ibv_sge sge = {reinterpret_cast<uint64_t>(memory + 1000) + offset, length, lkey != 0 ? lkey : mr->lkey};
  ibv_send_wr read = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(program.NewQueuePair(), &read, &bad);
  EXPECT_EQ(program.verbs.ibv_dereg_mr(mr), 0);
  return error;
}

constexpr int kSinkAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

TEST(NicLibraryTest, AReadOverIwarpFillsWhatThePeerMayWrite) {
  {
    Program program("erdma");
    EXPECT_EQ(ReadInto(program, 0, 2000, kSinkAccess), 0);
    EXPECT_EQ(ReadInto(program, 1999, 1, kSinkAccess), 0);
    EXPECT_EQ(program.device.sends.size(), 2u);
  }
  Program program("mlx5");
  EXPECT_EQ(ReadInto(program, 0, 2000, IBV_ACCESS_LOCAL_WRITE), 0) << "over RoCE the reader alone writes";
}

using NicLibraryDeathTest = ::testing::Test;

TEST(NicLibraryDeathTest, AReadOverIwarpIntoWhatThePeerMayNotWriteStopsTheProcess) {
  const auto read = [](uint64_t offset, uint32_t length, int access, uint32_t lkey = 0) {
    Program program("irdma_iwarp");
    ReadInto(program, offset, length, access, lkey);
  };
  EXPECT_DEATH(read(0, 2000, IBV_ACCESS_LOCAL_WRITE), "2000 bytes.* without IBV_ACCESS_REMOTE_WRITE");
  EXPECT_DEATH(read(0, 2001, kSinkAccess), "2001 bytes.* not in the range of its key");
  EXPECT_DEATH(read(2000, 1, kSinkAccess), "not in the range of its key");
  EXPECT_DEATH(read(~uint64_t{0}, 1, kSinkAccess), "not in the range of its key");
  EXPECT_DEATH(read(0, 1, kSinkAccess, 77), "lkey 0x4d, is registered by no key");
}

TEST(NicLibraryDeathTest, WhatWouldWaitForEverOrBeLeftBehindStopsTheProcess) {
  EXPECT_DEATH(
      {
        Program program("mlx5");
        program.NewQueuePair();
        program.verbs.ibv_dealloc_pd(&program.device.pd);
      },
      "ibv_dealloc_pd.*1 queue pairs");
  EXPECT_DEATH(
      {
        Program program("mlx5");
        ibv_qp* const qp = program.NewQueuePair();
        ibv_req_notify_cq(program.cq, 0);
        program.device.Complete(*qp, 1, IBV_WC_SEND);
        program.Event();
        program.verbs.ibv_destroy_cq(program.cq);
      },
      "ibv_destroy_cq.*1 events are not acknowledged");
}

}  // namespace
}  // namespace hawser::fabric
