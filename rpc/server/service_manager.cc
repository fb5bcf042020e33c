#include "hawser/rpc/server/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/fork.h"
#include "hawser/base/mutex.h"
#include "hawser/base/unique_fd.h"
#include "hawser/transport/log/log.h"

namespace hawser::internal {
namespace {

// The servers of this process.
struct Servers {
  Mutex mutex;
  int serving ABSL_GUARDED_BY(mutex) = 0;
  bool was_ready ABSL_GUARDED_BY(mutex) = false;
  bool has_failed ABSL_GUARDED_BY(mutex) = false;
};

constinit PerProcess<Servers> servers;

// 0, or errno.
int Send(const char* path, absl::string_view message) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if ((path[0] != '/' && path[0] != '@') || length < 2 || length >= sizeof(address.sun_path)) return EINVAL;
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // An abstract name, without a zero at its end.
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return errno;
  const socklen_t address_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  // At the start of a machine many services notify at once, and the manager's queue may be full.
  const timeval patience = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const ssize_t n = sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL,
                           reinterpret_cast<const sockaddr*>(&address), address_bytes);
  return n < 0 ? errno : 0;
}

// False: there is a manager to notify, and it could not be.
bool Notify(absl::string_view message) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || path[0] == '\0') return true;
  const int error = Send(path, message);
  if (error == 0) return true;
  {
    MutexLock lock(servers.Get().mutex);
    if (servers.Get().has_failed) return false;
    servers.Get().has_failed = true;
  }
  transport::Log(
      LogSeverity::kWarning,
      absl::StrCat("the service manager cannot be told that this process serves: NOTIFY_SOCKET=", path, ": ",
                   error == EINVAL ? "not a path, nor @ with a name" : DescribeErrno(error)));
  return false;
}

}  // namespace

void NotifyServing(absl::string_view address) {
  bool was_ready;
  {
    MutexLock lock(servers.Get().mutex);
    ++servers.Get().serving;
    was_ready = std::exchange(servers.Get().was_ready, true);
  }
  // A line feed would begin another assignment; an address has none.
  if (Notify(absl::StrCat(was_ready ? "" : "READY=1\n", "STATUS=serving on ", address, "\n")) || was_ready)
    return;
  MutexLock lock(servers.Get().mutex);
  servers.Get().was_ready = false;  // The next server notifies it.
}

void NotifyStopping() {
  {
    MutexLock lock(servers.Get().mutex);
    HAWSER_SUBTRACT(servers.Get().serving, 1);
    if (servers.Get().serving != 0) return;
  }
  Notify("STOPPING=1\nSTATUS=draining\n");
}

}  // namespace hawser::internal
