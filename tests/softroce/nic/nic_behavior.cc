#include "hawser/tests/softroce/nic/nic_behavior.h"

namespace hawser::fabric {
namespace {

// tests/transport/fabric/nic_profiles.md names the file and the function of each entry, and says which are
// examples: what a driver asks its firmware for.
std::vector<NicBehavior> AllBehaviors() {
  using Inline = NicBehavior::Inline;
  std::vector<NicBehavior> all;

  // A work request with 192 inline bytes has 448 bytes of the send queue, since windows can be bound there.
  all.push_back({.name = "mlx5",
                 .vendor_id = 0x02c9,
                 .atomics = true,
                 .comp_vectors = 16,
                 .inline_max = 828,
                 .window_flag = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .max_cqe = 4194303,
                 .max_qp_wr = 32768,
                 .send_entry_bytes = 448});

  all.push_back({.name = "mlx4",
                 .vendor_id = 0x02c9,
                 .send_sge_max = 32,
                 .receive_sge_max = 32,
                 .atomics = true,
                 .inline_max = 1024,
                 .window_flag = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .max_cqe = 4194303,
                 .max_qp_wr = 16351});

  // The provider has windows of type 2, but the kernel names those of type 1 only.
  all.push_back({.name = "irdma_roce",
                 .vendor_id = 0x8086,
                 .send_sge_max = 13,
                 .receive_sge_max = 13,
                 .read_sge_max = 13,
                 .responder_depth_max = 32,
                 .initiator_depth_max = 64,
                 .inline_max = 101,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .max_cqe = 1048574,
                 .max_qp_wr = 4063});

  // The X722. A CONNECT_REQUEST has the `ird` of the event, and no `ord`.
  all.push_back({.name = "irdma_iwarp",
                 .iwarp = true,
                 .vendor_id = 0x8086,
                 .send_sge_max = 3,
                 .receive_sge_max = 3,
                 .read_sge_max = 1,
                 .responder_depth_max = 63,
                 .initiator_depth_max = 127,
                 .inline_max = 48,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .max_cqe = 1048574,
                 .max_qp_wr = 895,
                 .request_lacks_responder_resources = true,
                 .reject_status = -ECONNREFUSED,
                 .closed_port_status = -ECONNRESET,
                 .closed_port_echoes = true});

  all.push_back({.name = "erdma",
                 .iwarp = true,
                 .vendor_id = 0x1ded,
                 .send_sge_max = 6,
                 .receive_sge_max = 1,
                 .read_sge_max = 1,
                 .responder_depth_max = 128,
                 .initiator_depth_max = 128,
                 .atomics = true,
                 .comp_vectors = 31,
                 .inline_max = 96,
                 .bind_error = -EINVAL,
                 .max_cqe = 1048576,
                 .reply_lacks_depths = true,
                 .ipv4_only = true,
                 .reject_status = -ECONNRESET,
                 .closed_port_status = -ECONNRESET,
                 .destroys_beside_polls = true});

  all.push_back({.name = "bnxt_re",
                 .vendor_id = 0x14e4,
                 .send_sge_max = 6,
                 .receive_sge_max = 6,
                 .read_sge_max = 6,
                 .responder_depth_max = 126,
                 .initiator_depth_max = 126,
                 .inline_max = 96,
                 .window_flag = true,
                 .bind_error = -EINVAL,
                 .silent_errors = true});

  all.push_back({.name = "hns",
                 .vendor_id = 0x19e5,
                 .send_sge_max = 64,
                 .receive_sge_max = 64,
                 .read_sge_max = 1,
                 .responder_depth_max = 128,
                 .initiator_depth_max = 128,
                 .atomics = true,
                 .comp_vectors = 63,
                 .inline_policy = Inline::kLess,
                 .inline_max = 32,
                 .max_cqe = 4194304,
                 .max_qp_wr = 32768});

  all.push_back({.name = "qedr",
                 .vendor_id = 0x1077,
                 .send_sge_max = 4,
                 .receive_sge_max = 4,
                 .read_sge_max = 4,
                 .responder_depth_max = 32,
                 .initiator_depth_max = 32,
                 .inline_max = 256,
                 .max_cqe = 8191,
                 .max_qp_wr = 8191,
                 .destroys_beside_polls = true});

  all.push_back({.name = "cxgb4",
                 .iwarp = true,
                 .vendor_id = 0x1425,
                 .send_sge_max = 4,
                 .receive_sge_max = 4,
                 .read_sge_max = 1,
                 .responder_depth_max = 32,
                 .initiator_depth_max = 32,
                 .inline_max = 256,
                 .max_cqe = 65528,
                 .max_qp_wr = 4096,
                 .reject_status = -ECONNREFUSED,
                 .closed_port_status = -ECONNRESET,
                 .destroys_beside_polls = true});

  all.push_back({.name = "mana",
                 .vendor_id = 0x1414,
                 .send_sge_max = 30,
                 .receive_sge_max = 15,
                 .read_sge_max = 15,
                 .inline_policy = Inline::kIgnored,
                 .allocates_windows = true,
                 .max_cqe = 2048,
                 .max_qp_wr = 2048,
                 .posts_only_in_rts = true});

  all.push_back({.name = "ionic",
                 .vendor_id = 0x1dd8,
                 .send_sge_max = 8,
                 .receive_sge_max = 8,
                 .read_sge_max = 8,
                 .atomics = true,
                 .inline_max = 384,
                 .window_flag = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .max_qp_wr = 65535});
  return all;
}

}  // namespace

const std::vector<NicBehavior>& NicBehaviors() {
  static const auto* const all = new std::vector<NicBehavior>(AllBehaviors());
  return *all;
}

const NicBehavior* FindNicBehavior(const std::string& name) {
  for (const NicBehavior& one : NicBehaviors()) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

}  // namespace hawser::fabric
