// A server whose process is stopped (SIGSTOP). Its NIC goes on: over RDMA clients find values by READs as if
// nothing had happened. Over TCP it is the process that answers READs, so these wait like calls.

#include <signal.h>
#include <sys/wait.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/kv.rpc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/tests/chaos/process.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;

// Not met unless something is broken.
constexpr absl::Duration kLong = absl::Seconds(45);
// The deadline of what has to wait for a server that is stopped.
constexpr absl::Duration kExpires = absl::Seconds(2);
constexpr int kKeys = 50;

std::string KeyOf(int number) { return absl::StrCat("key", number); }
// Half of them in a bucket, half in a block.
std::string ValueOf(int number) {
  return std::string(number % 2 == 0 ? 100 : 3000, static_cast<char>('a' + number % 26));
}

class FrozenStoreTest : public ::testing::Test {
 protected:
  FrozenStoreTest() { EXPECT_TRUE(listening_.WaitForNotificationWithTimeout(kLong)) << server_.errors(); }

  KeyValueStub Connect(absl::Duration timeout) const {
    // A server that is stopped is not taken for dead.
    const auto channel = hawser::Channel::Connect(
        uri_, {.default_timeout = timeout, .connection = {.keepalive_interval = kLong}});
    EXPECT_THAT(channel, IsOk());
    return KeyValueStub(*channel);
  }

  static absl::Status Put(const KeyValueStub& kv, int number) {
    auto call = kv.Put();
    const std::string value = ValueOf(number);
    call.request().setKey(KeyOf(number));
    call.request().setValue({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
    return call.Send().Wait().status();
  }
  static absl::Status Get(const KeyValueStub& kv, int number) {
    auto call = kv.Get();
    call.request().setKey(KeyOf(number));
    return call.Send().Wait().status();
  }

  void Freeze() {
    server_.Signal(SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(server_.pid()), &info, WSTOPPED), 0);
    ASSERT_EQ(info.si_code, CLD_STOPPED);
  }

  absl::Notification listening_;
  std::string uri_;
  hawser::chaos::Process server_{"server",
                                 {"examples/kv/kv_server", "--one_sided", "--listen=" + hawser::TestUri()},
                                 ::testing::TempDir() + "/kv_server.err",
                                 [this](const std::string& line) {
                                   absl::string_view uri = line;
                                   if (!absl::ConsumePrefix(&uri, "listening on ")) return;
                                   uri_ = std::string(uri);
                                   listening_.Notify();
                                 }};
};

TEST_F(FrozenStoreTest, ValuesAreFoundAsLongAsTheNicAnswers) {
  const KeyValueStub kv = Connect(kLong), impatient = Connect(kExpires);
  for (int i = 0; i < kKeys; ++i) ASSERT_THAT(Put(kv, i), IsOk());
  std::shared_ptr<RemoteTable> table, impatient_table;
  ASSERT_THAT(LookUp(kv, KeyOf(0), table), IsOk());
  ASSERT_THAT(LookUp(impatient, KeyOf(0), impatient_table), IsOk());

  Freeze();
  EXPECT_THAT(Get(impatient, 0), HasCode(absl::StatusCode::kDeadlineExceeded));
  if (hawser::TestScheme() == "rdma") {
    for (int i = 0; i < 10 * kKeys; ++i) {
      const absl::StatusOr<Lookup> found = LookUp(kv, KeyOf(i % kKeys), table);
      ASSERT_THAT(found, IsOk());
      ASSERT_THAT(found->status(), IsOk());
      EXPECT_EQ(std::string(found->value().begin(), found->value().end()), ValueOf(i % kKeys));
    }
    const absl::StatusOr<Lookup> none = LookUp(kv, "none", table);
    ASSERT_THAT(none, IsOk());
    EXPECT_THAT(none->status(), HasCode(absl::StatusCode::kNotFound));
  } else {
    const absl::StatusOr<Lookup> late = LookUp(impatient, KeyOf(0), impatient_table);
    ASSERT_THAT(late, IsOk());
    EXPECT_THAT(late->status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  }

  server_.Signal(SIGCONT);
  EXPECT_THAT(Get(kv, 0), IsOk());
  const absl::StatusOr<Lookup> again = LookUp(kv, KeyOf(1), table);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->status(), IsOk());
}

}  // namespace
}  // namespace kv
