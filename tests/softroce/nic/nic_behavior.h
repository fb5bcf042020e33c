#ifndef HAWSER_TESTS_SOFTROCE_NIC_NIC_BEHAVIOR_H_
#define HAWSER_TESTS_SOFTROCE_NIC_NIC_BEHAVIOR_H_

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

namespace hawser::fabric {

// What the kernel's driver and rdma-core's provider of a family of NICs do and say, as read in their sources,
// which tests/transport/fabric/nic_profiles.md names. It is for two stand-ins: FakeVerbs, which is such a NIC
// (nic_profiles.h), and NicLibrary, over rxe or siw: there the smaller limit of the two applies.
struct NicBehavior {
  const char* name = nullptr;
  bool iwarp = false;  // NicLibrary stands in for it over siw, else over rxe.
  uint32_t vendor_id = 0;

  // Gather and scatter entries. ibv_query_device() reports the smaller of the first two as max_sge.
  int send_sge_max = 30;
  int receive_sge_max = 30;
  int read_sge_max = 30;

  // READs that peers may have outstanding at it, and that it may have at them.
  int responder_depth_max = 16;
  int initiator_depth_max = 16;

  // ibv_device_attr::atomic_cap says IBV_ATOMIC_HCA, or more. NicLibrary: if the device below does, too.
  bool atomics = false;

  int comp_vectors = 8;  // FakeVerbs only.

  // What ibv_create_qp() makes of more inline bytes than it has: an error, or less. kIgnored: grants what it
  // was asked for, and reads the memory when it executes the work request.
  enum class Inline { kRefused, kLess, kIgnored };
  Inline inline_policy = Inline::kRefused;
  uint32_t inline_max = 512;

  // Memory windows: the flag that the kernel sets, and what the provider does.
  bool window_flag = false;
  bool allocates_windows = false;
  bool binds_windows = false;
  int bind_error = EINVAL;  // Some return it negative.

  // Of completion queues and of queue pairs, in entries and work requests.
  int max_cqe = 65535;
  int max_qp_wr = 8192;

  // Posting fails on a queue pair in error. (FakeVerbs: sends in any state but RTS.)
  bool posts_only_in_rts = false;

  // ibv_create_qp() fails without setting errno.
  bool silent_errors = false;

  // The READ depths that an event of the connection manager does not carry; they arrive as 0.
  bool request_lacks_initiator_depth = false;
  bool request_lacks_responder_resources = false;
  bool reply_lacks_depths = false;

  bool ipv4_only = false;

  // FakeVerbs only: the status of RDMA_CM_EVENT_REJECTED where the peer's program rejected, and where nothing
  // listens. Those of InfiniBand and RoCE are IB_CM_REJ_CONSUMER_DEFINED and IB_CM_REJ_INVALID_SERVICE_ID.
  int reject_status = 28;
  int closed_port_status = 8;
  // The event of a closed port hands back the private data of rdma_connect().
  bool closed_port_echoes = false;

  // ibv_destroy_qp() frees the queue pair without the lock of its completion queue, so ibv_poll_cq() must not
  // run at the same time.
  bool destroys_beside_polls = false;

  // Pinned for each work request of a queue pair, and for each entry of a completion queue.
  uint32_t send_entry_bytes = 128;
  uint32_t receive_entry_bytes = 32;
  uint32_t completion_entry_bytes = 64;
};

// All NICs.
const std::vector<NicBehavior>& NicBehaviors();

// Null: there is none of that name.
const NicBehavior* FindNicBehavior(const std::string& name);

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_SOFTROCE_NIC_NIC_BEHAVIOR_H_
