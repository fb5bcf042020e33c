// A server tells systemd when it serves and when it stops.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/log.h"
#include "hawser/tests/testing/child.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The socket of a service manager. A test runs in a child, because READY=1 is said once in a process.
class Manager {
 public:
  // '@' first: an abstract name.
  explicit Manager(const std::string& name) : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const size_t bytes = offsetof(sockaddr_un, sun_path) + name.size();
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(bytes)) != 0) abort();
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() { close(socket_); }

  // "": nothing came.
  std::string Heard() {
    char text[1000];
    const ssize_t n = recv(socket_, text, sizeof(text), MSG_DONTWAIT);
    return n > 0 ? std::string(text, static_cast<size_t>(n)) : "";
  }

 private:
  const int socket_;
};

bool ServesAndStops(const std::string& name) {
  Manager manager(name);
  {
    TestServer server;
    if (manager.Heard() != absl::StrCat("READY=1\nSTATUS=serving on ", server.uri, "\n")) return false;
    if (!server.server.Listen(TestUri()).ok() || !manager.Heard().empty()) return false;
    if (!server.server.Shutdown(absl::Now() + kLong).ok()) return false;
    if (manager.Heard() != "STOPPING=1\nSTATUS=draining\n") return false;
  }
  return manager.Heard().empty();
}

TEST(ServiceManagerTest, HearsOfTheFirstListenAndOfShutdown) {
  // Random, since runs in sandboxes have the same process ids. Not in TEST_TMPDIR, whose path may be longer
  // than that of a socket.
  char folder[] = "/tmp/hawser_notify_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = absl::StrCat(folder, "/socket");
  EXPECT_TRUE(InChild([&] { return ServesAndStops(path); }));
  unlink(path.c_str());
  rmdir(folder);
}

TEST(ServiceManagerTest, AnAbstractNameWorks) {
  EXPECT_TRUE(InChild([] { return ServesAndStops(absl::StrCat("@hawser-", getpid())); }));
}

TEST(ServiceManagerTest, OfSeveralServersTheFirstIsReadyAndTheLastStops) {
  EXPECT_TRUE(InChild([] {
    Manager manager(absl::StrCat("@hawser-", getpid()));
    auto first = std::make_unique<TestServer>();
    auto second = std::make_unique<TestServer>();
    const bool began =
        manager.Heard().rfind("READY=1\nSTATUS=", 0) == 0 && manager.Heard().rfind("STATUS=", 0) == 0;
    first.reset();
    const bool goes_on = manager.Heard().empty();
    second.reset();
    return began && goes_on && manager.Heard().rfind("STOPPING=1\n", 0) == 0;
  }));
}

TEST(ServiceManagerTest, AServerThatListensNowhereSaysNothing) {
  EXPECT_TRUE(InChild([] {
    Manager manager(absl::StrCat("@hawser-", getpid()));
    { Server server; }
    return manager.Heard().empty();
  }));
}

TEST(ServiceManagerTest, ASocketThatCannotBeReachedIsLoggedOnceAndTheServerServes) {
  for (const char* name : {"/nowhere/notify", "relative", "@", "/tmp"}) {
    EXPECT_TRUE(InChild([&] {
      setenv("NOTIFY_SOCKET", name, 1);
      Box<std::string> lines;
      SetLogSink([&](LogSeverity, absl::string_view line) { lines.Put(std::string(line)); });
      {
        TestServer server;
        if (!SendAct(server.Connect(), 1).Wait().ok()) return false;
      }
      SetLogSink({});
      if (lines.size() == 0) return false;
      const std::string line = lines.Take();
      return line.find("the service manager cannot be told") != std::string::npos &&
             line.find(name) != std::string::npos && lines.size() == 0;
    })) << name;
  }
}

}  // namespace
}  // namespace hawser
