// A process that may not start any more threads.

#include <sched.h>
#include <sys/syscall.h>

#include <cerrno>
#include <memory>
#include <string>

#include "hawser/rpc/log.h"
#include "hawser/rpc/runtime.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/forbid.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Forbids threads for all its tests, because Forbid() cannot be undone.
class NoThreadTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(Forbid(SYS_clone3, ENOSYS));  // The C library then uses clone(2).
    // The flags of pthread_create(3). LeakSanitizer, which runs at the end, uses others.
    constexpr uint32_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                                 CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    ASSERT_TRUE(Forbid(SYS_clone, EAGAIN, kThread));
  }

  static void ExpectNoThread(const absl::Status& status) {
    EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("thread"), HasSubstr("ulimit -u")));
  }
};

TEST_F(NoThreadTest, AChannelSaysSo) {
  ExpectNoThread(Channel::Create("tcp://127.0.0.1:1").status());
  ExpectNoThread(Channel::Create("tcp://127.0.0.1:1").status());  // What failed is not kept.
}

TEST_F(NoThreadTest, AServerSaysSo) {
  Server server;
  ExpectNoThread(server.Listen("tcp://127.0.0.1:0").status());
  ExpectNoThread(server.Listen("tcp://127.0.0.1:0").status());
}

TEST_F(NoThreadTest, ARuntimeSaysSo) { ExpectNoThread(Runtime::Create("tcp").status()); }

TEST_F(NoThreadTest, TheLogStaysOnStderr) {
  SetLogSink([](LogSeverity, absl::string_view) { FAIL(); });
  Server server;
  ExpectNoThread(server.Listen("tcp://127.0.0.1:0").status());
}

}  // namespace
}  // namespace hawser
