#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_FAKE_VERBS_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_FAKE_VERBS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs_library.h"
#include "hawser/transport/fabric/verbs_options.h"

namespace hawser::fabric {

// One RDMA device below the verbs calls. It executes nothing: it keeps what was asked of it, and completes
// what, and how, a test says. A peer that is connected to answers at once. There is one at a time; not
// thread-safe.
class FakeVerbs {
 public:
  struct Options {
    bool iwarp = false;
    bool windows = true;
    uint32_t inline_max = 256;  // More is EINVAL.
    int max_sge_rd = 32;
    int create_qp_error = 0;  // Of each rdma_create_qp().
    std::string folder = {};  // Of the device, in sysfs.
    std::string root = {};    // VerbsLibrary::root.
  };
  FakeVerbs() : FakeVerbs(Options()) {}
  explicit FakeVerbs(const Options& options);
  ~FakeVerbs();

  const VerbsLibrary& library() const { return library_; }

  // A work request as it was posted, with its sges.
  struct Send {
    ibv_send_wr wr;
    std::vector<ibv_sge> sges;
  };
  std::vector<std::vector<Send>> send_chains;  // One for each ibv_post_send().
  std::vector<size_t> receive_chains;          // The lengths, one for each ibv_post_recv().
  std::deque<uint64_t> sends;                  // wr_ids, posted and not completed.
  std::deque<uint64_t> receives;

  // Completes the oldest `count`; those that are not signaled only when `status` is bad.
  void CompleteSends(size_t count, ibv_wc_status status = IBV_WC_SUCCESS);
  void CompleteReceives(size_t count, ibv_wc_status status = IBV_WC_SUCCESS, uint32_t byte_len = 1);
  void CompleteSend(uint64_t wr_id, ibv_wc_status status);  // Out of order.

  void CmEvent(rdma_cm_id* id, rdma_cm_event_type type, int status = 0);
  void AsyncEvent(ibv_event_type type);  // Of the newest queue pair, completion queue or the device.

  // What calls fail with, once: by name, "rdma_connect". "RDMA_CM_EVENT_ADDR_RESOLVED": comes as an error.
  std::map<std::string, int> fail_once;
  size_t fail_send_at = ~size_t{0};  // The place in the next chain where ibv_post_send() stops.

  bool reject = false;                // A connecting peer is rejected,
  int reject_status = 0;              // with this.
  ibv_context* route_over = nullptr;  // Another device.
  ibv_context* listed = nullptr;      // By rdma_get_devices(), instead of `context`.

  ibv_port_state port_state = IBV_PORT_ACTIVE;

  std::set<std::thread::id> listed_by;  // The threads that called rdma_get_devices().

  std::vector<int> registrations;  // Access flags.
  std::vector<ibv_qp_attr> modified;
  std::vector<int> modified_masks;
  std::set<ibv_qp*> queue_pairs;
  rdma_cm_id* newest_id = nullptr;
  ibv_qp_init_attr created = {};
  rdma_conn_param connected = {};
  std::map<int, int> options_set;  // rdma_set_option()
  size_t windows_alive = 0;

  ibv_context context = {};
  ibv_device_attr attr = {};

 private:
  friend struct FakeCalls;

  const Options options_;
  VerbsLibrary library_;
  ibv_device device_ = {};
  ibv_pd pd_ = {};
  ibv_cq* newest_cq_ = nullptr;
  ibv_qp* newest_qp_ = nullptr;
  std::deque<ibv_wc> completions_;
  std::deque<rdma_cm_event*> cm_events_;
  std::deque<ibv_async_event> async_events_;
  std::map<uint64_t, bool> signaled_;
  rdma_event_channel* channel_ = nullptr;
  uint32_t next_key_ = 1;
  uint32_t next_qp_num_ = 100;
};

// A fabric on a FakeVerbs with one queue pair, connected.
struct FakeWorld {
  FakeWorld() : FakeWorld(FakeVerbs::Options(), {.send_depth = 8, .receive_depth = 8}) {}
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
