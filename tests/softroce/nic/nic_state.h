#ifndef HAWSER_TESTS_SOFTROCE_NIC_NIC_STATE_H_
#define HAWSER_TESTS_SOFTROCE_NIC_NIC_STATE_H_

#include <errno.h>
#include <stdint.h>
#include <time.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

#include "hawser/tests/softroce/nic/nic_library.h"
#include "hawser/tests/softroce/nic/timed_fd.h"

// What a NicLibrary knows of the objects of a program, and what has not arrived there yet.
namespace hawser::fabric {

struct Late {
  ibv_wc wc;
  int64_t due_ns;
};

// The completions of one send queue or receive queue that have not been polled.
struct Flow {
  std::deque<Late> late;
  int64_t last_due_ns = 0;
  bool flushing = false;
};

struct CompChannel;

struct Cq {
  ibv_cq* cq = nullptr;
  CompChannel* channel = nullptr;  // Null: it makes no events.
  uint64_t pinned_bytes = 0;
  std::map<uint64_t, Flow> flows;  // By qp_num and receive.
  bool armed = false;
  int64_t armed_ns = 0;
  int64_t stray_event_ns = kNever;
  bool whole = false;  // Polls return all that has arrived, until one returns less than was asked for.
  size_t unacknowledged = 0;
  std::atomic<int> polls = 0;       // In progress.
  std::atomic<int> destroying = 0;  // Queue pairs of it.
};

struct Qp {
  ibv_pd* pd = nullptr;
  uint32_t number = 0;
  Cq* send_cq = nullptr;
  Cq* receive_cq = nullptr;
  uint64_t pinned_bytes = 0;
  uint32_t inline_max = 0;
  std::unordered_map<uint64_t, int> receives;  // wr_ids that are posted, and how often.
  bool heard = false;                          // A receive was polled.
  bool in_error = false;                       // The program has moved it there, or has polled why.
};

struct CompChannel {
  CompChannel(ibv_comp_channel* of, ibv_context* context) : real(of), timed(of->fd) {
    visible.context = context;
    visible.fd = timed.fd();
  }
  ibv_comp_channel visible = {};
  ibv_comp_channel* const real;
  TimedFd timed;
  std::deque<Cq*> events;
};

struct CmChannel;

// A copy, since the real one would make rdma_destroy_id() wait for its acknowledgement.
struct CmEvent {
  explicit CmEvent(const rdma_cm_event& from) : event(from) {
    const rdma_conn_param& conn = from.param.conn;
    if (conn.private_data == nullptr) return;
    const auto* const bytes = static_cast<const char*>(conn.private_data);
    private_data.assign(bytes, bytes + conn.private_data_len);
    event.param.conn.private_data = private_data.data();
  }
  rdma_cm_event event;
  std::vector<char> private_data;
  int64_t due_ns = 0;
};

struct CmChannel {
  explicit CmChannel(rdma_event_channel* of) : real(of), timed(of->fd) { visible.fd = timed.fd(); }
  rdma_event_channel visible = {};
  rdma_event_channel* const real;
  TimedFd timed;
  std::deque<std::unique_ptr<CmEvent>> late;
};

// What is said of an rdma_cm_id when it connects or accepts.
struct Dialog {
  uint32_t qp_num = 0;
  bool accepted = false;
};

struct Registration {
  ibv_pd* pd = nullptr;
  uint64_t pinned_bytes = 0;
  uint64_t begin = 0;  // The range, and its access flags.
  uint64_t length = 0;
  unsigned int access = 0;
};

class NicLibrary::State {
 public:
  State(const VerbsLibrary& real_library, const NicOptions& options_in)
      : real(real_library), options(options_in), behavior(options.behavior), random(options.seed) {}

  const VerbsLibrary& real;
  const NicOptions options;
  const NicBehavior& behavior;

  std::mutex mutex;  // Guards everything below. Not held in calls that can wait.
  std::mt19937 random;
  std::map<ibv_context*, ibv_context_ops> contexts;
  std::map<ibv_comp_channel*, std::unique_ptr<CompChannel>> comp_channels;  // By `visible`.
  std::map<ibv_cq*, std::unique_ptr<Cq>> cqs;
  std::map<ibv_qp*, std::unique_ptr<Qp>> qps;
  std::map<uint32_t, Qp*> by_number;
  std::map<ibv_mr*, Registration> registrations;
  std::map<uint32_t, ibv_mr*> by_lkey;  // Those.
  std::map<ibv_mw*, ibv_pd*> windows;
  std::map<rdma_event_channel*, std::unique_ptr<CmChannel>> cm_channels;  // By `visible`.
  std::map<rdma_cm_event*, std::unique_ptr<CmEvent>> returned;  // Copies, until they are acknowledged.
  std::map<rdma_cm_id*, Dialog> dialogs;
  uint64_t pinned_bytes = 0;
  uint64_t memlock_bytes = ~uint64_t{0};
  uint64_t sends_until_failure = 0;  // 0: none fails.

  int64_t Now() const { return options.now_ns(); }

  // Less than `bound`.
  int64_t Dice(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random); }

  // The duration of a command of the firmware.
  void Command() {
    int64_t ns;
    {
      std::lock_guard<std::mutex> lock(mutex);
      ns = 50 * kNsPerUs + Dice(150 * kNsPerUs);
    }
    const timespec length = {.tv_sec = 0, .tv_nsec = ns};
    nanosleep(&length, nullptr);
  }

  // False, with errno: more than the limit.
  bool Pin(uint64_t bytes) {
    if (bytes > memlock_bytes || pinned_bytes > memlock_bytes - bytes) {
      errno = ENOMEM;
      return false;
    }
    pinned_bytes += bytes;
    return true;
  }

  const ibv_context_ops& RealOps(ibv_context* context) { return contexts.at(context); }

  // --- Completions: nic_completions.cc

  // Takes what the device has completed, and chooses when it arrives.
  void Pull(Cq& cq);
  void Delay(Cq& cq, const ibv_wc& wc);
  // What succeeded on a queue pair before the peer disconnected arrives before that event. On iWARP both come
  // in one TCP stream. Elsewhere this is an assumption: the event passes two kernels, the completion only the
  // NIC; rdma_get_cm_event(3) does not promise it.
  void ArriveNow(uint32_t qp_num);
  // When the next event of an armed completion queue is due.
  int64_t NextEvent(const Cq& cq) const;
  // Makes the event of a completion queue that is due, and sets the timer for the next one.
  void LookAt(Cq& cq, int64_t now);
  void SetTimer(CompChannel& channel);
  int Poll(Cq& cq, int max, ibv_wc* out);
  void Polled(const ibv_wc& wc);

  // --- Events of the connection manager: nic_cm_events.cc

  static void SetTimer(CmChannel& channel);
  // Those of one id stay in order.
  rdma_cm_event* TakeDue(CmChannel& channel);
  // True: `event` was copied, and is returned later.
  bool Postpone(CmChannel& channel, const rdma_cm_event& event);
  void DropDepths(rdma_cm_event& event);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_SOFTROCE_NIC_NIC_STATE_H_
