#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_FAKE_VERBS_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_FAKE_VERBS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "hawser/base/socket_address.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/control_thread.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/fabric/verbs/options.h"

namespace hawser::fabric {

// One RDMA device below the verbs calls. It executes nothing: it keeps what was asked of it, and completes
// what, and how, a test says. A peer that is connected to answers at once. There is one at a time; not
// thread-safe. Fails the test that overflows a completion queue, leaves one's events unacknowledged, or
// leaves anything behind.
//
// It takes the place of the device's control thread, too: it carries out commands on the thread that gives
// them, at once, or, while `hold_commands`, when the test says so.
class FakeVerbs : private VerbsExecutor {
 public:
  // The two depths in an event of the connection manager.
  struct Depths {
    uint8_t initiator = 4;
    uint8_t responder = 4;
  };
  struct Options {
    bool iwarp = false;
    bool windows = true;        // What the kernel says of windows of type 2B; see `allocates_windows`.
    uint32_t inline_max = 256;  // More is EINVAL.
    std::optional<uint32_t> inline_granted;  // Rather than what was asked for.
    int max_cqe = 4096;
    int max_sge_rd = 32;
    int create_qp_error = 0;  // Of each ibv_create_qp().
    std::string folder = {};  // Of the device, in sysfs.
    std::string root = {};    // VerbsLibrary::root.
    int max_sge = 16;
    int max_qp_wr = 4096;
    int read_depth_max = 16;           // In each direction.
    Depths request = {}, answer = {};  // Of RDMA_CM_EVENT_CONNECT_REQUEST, and of what the dialing side gets.
    bool allocates_windows = true;     // The provider has alloc_mw.
    ibv_atomic_cap atomic_cap = IBV_ATOMIC_HCA;
    int bind_error = 0;              // Of the provider's post_send for BIND_MW and LOCAL_INV; of either sign.
    bool posts_only_in_rts = false;  // Otherwise EINVAL.
    bool sets_errno = true;          // When it refuses to create a queue pair.
    bool refuses_inline = true;      // Of more than `inline_max`. Otherwise it grants that.
    bool ipv6 = true;                // Or EAFNOSUPPORT.
    int reject_status = 28;          // Of RDMA_CM_EVENT_REJECTED, by a program
    int closed_port_status = 8;      // and by a kernel where nothing listens, which
    bool closed_port_echoes = false;  // may hand back what this side sent.
    bool reliable = true;             // Has RC. Otherwise the transport is not specified, as with efa.
    int num_comp_vectors = 1;
    uint32_t vendor_id = 0;
    std::optional<GrantKind> grants = {};  // Of the fabric of a FakeWorld.
  };
  FakeVerbs() : FakeVerbs(Options()) {}
  explicit FakeVerbs(const Options& options);
  ~FakeVerbs() override;

  const VerbsLibrary& library() const { return library_; }

  // A dma-buf as it was registered.
  struct Dmabuf {
    uint64_t offset;
    size_t length_bytes;
    uint64_t iova;
    int fd;
    int access;
  };
  std::vector<Dmabuf> dmabufs;
  // What the device takes page faults of: of rc_odp_caps. 0: it says that it has none of it.
  uint32_t on_demand = 0;

  // A work request as it was posted, with its sges.
  struct Send {
    ibv_send_wr wr;
    std::vector<ibv_sge> sges;
  };
  std::vector<std::vector<Send>> send_chains;  // One for each ibv_post_send().
  std::vector<size_t> receive_chains;          // The lengths, one for each ibv_post_recv().
  std::deque<uint64_t> sends;                  // wr_ids, posted and not completed.
  std::deque<uint64_t> receives;

  bool hold_commands = false;
  size_t commands() const { return commands_.size(); }  // That are held.
  // Carries out the oldest `count` of those.
  void RunCommands(size_t count = ~size_t{0});

