#include "hawser/tests/softroce/nic/nic_behavior.h"

namespace hawser::fabric {
namespace {

// The sources are below drivers/infiniband/hw/ of Linux ("K:") and providers/ of rdma-core ("P:"), both of August 2026. What the
// firmware reports is a typical value.
std::vector<NicBehavior> AllBehaviors() {
  using Inline = NicBehavior::Inline;
  std::vector<NicBehavior> all;

  // K: mlx5/main.c mlx5_ib_query_device() (imaicl: windows of type 2B). P: mlx5/verbs.c mlx5_calc_send_wqe() (a work request with
  // 192 inline bytes has 448 bytes of the send queue, since windows can be bound there), mlx5_calc_sq_size().
  all.push_back({.name = "mlx5",
                 .vendor_id = 0x02c9,
                 .inline_policy = Inline::kLess,
                 .window_flag = true,
                 .allocates_windows = true,
                 .binds_windows = true,
                 .send_entry_bytes = 448});

  // K: mlx4/main.c mlx4_ib_query_device() (bmme_flags: windows). P: mlx4/verbs.c (at most 1,024 inline bytes).
  all.push_back({.name = "mlx4",
                 .vendor_id = 0x02c9,
                 .inline_max = 1024,
                 .window_flag = true,
                 .allocates_windows = true,
                 .binds_windows = true});

  // K: irdma/verbs.c irdma_query_device() (windows of type 1 only), irdma/icrdma_hw.h (READ depths). P: irdma/user.h and
  // irdma/uverbs.c irdma_ucreate_qp() (101 inline bytes, more is EINVAL).
  all.push_back({.name = "irdma_roce",
                 .vendor_id = 0x8086,
                 .send_sge_max = 13,
                 .receive_sge_max = 13,
                 .read_sge_max = 13,
                 .responder_depth_max = 32,
                 .initiator_depth_max = 64,
                 .inline_max = 101,
                 .allocates_windows = true});

  // The same for the X722: 48 inline bytes, one entry for a READ. K: irdma/cm.c irdma_send_cm_event(): a
  // CONNECT_REQUEST has the `ird` of the event, and no `ord`.
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
                 .max_qp_wr = 2048,
                 .request_lacks_responder_resources = true});

  // K: erdma/erdma_verbs.h (ERDMA_MAX_SEND_SGE, ERDMA_MAX_RECV_SGE, ERDMA_MAX_ORD), erdma_verbs.c
  // erdma_qp_validate_cap() (inline), erdma_cm.c erdma_cm_upcall() (depths of a CONNECT_REQUEST only), erdma_connect() and
  // erdma_create_listen() (IPv4). P: erdma/erdma_verbs.c (no alloc_mw; BIND_MW is
  // EINVAL; erdma_destroy_qp() takes no lock of the completion queue).
  all.push_back({.name = "erdma",
                 .iwarp = true,
                 .vendor_id = 0x1ded,
                 .send_sge_max = 6,
                 .receive_sge_max = 1,
                 .read_sge_max = 1,
                 .responder_depth_max = 128,
                 .initiator_depth_max = 128,
                 .inline_max = 96,
                 .bind_error = -EINVAL,
                 .max_qp_wr = 8192,
                 .reply_lacks_depths = true,
                 .ipv4_only = true,
                 .destroys_beside_polls = true});

  // K: bnxt_re/ib_verbs.c bnxt_re_query_device() (windows of type 2B). P: bnxt_re/main.c (no alloc_mw),
  // bnxt_re/verbs.c bnxt_re_post_send() (BIND_MW is EINVAL) and bnxt_re_create_qp() (null without errno), bnxt_re/bnxt_re-abi.h
  // (96 inline bytes).
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
                 .max_cqe = 65535,
                 .silent_errors = true});

  // K: hns/hns_roce_main.c hns_roce_query_device() (no windows, max_sge_rd is 1). P: hns/hns_roce_u_verbs.c (what
  // is more inline than it has is cut without an error).
  all.push_back({.name = "hns",
                 .vendor_id = 0x19e5,
                 .read_sge_max = 1,
                 .responder_depth_max = 128,
                 .initiator_depth_max = 128,
                 .inline_policy = Inline::kLess,
                 .inline_max = 32});

  // K: mana/main.c mana_ib_query_device() (no windows). P: mana/wr.c (no BIND_MW; IBV_SEND_INLINE is not looked at;
  // nothing is posted to a queue pair in error).
  all.push_back(
      {.name = "mana", .vendor_id = 0x1414, .inline_policy = Inline::kIgnored, .allocates_windows = true});
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
