#include "hawser/transport/fabric/verbs_device_list.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace hawser::fabric {
namespace {

class Lister {
 public:
  // Of this process: a child after fork() has no such thread yet.
  static Lister& Get() {
    static std::atomic<Lister*> current = nullptr;
    static const int of_parent_only =
        pthread_atfork(nullptr, nullptr, [] { current.store(nullptr, std::memory_order_relaxed); });
    (void)of_parent_only;
    Lister* lister = current.load(std::memory_order_acquire);
    if (lister != nullptr) return *lister;
    auto* const made = new Lister;
    if (!current.compare_exchange_strong(lister, made, std::memory_order_acq_rel)) {
      delete made;
      return *lister;
    }
    std::thread([made] { made->Run(); }).detach();
    return *made;
  }

  ibv_context** List(const VerbsLibrary& verbs, int* count) {
    Request request = {.verbs = &verbs};
    {
      absl::MutexLock lock(&mutex_);
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
  std::deque<Request*> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

ibv_context** ListDevices(const VerbsLibrary& verbs, int* count) { return Lister::Get().List(verbs, count); }

}  // namespace hawser::fabric
