// Which connections a server admits.

#include "hawser/rpc/server/admission.h"

#include <sys/resource.h>

#include <deque>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Newcomer final : Admission::Newcomer {};

// The process may open so many files, as long as this lives.
class FilesMax {
 public:
  explicit FilesMax(rlim_t files_max) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit = {.rlim_cur = files_max, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~FilesMax() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

class AdmissionTest : public ::testing::Test {
 protected:
  // A pool in whose share for receives there is room for sixteen of `receive_bytes`.
  static constexpr size_t kReceiveBytes = 4096 * 3;
  transport::BufferPool pool_{NewTestFabric(), {.limit_bytes = 16 * 4096 * 4}};

  Admission::Place From(const char* host) {
    return {PeerHost(*transport::ParseNumericHost(host)), &pool_, kReceiveBytes};
  }
};

TEST_F(AdmissionTest, ReceivesLeaveAQuarterOfThePoolToMessages) {
  Admission admission({});
  for (int i = 0; i < 16; ++i) ASSERT_THAT(admission.Admit(From(i < 8 ? "10.0.0.1" : "10.0.0.3")), IsOk());
  const absl::Status refused = admission.Admit(From("10.0.0.2"));
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("BufferPoolOptions::limit_bytes"));
  EXPECT_LE(refused.message().size(), 140u) << "a rejection cuts it short";
  admission.Close(From("10.0.0.1"));
  EXPECT_THAT(admission.Admit(From("10.0.0.2")), Not(IsOk())) << "handlers may hold what was received";
  admission.Release(From("10.0.0.1"));
  EXPECT_THAT(admission.Admit(From("10.0.0.2")), IsOk());
}

using AdmissionDeathTest = AdmissionTest;

TEST_F(AdmissionDeathTest, APlaceIsReleasedTwice) {
  Admission admission({});
  ASSERT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
  ASSERT_THAT(admission.Admit(From("10.0.0.2")), IsOk());
  for (const char* host : {"10.0.0.1", "10.0.0.2"}) admission.Close(From(host));
  admission.Release(From("10.0.0.1"));
  EXPECT_DEATH(admission.Release(From("10.0.0.1")), "no receives of this host, but of 1 others");
  EXPECT_DEATH(admission.Close(From("10.0.0.1")), "open_ >= 1: 0 >= 1");
}

TEST_F(AdmissionTest, AClosedConnectionHasItsPlaceUntilItIsReleased) {
  Admission admission({.connections_max = 2, .connections_per_host_max = 1});
  ASSERT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
  admission.Close(From("10.0.0.1"));
  EXPECT_EQ(admission.open(), 0u);
  const absl::Status refused = admission.Admit(From("10.0.0.1"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("or handlers of closed ones"));
  EXPECT_LE(refused.message().size(), 140u) << "a rejection cuts it short";
  ASSERT_THAT(admission.Admit(From("10.0.0.2")), IsOk());
  EXPECT_THAT(std::string(admission.Admit(From("10.0.0.3")).message()),
              HasSubstr("or handlers of closed ones"));
  admission.Release(From("10.0.0.1"));
  EXPECT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
}

TEST_F(AdmissionTest, AHostHasItsShareOfTheConnections) {
  Admission admission({.connections_max = 3, .connections_per_host_max = 2});
  EXPECT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
  EXPECT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
  const absl::Status refused = admission.Admit(From("10.0.0.1"));
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("connections_per_host_max"));
  EXPECT_THAT(admission.Admit(From("10.0.0.2")), IsOk());
  EXPECT_THAT(std::string(admission.Admit(From("10.0.0.3")).message()), HasSubstr("connections_max"));
}

TEST_F(AdmissionTest, AHostHasItsShareOfTheMemoryForReceives) {
  Admission admission({});
  for (int i = 0; i < 15; ++i) ASSERT_THAT(admission.Admit(From("10.0.0.1")), IsOk()) << i;
  const absl::Status refused = admission.Admit(From("10.0.0.1"));
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("this host has its share"));
  EXPECT_LE(refused.message().size(), 140u) << "a rejection cuts it short";
  EXPECT_THAT(admission.Admit(From("10.0.0.2")), IsOk()) << "the rest is for other hosts";
  admission.Close(From("10.0.0.1"));
  EXPECT_THAT(admission.Admit(From("10.0.0.1")), Not(IsOk())) << "handlers may hold what was received";
  admission.Release(From("10.0.0.1"));
  EXPECT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
}

