#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_NIC_PROFILES_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_NIC_PROFILES_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"

// FakeVerbs as a NIC of each family, as far as its driver in the kernel and its provider in rdma-core say what a program sees.
// nic_profiles.md names the file and the function of each entry. Nothing here was measured on hardware.
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
  } expected;
};

inline void PrintTo(const NicProfile& nic, std::ostream* out) { *out << nic.name; }

// Those that a connection can use.
inline std::vector<NicProfile> NicProfiles() {
  return {
      {.name = "mlx5",
       .verbs = {.inline_max = 1024,
                 .max_cqe = 4194303,
                 .max_sge_rd = 30,
                 .max_sge = 30,
                 .max_qp_wr = 32768,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .num_comp_vectors = 16},
       .expected = {.windows = true}},
      {.name = "mlx4",
       .verbs = {.inline_max = 1024,
                 .max_cqe = 4194303,
                 .max_sge_rd = 30,
                 .max_sge = 32,
                 .max_qp_wr = 16351,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .num_comp_vectors = 8},
       .expected = {.windows = true}},
      {.name = "irdma_roce",
       .verbs = {.windows = false,
                 .inline_max = 101,
                 .max_cqe = 1048574,
                 .max_sge_rd = 13,
                 .max_sge = 13,
                 .read_depth_max = 32,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .num_comp_vectors = 8},
       .expected = {.inline_bytes = 96}},
      {.name = "irdma_iwarp",
       .verbs = {.iwarp = true,
                 .windows = false,
                 .inline_max = 48,
                 .max_cqe = 1048574,
                 .max_sge_rd = 1,
                 .max_sge = 3,
                 .max_qp_wr = 2048,
                 .read_depth_max = 63,
                 .request = {63, 0},
                 .answer = {16, 16},
                 .num_comp_vectors = 8},
       .expected = {.inline_bytes = 48, .sge_max = 3}},
      {.name = "erdma",
       .verbs = {.iwarp = true,
                 .windows = false,
                 .inline_max = 96,
                 .max_cqe = 1048576,
                 .max_sge_rd = 1,
                 .max_sge = 1,
                 .max_qp_wr = 8192,
                 .read_depth_max = 128,
                 .request = {128, 128},
                 .answer = {0, 0},
                 .allocates_windows = false,
                 .bind_error = -EINVAL,
                 .ipv6 = false,
                 .num_comp_vectors = 31},
       .expected = {.inline_bytes = 96, .sge_max = 1}},
      {.name = "bnxt_re",
       .verbs = {.inline_max = 96,
                 .max_cqe = 65535,
                 .max_sge_rd = 6,
                 .max_sge = 6,
                 .read_depth_max = 126,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .allocates_windows = false,
                 .bind_error = -EINVAL,
                 .sets_errno = false,
                 .num_comp_vectors = 8},
       .expected = {.inline_bytes = 96}},
      {.name = "hns",
       .verbs = {.windows = false,
                 .inline_max = 32,
                 .max_cqe = 4194304,
                 .max_sge_rd = 1,
                 .max_sge = 64,
                 .max_qp_wr = 32767,
                 .read_depth_max = 128,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .allocates_windows = false,
                 .bind_error = EINVAL,
                 .refuses_inline = false,
                 .num_comp_vectors = 63},
       .expected = {.inline_bytes = 32}},
      {.name = "qedr",
       .verbs = {.windows = false,
                 .inline_max = 256,
                 .max_cqe = 8191,
                 .max_sge_rd = 4,
                 .max_sge = 4,
                 .max_qp_wr = 8191,
                 .read_depth_max = 32,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .allocates_windows = false,
                 .bind_error = EINVAL},
       .expected = {.sge_max = 4}},
      {.name = "cxgb4",
       .verbs = {.iwarp = true,
                 .windows = false,
                 .inline_max = 256,
                 .max_cqe = 65528,
                 .max_sge_rd = 1,
                 .max_sge = 4,
                 .read_depth_max = 32,
                 .request = {32, 32},
                 .answer = {32, 32},
                 .allocates_windows = false,
                 .bind_error = EINVAL,
                 .num_comp_vectors = 8},
       .expected = {.sge_max = 4}},
      {.name = "mana",
       .verbs = {.windows = false,
                 .inline_max = ~uint32_t{0},  // It ignores IBV_SEND_INLINE.
                 .max_cqe = 4096,
                 .max_sge_rd = 15,
                 .max_sge = 15,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .bind_error = EINVAL,
                 .posts_only_in_rts = true,
                 .num_comp_vectors = 8}},
      {.name = "ionic",
       .verbs = {.inline_max = 384,
                 .max_cqe = 65535,
                 .max_sge_rd = 8,
                 .max_sge = 8,
                 .max_qp_wr = 65535,
                 .request = {16, 16},
                 .answer = {16, 16},
                 .num_comp_vectors = 8},
       .expected = {.windows = true}},
  };
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