  // Completes the oldest `count`; those that are not signaled only when `status` is bad.
  void CompleteSends(size_t count, ibv_wc_status status = IBV_WC_SUCCESS);
  void CompleteReceives(size_t count, ibv_wc_status status = IBV_WC_SUCCESS, uint32_t byte_len = 1);
  void CompleteSend(uint64_t wr_id, ibv_wc_status status);  // Out of order.
  // The oldest receive, with a SEND_WITH_INV of the peer that has invalidated `rkey`.
  void CompleteReceiveThatInvalidates(uint32_t rkey);

  void CmEvent(rdma_cm_id* id, rdma_cm_event_type type, int status = 0, absl::string_view private_data = "");
  rdma_cm_id* ConnectRequest(rdma_cm_id* listener);  // Of a peer that wants 4 READs each way.
  void AsyncEvent(ibv_event_type type);       // Of the newest queue pair, completion queue or the device.
  std::function<void()> on_async_event_read;  // And not handled: what another thread does meanwhile.
  std::function<void()> on_destroy_qp;        // What another thread does meanwhile.
  std::atomic<int> polls = 0;                 // Calls of ibv_poll_cq() and ibv_req_notify_cq().

  // What calls fail with, once: by name, "rdma_connect". "RDMA_CM_EVENT_ADDR_RESOLVED": comes as an error.
  // 0: the call fails, and leaves errno as it was.
  std::map<std::string, int> fail_once;
  std::map<std::string, int> fail_always;
  std::map<std::string, std::function<void()>> during;  // What happens meanwhile, once; by name, too.
  std::optional<ibv_qp_state> refuse_state;             // Moving a queue pair to it fails with EINVAL.
  ibv_ece ece = {};                                     // What the device has; vendor 0: it has none.
  ibv_ece peers_ece = {};
  std::vector<ibv_ece> ece_set, ece_offered;
  size_t fail_send_at = ~size_t{0};     // The place in the next chain where ibv_post_send() stops.
  size_t fail_receive_at = ~size_t{0};  // ibv_post_recv()
  std::function<void()> on_arm;         // What happens just before a completion queue is armed, once.
  uint32_t next_key = 1;                // Of what is registered or allocated next: the upper bits.

  // Nothing listens at the peer.
  void ClosePort();
  // A program there rejects, and gives rdma_reject() this.
  void RejectWith(absl::string_view private_data);

  bool reject = false;                            // A connecting peer is rejected,
  int reject_status = 0;                          // with this
  std::string reject_data;                        // and this.
  bool silent = false;                            // It does not answer at all.
  ibv_context* route_over = nullptr;              // Another device.
  ibv_context* listed = nullptr;                  // By rdma_get_devices(), instead of `cm_context`.
  std::vector<ibv_context*> listed_before;        // Other devices, which are listed first.
  std::set<const ibv_context*> without_reliable;  // Those of them that make no RC queue pairs.
  std::set<const ibv_context*> without_reads;     // Those that say a READ depth of 0.

  ibv_port_state port_state = IBV_PORT_ACTIVE;

  std::set<std::thread::id> listed_by;  // The threads that called rdma_get_devices().

  std::vector<int> registrations;  // Access flags. Without that of a trial of windows.
  std::set<ibv_mr*> memory_regions;
  std::vector<ibv_qp_attr> modified;
  std::vector<int> modified_masks;
  std::set<ibv_qp*> queue_pairs;
  std::set<rdma_cm_id*> ids;
  rdma_cm_id* newest_id = nullptr;
  ibv_qp_init_attr created = {};
  int connects = 0;  // Calls of rdma_connect().
  rdma_conn_param connected = {};
  rdma_conn_param accepted = {};
  std::vector<std::string> rejected;  // With these.
  size_t modified_before_accept = 0;  // As many of `modified`.
  std::vector<rdma_event_channel*> channels;
  std::vector<std::pair<rdma_cm_id*, rdma_event_channel*>> migrated;
  std::vector<std::pair<rdma_cm_id*, ibv_event_type>> notified;
  size_t cq_events_read = 0;
  std::map<int, int> options_set;  // rdma_set_option()
  int option_refused = -1;         // By rdma_set_option(), with ENOSYS.
  size_t windows_alive = 0;
  size_t trials = 0;         // Queue pairs of TryWindows(), which are recorded nowhere else.
  std::vector<int> vectors;  // The comp_vector of each completion queue.

