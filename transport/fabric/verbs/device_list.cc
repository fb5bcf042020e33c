#include "hawser/transport/fabric/verbs/device_list.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/fork.h"
#include "hawser/base/thread.h"
#include "hawser/base/unique_fd.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {
namespace {

class Lister {
 public:
  ibv_context** List(const VerbsLibrary& verbs, int* count) {
    Request request = {.verbs = &verbs};
    {
      absl::MutexLock lock(&mutex_);
      if (!started_) {
        absl::StatusOr<std::thread> thread = StartThread("hawser-devices", [this] { Run(); });
        if (!thread.ok()) {
          errno = EAGAIN;
          return nullptr;
        }
        thread->detach();
        started_ = true;
      }
      waiting_.push_back(&request);
      asked_.Signal();
      while (!request.done) answered_.Wait(&mutex_);
    }
    *count = request.count;
    errno = request.error;
    return request.list;
  }

 private:
  struct Request {
    const VerbsLibrary* verbs;
    ibv_context** list = nullptr;
    int count = 0;
    int error = 0;
    bool done = false;
  };

  [[noreturn]] void Run() {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      while (waiting_.empty()) asked_.Wait(&mutex_);
      Request& request = *waiting_.front();
      waiting_.pop_front();
      mutex_.Unlock();
      errno = 0;
      request.list = request.verbs->rdma_get_devices(&request.count);
      request.error = errno;
      mutex_.Lock();
      request.done = true;
      answered_.SignalAll();
    }
  }

  absl::Mutex mutex_;
  absl::CondVar asked_, answered_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Request*> waiting_ ABSL_GUARDED_BY(mutex_);
};

constinit PerProcess<Lister> lister;

constexpr absl::string_view kDevices = "/sys/class/infiniband/";

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns 0 if the file can be opened, else errno. access(2) does not check the device rules of a container.
int TryToOpen(const std::string& path) {
  errno = 0;
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.is_open() ? 0 : errno;
}

absl::Status CannotOpen(absl::string_view what, const std::string& path, int error) {
  const std::string call = absl::StrCat("open(", path, ")");
  if (error == EACCES || error == EPERM) {
    return VerbsError(
        what, call, error,
        absl::StrCat("this user must be let in (`ls -l ", path,
                     "`: its group, rdma perhaps; rdma-core has udev rules that let everybody in); a "
                     "container must be given the device (--device=/dev/infiniband)"));
  }
  if (error == ENOENT) {
    return absl::NotFoundError(absl::StrCat(what, ": ", call,
                                            ": it is not there: a container must be given the device "
                                            "(--device=/dev/infiniband); elsewhere udev makes it"));
  }
  return VerbsError(what, call, error, "is the device still there? See dmesg");
}

}  // namespace

ibv_context** ListDevices(const VerbsLibrary& verbs, int* count) { return lister.Get().List(verbs, count); }

bool KernelHas(absl::string_view name, absl::string_view root) {
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(root, kDevices, name), error);
}

absl::Status WhyNotListed(absl::string_view what, const std::string& name, absl::string_view root) {
  const std::vector<std::string> devices =
      name.empty() ? NamesIn(absl::StrCat(root, kDevices)) : std::vector<std::string>{name};
  if (devices.empty()) {
    return absl::NotFoundError(
        absl::StrCat(what,
                     ": rdma_get_devices(): this machine has no RDMA device (`rdma link` shows them); use "
                     "tcp://"));
  }
  const std::string cannot =
      absl::StrCat(what, ": rdma_get_devices(): the kernel has ", absl::StrJoin(devices, ", "), ", but ");
  bool served = false;
  for (const std::string& file : NamesIn(absl::StrCat(root, "/sys/class/infiniband_verbs"))) {
    if (!absl::StartsWith(file, "uverbs")) continue;
    std::string device;
    std::ifstream(absl::StrCat(root, "/sys/class/infiniband_verbs/", file, "/ibdev")) >> device;
    if (!name.empty() && device != name) continue;
    served = true;
    const std::string path = absl::StrCat("/dev/infiniband/", file);
    if (const int error = TryToOpen(absl::StrCat(root, path)); error != 0) {
      return CannotOpen(absl::StrCat(cannot, device, " cannot be opened"), path, error);
    }
  }
  return absl::NotFoundError(absl::StrCat(
      cannot, served
                  ? "libibverbs has no provider that opens it (Debian: ibverbs-providers, or what the NIC's "
                    "vendor ships); hawser-doctor says more of it"
                  : "does not offer it to programs: modprobe ib_uverbs; or use tcp://"));
}

}  // namespace hawser::fabric
