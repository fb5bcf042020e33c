#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_NIC_PROFILES_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_NIC_PROFILES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/softroce/nic/nic_behavior.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"

// FakeVerbs as a NIC of each family, as far as its driver in the kernel and its provider in rdma-core say
// what a program sees. The table is NicBehaviors(); nic_profiles.md names the file and the function of each
// entry. Nothing of it was measured on hardware.
namespace hawser::fabric {

struct NicProfile {
  std::string name;
  FakeVerbs::Options verbs;
  // What Hawser makes of it, with its default options.
  struct Expected {
    bool windows = false;
    uint32_t inline_bytes = 192;
    size_t sge_max = 6;
    uint32_t read_depth = 16;  // Of which a queue pair asks for 16.
    bool atomics = false;
  } expected;
};

inline void PrintTo(const NicProfile& nic, std::ostream* out) { *out << nic.name; }

// The device as FakeVerbs has it.
inline FakeVerbs::Options ToFakeVerbs(const NicBehavior& nic) {
  using Inline = NicBehavior::Inline;
  constexpr uint8_t kAgreed = 16;
  // In an event of an InfiniBand or RoCE connection, the depths that the peer asks for or has agreed to. In a
  // request over iWARP the maxima of the driver, or nothing.
  const auto requested = [&](bool lacks) -> uint8_t {
    if (lacks) return 0;
    return nic.iwarp ? static_cast<uint8_t>(std::min(nic.responder_depth_max, nic.initiator_depth_max))
                     : kAgreed;
  };
  const uint8_t answered = nic.reply_lacks_depths ? 0 : kAgreed;
  return {.iwarp = nic.iwarp,
          .windows = nic.window_flag,
          .inline_max = nic.inline_policy == Inline::kIgnored ? ~uint32_t{0} : nic.inline_max,
          .max_cqe = nic.max_cqe,
          .max_sge_rd = nic.read_sge_max,
          .max_sge = std::min(nic.send_sge_max, nic.receive_sge_max),
          .max_qp_wr = nic.max_qp_wr,
          .read_depth_max = std::min(nic.responder_depth_max, nic.initiator_depth_max),
          .request = {requested(nic.request_lacks_initiator_depth),
                      requested(nic.request_lacks_responder_resources)},
          .answer = {answered, answered},
          .allocates_windows = nic.allocates_windows,
          .atomic_cap = nic.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
          .bind_error = nic.binds_windows ? 0 : nic.bind_error,
          .posts_only_in_rts = nic.posts_only_in_rts,
          .sets_errno = !nic.silent_errors,
          .refuses_inline = nic.inline_policy == Inline::kRefused,
          .ipv6 = !nic.ipv4_only,
          .reject_status = nic.reject_status,
          .closed_port_status = nic.closed_port_status,
          .closed_port_echoes = nic.closed_port_echoes,
          .num_comp_vectors = nic.comp_vectors,
          .vendor_id = nic.vendor_id};
}

// Those that a connection can use: all of NicBehaviors().
inline std::vector<NicProfile> NicProfiles() {
  const std::map<std::string, NicProfile::Expected> expected = {
      {"mlx5", {.windows = true, .atomics = true}},
      {"mlx4", {.windows = true, .atomics = true}},
      {"irdma_roce", {.inline_bytes = 96}},
      {"irdma_iwarp", {.inline_bytes = 48, .sge_max = 3}},
      {"erdma", {.inline_bytes = 96, .sge_max = 1}},
      {"bnxt_re", {.inline_bytes = 96}},
      {"hns", {.inline_bytes = 32, .atomics = true}},
      {"qedr", {.sge_max = 4}},
      {"cxgb4", {.sge_max = 4}},
      {"mana", {}},
      {"ionic", {.windows = true, .atomics = true}},
  };
  std::vector<NicProfile> all;
  for (const NicBehavior& nic : NicBehaviors()) {
    all.push_back({.name = nic.name, .verbs = ToFakeVerbs(nic), .expected = expected.at(nic.name)});
  }
  return all;
}

// It has no reliable connections, but librdmacm lists it.
inline FakeVerbs::Options EfaProfile() {
  return {.windows = false,
          .inline_max = 32,
          .max_sge_rd = 1,
          .max_sge = 2,
          .allocates_windows = false,
          .reliable = false};
}

// For suites of tests that hold on each NIC:
//   class VerbsXTest : public OnEachNic {};
//   INSTANTIATE_ON_EACH_NIC(VerbsXTest);
class OnEachNic : public testing::TestWithParam<NicProfile> {
 protected:
  static const FakeVerbs::Options& nic() { return GetParam().verbs; }
};

#define INSTANTIATE_ON_EACH_NIC(Suite)                                    \
  INSTANTIATE_TEST_SUITE_P(Nics, Suite, testing::ValuesIn(NicProfiles()), \
                           [](const auto& nic) { return nic.param.name; })

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_NIC_PROFILES_H_