  std::set<int> contexts_read;       // The async_fds of those whose asynchronous events were asked for.
  size_t opened = 0;                 // By ibv_open_device(), and not closed.
  std::vector<ibv_qp_state> states;  // That queue pairs were moved to, in order.

  ibv_context context = {};     // What is opened.
  ibv_context cm_context = {};  // Of librdmacm: what ids are bound to.
  ibv_device_attr attr = {};

 private:
  friend struct FakeCalls;

  struct Cq {
    std::deque<ibv_wc> completions;
    bool armed = false;
    size_t events_unacknowledged = 0;
    uint32_t places = 0;  // Of the queue pairs on it.
  };
  struct CmNews {
    rdma_event_channel* channel;
    rdma_cm_event* event;
  };
  void Complete(uint64_t wr_id, ibv_wc_status status, uint32_t byte_len, uint32_t invalidated = 0);
  void Run(absl::AnyInvocable<void()> command) override;

  const Options options_;
  VerbsLibrary library_;
  ibv_device device_ = {};
  ibv_pd pd_ = {};
  std::deque<absl::AnyInvocable<void()>> commands_;
  ibv_cq* newest_cq_ = nullptr;
  ibv_qp* newest_qp_ = nullptr;
  std::map<ibv_cq*, Cq> cqs_;
  std::map<ibv_comp_channel*, std::deque<ibv_cq*>> cq_events_;
  std::deque<CmNews> cm_events_;
  std::deque<std::string> private_data_of_;  // Of events.
  bool reject_echoes_ = false;
  std::deque<ibv_async_event> async_events_;
  bool async_event_read_ = false;   // And not acknowledged: an ibv_qp is there until it is.
  std::vector<ibv_qp*> destroyed_;  // Until then.
  // By wr_id.
  std::map<uint64_t, bool> signaled_;
  std::map<uint64_t, ibv_cq*> cq_of_;
  std::map<uint64_t, ibv_mw*> binds_;
  std::map<uint64_t, uint32_t> invalidations_;  // Their rkeys.
  std::map<ibv_mw*, ibv_mr*> bound_;
  std::map<ibv_qp*, ibv_qp_cap> granted_;
  bool in_trial_ = false;
  uint32_t next_qp_num_ = 100;
};

// Where the peer of a queue pair on a FakeVerbs is: 10.0.0.2, port 7470.
SocketAddress FakePeer();

// A fabric on a FakeVerbs with one queue pair, connected.
struct FakeWorld {
  FakeWorld() : FakeWorld(FakeVerbs::Options()) {}
  explicit FakeWorld(const FakeVerbs::Options& options)
      : FakeWorld(options, {.send_depth = 8, .receive_depth = 8}) {}
  FakeWorld(const FakeVerbs::Options& options, const QueuePairOptions& queue_pair, bool connect = true);
  ~FakeWorld();

  Sge At(size_t offset, uint32_t length) { return {memory.data() + offset, length, region->lkey()}; }
  absl::Status Post(uint64_t wr_id, bool signaled = true, uint32_t length = 100);
  absl::Status Receive(uint64_t wr_id);
  void Poll(int rounds = 300);  // Enough that events are looked at. Adds to `completions`.

  FakeVerbs verbs;
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<CompletionQueue> completion_queue;
  std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 16);
  std::unique_ptr<MemoryRegion> region;
  NewsRecorder news;
  std::unique_ptr<QueuePair> qp;
  std::vector<Completion> completions;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_FAKE_VERBS_H_