TEST_F(AdmissionTest, InAPoolForEightConnectionsOneHostMayHaveAllSoThatItsNewcomersMakeRoom) {
  transport::BufferPool small(NewTestFabric(), {.limit_bytes = 8 * 4096 * 4});
  const Admission::Place place{PeerHost(*transport::ParseNumericHost("10.0.0.1")), &small, kReceiveBytes};
  Admission admission({});
  for (int i = 0; i < 8; ++i) EXPECT_THAT(admission.Admit(place), IsOk()) << i;
  const absl::Status refused = admission.Admit(place);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("memory for receives is used up"));
}

TEST_F(AdmissionTest, TheFirstConnectionOfAHostMayTakeNearlyAllOfASmallPool) {
  transport::BufferPool small(NewTestFabric(), {.limit_bytes = 4096 * 4});
  const Admission::Place place{PeerHost(*transport::ParseNumericHost("10.0.0.1")), &small, kReceiveBytes};
  Admission admission({});
  EXPECT_THAT(admission.Admit(place), IsOk());
  EXPECT_THAT(admission.Admit(place), Not(IsOk()));
  admission.Close(place);
  admission.Release(place);
  EXPECT_THAT(admission.Admit(place), IsOk());
}

TEST_F(AdmissionTest, NewcomersMakeRoomBeforeTheMemoryIsGone) {
  Admission admission({});
  std::deque<Newcomer> newcomers(15);
  for (int i = 0; i < 14; ++i) {
    const Admission::Place place = From(i == 0 ? "10.0.0.1" : "10.0.0.2");
    ASSERT_THAT(admission.Admit(place), IsOk());
    EXPECT_EQ(admission.AddNewcomer(newcomers[i], place), nullptr) << i;
  }
  ASSERT_THAT(admission.Admit(From("10.0.0.3")), IsOk());
  EXPECT_EQ(admission.AddNewcomer(newcomers[14], From("10.0.0.3")), &newcomers[1]);
  EXPECT_FALSE(newcomers[1].in_table());
}

TEST_F(AdmissionTest, ASingleNewcomerOfAHostMakesNoRoomForMemory) {
  Admission admission({});
  std::deque<Newcomer> newcomers(16);
  for (int i = 0; i < 16; ++i) {
    const std::string host = absl::StrCat("10.0.0.", i + 1);
    ASSERT_THAT(admission.Admit(From(host.c_str())), IsOk());
    EXPECT_EQ(admission.AddNewcomer(newcomers[i], From(host.c_str())), nullptr) << i;
  }
}

// A quarter of the file descriptors are for newcomers, an eighth for those of one host.
TEST_F(AdmissionTest, NewcomersMakeRoomForOthersOfTheirHost) {
  const FilesMax sixty_four(64);
  transport::BufferPool large(NewTestFabric(), {.limit_bytes = 64 << 20});
  const auto from = [&](const char* host) {
    return Admission::Place{PeerHost(*transport::ParseNumericHost(host)), &large, kReceiveBytes};
  };
  Admission admission({});
  std::deque<Newcomer> newcomers(64);
  size_t next = 0;
  const auto add = [&](const char* host) {
    EXPECT_THAT(admission.Admit(from(host)), IsOk());
    return admission.AddNewcomer(newcomers[next++], from(host));
  };
  for (int i = 0; i < 8; ++i) EXPECT_EQ(add("10.0.0.1"), nullptr);
  EXPECT_EQ(add("10.0.0.1"), &newcomers[0]) << "the ninth of this host";
  EXPECT_FALSE(newcomers[0].in_table());
  EXPECT_TRUE(newcomers[8].in_table());
  for (int i = 0; i < 7; ++i) EXPECT_EQ(add("10.0.0.2"), nullptr);
  EXPECT_EQ(add("10.0.0.3"), nullptr) << "the sixteenth in all";
  EXPECT_EQ(add("10.0.0.3"), &newcomers[1]) << "the oldest of the host that has the most";
  admission.RemoveNewcomer(newcomers[2]);
  EXPECT_EQ(add("10.0.0.3"), nullptr) << "one has sent a message";
}

TEST_F(AdmissionTest, AClientThatHasSpokenMakesNoRoom) {
  Admission admission({});
  std::deque<Newcomer> newcomers(16);
  for (int i = 0; i < 14; ++i) {
    ASSERT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
    admission.AddNewcomer(newcomers[i], From("10.0.0.1"));
    admission.RemoveNewcomer(newcomers[i]);
  }
  ASSERT_THAT(admission.Admit(From("10.0.0.1")), IsOk());
  EXPECT_EQ(admission.AddNewcomer(newcomers[14], From("10.0.0.1")), nullptr);
}

}  // namespace
}  // namespace hawser::internal
